"""The state that a pool shares with its sessions and its health monitor."""

from __future__ import annotations

import itertools
import os
import threading
from collections import Counter, deque
from collections.abc import Callable
from queue import SimpleQueue

from sandbox.errors import SandboxError

Action = Callable[[], object]


class PoolState:
    """Lock, counters and work queues of one pool.

    Attributes:
        lock: guards the counters, the waiting requests and the containers. Futures are resolved, and containers are
            spoken to, only while it is not held.
        counts: what has happened so far; see `Sandbox.stats`.
        wake: what the health monitor waits for: actions that it runs, or None, which makes it tick at once.
        forgotten: the `close` methods of sessions that were garbage collected while open.
        closed: whether the pool was closed.
        owner: the process that opened the pool; 0 before the first request.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        self.wake: SimpleQueue[Action | None] = SimpleQueue()
        self.forgotten: deque[Action] = deque()
        self.closed = False
        self.owner = 0
        self._keys = itertools.count(1)

    def new_key(self) -> int:
        """Return a key for a new session; the server knows the session by it."""
        return next(self._keys)

    def count(self, name: str, by: int = 1) -> None:
        """Add to a counter."""
        with self.lock:
            self.counts[name] += by

    def close_forgotten(self) -> None:
        """Close the sessions that were garbage collected while open."""
        while self.forgotten:
            self.forgotten.popleft()()

    def is_own_process(self) -> bool:
        """Whether this process opened the pool, or the pool has not been opened yet."""
        return self.owner in (0, os.getpid())

    def check_process(self) -> None:
        """Raise a SandboxError in a process that was forked from the one that opened the pool."""
        if not self.is_own_process():
            raise SandboxError(
                f"this sandbox belongs to process {self.owner}; this process ({os.getpid()}) was forked from it. "
                "Open another sandbox here (default_sandbox() does so by itself)"
            )

    def reset_after_fork(self) -> None:
        """In a forked child: replace lock and queue, since a thread of the parent may have held them."""
        self.lock, self.wake = threading.Lock(), SimpleQueue()
