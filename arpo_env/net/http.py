"""HTTP towards services: `Http.request` with time limits, a size limit, repeats, a rate limit and kept connections.

For services whose address the user chose (search providers, retrievers, model servers). Pages whose address the web
chose are fetched by `arpo_env.pages`, which also looks where the address leads. A failure is a `ServiceError`: the
machinery's fault, never a tool result. Redirects are not followed, cookies not kept, `.netrc` not read: a key goes
where the user sent it and nowhere else, and no message, traceback or log of ours holds one.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import random
import time
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from arpo_env.net.daemon_threads import DaemonThreads
from arpo_env.net.deadline import TooLarge, TooSlow, deadline, read_body, watched_session
from arpo_env.net.http_errors import Failure, bare, broken, hide_keys_in_logs, refused, without
from arpo_env.net.rate_limit import Pace

if TYPE_CHECKING:
    import requests

_LEAST = 0.02  # seconds; with less patience left nothing is asked any more
_LONGEST_PAUSE = 30.0  # seconds; a server that asks for more is not waited for


class ServiceError(RuntimeError):
    """Raised when a service outside could not do its work; the sample is void, not wrong.

    Attributes:
        service: its name.
        status: HTTP status, or None if there was no reply.
    """

    def __init__(self, service: str, message: str, status: int | None = None) -> None:
        super().__init__(f"{service}: {message}")
        self.service, self.status = service, status


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
            ServiceError: it is something else.
        """
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            start = self.body[:80].decode("utf-8", "replace")
        raise self.fault(f"answered something that is no JSON ({start!r})")

    def fault(self, message: str) -> ServiceError:
        """Return the error which says that this answer is of no use; keys that it echoes are left out."""
        return ServiceError(self.service, without(self.secrets, message), self.status)


@dataclass
class Http:
    """Requests to one service. May be shared by threads and event loops.

    Attributes:
        service: its name, for errors.
        timeout: seconds for one try, from the name look-up to the last byte.
        max_bytes: of a body, unpacked.
        retries: further tries after 429, 5xx, or a broken connection.
        pause: seconds before the first repeat; doubles each time, and `Retry-After` is obeyed up to 30 s.
        per_second: most requests a second; None is no limit.
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
    _pace: Pace | None = field(init=False, repr=False)
    _line: _Line | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self._pace = None if self.per_second is None else Pace(self.per_second)

    async def request(
        self,
        method: str,
        url: str,
        *,
        params: Mapping[str, Any] | None = None,
        json: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Do a request on a thread and return its answer.

        Raises:
            ServiceError: it failed for good.
        """
        url, login = _split_login(url)
        asked = {"method": method, "url": url, "params": params, "json": json, "headers": {**login, **(headers or {})}}
        ends = time.monotonic() + (3 * self.timeout if self.patience is None else self.patience)
        tries = 0
        while True:
            await self._wait_for_turn(ends)
            line = self._open()
            answer = await asyncio.get_running_loop().run_in_executor(line.threads, self._once, line, ends, asked)
            if isinstance(answer, Reply):
                return answer
            tries += 1
            pause = max(answer.pause, self.pause * 2.0 ** (tries - 1) * random.uniform(0.75, 1.25))
            too_long = pause > _LONGEST_PAUSE or time.monotonic() + pause >= ends
            if not answer.passing or tries > self.retries or too_long:
                raise self._error(answer, tries)
            await asyncio.sleep(pause)

    def request_sync(self, method: str, url: str, **arguments: Any) -> Reply:
        """Do the same as `request` from a thread that runs no event loop."""
        return asyncio.run(self.request(method, url, **arguments))

    def close(self) -> None:
        """Give back connections and threads; the next request opens new ones."""
        line, self._line = self._line, None
        if line is not None:
            line.threads.shutdown(wait=False)
            line.session.close()

    def _open(self) -> _Line:
        line = self._line
        if line is None or line.process != os.getpid():  # threads and connections do not survive a fork
            line = self._line = _Line(self.connections)
        return line

    def _once(self, line: _Line, ends: float, asked: dict[str, Any]) -> Reply | Failure:
        from urllib3.exceptions import HTTPError

        left = ends - time.monotonic()
        seconds = min(self.timeout, left)
        if left < _LEAST:
            return Failure(f"all {self.connections} connections were busy for too long", passing=False)
        try:
            with deadline(seconds):
                response = line.session.request(**asked, timeout=self.timeout, stream=True, allow_redirects=False)
                body = read_body(response, self.max_bytes)
        except TooLarge:
            return Failure(f"answered more than {self.max_bytes:,} bytes", passing=False)
        except TooSlow:
            return Failure(f"no complete answer from {bare(asked['url'])} within {seconds:.3g} s")
        except (OSError, HTTPError, ValueError) as error:
            return broken(error, asked["url"])
        if response.status_code >= 300:
            return refused(response, body, self.cures)
        return Reply(self.service, response.status_code, response.headers, body, self.secrets)

    async def _wait_for_turn(self, ends: float) -> None:
        if self._pace is None:
            return
        wait = self._pace.take(ends - time.monotonic())
        if wait is None:
            limit = f"per_second={self._pace.per_second:g}"
            raise ServiceError(self.service, f"too many requests are waiting for their turn at {limit}; raise it")
        await asyncio.sleep(wait)

    def _error(self, failure: Failure, tries: int) -> ServiceError:
        tried = f" ({tries} tries)" if tries > 1 else ""
        return ServiceError(self.service, without(self.secrets, failure.message + tried), failure.status)


class _Line:
    """The threads and kept connections of one process to one service."""

    def __init__(self, connections: int) -> None:
        import http.cookiejar

        hide_keys_in_logs()
        self.process = os.getpid()
        self.threads = DaemonThreads(connections, "arpo-http")
        self.session = watched_session(connections)
        self.session.cookies.set_policy(http.cookiejar.DefaultCookiePolicy(allowed_domains=()))
        self.session.auth = _as_it_is


def _as_it_is(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Keep the headers that the caller set; without this, an entry in ~/.netrc replaces them."""
    return request


def _split_login(url: str) -> tuple[str, dict[str, str]]:
    """Take user and password out of an address; return it without them, and the headers that carry them."""
    try:
        parts = urllib.parse.urlsplit(url)
    except ValueError:  # requests says it better
        return url, {}
    login, at, host = parts.netloc.rpartition("@")
    if not at:
        return url, {}
    word = base64.b64encode(urllib.parse.unquote(login).encode()).decode()
    return parts._replace(netloc=host).geturl(), {"Authorization": f"Basic {word}"}
