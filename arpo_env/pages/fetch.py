"""`fetch`: one request for a page, only to public addresses, with limits of time, size and type; no redirects.

The addresses come from the web. Only public ones are requested, so that no page and no redirect can reach a service of
this machine, of its network or of its cloud.
"""

from __future__ import annotations

import asyncio
import codecs
import ipaddress
import re
import socket
import ssl
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit, urlunsplit

from arpo_env.errors import ServiceError
from arpo_env.net import CannotConnect, causes, check_httpx2, read_body, tls_context
from arpo_env.pages.page import PageError

if TYPE_CHECKING:
    import httpx2

PORTS = (80, 443, 8080, 8443)
_LONGEST = 4000  # characters of an address
_DEFAULT = {"http": 80, "https": 443}
_CONTROL = re.compile(r"[\x00-\x1f\x7f\\]")
_HOST = re.compile(r"(?!.*\.\.)[a-z0-9_][a-z0-9_.-]*\Z")

IP = ipaddress.IPv4Address | ipaddress.IPv6Address

# What some version of `ipaddress` takes for public, and public addresses that are a cloud's internal service.
_ALSO_REFUSED = tuple(
    ipaddress.ip_network(network)
    for network in (
        "168.63.129.16/32",  # Azure's host
        "192.0.0.0/24",
        "192.88.99.0/24",
        "3fff::/20",
        "5f00::/16",
        "fec0::/10",
    )
)
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_COMPATIBLE = ipaddress.IPv6Network("::/96")


class AddressRefused(Exception):
    """Raised when a host leads to no address, or to one that is not public; the text is the reason."""

    def __init__(self, reason: str, passing: bool = False) -> None:
        super().__init__(reason)
        self.passing = passing


@dataclass(frozen=True)
class Address:
    """A parsed address: scheme and host in lower case, host in ASCII without a final dot, no fragment, no user."""

    url: str
    host: str

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        return "/".join(self.url.split("/", 3)[:3])


def parse_address(url: str, ports: Collection[int] | None = PORTS) -> Address:
    """Parse an http or https address; `ports` are the allowed ones, None allows all."""
    text = url.strip()
    if len(text) > _LONGEST:
        raise PageError(url, f"the address is longer than {_LONGEST:,} characters")
    if _CONTROL.search(text):  # parsers disagree about these, and what was checked must be what is requested
        raise PageError(url, "the address holds control characters or backslashes")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise PageError(url, "this is no valid address") from error
    scheme = parts.scheme.lower()
    if scheme not in _DEFAULT:
        raise PageError(url, "only addresses that start with http:// or https:// can be read")
    # "https://known.org@other.org" looks like another site than it is.
    if "@" in parts.netloc:
        raise PageError(url, "addresses with a user name or password are not read")
    host = _ascii_host(url, host)
    port = _DEFAULT[scheme] if port is None else port
    if ports is not None and port not in ports:
        raise PageError(url, f"port {port} is not read; allowed are {', '.join(map(str, sorted(ports)))}")
    netloc = (f"[{host}]" if ":" in host else host) + ("" if port == _DEFAULT[scheme] else f":{port}")
    # Put together again, so that what is requested is exactly what was checked.
    return Address(urlunsplit((scheme, netloc, parts.path or "/", parts.query, "")), host)


def _ascii_host(url: str, host: str) -> str:
    if ":" in host:
        try:
            address = ipaddress.IPv6Address(host)
        except ValueError as error:
            raise PageError(url, "its host is no valid IPv6 address") from error
        if address.scope_id:
            raise PageError(url, "its host is no public IPv6 address")
        return str(address)
    if not host.isascii():
        import idna

        try:
            host = idna.encode(host, uts46=True).decode("ascii")
        except (idna.IDNAError, UnicodeError) as error:
            raise PageError(url, "its host is no valid name") from error
    host = host.lower().removesuffix(".")
    if len(host) > 253 or not _HOST.match(host):
        raise PageError(url, "its host is no valid name")
    return host


def public(address: IP) -> bool:
    """Return whether an address, and every IPv4 address embedded in it, is public."""
    inside = _embedded(address)
    # A gateway may deliver to the IPv4 address inside, so that one decides.
    if inside:
        return all(map(public, inside))
    return (
        address.is_global
        and not (address.is_multicast or address.is_reserved or address.is_unspecified or address.is_loopback)
        and not any(address in network for network in _ALSO_REFUSED)
    )


def _embedded(address: IP) -> list[IP]:
    """Return the IPv4 addresses embedded in an IPv6 address: mapped, compatible, 6to4, Teredo, NAT64."""
    if isinstance(address, ipaddress.IPv4Address):
        return []
    inside: list[IP | None] = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if address in _NAT64 or address in _COMPATIBLE:
        inside.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return [each for each in inside if each is not None]


async def resolve(host: str, port: int, allow_private: bool) -> list[str]:
    """Look a host up once, and return its addresses in the order to try them."""
    loop = asyncio.get_running_loop()
    try:
        answers = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (socket.gaierror, ValueError) as error:
        raise AddressRefused("its host was not found", passing=True) from error
    found = list(dict.fromkeys(str(where[0]) for *_, where in answers))
    # One private address among several is enough: the web chose the name and all its addresses.
    if not allow_private and not all(public(ipaddress.ip_address(each.split("%")[0])) for each in found):
        raise AddressRefused("it leads to a private or reserved network address, which is never read")
    return found


TOO_SLOW = "no complete answer within the time limit"
_MOST_TRIED = 4  # addresses of a host
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_CODINGS = ("", "identity", "gzip", "deflate")
_NEVER_TEXT = (
    *("image/", "audio/", "video/", "font/", "model/"),
    *("application/zip", "application/gzip", "application/vnd."),
)
_REASONS = {
    401: "the site asks for a login",
    402: "the site asks for payment",
    403: "the site refuses access",
    404: "there is no such page",
    410: "the page is gone",
    429: "the site asks for fewer requests",
    451: "the page is blocked for legal reasons",
}
USER_AGENT = "Mozilla/5.0 (compatible; arpo-gym/0.1)"
_HEADERS = {
    "User-Agent": USER_AGENT,
    "Accept": "text/html,application/xhtml+xml,application/pdf;q=0.9,text/plain;q=0.8,*/*;q=0.5",
    "Accept-Language": "en,*;q=0.5",
    "Accept-Encoding": "gzip, deflate",  # those that are unpacked in small pieces
}


@dataclass(frozen=True)
class FetchResult:
    """The answer of a server."""

    url: str  # address of the request
    status: int  # HTTP status
    location: str | None  # target of a redirect, or None
    media_type: str  # in lower case, as in "text/html", or ""
    charset: str  # named by the header, or ""
    body: bytes  # decompressed; empty for a redirect or an error


@dataclass(frozen=True)
class FetchLimits:
    """Limits of requests."""

    max_bytes: int  # of a decompressed body
    allow_private: bool  # connect also to addresses that are not public
    proxy: str | None  # address of a proxy that the user trusts to refuse private addresses; it looks names up
    any_body: bool = False  # accept any type, and cut a body that is too long instead of refusing it


def open_pages(limits: FetchLimits) -> httpx2.AsyncClient:
    """Return a client for the requests of one page: no proxy and no netrc of the environment, only public addresses."""
    check_httpx2()
    import httpx2

    try:
        context = tls_context()
    except CannotConnect as error:
        raise ServiceError("page reader", str(error)) from error

    class PinnedTransport(httpx2.AsyncHTTPTransport):
        """Connects to the very address that was checked; host header and certificate stay those of the name.

        A name server that answers differently the next time is never asked again.
        """

        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            # in ASCII, as it was checked: `host` is decoded, and the system would look up "fass.de" for "faß.de"
            name, port = request.url.raw_host.decode(), request.url.port or _DEFAULT[request.url.scheme]
            found = (await resolve(name, port, limits.allow_private))[:_MOST_TRIED]
            seconds = request.extensions["timeout"]["connect"] / len(found)
            more = {**request.extensions, "sni_hostname": name, "timeout": {"connect": seconds}}
            for address in found:
                url = request.url.copy_with(host=address)
                pinned = httpx2.Request(
                    request.method, url, headers=request.headers, stream=request.stream, extensions=more
                )
                try:
                    return await super().handle_async_request(pinned)
                except (httpx2.ConnectError, httpx2.ConnectTimeout):
                    if address == found[-1]:
                        raise
            raise AssertionError("unreachable")

    if limits.proxy is not None:
        return httpx2.AsyncClient(proxy=limits.proxy, verify=context, headers=_HEADERS, trust_env=False)
    # A connection is never used again: it is known by its network address, and was made for one name.
    once = httpx2.Limits(max_keepalive_connections=0)
    transport = PinnedTransport(verify=context, trust_env=False, limits=once)
    return httpx2.AsyncClient(transport=transport, headers=_HEADERS, trust_env=False)


async def fetch(client: httpx2.AsyncClient, address: Address, seconds: float, limits: FetchLimits) -> FetchResult:
    """Send one GET request."""
    import httpx2

    try:
        async with (
            asyncio.timeout(seconds),
            client.stream("GET", address.url, timeout=httpx2.Timeout(None, connect=seconds)) as response,
        ):
            return await _read(address, response, limits)
    except AddressRefused as error:
        raise PageError(address.url, str(error), error.passing) from error
    except TimeoutError as error:
        raise PageError(address.url, TOO_SLOW, passing=True) from error
    except httpx2.DecodingError as error:
        raise PageError(address.url, "its compression cannot be read") from error
    except (httpx2.HTTPError, OSError) as error:
        if any(isinstance(cause, ssl.SSLError) for cause in causes(error)):
            why = "no secure connection could be made (its certificate may not be valid)"
            raise PageError(address.url, why) from error
        raise PageError(address.url, "the site could not be reached, or broke off", passing=True) from error
    except (httpx2.InvalidURL, ValueError) as error:
        raise PageError(address.url, "this is no valid address") from error


def status_fault(url: str, status: int) -> PageError:
    """Return the fault that a status of 400 or more means."""
    known = _REASONS.get(status, "the site failed" if status >= 500 else "the site refused the request")
    passing = status >= 500 or status in (408, 425, 429)
    return PageError(url, f"{known} (status {status})", passing)


async def _read(address: Address, response: httpx2.Response, limits: FetchLimits) -> FetchResult:
    status, headers = response.status_code, response.headers
    content_type = headers.get("Content-Type", "")
    media_type = content_type.partition(";")[0].strip().lower()
    charset = re.search(r"charset\s*=\s*[\"']?([\w.:-]{1,40})", content_type[:300], re.IGNORECASE)
    target = headers.get("Location") if status in _REDIRECTS else None
    location = urljoin(address.url, target) if target else None
    body = b""
    # Nothing in the body of a redirect or an error is used.
    if location is None and status < 400:
        if not limits.any_body:
            if media_type.startswith(_NEVER_TEXT):
                raise PageError(address.url, f"it is no page of text, but {media_type[:60]!r}")
            length = headers.get("Content-Length", "")
            if length.isdecimal() and int(length[:20]) > limits.max_bytes:  # very long digits would be slow to convert
                raise _too_large(address, limits)
        if headers.get("Content-Encoding", "").strip().lower() not in _CODINGS:
            raise PageError(address.url, "its compression cannot be read")
        body, whole = await read_body(response, limits.max_bytes)
        if not (whole or limits.any_body):
            raise _too_large(address, limits)
    named = charset.group(1) if charset else ""
    media_type = media_type if "/" in media_type else ""
    return FetchResult(address.url, status, location, media_type, named, body)


def _too_large(address: Address, limits: FetchLimits) -> PageError:
    return PageError(address.url, f"the page is larger than {limits.max_bytes:,} bytes")


# The text of a page, by byte order mark, header, the page's own declaration, or a guess, in this order.

# Charsets that Python reads more narrowly than browsers do.
_WIDER = {
    **{"ascii": "cp1252", "iso8859-1": "cp1252", "iso8859-9": "cp1254", "gb2312": "gb18030", "gbk": "gb18030"},
    **{"shift_jis": "cp932", "euc_kr": "cp949", "big5": "big5hkscs", "utf-8-sig": "utf-8", "utf-16": "utf-16-le"},
}
# Python also has codecs that are not charsets, some of them slow; a page must not choose one of those.
_KNOWN = re.compile(
    r"utf-8|utf-16-[lb]e|gb18030|hz|big5hkscs|cp(874|932|949|950|866|125\d)|euc_jp|iso2022_(jp|kr).*|iso8859-\d+|koi8-[ru]"
)
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_DECLARED = re.compile(
    rb"""<meta[^>]{0,300}?charset\s*+=\s*+["']?\s*+([\w.:-]{2,40})|<\?xml[^>]{0,100}?encoding\s*=\s*["']([\w.:-]{2,40})""",
    re.IGNORECASE,
)
_HEAD, _SAMPLE = 4096, 100_000  # bytes in which a declaration is looked for; from which is guessed


def decode(body: bytes, header: str = "") -> str:
    """Return the text of a page; `header` is the charset that the Content-Type header names, or ""."""
    for mark, name in _MARKS:
        if body.startswith(mark):
            return body[len(mark) :].decode(name, "replace")
    declared = _DECLARED.search(body, 0, _HEAD)
    own = (declared[1] or declared[2]).decode("ascii", "replace") if declared else ""
    # A declaration that is readable as ASCII cannot be in UTF-16.
    for name in (_codec(header), _codec("utf-8" if own.lower().startswith("utf-16") else own)):
        if name.startswith("cp125") and not body.isascii() and _is_utf8(body):
            return body.decode("utf-8")  # valid UTF-8 is never an accident; servers claim latin-1 by default
        if name:
            text = body.decode(name, "replace")
            foreign = len(text) - len(text.encode("ascii", "ignore"))
            if text.count("\ufffd") <= 0.05 * foreign:
                return text
    return body.decode(_guess(body), "replace")


def _is_utf8(body: bytes) -> bool:
    try:
        body.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _codec(name: str) -> str:
    """Return Python's name of a charset, or "" if there is no such charset."""
    try:
        found = codecs.lookup(name.strip().lower().removeprefix("x-")).name if name else ""
    except (LookupError, ValueError):
        return ""
    found = _WIDER.get(found, found)
    return found if _KNOWN.fullmatch(found) else ""


def _guess(body: bytes) -> str:
    if _is_utf8(body):
        return "utf-8"
    from charset_normalizer import from_bytes

    best = from_bytes(body[:_SAMPLE]).best()
    return (_codec(best.encoding) if best is not None else "") or "cp1252"
