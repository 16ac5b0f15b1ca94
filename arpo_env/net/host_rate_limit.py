"""Politeness: one request to a host at a time slot; who comes first is served first."""

from __future__ import annotations

import asyncio
import threading
import time

_MANY = 10_000


class Busy(Exception):
    """Raised when the turn would come too late; no turn was taken.

    Attributes:
        seconds: that it would have taken.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(f"{seconds:.0f} s until the next turn")
        self.seconds = seconds


class Pace:
    """Turns per key, `interval` seconds apart. Serves any number of event loops."""

    def __init__(self) -> None:
        self._next: dict[str, float] = {}
        self._lock = threading.Lock()

    async def turn(self, key: str, interval: float, patience: float) -> None:
        """Wait for a turn; the one after it comes `interval` seconds later.

        Raises:
            Busy: it would come later than `patience` seconds from now.
        """
        with self._lock:
            now = time.monotonic()
            start = max(now, self._next.get(key, now))
            if start - now > patience:
                raise Busy(start - now)
            self._next[key] = start + interval
            if len(self._next) > _MANY:
                self._next = {each: when for each, when in self._next.items() if when > now}
        await asyncio.sleep(start - now)
