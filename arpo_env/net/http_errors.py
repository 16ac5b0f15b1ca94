"""`Failure`: what an answer with an error status, or an exception of httpx2, means and whether to try again."""

from __future__ import annotations

import email.utils
import socket
import ssl
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from arpo_env.net.redaction import strip_credentials

if TYPE_CHECKING:
    import httpx2

RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True)
class Failure:
    """A try that failed.

    Attributes:
        message: what happened.
        passing: the next try may succeed.
        status: HTTP status, or None if there was no answer.
        pause: seconds that the service asks to wait.
    """

    message: str
    passing: bool = True
    status: int | None = None
    pause: float = 0.0


def from_response(response: httpx2.Response, body: bytes, cures: Mapping[int, str]) -> Failure:
    """Describe an answer whose status is 300 or more."""
    status = response.status_code
    if status < 400:
        target = urllib.parse.urljoin(str(response.url), response.headers.get("Location", ""))
        return Failure(f"redirects to {strip_credentials(target)}; give that address if you trust it", False, status)
    start = " ".join(body[:200].decode("utf-8", "replace").split())
    pause = retry_after(response.headers.get("Retry-After"))
    message = f"answered with status {status}" + (f": {start}" if start else "")
    message += f" (asks to wait {pause:.0f} s)" if pause else ""
    message += f". {cures[status]}" if status in cures else ""
    return Failure(message, status in RETRIED, status, pause)


def from_exception(error: Exception, url: str) -> Failure:
    """Describe a request that got no complete answer."""
    import httpx2

    address = strip_credentials(url)
    causes = list(_causes(error))
    if isinstance(error, httpx2.InvalidURL | httpx2.UnsupportedProtocol | ValueError):
        return Failure(f"{address!r} is not a valid http or https address", False)
    if any(isinstance(cause, ssl.SSLError) for cause in causes):
        return Failure(f"the TLS connection to {address} failed; is its certificate valid?")
    if isinstance(error, httpx2.ProxyError) or (isinstance(error, httpx2.ConnectError) and _uses_proxy(url)):
        return Failure(f"the proxy towards {address} failed; see HTTP_PROXY, HTTPS_PROXY and ALL_PROXY")
    if isinstance(error, httpx2.DecodingError):
        return Failure("answered with a body that cannot be unpacked")
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return Failure(f"the name in {address} is not known; is it right, and is there a network?")
    return Failure(f"{address} could not be reached, or broke off")


def retry_after(header: str | None) -> float:
    """Return the seconds that a Retry-After header asks for, given as seconds or as a date; 0 if it cannot be read."""
    if not header:
        return 0.0
    try:
        return max(0.0, float(header))
    except ValueError:
        try:
            return max(0.0, email.utils.parsedate_to_datetime(header).timestamp() - time.time())
        except (TypeError, ValueError, OverflowError):
            return 0.0


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and what led to it; httpx2 wraps the errors of sockets several times."""
    while error is not None:
        yield error
        if isinstance(error, BaseExceptionGroup):  # one error for each address of a host
            for each in error.exceptions:
                yield from _causes(each)
        error = error.__cause__ or error.__context__


def _uses_proxy(url: str) -> bool:
    parts = urllib.parse.urlsplit(url)
    proxies = urllib.request.getproxies()
    return bool(proxies.get(parts.scheme) or proxies.get("all")) and not urllib.request.proxy_bypass(parts.netloc)
