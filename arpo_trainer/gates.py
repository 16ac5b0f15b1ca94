"""How many of a kind of work go on at once, and the note of how long each waited."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping

from arpo_trainer.timeline import Event

KINDS = ("trajectory", "generate", "reset", "fork", "answer")
DEFAULT_LIMITS: Mapping[str, int] = {"trajectory": 512}


class Gates:
    """Limits on what goes on at once in one rollout; who comes first goes first.

    Args:
        limits: most at once by kind: "trajectory" (episodes that are open), "generate", "reset", "fork", "answer"
            (grading), or the name of a tool. What is not named is not limited here.

    Raises:
        ValueError: a limit below 1.
    """

    def __init__(self, limits: Mapping[str, int]) -> None:
        for kind, most in limits.items():
            if most < 1:
                raise ValueError(f"the limit of {kind!r} must be at least 1, got {most}")
        self._gates = {kind: asyncio.Semaphore(most) for kind, most in limits.items()}
        self._began = time.perf_counter()

    def now(self) -> float:
        """Return the seconds since the rollout began."""
        return time.perf_counter() - self._began

    @contextlib.asynccontextmanager
    async def place(self, kind: str) -> AsyncIterator[float]:
        """Hold a place among those of a kind; yields the seconds it was waited for."""
        asked = self.now()
        async with self._gates.get(kind, contextlib.nullcontext()):
            yield self.now() - asked

    @contextlib.asynccontextmanager
    async def doing(self, timeline: list[Event], event: Event, kind: str | None = None) -> AsyncIterator[Event]:
        """Do one thing in its place, and note it in the timeline, also when it fails."""
        event.start = self.now()
        try:
            async with self.place(kind or event.kind) as event.waited:
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
