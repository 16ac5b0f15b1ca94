"""Checks and normalises addresses of services that a user gave."""

from __future__ import annotations

import urllib.parse


def checked_address(service: str, address: str) -> str:
    """Return the address without white space, trailing slashes, query and fragment.

    Raises:
        ValueError: it is not an http or https address with a host.
    """
    try:
        parts = urllib.parse.urlsplit(address.strip())
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        good = False
    if not good:
        raise ValueError(f"{service} needs an address like http://127.0.0.1:8000, not {printable_address(address)!r}")
    return parts._replace(path=parts.path.rstrip("/"), query="", fragment="").geturl()


def with_path(address: str, endpoint: str) -> str:
    """Return the address with the path of an endpoint appended, unless it ends with it already."""
    path = urllib.parse.urlsplit(endpoint).path
    return address if address.endswith(path) else address + path


def without_login(address: str) -> str:
    """Return the address without user and password."""
    parts = urllib.parse.urlsplit(address)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def printable_address(address: str) -> str:
    """Return the address for a message, without what may be a password, even if the address is not valid."""
    before, _, rest = address.rpartition("@")
    protocol, cut, _ = before.partition("://")
    return (protocol + cut if cut else "") + rest.partition("?")[0]


def canonical_address(address: str) -> str:
    """Return a checked address in canonical form: no login, host in lower case, no default port."""
    parts = urllib.parse.urlsplit(address)
    host = (parts.hostname or "").lower()
    host = f"[{host}]" if ":" in host else host
    usual = {"http": 80, "https": 443}.get(parts.scheme.lower())
    port = "" if parts.port in (None, usual) else f":{parts.port}"
    return parts._replace(scheme=parts.scheme.lower(), netloc=host + port).geturl()
