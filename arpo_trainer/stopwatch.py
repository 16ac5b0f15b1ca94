"""Wall time during which at least one of several concurrent things was going on."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator


class Stopwatch:
    """Counts seconds while one or more `running` blocks are open; overlapping ones count once.

    For one event loop or one thread; it takes no lock.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
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
            self._open -= 1
            if self._open == 0:
                self.seconds += time.perf_counter() - self._since
