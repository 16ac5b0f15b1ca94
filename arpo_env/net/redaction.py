"""Keeps keys and passwords out of errors and logs."""

from __future__ import annotations

import logging
import re
import urllib.parse
from collections.abc import Iterable
from typing import Any

# httpcore2 logs the headers of requests and answers; a redirect may repeat the query with the key in it.
_LOGGERS = (
    "urllib3.connectionpool",
    "httpx2",
    "httpcore2.connection",
    "httpcore2.http11",
    "httpcore2.http2",
    "httpcore2.proxy",
    "httpcore2.socks",
    "mcp.client.streamable_http",
)
_SECRET = re.compile(r"(?<=://)[^/@\s]+(?=@)|(?<=[?&])([\w.-]*(?:key|token|secret|password)=)[^&\s\"]+", re.IGNORECASE)


def strip_credentials(url: str) -> str:
    """Return an address without user, password, query and fragment."""
    try:
        parts = urllib.parse.urlsplit(url)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
    except ValueError:
        return "the address"


def redact(secrets: Iterable[str], text: str) -> str:
    """Replace every secret in a text by `***`, also in its percent-encoded forms."""
    for secret in secrets:
        for form in {secret, urllib.parse.quote(secret, safe=""), urllib.parse.quote_plus(secret)}:
            text = text.replace(form, "***") if form else text
    return text


def redact_urls(text: str) -> str:
    """Replace logins and keys in the addresses of a text by `***`."""
    return _SECRET.sub(r"\1***", text)


def redact_logs() -> None:
    """Redact the addresses that HTTP clients log: some services take their key as a parameter of the address."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_redact_record)  # adding a filter twice adds it once


def _redact_record(record: logging.LogRecord) -> bool:
    record.msg = _redact_value(record.msg)
    if isinstance(record.args, tuple):
        record.args = tuple(_redact_value(value) for value in record.args)
    return True


def _redact_value(value: Any) -> Any:
    if isinstance(value, int | float | None):
        return value
    text = str(value)  # addresses may be objects
    return redact_urls(text) if _SECRET.search(text) else value
