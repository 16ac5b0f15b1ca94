"""Things to be done later, unless they are called off. Runs inside the sandbox, in the supervisor.

Nearly all timers are called off: a cell ends long before its limit. One that is lets go at once of what it would
have needed, and the heap is tidied when most of it is such leftovers.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable

_MANY = 256


class Timer:
    """One thing to be done.

    Args:
        due: when, on the monotonic clock.
        callback: what.
    """

    __slots__ = ("callback", "due")

    def __init__(self, due: float, callback: Callable[[], object]) -> None:
        self.due = due
        self.callback: Callable[[], object] | None = callback

    def __lt__(self, other: Timer) -> bool:
        return self.due < other.due


class Timers:
    """All that is to be done, by time."""

    def __init__(self) -> None:
        self._heap: list[Timer] = []
        self._called_off = 0

    def call_in(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Call back once, later."""
        timer = Timer(time.monotonic() + seconds, callback)
        heapq.heappush(self._heap, timer)
        return timer

    def call_off(self, timer: Timer | None) -> None:
        """Do not call back after all."""
        if timer is None or timer.callback is None:
            return
        timer.callback = None
        self._called_off += 1
        if self._called_off > _MANY and 2 * self._called_off > len(self._heap):
            self._heap = [one for one in self._heap if one.callback is not None]
            heapq.heapify(self._heap)
            self._called_off = 0

    def until_next(self) -> float | None:
        """Return the seconds until there is something to do, None if there is nothing."""
        while self._heap and self._heap[0].callback is None:
            heapq.heappop(self._heap)
            self._called_off -= 1
        return max(0.0, self._heap[0].due - time.monotonic()) if self._heap else None

    def fire(self, carefully: Callable[[Callable[[], object]], None]) -> None:
        """Do what is due, each by way of `carefully`."""
        while self.until_next() == 0.0:
            timer = heapq.heappop(self._heap)
            callback, timer.callback = timer.callback, None
            if callback is not None:
                carefully(callback)
