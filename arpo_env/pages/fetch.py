"""`fetch`: one request for a page, with limits on total time, decompressed size and media type; no redirects.

Bodies are decompressed here and not by `requests`: a few kilobytes can expand to gigabytes, and older versions of
urllib3 have no limit on how much they unpack at a time.
"""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import os
import re
import socket
import threading
import time
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit, urlunsplit

from arpo_env.event_loop import run_in_daemon_thread
from arpo_env.pages.page import PageError
from envs_registry.install_line import install_line

if TYPE_CHECKING:
    import requests


# `deadline`: blocking network code that ends on time, because its sockets are shut at the deadline.
#
# The timeout of `requests` counts from byte to byte, so that a server which sends one byte per second holds it forever.
# Here the time counts from the start, for connecting, TLS, headers and body together.
#
#     with deadline(20):
#         watch(connected_socket)  # for each connection that the block opens
#         ...

_current = threading.local()


class TooSlow(Exception):
    """Raised when the deadline has passed."""


class TooLarge(Exception):
    """Raised when a body is longer than allowed."""


class _SocketWatch:
    """The connections of one block, and the moment when they are shut."""

    def __init__(self, seconds: float) -> None:
        self.over = False
        self._ends = time.monotonic() + seconds
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        self._timer = threading.Timer(max(0.0, seconds), self._shut)
        self._timer.daemon = True
        self._timer.start()

    def left(self) -> float:
        """Return the seconds until the deadline, 0 if it has passed."""
        return 0.0 if self.over else max(0.0, self._ends - time.monotonic())

    def add(self, opened: socket.socket) -> None:
        # A duplicate, since TLS takes the file descriptor away from the socket that it wraps.
        duplicate = socket.socket(fileno=os.dup(opened.fileno()))
        with self._lock:
            self._sockets.append(duplicate)
        if not self.left():
            raise TooSlow

    def end(self) -> None:
        self._timer.cancel()
        with self._lock:
            for duplicate in self._sockets:
                duplicate.close()

    def _shut(self) -> None:
        with self._lock:
            self.over = True
            for duplicate in self._sockets:
                # shutdown and not close: it also ends a call that is blocked on the socket in another thread.
                with contextlib.suppress(OSError):
                    duplicate.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """End the network use of this thread within the block after so many seconds.

    Raises:
        TooSlow: the time was up before the block was done.
    """
    from urllib3.exceptions import HTTPError

    outer = getattr(_current, "watch", None)
    sockets = _current.watch = _SocketWatch(seconds)
    try:
        yield
        if sockets.over:  # a socket that was shut reads like the end of a body
            raise TooSlow
    except (OSError, HTTPError, http.client.HTTPException):  # errors of requests are OSErrors
        if not sockets.left():
            raise TooSlow from None
        raise
    finally:
        _current.watch = outer
        sockets.end()


def watch(opened: socket.socket) -> None:
    """Shut a connection at the deadline of the block that this thread is in.

    Raises:
        TooSlow: the deadline has passed; the connection is closed.
    """
    sockets: _SocketWatch | None = getattr(_current, "watch", None)
    if sockets is None:
        return
    try:
        sockets.add(opened)
    except TooSlow:
        opened.close()
        raise


# Which addresses may be fetched: strict parsing of URLs, and refusal of network addresses that are not public.
#
# The addresses come from the web. Only public ones are requested, so that no page and no redirect can reach a service
# of this machine, of its network or of its cloud.

PORTS = (80, 443, 8080, 8443)
_LONGEST = 4000
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
    """Raised when a host leads to an address that is not public; the text is the reason."""


@dataclass(frozen=True)
class Address:
    """A parsed address: scheme and host in lower case, host in ASCII without a final dot, no fragment, no user."""

    url: str
    scheme: str
    host: str
    port: int

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        return self.url.split("/", 3)[0] + "//" + self.url.split("/", 3)[2]


def parse_address(url: str, ports: Collection[int] | None = PORTS) -> Address:
    """Parse an address.

    Args:
        url: an http or https address.
        ports: allowed ports; None allows all.

    Raises:
        PageError: the address is not allowed, or not valid.
    """
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
    return Address(urlunsplit((scheme, netloc, parts.path or "/", parts.query, "")), scheme, host, port)


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


def resolve(host: str, port: int, seconds: float, allow_private: bool) -> list[tuple[int, tuple[str, int]]]:
    """Look a host up once, and return (family, socket address) of all its addresses in the order to try them.

    Args:
        host: a name or an address, in any spelling that the system accepts.
        port: of the service.
        seconds: time limit of the look-up.
        allow_private: accept addresses that are not public.

    Raises:
        AddressRefused: one of the addresses is not public, or the name does not exist.
        TooSlow: the look-up took too long.
    """
    look_up = run_in_daemon_thread(lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM), "arpo-resolve")
    try:
        answers = look_up.result(timeout=max(0.0, seconds))
    except TimeoutError as error:
        raise TooSlow from error
    except (socket.gaierror, UnicodeError, ValueError) as error:
        raise AddressRefused("its host was not found") from error
    found = [(int(family), (str(where[0]), int(where[1]))) for family, _, _, _, where in answers]
    if not found:
        raise AddressRefused("its host was not found")
    # One private address among several is enough: the web chose the name and all its addresses.
    if not allow_private and not all(public(ipaddress.ip_address(where[0].split("%")[0])) for _, where in found):
        raise AddressRefused("it leads to a private or reserved network address, which is never read")
    return list(dict.fromkeys(found))


# A `requests` session whose connections go to the very address that was checked, and end on time.
#
# A name is looked up once, all its addresses are checked, and the socket is connected to one of them. A name server
# that answers differently the next time is never asked again. Host header and certificate stay those of the name.

_MOST_TRIED = 4


@contextlib.contextmanager
def pinned_session(seconds: float, allow_private: bool, proxy: str | None) -> Iterator[requests.Session]:
    """Give a session for pages: no proxy of the environment, no netrc, only public addresses.

    Args:
        seconds: from now until its sockets are shut.
        allow_private: connect also to addresses that are not public.
        proxy: address of a proxy that the user trusts to refuse private addresses; it looks names up.

    Raises:
        AddressRefused: a host leads to an address that is not public.
        TooSlow: the time was up before the block was done.
        ModuleNotFoundError: `requests` is not installed.
    """
    try:
        import requests
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"requests is not installed: {install_line('search')}") from error

    with deadline(seconds), requests.Session() as session:
        # A netrc would send passwords to sites that were found on the web.
        session.trust_env = False
        if proxy is not None:
            session.proxies = {"http": proxy, "https": proxy}
        adapter = _adapter(time.monotonic() + seconds, allow_private)
        session.mount("http://", adapter)
        session.mount("https://", adapter)
        yield session


def _adapter(end: float, allow_private: bool) -> Any:
    """Return an adapter whose connections are looked up, checked and watched."""
    from requests.adapters import HTTPAdapter
    from urllib3.connection import HTTPConnection, HTTPSConnection
    from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

    def checked(connection: HTTPConnection) -> socket.socket:
        # The user trusts the proxy, which may be private; it looks the names up itself.
        if connection.proxy is not None:
            opened = HTTPConnection._new_conn(connection)
        else:
            opened = _connect(connection.host, connection.port, end, allow_private)
        watch(opened)
        return opened

    class Plain(HTTPConnection):
        def _new_conn(self) -> socket.socket:
            return checked(self)

    class Secure(HTTPSConnection):
        def _new_conn(self) -> socket.socket:
            return checked(self)

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class SecurePool(HTTPSConnectionPool):
        ConnectionCls = Secure

    class Adapter(HTTPAdapter):
        def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
            super().init_poolmanager(*arguments, **options)
            # The pools open the connections, so the checked ones have to be named there.
            self.poolmanager.pool_classes_by_scheme = {"http": PlainPool, "https": SecurePool}

        def proxy_manager_for(self, *arguments: Any, **options: Any) -> Any:
            manager = super().proxy_manager_for(*arguments, **options)
            manager.pool_classes_by_scheme = {"http": PlainPool, "https": SecurePool}
            return manager

    return Adapter()


def _connect(host: str, port: int, end: float, allow_private: bool) -> socket.socket:
    """Connect to the first address of a host that answers; each has an equal part of the time that is left."""
    # Only these addresses are used, since a second look-up could give others than the ones that were checked.
    found = resolve(host.strip("[]"), port, end - time.monotonic(), allow_private)[:_MOST_TRIED]
    fault: OSError = OSError("no address")
    for place, (family, where) in enumerate(found):
        left = end - time.monotonic()
        if left <= 0:
            raise TooSlow
        opened = socket.socket(family, socket.SOCK_STREAM)
        try:
            opened.settimeout(left / (len(found) - place))
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            opened.connect(where)
            opened.settimeout(left)
            return opened
        except OSError as error:
            fault = error
            opened.close()
    raise fault


_CHUNK = 65536
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_NEVER_TEXT = (
    "image/",
    "audio/",
    "video/",
    "font/",
    "model/",
    "application/zip",
    "application/gzip",
    "application/vnd.",
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


@dataclass(frozen=True)
class FetchResult:
    """The answer of a server.

    Attributes:
        url: address of the request.
        status: HTTP status.
        location: target of a redirect, or None.
        media_type: in lower case, as in "text/html", or "".
        charset: named by the header, or "".
        body: decompressed; empty for a redirect or an error.
        seconds: duration of the request.
    """

    url: str
    status: int
    location: str | None
    media_type: str
    charset: str
    body: bytes
    seconds: float


@dataclass(frozen=True)
class FetchLimits:
    """Limits and identity of one request.

    Attributes:
        max_bytes: of a body, both as sent and decompressed.
        allow_private: connect also to addresses that are not public.
        proxy: address of a proxy, or None.
        user_agent: as the server sees it.
        any_body: accept any type, and cut a body that is too long instead of refusing it.
    """

    max_bytes: int
    allow_private: bool
    proxy: str | None
    user_agent: str
    any_body: bool = False


def fetch(address: Address, seconds: float, limits: FetchLimits, cookies: Any = None) -> FetchResult:
    """Send one GET request.

    Args:
        address: of the page.
        seconds: for the whole request.
        limits: of size and address.
        cookies: a `requests` cookie jar that is read and updated, or None.

    Raises:
        PageError: there was no complete answer, or it is not text.
    """
    import requests

    started = time.monotonic()
    try:
        with pinned_session(seconds, limits.allow_private, limits.proxy) as session:
            if cookies is not None:
                session.cookies = cookies
            with session.get(
                address.url, headers=_headers(limits), timeout=seconds, stream=True, allow_redirects=False
            ) as response:
                return _read(address, response, limits, started)
    except AddressRefused as error:
        raise PageError(address.url, str(error)) from error
    except TooSlow as error:
        raise PageError(address.url, "no complete answer within the time limit") from error
    except TooLarge as error:
        raise PageError(address.url, f"the page is larger than {limits.max_bytes:,} bytes") from error
    except requests.exceptions.SSLError as error:
        # An SSLError is a RequestException, too, so it has to come before those.
        raise PageError(address.url, "no secure connection could be made (its certificate may not be valid)") from error
    except (requests.RequestException, OSError) as error:
        raise PageError(address.url, "the site could not be reached, or broke off") from error
    except ValueError as error:  # a redirect or an address that requests cannot read
        raise PageError(address.url, "this is no valid address") from error


def explain_status(status: int) -> str:
    """Return what a status of 400 or more means, as a clause for the model."""
    known = _REASONS.get(status, "the site failed" if status >= 500 else "the site refused the request")
    return f"{known} (status {status})"


def _headers(limits: FetchLimits) -> dict[str, str]:
    return {
        "User-Agent": limits.user_agent,
        "Accept": "text/html,application/xhtml+xml,application/pdf;q=0.9,text/plain;q=0.8,*/*;q=0.5",
        "Accept-Language": "en,*;q=0.5",
        # Only what `_decoded` can read.
        "Accept-Encoding": "gzip, deflate",
    }


def _read(address: Address, response: requests.Response, limits: FetchLimits, started: float) -> FetchResult:
    status, headers = response.status_code, response.headers
    media_type, charset = _content_type(headers.get("Content-Type", ""))
    location = _location(address, headers.get("Location")) if status in _REDIRECTS else None
    body = b""
    # Nothing in the body of a redirect or an error is used.
    if location is None and status < 400:
        if not limits.any_body:
            _refuse_early(address, media_type, headers.get("Content-Length", ""), limits.max_bytes)
        body = _body(address, response, limits)
    return FetchResult(address.url, status, location, media_type, charset, body, time.monotonic() - started)


def _content_type(header: str) -> tuple[str, str]:
    media_type = header.partition(";")[0].strip().lower()
    charset = re.search(r"charset\s*=\s*[\"']?([\w.:-]{1,40})", header[:300], re.IGNORECASE)
    return (media_type if "/" in media_type else ""), (charset.group(1) if charset else "")


def _location(address: Address, header: str | None) -> str | None:
    if not header:
        return None
    try:
        plain = header.encode("latin-1").decode("utf-8")  # http.client reads headers as latin-1
    except UnicodeError:
        plain = header
    return urljoin(address.url, plain)


def _refuse_early(address: Address, media_type: str, length: str, max_bytes: int) -> None:
    if media_type.startswith(_NEVER_TEXT):
        raise PageError(address.url, f"it is no page of text, but {media_type[:60]!r}")
    if length.isdecimal() and int(length[:20]) > max_bytes:  # very long digits would be slow to convert
        raise TooLarge


def _body(address: Address, response: requests.Response, limits: FetchLimits) -> bytes:
    coding = response.headers.get("Content-Encoding", "").strip().lower()
    body = bytearray()
    try:
        for piece in _decoded(_raw(response, limits.max_bytes), coding, _CHUNK):
            body += piece
            if len(body) > limits.max_bytes:
                raise TooLarge
    except TooLarge:
        # A robots.txt may be cut, so what was read so far will do.
        if not limits.any_body:
            raise
    except (zlib.error, _UnknownCoding) as error:
        raise PageError(address.url, "its compression cannot be read") from error
    return bytes(body[: limits.max_bytes])


def _raw(response: requests.Response, max_bytes: int) -> Iterator[bytes]:
    import requests
    import urllib3

    seen = 0
    try:
        for chunk in response.raw.stream(_CHUNK, decode_content=False):
            seen += len(chunk)
            if seen > max_bytes:
                raise TooLarge
            yield chunk
    except urllib3.exceptions.HTTPError as error:
        raise requests.exceptions.ConnectionError(error) from error


class _UnknownCoding(Exception):
    """The body has a compression that was not asked for."""


def _decoded(chunks: Iterator[bytes], coding: str, most: int) -> Iterator[bytes]:
    """Decompress in pieces of at most `most` bytes."""
    if coding in ("", "identity"):
        yield from chunks
        return
    if coding not in ("gzip", "x-gzip", "deflate"):
        raise _UnknownCoding(coding)
    inflate: Any = None
    for chunk in chunks:
        if inflate is None:
            inflate = zlib.decompressobj(_window(coding, chunk))
        while chunk and not inflate.eof:
            yield inflate.decompress(chunk, most)
            chunk = inflate.unconsumed_tail
            if inflate.eof and inflate.unused_data.startswith(b"\x1f\x8b"):  # a further gzip member
                chunk, inflate = inflate.unused_data, zlib.decompressobj(31)


def _window(coding: str, start: bytes) -> int:
    """Return zlib's code for the format; servers send "deflate" with and without zlib's header."""
    if coding != "deflate":
        return 31
    zlib_header = len(start) >= 2 and start[0] & 15 == 8 and (start[0] << 8 | start[1]) % 31 == 0
    return 15 if zlib_header else -15
