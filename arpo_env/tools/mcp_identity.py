"""The name of an MCP server in a cache: its command line or URL, environment variables and headers, without secrets.

A value is redacted if its name says that it is secret (`--api-key VALUE`, `?token=VALUE`, a variable
`SERVICE_PASSWORD`, a header `Authorization`), if it is the login part of a URL, or if it looks like the key of a known
service. A secret without a name cannot be recognised; give such a server a name of your own with
`mcp_tools(..., record_as=...)`.
"""

from __future__ import annotations

import re
import shlex
import urllib.parse
from collections.abc import Iterable, Sequence

from arpo_env.net.service_urls import canonical_address

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
    """Return the name of a server that is started by a command or reached at a URL."""
    shown = [f"{name}={shlex.quote(_redact(value))}" for name, value in variables if not _is_secret(name)]
    if command:
        return " ".join([*shown, shlex.join(_redact_command(command))])
    return " ".join(
        [_redact_url(url), *(f"{name}: {_redact(value)}" for name, value in headers if not _is_secret(name))]
    )


def _is_secret(name: str) -> bool:
    return _SECRET_NAME.search(name) is not None


def _redact(text: str) -> str:
    return _KNOWN_KEY.sub(_HIDDEN, _LOGIN.sub(_HIDDEN, text))


def _redact_command(command: Sequence[str]) -> list[str]:
    words: list[str] = []
    for number, word in enumerate(command):
        before = command[number - 1] if number else ""
        named = _NAMED.fullmatch(word)
        # `--api-key VALUE`: the name is in the word before the value
        if before.startswith("-") and _is_secret(before) and not word.startswith("-"):
            words.append(_HIDDEN)
        elif named and _is_secret(named[2]):  # `TOKEN=VALUE` or `--token=VALUE`
            words.append(f"{named[1] or ''}{named[2]}{named[3]}{_HIDDEN}")
        elif "://" in word:
            words.append(_redact(_without_secret_fields(word)))
        else:
            words.append(_redact(word))
    return words


def _redact_url(url: str) -> str:
    try:
        return _redact(canonical_address(_without_secret_fields(url.partition("#")[0])))
    except ValueError:  # invalid port; the error is raised when connecting
        return _redact(url.partition("?")[0])


def _without_secret_fields(url: str) -> str:
    address, mark, query = url.partition("?")
    fields = [field for field in query.split("&") if not _is_secret(urllib.parse.unquote(field.partition("=")[0]))]
    return address.rstrip("/") + (mark + "&".join(fields) if fields and query else "")
