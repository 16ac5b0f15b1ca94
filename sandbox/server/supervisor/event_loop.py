"""The supervisor's event loop: descriptors that are ready, and timers. Runs inside the sandbox, in the supervisor.

Nearly all timers are cancelled, since a cell ends long before its limit. A cancelled timer releases its callback at
once and stays in the heap; the heap is rebuilt when most of it is cancelled timers.
"""

from __future__ import annotations

import heapq
import selectors
import time
import traceback
from collections.abc import Callable

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
_LONGEST_WAIT = 3600.0
_MOST_FAILURES = 1000  # after so many exceptions there must be a fault that repeats itself
_MANY_CANCELLED = 256


class Timer:
    """A callback at a time.

    Args:
        due: when, on the monotonic clock.
        callback: what to call.
    """

    __slots__ = ("callback", "due")

    def __init__(self, due: float, callback: Callable[[], object]) -> None:
        self.due = due
        self.callback: Callable[[], object] | None = callback

    def __lt__(self, other: Timer) -> bool:
        return self.due < other.due


class EventLoop:
    """Calls back when descriptors are ready and when timers are due."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: list[Timer] = []  # a heap
        self._cancelled = 0
        self._stopped = False
        self._failures = 0

    def run(self) -> None:
        """Serve until `stop` is called."""
        while not self._stopped:
            for key, _ in self._selector.select(self._wait_seconds()):
                if self._selector.get_map().get(key.fd) is key:  # an earlier callback may have closed it
                    self._call(key.data)
            self._fire_timers()

    def stop(self) -> None:
        """Make `run` return after the callbacks of this round."""
        self._stopped = True

    def watch(self, fd: int, callback: Callable[[], None], events: int = READ) -> None:
        """Call back whenever a descriptor can be read (or, with WRITE, written)."""
        if fd in self._selector.get_map():
            self._selector.modify(fd, events, callback)
        else:
            self._selector.register(fd, events, callback)

    def unwatch(self, fd: int) -> None:
        """Stop calling back for a descriptor; does nothing if it is not watched."""
        if fd in self._selector.get_map():
            self._selector.unregister(fd)

    def call_in(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Call back once, later; returns a timer that can be cancelled."""
        timer = Timer(time.monotonic() + seconds, callback)
        heapq.heappush(self._timers, timer)
        return timer

    def cancel(self, timer: Timer | None) -> None:
        """Cancel a timer; does nothing for None, or if it has fired or was cancelled."""
        if timer is None or timer.callback is None:
            return
        timer.callback = None  # releases what the callback refers to
        self._cancelled += 1
        if self._cancelled > _MANY_CANCELLED and 2 * self._cancelled > len(self._timers):
            # rebuilding takes time in proportion to the heap, and halves it: constant per cancelled timer
            self._timers = [one for one in self._timers if one.callback is not None]
            heapq.heapify(self._timers)
            self._cancelled = 0

    def _wait_seconds(self) -> float:
        seconds = self._until_next_timer()
        return _LONGEST_WAIT if seconds is None else min(seconds, _LONGEST_WAIT)

    def _until_next_timer(self) -> float | None:
        while self._timers and self._timers[0].callback is None:
            heapq.heappop(self._timers)
            self._cancelled -= 1
        return max(0.0, self._timers[0].due - time.monotonic()) if self._timers else None

    def _fire_timers(self) -> None:
        while self._until_next_timer() == 0.0:
            timer = heapq.heappop(self._timers)
            callback, timer.callback = timer.callback, None
            if callback is not None:
                self._call(callback)

    def _call(self, callback: Callable[[], object]) -> None:
        """Call back. An exception must not end the supervisor, whatever a session has done to cause it."""
        try:
            callback()
        except Exception:
            traceback.print_exc()
            self._failures += 1
            if self._failures > _MOST_FAILURES:
                raise
