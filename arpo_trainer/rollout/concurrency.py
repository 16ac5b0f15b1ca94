"""Limits on how many operations of one kind run at once, and the record of how long each waited."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping

from arpo_trainer.timeline import Event

KINDS = ("trajectory", "generate", "reset", "fork", "answer")
DEFAULT_TRAJECTORIES = 256  # as many as a sandbox has sessions by default


class ConcurrencyLimits:
    """Limits on what runs at once in one rollout; waiting operations are served in the order in which they asked.

    Args:
        limits: most at once by kind: "trajectory" (episodes; a group that branches takes all of its places at once),
            "generate", "reset", "fork", "answer" (grading), or the name of a tool. Other kinds are not limited here.

    Raises:
        ValueError: a limit is below 1.
    """

    def __init__(self, limits: Mapping[str, int]) -> None:
        for kind, most in limits.items():
            if most < 1:
                raise ValueError(f"the limit of {kind!r} must be at least 1, got {most}")
        self._limited = {kind: (asyncio.Lock(), asyncio.Semaphore(most)) for kind, most in limits.items()}
        self._began = time.perf_counter()

    def now(self) -> float:
        """Return the seconds since the rollout began."""
        return time.perf_counter() - self._began

    @contextlib.asynccontextmanager
    async def acquire(self, *kinds: str, count: int = 1) -> AsyncIterator[float]:
        """Hold `count` places of each kind; yields the seconds spent waiting for them."""
        asked = self.now()
        async with contextlib.AsyncExitStack() as held:
            for kind in sorted(self._limited.keys() & set(kinds)):  # one order for all callers, so none deadlock
                queue, semaphore = self._limited[kind]
                async with queue:  # several places are taken together: two callers with half each would deadlock
                    for _ in range(count):
                        await held.enter_async_context(semaphore)
            yield self.now() - asked

    @contextlib.asynccontextmanager
    async def timed(self, timeline: list[Event], event: Event, *kinds: str) -> AsyncIterator[Event]:
        """Hold a place of the event's own kind (or of `kinds`), and record the event, also when the body fails."""
        event.start = self.now()
        try:
            async with self.acquire(*(kinds or (event.kind,))) as event.waited:
                yield event
        finally:
            event.end = self.now()
            timeline.append(event)


def check_limits(limits: Mapping[str, int], tools: list[str]) -> None:
    """Refuse limits of kinds that do not exist.

    Raises:
        ValueError: names the unknown kinds and those that exist.
    """
    unknown = sorted(set(limits) - set(KINDS) - set(tools))
    if unknown:
        raise ValueError(f"limits names {', '.join(unknown)}; there are {', '.join((*KINDS, *tools))}")
