"""Addresses of sandbox servers: "https://box:8443", several separated by commas, with a token or without."""

from __future__ import annotations

import os
import re
from urllib.parse import unquote, urlsplit, urlunsplit

TOKEN_VARIABLE = "ARPO_SANDBOX_TOKEN"
_EXAMPLE = "write http://host:8080 or https://host, several separated by commas"


def is_http_address(backend: object) -> bool:
    """Return whether the name of a backend is the address of a server."""
    return isinstance(backend, str) and backend.lower().startswith(("http://", "https://"))


def http_addresses(text: str, token: str | None = None) -> tuple[list[str], str]:
    """Return the addresses without credentials, and the token.

    Args:
        text: the addresses; a password in one, as in http://user:TOKEN@host:8080, is the token.
        token: takes precedence; without it and a password, the environment variable ARPO_SANDBOX_TOKEN counts.

    Raises:
        ValueError: an address or the token is malformed, or the addresses have different tokens.
    """
    parts = [urlsplit(one.strip()) for one in text.split(",") if one.strip()]
    urls: list[str] = []
    passwords: set[str] = set()
    for part in parts:
        bare = urlunsplit((part.scheme.lower(), part.netloc.rpartition("@")[2], part.path.rstrip("/"), "", ""))
        try:
            good = (
                part.scheme.lower() in ("http", "https")
                and bool(part.hostname)
                and (part.port is None or part.port > 0)
            )
        except ValueError:
            good = False
        if not good or part.query or part.fragment:
            raise ValueError(f"{bare!r} is not the address of a sandbox server; {_EXAMPLE}")
        urls.append(bare)
        passwords |= {unquote(part.password)} if part.password else set()
    if len(passwords) > 1 and token is None:
        raise ValueError("the addresses have different tokens; all servers of one sandbox take the same")
    given = token if token is not None else next(iter(passwords), os.environ.get(TOKEN_VARIABLE, ""))
    if not isinstance(given, str) or not re.fullmatch(r"[!-~]*", given):
        raise ValueError("the token has to consist of visible ASCII characters, without spaces")
    return urls, given
