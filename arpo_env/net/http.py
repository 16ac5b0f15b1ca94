"""HTTP requests to services: `Http.request` with time limits, a size limit, retries, a rate limit, kept connections.

For services whose address the user chose (search providers, retrievers, model servers). Pages whose address comes from
the web are fetched by `arpo_env.pages`, which also checks where the address leads. A failure is a `ServiceError`: it
voids the sample and is never a tool result. Redirects are not followed, cookies are not kept and `.netrc` is not read,
so a key goes only where the user sent it. No message, traceback or log of ours holds a key.

All requests of a process run on the background event loop, so that one thread serves every caller's thread and loop.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import random
import time
import urllib.parse
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from arpo_env.errors import ServiceError as ServiceError
from arpo_env.event_loop import background_loop, run, run_on_loop
from arpo_env.net.http_errors import Failure, from_exception, from_response
from arpo_env.net.proxies_and_certificates import CannotConnect, open_client
from arpo_env.net.rate_limit import RateLimited, RateLimiter
from arpo_env.net.redaction import redact, strip_credentials

if TYPE_CHECKING:
    import httpx2

_LEAST = 0.02  # seconds; with less patience left no request is started
_LONGEST_PAUSE = 30.0  # seconds; a server that asks for more is not waited for
_MOST_HEADERS = 100


@dataclass(frozen=True)
class Reply:
    """A complete answer of a service, whose status is below 300."""

    service: str
    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def json(self) -> Any:
        """Return the body as JSON.

        Raises:
            ServiceError: the body is not JSON.
        """
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            start = self.body[:80].decode("utf-8", "replace")
        raise self.fault(f"answered with a body that is no JSON ({start!r})")

    def fault(self, message: str) -> ServiceError:
        """Return the error to raise when this answer cannot be used; keys that it repeats are redacted."""
        return ServiceError(self.service, redact(self.secrets, message), self.status)


class _TooLarge(Exception):
    """The body is longer than allowed."""


@dataclass
class Http:
    """Requests to one service. May be shared by threads and event loops.

    Attributes:
        service: its name, for errors.
        timeout: seconds for one try, from the name look-up to the last byte.
        max_bytes: of a body, unpacked.
        retries: further tries after 429, 5xx, or a broken connection.
        pause: seconds before the first retry; doubles each time up to 30 s, and `Retry-After` is obeyed up to 30 s.
        per_second: most requests per second; None is no limit.
        cures: what to do about a status, for the message, as in {401: "set SERPER_API_KEY"}.
        patience: seconds for all tries together, with pauses and the wait for a turn; None is 3 x `timeout`.
        connections: most requests under way at once; so many connections are kept for reuse.
        secrets: keys, which no message may hold.
    """

    service: str
    timeout: float = 20.0
    max_bytes: int = 8_000_000
    retries: int = 3
    pause: float = 0.5
    per_second: float | None = None
    cures: Mapping[int, str] = field(default_factory=dict)
    patience: float | None = None
    connections: int = 64
    secrets: tuple[str, ...] = field(default=(), repr=False)
    _limiter: RateLimiter | None = field(init=False, repr=False)
    _open: _Open | None = field(default=None, init=False, repr=False)

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
        return await run_on_loop(self._send(_Request.build(method, url, params, json, headers)))

    def request_sync(self, method: str, url: str, **arguments: Any) -> Reply:
        """Do the same as `request` and block until it is done."""
        return run(self.request(method, url, **arguments))

    def close(self) -> None:
        """Close the connections; the next request opens new ones."""
        opened, self._open = self._open, None
        if opened is not None:
            opened.close()

    async def _send(self, request: _Request) -> Reply:
        ends = time.monotonic() + (3 * self.timeout if self.patience is None else self.patience)
        tries = 0
        while True:
            await self._wait_for_turn(ends)
            answer = await self._try(request, ends)
            if isinstance(answer, Reply):
                return answer
            tries += 1
            # Random, so that many requests that failed together do not come back together.
            own = self.pause * 2.0 ** min(tries - 1, 60) * random.uniform(0.75, 1.25)
            pause = max(answer.pause, min(own, _LONGEST_PAUSE))
            too_long = pause > _LONGEST_PAUSE or time.monotonic() + pause >= ends
            if not answer.passing or tries > self.retries or too_long:
                raise self._error(answer, tries)
            await asyncio.sleep(pause)

    async def _try(self, request: _Request, ends: float) -> Reply | Failure:
        if not all(value.isascii() and value.isprintable() for value in request.headers.values()):
            return Failure("a header cannot be sent; look for line breaks or non-ASCII letters in the key", False)
        opened = self._opened()
        if not await _acquired(opened.slots, ends - time.monotonic()):
            return Failure(f"all {self.connections} connections were busy for too long", passing=False)
        try:
            client = opened.take()
            try:
                return await self._exchange(client, request, min(self.timeout, ends - time.monotonic()))
            finally:
                await opened.give_back(client)
        except CannotConnect as error:
            return Failure(str(error), passing=False)
        finally:
            opened.slots.release()

    async def _exchange(self, client: httpx2.AsyncClient, request: _Request, seconds: float) -> Reply | Failure:
        import httpx2

        try:
            async with asyncio.timeout(seconds) as limit, request.stream(client) as response:
                body = await self._body(response)
        except _TooLarge:
            return Failure(f"answered more than {self.max_bytes:,} bytes", passing=False)
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
            if isinstance(error, TimeoutError) and limit.expired():
                return Failure(f"no complete answer from {strip_credentials(request.url)} within {seconds:.3g} s")
            return from_exception(error, request.url)
        # Python's own client has this limit; httpx2 limits only the length of one header.
        if len(response.headers.raw) > _MOST_HEADERS:
            return Failure(f"answered with more than {_MOST_HEADERS} headers")
        if response.status_code >= 300:
            return from_response(response, body, self.cures)
        return Reply(self.service, response.status_code, response.headers, body, self.secrets)

    async def _body(self, response: httpx2.Response) -> bytes:
        body = bytearray()
        async for chunk in response.aiter_bytes():  # unpacked, in pieces of 1 MiB at most
            body += chunk
            if len(body) > self.max_bytes:
                raise _TooLarge
        return bytes(body)

    def _opened(self) -> _Open:
        opened = self._open
        if opened is None or opened.process != os.getpid():  # connections do not survive a fork
            opened = self._open = _Open(self.connections)
            weakref.finalize(self, opened.close).atexit = False
        return opened

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


class _Open:
    """The connections of one process to one service.

    Each connection is a client of its own, and the one that was used last is used next. A shared pool of httpx2 would
    look at the socket of every idle connection at every request, which takes a third of the CPU time with 64 of them.
    """

    def __init__(self, connections: int) -> None:
        self.process = os.getpid()
        self.slots = asyncio.Semaphore(connections)
        self._idle: list[httpx2.AsyncClient] = []
        self._closed = False
        self._loop = background_loop()

    def take(self) -> httpx2.AsyncClient:
        return self._idle.pop() if self._idle else open_client()

    async def give_back(self, client: httpx2.AsyncClient) -> None:
        if self._closed:
            await client.aclose()
        else:
            self._idle.append(client)

    def close(self) -> None:
        if self.process == os.getpid():  # a child of os.fork leaves the connections to its parent
            asyncio.run_coroutine_threadsafe(self._close(), self._loop)

    async def _close(self) -> None:
        self._closed = True  # requests under way go on, and close their connection when they are done
        while self._idle:
            await self._idle.pop().aclose()


@dataclass(frozen=True)
class _Request:
    method: str
    url: str
    params: str
    content: bytes | None
    headers: dict[str, str]

    @classmethod
    def build(
        cls, method: str, url: str, params: Mapping[str, Any] | None, content: Any, headers: Mapping[str, str] | None
    ) -> _Request:
        """Encode parameters and JSON; move user and password from the address to a header."""
        url, login = _split_login(url)
        given = {name: value for name, value in (params or {}).items() if value is not None}
        body = None if content is None else json.dumps(content).encode()
        kind = {} if body is None else {"Content-Type": "application/json"}
        query = urllib.parse.urlencode(given, doseq=True)
        return cls(method, url, query, body, {**kind, **login, **(headers or {})})

    def stream(self, client: httpx2.AsyncClient) -> Any:
        joint = "&" if "?" in self.url else "?"
        url = self.url + joint + self.params if self.params else self.url
        return client.stream(self.method, url, content=self.content, headers=self.headers)


async def _acquired(slots: asyncio.Semaphore, seconds: float) -> bool:
    """Take a slot within the time; return whether that was possible."""
    if seconds >= _LEAST and not slots.locked():
        return await slots.acquire()
    try:
        async with asyncio.timeout(max(0.0, seconds - _LEAST)):
            return await slots.acquire()
    except TimeoutError:
        return False


def _split_login(url: str) -> tuple[str, dict[str, str]]:
    """Take user and password out of an address; return it without them, and the headers that carry them."""
    try:
        parts = urllib.parse.urlsplit(url)
    except ValueError:  # httpx2 says it better
        return url, {}
    login, at, host = parts.netloc.rpartition("@")
    if not at:
        return url, {}
    word = base64.b64encode(urllib.parse.unquote(login).encode()).decode()
    return parts._replace(netloc=host).geturl(), {"Authorization": f"Basic {word}"}
