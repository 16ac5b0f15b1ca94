"""Times of a rollout: what each trajectory did and waited for (`Event`), and how long anything ran (`Stopwatch`)."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass
class Event:
    """One interval of one trajectory; a trajectory's events do not overlap, except forks made while it generates.

    Attributes:
        trajectory: its number in the tree.
        kind: "start" (waiting for a place among the running trajectories), "reset", "generate", "tool", "answer"
            (grading), "fork", "settle" (a branch that waits until earlier requests are settled), "retry", "helper" (the
            model of a tool at inference time).
        start: seconds since the rollout began.
        end: seconds since the rollout began.
        waited: seconds of waiting from `start` on: behind a limit, or in the queue of the backend.
        name: of the tool, or of the error that was retried.
        status: of a tool's result, or how a generation ended ("stop", "eos", "length").
        tokens: generated.
        cached: context tokens the backend did not compute again.
        context: context tokens it was given.
        copies: of a fork: number of environments that were made.
        until: of a fork: when its copies were no longer held, because the branches started or were denied.
    """

    trajectory: int
    kind: str
    start: float
    end: float
    waited: float = 0.0
    name: str = ""
    status: str = ""
    tokens: int = 0
    cached: int = 0
    context: int = 0
    copies: int = 0
    until: float = 0.0


class Stopwatch:
    """Counts the seconds during which one or more `running` blocks are open; overlapping blocks count once.

    It takes no lock: use it from one event loop or one thread.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        # open blocks; only the first that opens and the last that closes read the clock
        self._open = 0
        self._since = 0.0

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Count while the block is open."""
        if self._open == 0:
            self._since = time.perf_counter()
        self._open += 1
        try:
            yield
        finally:
            # also when the block fails, or the stopwatch would run on for ever
            self._open -= 1
            if self._open == 0:
                self.seconds += time.perf_counter() - self._since
