"""What an MCP server is called in a record: its command line or address, variables and headers, without secrets.

A value is left out where its name says that it is secret, as in `--api-key VALUE`, `?token=VALUE`, a variable
`SERVICE_PASSWORD` or a header `Authorization`, where it is a login of an address, and where it looks like a key of a
known service. A secret that stands alone can not be told from other words: name such a server yourself
(`mcp_tools(..., record_as=...)`).
"""

from __future__ import annotations

import re
import shlex
import urllib.parse
from collections.abc import Iterable, Sequence

from arpo_env.net.urls import server_of

_HIDDEN = "***"
_SECRET_NAME = re.compile(
    r"(?:key|token|secret|password|passwd|pwd|passphrase|auth|authorization|bearer|credential|cookie|signature|jwt)s?\Z",
    re.IGNORECASE,
)
_LOGIN = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_KNOWN_KEY = re.compile(r"\b(?:sk|pk|rk|hf|gh[a-z]|github_pat|glpat|xox[a-z]|AKIA|AIza|tvly)[-_]?[\w-]{16,}")
_NAMED = re.compile(r"(--?)?([\w.-]+)([=:]\s*)(.*)", re.DOTALL)


def identity(
    command: Sequence[str], url: str, variables: Iterable[tuple[str, str]], headers: Iterable[tuple[str, str]]
) -> str:
    """Return the name of a server that is given by a command or by an address."""
    shown = [f"{name}={shlex.quote(_plain(value))}" for name, value in variables if not _secret(name)]
    if command:
        return " ".join([*shown, shlex.join(_words(command))])
    return " ".join([_address(url), *(f"{name}: {_plain(value)}" for name, value in headers if not _secret(name))])


def _secret(name: str) -> bool:
    return _SECRET_NAME.search(name) is not None


def _plain(text: str) -> str:
    return _KNOWN_KEY.sub(_HIDDEN, _LOGIN.sub(_HIDDEN, text))


def _words(command: Sequence[str]) -> list[str]:
    words: list[str] = []
    for number, word in enumerate(command):
        before = command[number - 1] if number else ""
        named = _NAMED.fullmatch(word)
        if before.startswith("-") and _secret(before) and not word.startswith("-"):
            words.append(_HIDDEN)
        elif named and _secret(named[2]):
            words.append(f"{named[1] or ''}{named[2]}{named[3]}{_HIDDEN}")
        elif "://" in word:
            words.append(_plain(_without_secret_fields(word)))
        else:
            words.append(_plain(word))
    return words


def _address(url: str) -> str:
    try:
        return _plain(server_of(_without_secret_fields(url.partition("#")[0])))
    except ValueError:  # a port that is no number; connecting says so
        return _plain(url.partition("?")[0])


def _without_secret_fields(url: str) -> str:
    address, mark, query = url.partition("?")
    fields = [field for field in query.split("&") if not _secret(urllib.parse.unquote(field.partition("=")[0]))]
    return address.rstrip("/") + (mark + "&".join(fields) if fields and query else "")
