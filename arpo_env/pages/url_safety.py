"""Which addresses may be fetched: strict parsing of URLs, and refusal of network addresses that are not public.

The addresses come from the web. Only public ones are requested, so that no page and no redirect can reach a service of
this machine, of its network or of its cloud.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

from arpo_env.daemon_threads import run_in_daemon_thread
from arpo_env.pages.deadline import TooSlow
from arpo_env.pages.page import PageError

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
