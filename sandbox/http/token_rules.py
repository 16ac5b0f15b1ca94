"""Who may use a server: the rules on tokens and web pages, the same for every server of this library.

A server that others can reach needs a token, and on loopback it may have one. Clients send it as bearer token or as the
password of basic authentication. Requests of web pages are refused, including pages that the user of this machine has
open.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
import re

NO_PAGES = "the request comes from a web page (it has an Origin); this server does not answer web pages"
NO_TOKEN = "this server needs a token; send it as 'Authorization: Bearer TOKEN', or as a password"


def sends_token(authorization: str, token: str) -> bool:
    """Return whether an Authorization header has the token; takes the same time for any wrong one."""
    # as bytes, since texts have to be ASCII for it
    return hmac.compare_digest(_token_of(authorization).encode("latin-1", "replace"), token.encode())


def check_token(host: str, token: str, variable: str, danger: str) -> None:
    """Check the token of a server before it listens.

    Args:
        host: the address to listen on.
        token: the token; empty for none.
        variable: the environment variable that holds the token.
        danger: what somebody could do without a token.

    Raises:
        ValueError: the address can be reached by others and there is no token, or a header cannot hold the token.
    """
    if not token and not is_loopback(host):
        raise ValueError(
            f"others can reach {host or 'every address of this machine'}, and could {danger}: set a token ({variable} "
            "or --token), such as the output of `openssl rand -hex 32`, or serve on 127.0.0.1"
        )
    if not re.fullmatch(r"[!-~]*", token):
        raise ValueError("the token has to consist of visible ASCII characters, without spaces")


def is_loopback(host: str) -> bool:
    """Return whether only programs of this machine can reach an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _token_of(authorization: str) -> str:
    """Return the bearer token, or the password of basic authentication, as sent for a URL with user:password@."""
    scheme, _, given = authorization.strip().partition(" ")
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(given, validate=True).decode("latin-1").partition(":")[2]
        except (binascii.Error, ValueError):
            return ""
    return given.strip() if scheme.lower() == "bearer" else ""
