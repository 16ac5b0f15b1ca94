"""`RateLimiter`: requests start at evenly spaced times, for all threads and event loops of a process together."""

from __future__ import annotations

import asyncio
import threading
import time

_MANY = 10_000


class RateLimited(Exception):
    """Raised when the next free start is too far away; no start was reserved.

    Attributes:
        seconds: until that start.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(f"{seconds:.0f} s until the next turn")
        self.seconds = seconds


class RateLimiter:
    """Spaces out the starts of requests, separately for each key. Callers are served in the order in which they ask.

    Args:
        per_second: most starts per second and key.

    Raises:
        ValueError: `per_second` is not above 0.
    """

    def __init__(self, per_second: float) -> None:
        if not per_second > 0:
            raise ValueError(f"per_second={per_second} is not above 0; None means no limit")
        self.per_second = per_second
        self._next: dict[str, float] = {}
        self._lock = threading.Lock()

    async def acquire(self, patience: float, key: str = "", min_interval: float = 0.0) -> None:
        """Wait until the caller may start.

        Args:
            patience: longest wait in seconds.
            key: what the limit applies to, such as a host.
            min_interval: seconds to the next start of this key, if that is more than the limit demands.

        Raises:
            RateLimited: the wait would be longer than `patience`.
        """
        await asyncio.sleep(self._reserve(patience, key, max(1 / self.per_second, min_interval)))

    def _reserve(self, patience: float, key: str, interval: float) -> float:
        with self._lock:
            now = time.monotonic()
            start = max(now, self._next.get(key, now))
            if start - now > patience:
                raise RateLimited(start - now)
            self._next[key] = start + interval
            if len(self._next) > _MANY:  # keys whose time has passed delay no request
                self._next = {each: when for each, when in self._next.items() if when > now}
            return start - now
