"""What the servers of episodes share: an episode that a client plays, and who may call.

with bind(host, port, token) as listener:
serve(TokenGuard(app, token), listener)
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from arpo_env.adapters import FAULTS
from arpo_env.adapters.chat_episode import ChatEpisode
from arpo_env.chat_messages import Message
from arpo_env.env import ToolEnv
from arpo_env.event_loop import run_on_loop
from arpo_env.net import redact_urls
from sandbox.http.json_server import NO_PAGES, NO_TOKEN, check_token, listen, sends_token

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

T = TypeVar("T")


class EpisodeVoid(RuntimeError):
    """Raised when an episode has no reward and cannot go on, through no fault of the policy; start another one."""


class ServedEpisode:
    """An episode that a client plays over a network; it may be used from any event loop.

    Calls run one after another, on the background loop. If the client stays away for `idle_seconds`, the tools are
    closed, so that an abandoned episode holds no session of the sandbox; `open` says whether it may hold any.
    """

    def __init__(self, env: ToolEnv, idle_seconds: float, has_task: bool = True) -> None:
        self.episode, self.has_task, self.open = ChatEpisode(env), has_task, True
        self._idle_seconds = idle_seconds
        self._void = ""
        self._lock = asyncio.Lock()
        self._clock: asyncio.TimerHandle | None = None

    async def start(self, **choice: Any) -> list[Message]:
        """Start an episode, also after one that was void; `choice` is that of `ChatEpisode.start`."""

        async def work(episode: ChatEpisode) -> list[Message]:
            if self.has_task:
                return await episode.start(**choice)
            for tool in episode.env.tools.values():
                await tool.reset("")
            return []

        return await run_on_loop(self._use(work, anew=True))

    async def use(self, work: Callable[[ChatEpisode], Awaitable[T]]) -> T:
        """Do some work with the episode after the work before it.

        Raises:
            EpisodeVoid: the infrastructure failed, now or before, or the client stayed away for too long.
            ResetNeeded: there is no running episode.
        """
        return await run_on_loop(self._use(work))

    async def close(self) -> None:
        """Close the environment after the work in progress; may be called twice."""
        await run_on_loop(self._close("the episode was closed"))

    async def _use(self, work: Callable[[ChatEpisode], Awaitable[T]], anew: bool = False) -> T:
        async with self._lock:
            self._stop_clock()
            if anew:
                self._void, self.open = "", True
            had_failed = self._failed
            try:
                if self._void:
                    raise EpisodeVoid(self._void)
                return await work(self.episode)
            except EpisodeVoid:
                raise
            except Exception as error:
                # tools of a user's own whose failures void the sample raise what they like
                if isinstance(error, FAULTS) or (self._failed and not had_failed):
                    # remembered, or a new session without the old variables would answer the next call
                    why = redact_urls(f"{type(error).__name__}: {error}")
                    self._void = f"the environment failed, not the policy, so there is no reward ({why})"
                    raise EpisodeVoid(self._void) from error
                raise
            except BaseException:  # what a call did until it was broken off is not known
                self._void = "a call was broken off, so the episode cannot go on; start another"
                raise
            finally:
                if self.open:  # void episodes too, since their sessions may live on
                    self._start_clock()

    @property
    def _failed(self) -> bool:
        running = self.episode.env._episode
        return running is not None and running.outcome == "failed"

    async def _close(self, why: str) -> None:
        async with self._lock:
            self._stop_clock()
            self.open, self._void = False, self._void or why
            with contextlib.suppress(*FAULTS):  # what is broken needs no closing
                await self.episode.close()

    def _start_clock(self) -> None:
        self._clock = asyncio.get_running_loop().call_later(self._idle_seconds, self._expire)

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()

    def _expire(self) -> None:
        if not self._lock.locked():
            why = f"the episode was closed after {self._idle_seconds:g} s without a call; start another"
            self._closing = asyncio.ensure_future(self._close(why))  # kept, or the task could be collected


TOKEN_VARIABLE = "ARPO_SERVE_TOKEN"
IDLE_SECONDS = 600.0
_DANGER = "play episodes and run code in the sandbox"
_OPEN_PATHS = ("/health",)  # asked by container engines, which have no token


class TokenGuard:
    """An ASGI application that refuses web pages (403) and, if there is a token, requests without it (401).

    Args:
        app: answers all other requests.
        token: what a request has to send as bearer token or as password of basic authentication; empty for none.
    """

    def __init__(self, app: ASGIApp, token: str) -> None:
        self.app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or refuse a request or a WebSocket."""
        refusal = self._refusal(scope) if scope["type"] in ("http", "websocket") else None
        await (refusal or self.app)(scope, receive, send)

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        from starlette.requests import HTTPConnection
        from starlette.responses import PlainTextResponse

        headers = HTTPConnection(scope).headers
        if "Origin" in headers:
            return PlainTextResponse(NO_PAGES, 403)
        if not self._token or scope["path"] in _OPEN_PATHS:
            return None
        known = sends_token(headers.get("Authorization", ""), self._token)
        return None if known else PlainTextResponse(NO_TOKEN, 401, {"WWW-Authenticate": "Bearer"})


def bind(host: str, port: int, token: str) -> socket.socket:
    """Return a listening socket; port 0 chooses a free one, and beyond loopback there has to be a token."""
    check_token(host, token, TOKEN_VARIABLE, _DANGER)
    try:
        return listen(host, port)
    except OSError as error:
        raise ValueError(str(error)) from error


def uvicorn_server(app: ASGIApp) -> Any:
    """Return a `uvicorn.Server`."""
    import uvicorn

    # by default it pings WebSockets every 20 s, so that the session of a client that has gone is closed
    return uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=5))


def serve(app: ASGIApp, listener: socket.socket) -> None:
    """Serve until interrupted."""
    with contextlib.suppress(KeyboardInterrupt):
        uvicorn_server(app).run(sockets=[listener])


def address(listener: socket.socket) -> str:
    """Return the URL of a listening socket, without a slash at the end."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
