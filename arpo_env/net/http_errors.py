"""What is said of a request that failed, without the keys that travelled with it."""

from __future__ import annotations

import email.utils
import logging
import re
import time
import urllib.parse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import requests

RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})
_LOGGERS = ("urllib3.connectionpool", "httpx2", "mcp.client.streamable_http")
_SECRET = re.compile(r"(?<=://)[^/@\s]+(?=@)|(?<=[?&])([\w.-]*(?:key|token|secret|password)=)[^&\s\"]+", re.IGNORECASE)


@dataclass(frozen=True)
class Failure:
    """A try that failed.

    Attributes:
        message: what happened.
        passing: it may have gone by the next try.
        status: HTTP status, or None if there was no reply.
        pause: seconds that the service asks to wait.
    """

    message: str
    passing: bool = True
    status: int | None = None
    pause: float = 0.0


def refused(response: requests.Response, body: bytes, cures: Mapping[int, str]) -> Failure:
    """Describe an answer whose status is 300 or more."""
    status = response.status_code
    if status < 400:
        target = urllib.parse.urljoin(response.url, response.headers.get("Location", ""))
        return Failure(f"redirects to {bare(target)}; give that address if you trust it", False, status)
    start = " ".join(body[:200].decode("utf-8", "replace").split())
    pause = seconds(response.headers.get("Retry-After"))
    message = f"answered with status {status}" + (f": {start}" if start else "")
    message += f" (asks to wait {pause:.0f} s)" if pause else ""
    message += f". {cures[status]}" if status in cures else ""
    return Failure(message, status in RETRIED, status, pause)


def broken(error: Exception, url: str) -> Failure:
    """Describe a request that got no answer, from what `requests` raised."""
    from requests import exceptions

    if isinstance(error, exceptions.InvalidHeader | UnicodeEncodeError):
        return Failure("a header cannot be sent; look for line breaks or odd letters in the key", False)
    if isinstance(error, ValueError):
        return Failure(f"{bare(url)!r} is no address that can be asked", False)
    if isinstance(error, exceptions.SSLError):
        return Failure(f"the TLS connection to {bare(url)} failed; is its certificate valid?")
    if isinstance(error, exceptions.ProxyError):
        return Failure(f"the proxy towards {bare(url)} failed; see HTTP_PROXY and HTTPS_PROXY")
    if isinstance(error, exceptions.ContentDecodingError):
        return Failure("answered with a body that cannot be unpacked")
    if "NameResolutionError" in repr(error):
        return Failure(f"the name in {bare(url)} is not known; is it right, and is there a network?")
    return Failure(f"{bare(url)} could not be reached, or broke off")


def bare(url: str) -> str:
    """Return an address without user, password, query and fragment."""
    try:
        parts = urllib.parse.urlsplit(url)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
    except ValueError:
        return "the address"


def without(secrets: Iterable[str], text: str) -> str:
    """Return the text with every secret blotted out, also as it stands in an address."""
    for secret in secrets:
        for form in {secret, urllib.parse.quote(secret, safe=""), urllib.parse.quote_plus(secret)}:
            text = text.replace(form, "***") if form else text
    return text


def seconds(asked: str | None) -> float:
    """Read a Retry-After header: seconds, or a date."""
    if not asked:
        return 0.0
    try:
        return max(0.0, float(asked))
    except ValueError:
        try:
            return max(0.0, email.utils.parsedate_to_datetime(asked).timestamp() - time.time())
        except (TypeError, ValueError, OverflowError):
            return 0.0


def hide_keys_in_logs() -> None:
    """Blot out keys in the addresses that HTTP clients log: SerpAPI wants its key there, and so do some MCP servers."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_blot)  # adding it twice adds it once


def _blot(record: logging.LogRecord) -> bool:
    record.msg = _blotted(record.msg)
    if isinstance(record.args, tuple):
        record.args = tuple(_blotted(value) for value in record.args)
    return True


def _blotted(value: Any) -> Any:
    if isinstance(value, int | float | None):
        return value
    text = str(value)  # addresses may be objects
    return blotted(text) if _SECRET.search(text) else value


def blotted(text: str) -> str:
    """Return a text without the logins and keys in its addresses."""
    return _SECRET.sub(r"\1***", text)
