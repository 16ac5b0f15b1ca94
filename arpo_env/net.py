"""HTTP requests to services: `Http.request` with time limits, a size limit, retries, a rate limit, kept connections.

For services whose address the user chose (search providers, retrievers, model servers). Pages whose address comes from
the web are fetched by `arpo_env.pages`, which also checks where the address leads. A failure is a `ServiceError`: it
voids the sample and is never a tool result. Redirects are not followed, cookies are not kept and `.netrc` is not read,
so a key goes only where the user sent it. No message, traceback or log of ours holds a key.

All requests of a process run on the background event loop, so that one thread serves every caller's thread and loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import functools
import http.cookiejar
import importlib.util
import json
import logging
import os
import random
import re
import socket
import ssl
import threading
import time
import urllib.parse
import weakref
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from arpo_env.errors import ServiceError as ServiceError
from arpo_env.event_loop import background_loop, run_on_loop
from envs_registry.install_line import install_line

if TYPE_CHECKING:
    import httpx2


# `RateLimiter`: requests start at evenly spaced times, for all threads and event loops of a process together.

_MANY = 10_000


class RateLimited(Exception):
    """Raised when the next free start is too far away; no start was reserved.

    Attributes:
        seconds: until that start.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(f"{seconds:.0f} s until the next turn")
        self.seconds = seconds


class RateLimiter:
    """Spaces out the starts of requests, separately for each key. Callers are served in the order in which they ask.

    Args:
        per_second: maximum number of starts per second and key.
    """

    def __init__(self, per_second: float) -> None:
        if not per_second > 0:
            raise ValueError(f"per_second={per_second} is not above 0; None means no limit")
        self.per_second = per_second
        self._next: dict[str, float] = {}
        self._lock = threading.Lock()

    async def acquire(self, patience: float, key: str = "", min_interval: float = 0.0) -> None:
        """Wait at most `patience` seconds until the caller may start.

        `key` is what the limit applies to, such as a host; `min_interval` seconds lie between its starts, or more.
        """
        with self._lock:
            now = time.monotonic()
            start = max(now, self._next.get(key, now))
            if start - now > patience:
                raise RateLimited(start - now)
            self._next[key] = start + max(1 / self.per_second, min_interval)
            if len(self._next) > _MANY:  # keys whose time has passed delay no request
                self._next = {each: when for each, when in self._next.items() if when > now}
        await asyncio.sleep(start - now)


# Keeps keys and passwords out of errors and logs.

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


def strip_credentials(address: str) -> str:
    """Return an address, which need not be valid, without user, password, query and fragment."""
    with contextlib.suppress(ValueError):
        parts = urllib.parse.urlsplit(address)
        if parts.netloc and parts.port != 0:  # reading an invalid port raises
            return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
    # the password may hold what usually ends the login
    before, _, rest = address.rpartition("@")
    protocol, cut, _ = before.partition("://")
    return protocol * bool(cut) + cut + re.split(r"[?#]", rest, maxsplit=1)[0]


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


# `Failure`: what an answer with an error status, or an exception of httpx2, means and whether to try again.

RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True)
class Failure:
    """A try that failed."""

    message: str  # what happened
    passing: bool = True  # the next try may succeed
    status: int | None = None  # HTTP status, or None if there was no answer
    pause: float = 0.0  # seconds that the service asks to wait
    unreachable: bool = False  # nothing listens at the address, or its name is not known


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
    chain = list(causes(error))
    if isinstance(error, httpx2.InvalidURL | httpx2.UnsupportedProtocol | ValueError):
        return Failure(f"{address!r} is not a valid http or https address", False)
    if any(isinstance(cause, ssl.SSLError) for cause in chain):
        return Failure(f"the TLS connection to {address} failed; is its certificate valid?")
    if isinstance(error, httpx2.ProxyError):
        return Failure(f"the proxy towards {address} failed; see HTTP_PROXY, HTTPS_PROXY and ALL_PROXY")
    if isinstance(error, httpx2.DecodingError):
        return Failure("answered with a body that cannot be unpacked")
    if any(isinstance(cause, socket.gaierror) for cause in chain):
        return Failure(f"the name in {address} is not known; is it right, and is there a network?", unreachable=True)
    if any(isinstance(cause, ConnectionRefusedError) for cause in chain):
        return Failure(f"{address} refuses connections", unreachable=True)
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


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and what led to it; httpx2 wraps the errors of sockets several times."""
    while error is not None:
        yield error
        if isinstance(error, BaseExceptionGroup):  # one error for each address of a host
            for each in error.exceptions:
                yield from causes(each)
        error = error.__cause__ or error.__context__


# `open_client`: an httpx2 client that takes proxies and certificates, and nothing else, from the environment.

_CA_VARIABLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR")  # the first that is set


def check_httpx2() -> None:
    """Raise ModuleNotFoundError, with the cure, if httpx2 is not installed."""
    if importlib.util.find_spec("httpx2") is None:
        raise ModuleNotFoundError(f"httpx2 is not installed: {install_line('search')}", name="httpx2")


class CannotConnect(Exception):
    """Raised when the environment names a proxy or certificates that cannot be used; the text is the reason."""


def open_client() -> httpx2.AsyncClient:
    """Return a client with one connection, and without time limits, cookies and redirects."""
    check_httpx2()
    import httpx2

    redact_logs()
    # An idle connection is kept until the server closes it: httpx2 looks at the socket before it uses one again.
    limits = httpx2.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=None)
    cookies = http.cookiejar.CookieJar(http.cookiejar.DefaultCookiePolicy(allowed_domains=()))
    try:
        return httpx2.AsyncClient(timeout=None, limits=limits, cookies=cookies, verify=tls_context())
    except (ImportError, ValueError, httpx2.InvalidURL):  # `from None`: the text may hold the proxy's password
        raise CannotConnect("the proxy of HTTP_PROXY, HTTPS_PROXY or ALL_PROXY cannot be used") from None


def tls_context() -> ssl.SSLContext:
    """Return the certificates to trust: those of the environment, else the system's, else those of certifi."""
    variable = next((name for name in _CA_VARIABLES if os.environ.get(name)), "")
    return _tls_context(variable, os.environ.get(variable, ""))


@functools.lru_cache(8)  # reading the certificates takes some 20 ms
def _tls_context(variable: str, bundle: str) -> ssl.SSLContext:
    import httpx2

    try:
        if bundle:
            folder = os.path.isdir(bundle)
            return ssl.create_default_context(capath=bundle) if folder else ssl.create_default_context(cafile=bundle)
    except OSError as error:
        raise CannotConnect(f"the certificates at {bundle}, which {variable} names, cannot be read") from error
    context = httpx2.create_ssl_context()
    if not context.get_ca_certs() and importlib.util.find_spec("certifi") is not None:
        import certifi

        context.load_verify_locations(certifi.where())
    return context


logger = logging.getLogger(__name__)
_LONGEST_PAUSE = 30.0  # seconds; a server that asks for more is not waited for
_SILENT = 10.0  # seconds; a longer wait for an address at which nothing listens is announced


@dataclass(frozen=True)
class Reply:
    """A complete answer of a service, whose status is below 300."""

    service: str
    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def json(self) -> Any:
        """Return the body as JSON."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            start = self.body[:80].decode("utf-8", "replace")
        raise self.fault(f"answered with a body that is no JSON ({start!r})")

    def fault(self, message: str) -> ServiceError:
        """Return the error to raise when this answer cannot be used; keys that it repeats are redacted."""
        return ServiceError(self.service, redact(self.secrets, message), self.status)


async def read_body(response: httpx2.Response, most: int) -> tuple[bytes, bool]:
    """Return the first `most` bytes of a body, unpacked, and whether that is all of it."""
    body = bytearray()
    async for piece in response.aiter_bytes():  # in pieces of 1 MiB at most
        body += piece
        if len(body) > most:
            return bytes(body[:most]), False
    return bytes(body), True


@dataclass
class Http:
    """Requests to one service. May be shared by threads and event loops.

    Attributes:
        service: its name, for errors.
        timeout: seconds for one try, from the name look-up to the last byte. All tries together, with the pauses and
            the waits for a turn and for a connection, may take three times as long.
        max_bytes: of a body, unpacked.
        retries: further tries after 429, 5xx, or a broken connection.
        pause: seconds before the first retry; doubles each time up to 30 s, and `Retry-After` is obeyed up to 30 s.
        per_second: maximum number of requests per second; None is no limit.
        cures: what to do about a status, for the message, as in {401: "set SERPER_API_KEY"}.
        connections: maximum number of requests under way; so many connections are kept for reuse.
        secrets: keys, which no message may hold.
    """

    service: str
    timeout: float = 20.0
    max_bytes: int = 8_000_000
    retries: int = 3
    pause: float = 0.5
    per_second: float | None = None
    cures: Mapping[int, str] = field(default_factory=dict)
    connections: int = 64
    secrets: tuple[str, ...] = field(default=(), repr=False)
    _limiter: RateLimiter | None = field(init=False, repr=False)
    _open: _Open | None = field(default=None, init=False, repr=False)
    _announced: bool = field(default=False, init=False, repr=False)  # many requests wait together

    def __post_init__(self) -> None:
        self._limiter = None if self.per_second is None else RateLimiter(self.per_second)

    async def request(
        self,
        method: str,
        url: str,
        *,
        params: Mapping[str, Any] | None = None,
        json: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Send a request and return the answer. If this is cancelled, the connection is closed.

        Raises:
            ServiceError: it failed for good.
        """
        sent = {} if json is None else {"Content-Type": "application/json"}
        request = {"method": method, "url": url, "params": params, "headers": {**sent, **(headers or {})}}
        return await run_on_loop(self._send({**request, "content": None if json is None else _encoded(json)}))

    def close(self) -> None:
        """Close the connections; the next request opens new ones."""
        opened, self._open = self._open, None
        if opened is not None:
            _close(opened)

    async def _send(self, request: dict[str, Any]) -> Reply:
        ends = time.monotonic() + 3 * self.timeout
        tries = 0
        while True:
            await self._wait_for_turn(ends)
            answer = await self._try(request, ends)
            if isinstance(answer, Reply):
                self._announced = False
                return answer
            tries += 1
            if answer.unreachable:
                self._announce_wait(answer)
            # Random, so that many requests that failed together do not come back together.
            own = self.pause * 2.0 ** min(tries - 1, 60) * random.uniform(0.75, 1.25)
            pause = max(answer.pause, min(own, _LONGEST_PAUSE))
            too_long = pause > _LONGEST_PAUSE or time.monotonic() + pause >= ends
            if not answer.passing or tries > self.retries or too_long:
                raise self._error(answer, tries)
            await asyncio.sleep(pause)

    def _announce_wait(self, failure: Failure) -> None:
        seconds = sum(min(self.pause * 2.0**done, _LONGEST_PAUSE) for done in range(self.retries))
        if seconds >= _SILENT and not self._announced:
            self._announced = True
            said = redact(self.secrets, failure.message)
            logger.warning("%s: %s (trying again for about %.2g min)", self.service, said, seconds / 60)

    async def _try(self, request: dict[str, Any], ends: float) -> Reply | Failure:
        if not all(value.isascii() and value.isprintable() for value in request["headers"].values()):
            return Failure("a header cannot be sent; look for line breaks or non-ASCII letters in the key", False)
        opened = self._opened()
        try:
            async with asyncio.timeout(ends - time.monotonic()):
                await opened.slots.acquire()
        except TimeoutError:
            return Failure(f"all {self.connections} connections were busy for too long", passing=False)
        try:
            async with self._client(opened) as client:
                return await self._exchange(client, request, min(self.timeout, ends - time.monotonic()))
        except CannotConnect as error:
            return Failure(str(error), passing=False)
        finally:
            opened.slots.release()

    @asynccontextmanager
    async def _client(self, opened: _Open) -> AsyncIterator[httpx2.AsyncClient]:
        client = opened.idle.pop() if opened.idle else open_client()
        try:
            yield client
        finally:
            if opened is self._open:
                opened.idle.append(client)
            else:  # closed meanwhile
                await client.aclose()

    async def _exchange(self, client: httpx2.AsyncClient, request: dict[str, Any], seconds: float) -> Reply | Failure:
        import httpx2

        url = request["url"]  # httpx2 sends user and password in it as a header
        try:
            async with asyncio.timeout(seconds) as limit, client.stream(**request) as response:
                body, whole = await read_body(response, self.max_bytes)
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
            if isinstance(error, TimeoutError) and limit.expired():
                return Failure(f"no complete answer from {strip_credentials(url)} within {seconds:.3g} s")
            return from_exception(error, url)
        if not whole:
            return Failure(f"answered more than {self.max_bytes:,} bytes", passing=False)
        if response.status_code >= 300:
            return from_response(response, body, self.cures)
        return Reply(self.service, response.status_code, response.headers, body, self.secrets)

    def _opened(self) -> _Open:
        if self._open is None or self._open.process != os.getpid():  # connections do not survive a fork
            self._open = _Open(asyncio.Semaphore(self.connections), os.getpid(), background_loop(), [])
            weakref.finalize(self, _close, self._open).atexit = False
        return self._open

    async def _wait_for_turn(self, ends: float) -> None:
        if self._limiter is None:
            return
        try:
            await self._limiter.acquire(ends - time.monotonic())
        except RateLimited:
            limit = f"per_second={self._limiter.per_second:g}"
            message = f"too many requests are waiting for their turn at {limit}; raise it"
            raise ServiceError(self.service, message) from None

    def _error(self, failure: Failure, tries: int) -> ServiceError:
        tried = f" ({tries} tries)" if tries > 1 else ""
        return ServiceError(self.service, redact(self.secrets, failure.message + tried), failure.status)


class _Open(NamedTuple):
    """The connections of one process to one service.

    Each connection is a client of its own, and the one that was used last is used next. A shared pool of httpx2 would
    look at the socket of every idle connection at every request, which takes a third of the CPU time with 64 of them.
    """

    slots: asyncio.Semaphore
    process: int
    loop: asyncio.AbstractEventLoop  # kept, since a finalizer must not wait for the lock of `background_loop`
    idle: list[httpx2.AsyncClient]


def _close(opened: _Open) -> None:
    async def close() -> None:
        while opened.idle:
            await opened.idle.pop().aclose()

    if opened.process == os.getpid():  # a child of os.fork leaves the connections to its parent
        asyncio.run_coroutine_threadsafe(close(), opened.loop)


def _encoded(value: Any) -> bytes:
    return json.dumps(value).encode()  # in ASCII, for lone surrogates


# Checks and normalises addresses of services that a user gave.


def checked_address(service: str, address: str) -> str:
    """Return the address without white space, trailing slashes, query and fragment."""
    try:
        parts = urllib.parse.urlsplit(address.strip())
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        good = False
    if not good:
        raise ValueError(f"{service} needs an address like http://127.0.0.1:8000, not {strip_credentials(address)!r}")
    return parts._replace(path=parts.path.rstrip("/"), query="", fragment="").geturl()


def with_path(address: str, endpoint: str) -> str:
    """Return the address with the path of an endpoint appended, unless it ends with it already."""
    path = urllib.parse.urlsplit(endpoint).path
    return address if address.endswith(path) else address + path


def canonical_address(address: str) -> str:
    """Return a checked address in canonical form: no login, host in lower case, no default port."""
    parts = urllib.parse.urlsplit(address)
    host = (parts.hostname or "").lower()
    host = f"[{host}]" if ":" in host else host
    usual = {"http": 80, "https": 443}.get(parts.scheme.lower())
    port = "" if parts.port in (None, usual) else f":{parts.port}"
    return parts._replace(scheme=parts.scheme.lower(), netloc=host + port).geturl()
