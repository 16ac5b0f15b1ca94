"""Addresses of sandbox servers: "https://box:8443", several separated by commas, with a token or without."""

from __future__ import annotations

import os
import re
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

TOKEN_VARIABLE = "ARPO_SANDBOX_TOKEN"
_EXAMPLE = "write http://host:8080 or https://host, several separated by commas"


def is_http_address(backend: object) -> bool:
    """Return whether the name of a backend is the address of a server."""
    return isinstance(backend, str) and backend.lower().startswith(("http://", "https://"))


def without_password(text: str) -> str:
    """Return the name of a backend without a password, also if it is malformed, for messages."""
    # as far as the last "@" of each address, since a password that was not quoted may contain "/" or ","
    return re.sub(r"(?<=//)(?:(?!,\s*https?://).)*@", "", text, flags=re.IGNORECASE)


def http_addresses(text: str, token: str | None = None) -> tuple[list[str], str]:
    """Return the addresses without credentials, and the token.

    Args:
        text: the addresses; a password in one, as in http://user:TOKEN@host:8080, is the token.
        token: takes precedence; without it and a password, the environment variable ARPO_SANDBOX_TOKEN counts.

    Raises:
        ValueError: an address or the token is malformed, or the addresses have different tokens.
    """
    urls: list[str] = []
    passwords: set[str] = set()
    for one in re.split(r",(?=\s*https?://)", text.strip(" ,"), flags=re.IGNORECASE):
        part = _split(one.strip(" ,"))
        urls.append(urlunsplit((part.scheme, part.netloc.rpartition("@")[2], part.path.rstrip("/"), "", "")))
        passwords |= {unquote(part.password)} if part.password else set()
    if len(passwords) > 1 and token is None:
        raise ValueError("the addresses have different tokens; all servers of one sandbox take the same")
    given = token if token is not None else next(iter(passwords), os.environ.get(TOKEN_VARIABLE, ""))
    if not isinstance(given, str) or not re.fullmatch(r"[!-~]*", given):
        raise ValueError("the token has to consist of visible ASCII characters, without spaces")
    return urls, given


def _split(address: str) -> SplitResult:
    wrong = f"{without_password(address)!r} is not the address of a sandbox server; {_EXAMPLE}"
    quoting = "; in a token, write / as %2F, ? as %3F, # as %23" if "@" in address else ""
    try:
        part = urlsplit(address)
        good = part.scheme in ("http", "https") and bool(re.fullmatch(r"[^\s,]+", part.hostname or ""))
        good = good and (part.port is None or part.port > 0)
    except ValueError:
        good = False
    # an "@" in the path belongs to a token that was cut off there
    if not good or part.query or part.fragment or "@" in part.path:
        # without the cause, which may have the token
        raise ValueError(wrong + quoting) from None
    return part
