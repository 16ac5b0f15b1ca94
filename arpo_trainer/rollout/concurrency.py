"""How many of a kind of work go on at once, and the note of how long each waited."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping

from arpo_trainer.timeline import Event

KINDS = ("trajectory", "generate", "reset", "fork", "answer")
MOST_TRAJECTORIES = 256  # as many as a sandbox holds sessions, if nobody says otherwise


class Gates:
    """Limits on what goes on at once in one rollout; who comes first goes first.

    Args:
        limits: most at once by kind: "trajectory" (episodes, of a group that branches all at once), "generate",
            "reset", "fork", "answer" (grading), or the name of a tool. What is not named is not limited here.

    Raises:
        ValueError: a limit below 1.
    """

    def __init__(self, limits: Mapping[str, int]) -> None:
        for kind, most in limits.items():
            if most < 1:
                raise ValueError(f"the limit of {kind!r} must be at least 1, got {most}")
        self._gates = {kind: (asyncio.Lock(), asyncio.Semaphore(most)) for kind, most in limits.items()}
        self._began = time.perf_counter()

    def now(self) -> float:
        """Return the seconds since the rollout began."""
        return time.perf_counter() - self._began

    @contextlib.asynccontextmanager
    async def place(self, *kinds: str, count: int = 1) -> AsyncIterator[float]:
        """Hold `count` places among those of each kind; yields the seconds they were waited for."""
        asked = self.now()
        async with contextlib.AsyncExitStack() as held:
            for kind in sorted(self._gates.keys() & set(kinds)):  # in one order, or two would wait for each other
                queue, gate = self._gates[kind]
                async with queue:  # who takes several takes them together
                    for _ in range(count):
                        await held.enter_async_context(gate)
            yield self.now() - asked

    @contextlib.asynccontextmanager
    async def doing(self, timeline: list[Event], event: Event, *kinds: str) -> AsyncIterator[Event]:
        """Do one thing in its place (of its own kind, or of those named), and note it, also when it fails."""
        event.start = self.now()
        try:
            async with self.place(*(kinds or (event.kind,))) as event.waited:
                yield event
        finally:
            event.end = self.now()
            timeline.append(event)


def check_limits(limits: Mapping[str, int], tools: list[str]) -> None:
    """Refuse limits of kinds that do not exist.

    Raises:
        ValueError: names what there is.
    """
    unknown = sorted(set(limits) - set(KINDS) - set(tools))
    if unknown:
        raise ValueError(f"limits names {', '.join(unknown)}; there are {', '.join((*KINDS, *tools))}")
