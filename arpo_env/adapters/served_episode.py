"""`ServedEpisode`: an episode that a client plays over a network.

    served = ServedEpisode(factory(), idle_seconds=600)
    messages = await served.start(index=3)
    messages = await served.use(lambda episode: episode.reply("<think>So.</think><python>1 + 1</python>"))
    await served.close()

It may be used from any event loop. Calls run one after another, on the background loop. If the client stays away for
`idle_seconds`, the tools are closed, so that an abandoned episode holds no session of the sandbox.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from arpo_env.adapters.chat_episode import ChatEpisode
from arpo_env.adapters.peer import FAULTS
from arpo_env.chat_messages import Message
from arpo_env.env import ToolEnv
from arpo_env.event_loop import run_on_loop
from arpo_env.net.redaction import redact_urls

T = TypeVar("T")


class EpisodeVoid(RuntimeError):
    """Raised when an episode has no reward and cannot go on, through no fault of the policy; start another one."""


class ServedEpisode:
    """One client's episode.

    Args:
        env: the environment; this object uses it alone.
        idle_seconds: how long the client may stay away.

    Attributes:
        episode: the episode.
        open: whether the environment may hold resources.
    """

    def __init__(self, env: ToolEnv, idle_seconds: float) -> None:
        self.episode = ChatEpisode(env)
        self.open = True
        self._idle_seconds = idle_seconds
        self._void = ""
        self._lock = asyncio.Lock()
        self._clock: asyncio.TimerHandle | None = None

    async def start(self, **choice: Any) -> list[Message]:
        """Start an episode, also after one that was void; `choice` is that of `ChatEpisode.start`.

        Raises:
            EpisodeVoid: the infrastructure failed.
        """
        return await run_on_loop(self._use(lambda episode: episode.start(**choice), anew=True))

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
