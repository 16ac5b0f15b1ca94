"""`Pace`: at most so many starts a second, for all threads of a process together."""

from __future__ import annotations

import threading
import time


class Pace:
    """Hands out turns, evenly spaced.

    Args:
        per_second: most turns a second.

    Raises:
        ValueError: it is not above 0.
    """

    def __init__(self, per_second: float) -> None:
        if not per_second > 0:
            raise ValueError(f"per_second={per_second} is not above 0; None means no limit")
        self.per_second = per_second
        self._next = 0.0
        self._lock = threading.Lock()

    def take(self, longest: float) -> float | None:
        """Take the next turn; return the seconds until it, or None (and take none) if those are over `longest`."""
        with self._lock:
            now = time.monotonic()
            start = max(self._next, now)
            if start - now > longest:
                return None
            self._next = start + 1 / self.per_second
            return start - now
