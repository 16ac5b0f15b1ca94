"""`fetch`: one request for a page, with limits on total time, decompressed size and media type; no redirects.

Bodies are decompressed here and not by `requests`: a few kilobytes can expand to gigabytes, and older versions of
urllib3 have no limit on how much they unpack at a time.
"""

from __future__ import annotations

import re
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

from arpo_env.pages.deadline import TooLarge, TooSlow
from arpo_env.pages.page import PageError
from arpo_env.pages.pinned_connection import pinned_session
from arpo_env.pages.url_safety import Address, AddressRefused

if TYPE_CHECKING:
    import requests

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
