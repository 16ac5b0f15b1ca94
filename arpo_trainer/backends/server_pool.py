"""Several servers that answer the same requests: which one is asked, and what happens when one does not answer.

A new group goes to the next server in turn and stays there, because that server keeps the keys and values of its
prefixes. When that server fails, the group moves to the next one that works. A request that failed for a passing reason
is repeated as a whole until `patience` has passed since its first failure. A server that fails gets no requests for a
while: half a second, then twice that, up to ten seconds.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from arpo_env.net import RETRIED, redact, redact_logs, retry_after, strip_credentials
from arpo_trainer.backends.base import GenerationError

if TYPE_CHECKING:
    import httpx2


# HTTP requests to servers that generate: whole answers, and answers that come as a stream of events.
#
# One event loop carries all requests without threads. Cancelling a request closes its connection, upon which a server
# stops computing. Each request is tried once; `server_pool` decides about retries. Needs `httpx2`, which reads HTTP and
# server-sent events and comes with transformers.

Take = Callable[[Any], None]
_CLIENTS = 8
_CONNECT = 10.0  # seconds
_SHOWN = 400  # characters of an answer


class RequestFault(Exception):
    """Raised when one try failed.

    Attributes:
        message: what happened, without keys.
        passing: whether the next try may succeed.
        status: HTTP status, or None without a reply.
        pause: seconds to wait, as the server asks for.
    """

    def __init__(self, message: str, passing: bool = False, status: int | None = None, pause: float = 0.0) -> None:
        super().__init__(message)
        self.message, self.passing, self.status, self.pause = message, passing, status, pause


class ModelHttp:
    """Sends requests to servers that generate, with clients of their own for each event loop.

    Args:
        key: sent as bearer token; it appears in no message.
        timeout: most seconds without a byte, the wait for the first token included.

    Raises:
        ValueError: the key has characters that a header cannot hold.
    """

    def __init__(self, key: str = "", timeout: float = 600.0) -> None:
        redact_logs()
        key = key.strip()
        if not (key.isascii() and key.isprintable()):
            raise ValueError("the key cannot be sent in a header: look for line breaks or unusual characters in it")
        self.timeout = timeout
        self._secrets = (key,) if key else ()
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._clients: list[httpx2.AsyncClient] = []
        self._turn = itertools.count()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def get(self, url: str) -> Any:
        """Return the answer as JSON.

        Raises:
            RequestFault: there was no answer.
        """
        return await self._whole("GET", url, None)

    async def post(self, url: str, body: Mapping[str, Any]) -> Any:
        """Send JSON and return the answer as JSON.

        Raises:
            RequestFault: there was no answer.
        """
        return await self._whole("POST", url, body)

    async def stream(self, url: str, body: Mapping[str, Any], take: Take) -> None:
        """Send JSON and give each event of the answer to `take`, up to the end of the stream.

        Raises:
            RequestFault: there was no such answer, it ended early, or `take` could not read it.
        """
        import httpx2

        done = False
        try:
            async with self._open().sse(url, method="POST", json=body) as source:
                if source.response.status_code >= 300:
                    raise self._refused(source.response, await source.response.aread())
                async for event in source:
                    done = done or event.data == "[DONE]"
                    if not done:
                        self._give(event.data, take)
        except httpx2.SSEError as error:
            raise self.fault(f"answered with no stream of events ({error})") from None
        except (httpx2.RequestError, httpx2.InvalidURL) as error:
            raise _broken(error, url, self.timeout) from None
        # a server that dies may close its stream like one that is finished; only [DONE] tells them apart
        if not done:
            raise RequestFault("the answer broke off", passing=True)

    async def close(self) -> None:
        """Close the connections; the next request opens new ones."""
        clients, loop = self._clients, self._loop
        self._clients, self._loop = [], None
        # clients of another loop cannot be closed from here; they are only dropped
        if loop is asyncio.get_running_loop():
            for client in clients:
                await client.aclose()

    def fault(self, message: str, passing: bool = False, status: int | None = None, pause: float = 0.0) -> RequestFault:
        """Return an error with this message, without the key."""
        return RequestFault(redact(self._secrets, message), passing, status, pause)

    def _open(self) -> httpx2.AsyncClient:
        import httpx2

        loop = asyncio.get_running_loop()
        if not self._clients or self._loop is not loop:
            # no limit on connections: the rollout has its own limits, and a server can batch only what has reached it
            limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
            waits = httpx2.Timeout(self.timeout, connect=min(_CONNECT, self.timeout), pool=None)
            certificates = httpx2.create_ssl_context()  # one for all: it takes some 30 ms
            # a client looks at all of its connections at each request, so several with few each cost less
            self._clients = [
                httpx2.AsyncClient(headers=self._headers, limits=limits, timeout=waits, verify=certificates)
                for _ in range(_CLIENTS)
            ]
            self._loop = loop
        return self._clients[next(self._turn) % len(self._clients)]

    async def _whole(self, method: str, url: str, body: Mapping[str, Any] | None) -> Any:
        import httpx2

        try:
            response = await self._open().request(method, url, json=body)
        except (httpx2.RequestError, httpx2.InvalidURL) as error:
            raise _broken(error, url, self.timeout) from None
        if response.status_code >= 300:
            raise self._refused(response, response.content)
        return self._read(response.content)

    def _give(self, data: str, take: Take) -> None:
        event = self._read(data)
        try:
            take(event)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise self.fault(f"sent an event that cannot be read ({error!r}): {data[:_SHOWN]}") from error

    def _read(self, data: str | bytes) -> Any:
        try:
            answer = json.loads(data)
        except (ValueError, RecursionError):
            start = data[:80] if isinstance(data, str) else data[:80].decode("utf-8", "replace")
            raise self.fault(f"answered something that is not JSON ({start!r})") from None
        error = answer.get("error") if isinstance(answer, dict) else None
        if error:  # the stream began with status 200 and failed later
            code = error.get("code") if isinstance(error, dict) else None
            status = code if isinstance(code, int) else None
            raise self.fault(f"broke off: {_said(answer)}", status is None or status in RETRIED, status)
        return answer

    def _refused(self, response: httpx2.Response, body: bytes) -> RequestFault:
        status, pause = response.status_code, retry_after(response.headers.get("Retry-After"))
        if target := response.headers.get("Location"):
            return self.fault(
                f"redirects to {strip_credentials(target)}; give that address if you trust it", status=status
            )
        asks = f" (asks to wait {pause:.0f} s)" if pause else ""
        return self.fault(
            f"answered with status {status}: {_said(_parsed(body))}{asks}", status in RETRIED, status, pause
        )


def _said(answer: Any) -> str:
    """Return the message of an error as OpenAI and vLLM write it, or the beginning of the answer."""
    try:
        return str(answer.get("error", answer)["message"])[:_SHOWN]
    except (KeyError, TypeError, AttributeError):
        return str(answer)[:_SHOWN]


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return " ".join(body.decode("utf-8", "replace").split())


def _broken(error: Exception, url: str, timeout: float) -> RequestFault:
    import httpx2

    if isinstance(error, httpx2.InvalidURL | httpx2.UnsupportedProtocol):
        return RequestFault(f"{strip_credentials(url)!r} is not a valid address")
    if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
        return RequestFault(f"could not be reached ({error or type(error).__name__})", passing=True)
    if isinstance(error, httpx2.TimeoutException):
        return RequestFault(f"sent nothing for {timeout:g} s", passing=True)
    return RequestFault(f"broke off ({error or type(error).__name__})", passing=True)


T = TypeVar("T")
Attempt = Callable[[str], Awaitable[T]]
logger = logging.getLogger(__name__)
_FIRST_REST, _LONGEST_REST = 0.5, 10.0  # seconds
_DOWN = "Is it running? Look at its output"


@dataclass(eq=False)
class _Server:
    url: str
    faults: int = 0
    rests_until: float = 0.0
    unreachable: bool = False

    @property
    def rest(self) -> float:
        """Seconds until it may get requests again."""
        return max(0.0, self.rests_until - time.monotonic())

    def failed(self, fault: RequestFault, patience: float) -> None:
        """Send it no requests for a while; many requests that fail together count as one failure."""
        if self.rest == 0:
            self.faults += 1
            logger.warning("%s %s; retrying for at most %g s", strip_credentials(self.url), fault.message, patience)
        pause = min(_LONGEST_REST, _FIRST_REST * 2.0 ** (self.faults - 1))
        self.rests_until = max(self.rests_until, time.monotonic() + max(pause, fault.pause))
        self.unreachable = self.unreachable or fault.status is None

    def answered(self) -> None:
        """Use it as usual from now on."""
        if self.unreachable:
            logger.warning(
                "%s answers again. If it was restarted, its weights are those it started with, not those "
                "of the training, until they are next sent",
                strip_credentials(self.url),
            )
        self.faults, self.rests_until, self.unreachable = 0, 0.0, False


class ServerPool:
    """ServerPool that can answer the same requests.

    Args:
        urls: one or more addresses.
        patience: seconds of retrying, from the first failure of a request on.
        cures: what to do about a refusal, by words of its message in lower case.
    """

    def __init__(self, urls: Sequence[str], patience: float, cures: Mapping[str, str]) -> None:
        self.patience, self._cures = patience, cures
        self._servers = [_Server(url) for url in urls]
        self._next = int(os.environ.get("RANK", "0"))  # processes start with different servers
        self._homes: dict[str, _Server] = {}

    def forget_groups(self) -> None:
        """Assign servers to groups anew."""
        self._homes.clear()

    async def ask(self, group: str, attempt: Attempt[T]) -> T:
        """Return the result of `attempt` on the server of this group; it may be called several times.

        Raises:
            GenerationError: a server refused, or none answered in time.
        """
        return await self._persist(lambda: self._home(group), attempt)

    async def ask_all(self, attempt: Attempt[T]) -> list[T]:
        """Return the results of `attempt` on each server.

        Raises:
            GenerationError: one of them refused, or did not answer in time.
        """
        return await asyncio.gather(*(self._persist(_only(server), attempt) for server in self._servers))

    def _home(self, group: str) -> _Server:
        server = self._homes.get(group)
        if server is None or server.rest:
            server = self._turn()
            # requests without a group share no prefixes, so they need no fixed server
            if group:
                self._homes[group] = server
        return server

    def _turn(self) -> _Server:
        """Return the next server that may be used, or the one that may be used first."""
        order = [self._servers[(self._next + number) % len(self._servers)] for number in range(len(self._servers))]
        # `min` takes the first of equals, so servers that do not rest are taken in turn
        server = min(order, key=lambda one: one.rest)
        self._next = self._servers.index(server) + 1
        return server

    async def _persist(self, choose: Callable[[], _Server], attempt: Attempt[T]) -> T:
        server, ends, tries = choose(), 0.0, 0
        while True:
            if server.rest:
                # with some chance in it, or all requests would come back at the same moment
                await asyncio.sleep(min(server.rest, self.patience) * random.uniform(1.0, 1.25))
            tries += 1
            try:
                answer = await attempt(server.url)
            except RequestFault as fault:
                message = self._message(server, fault, tries)
                if not fault.passing:
                    raise GenerationError(message) from fault
                server.failed(fault, self.patience)
                ends, server = ends or time.monotonic() + self.patience, choose()
                # the next try could only begin when the patience is over
                if time.monotonic() + server.rest >= ends:
                    raise GenerationError(message) from fault
            else:
                server.answered()
                return answer

    def _message(self, server: _Server, fault: RequestFault, tries: int) -> str:
        said = f"{strip_credentials(server.url)} {fault.message}"
        cures = (cure for words, cure in self._cures.items() if fault.status and words in fault.message.lower())
        cure = next(cures, "")
        if fault.passing:
            busy = "Ask for less at once, with a lower concurrency" if fault.status == 429 else ""
            return f"{said} ({tries} tries, patience={self.patience:g} s). {busy or cure or _DOWN}"
        return f"{said}. {cure}" if cure else said


def _only(server: _Server) -> Callable[[], _Server]:
    return lambda: server
