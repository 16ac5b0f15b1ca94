"""One session that a server holds for an HTTP client, and the answer to its last numbered request."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager

from sandbox.pool.connection import Reply
from sandbox.pool.session_group import RemoteSession


class StaleNumber(ValueError):
    """A request has a smaller number than one that the session has served."""


class HostedSession:
    """One session, with the answer to its last numbered request.

    Args:
        session: in the pool.
        client: the name of the client that it belongs to.
        lease: what its client calls the program that opened it.
        key: of the request that created it; empty for a fork.
        once: whether it ends with its first cell.

    Attributes:
        id: what the client calls it; nobody can guess it.
        used: when it was last used, by `time.monotonic`.
        waiting: how many requests wait for it now; it is not idle then.
    """

    def __init__(self, session: RemoteSession, client: str, lease: str, key: str = "", once: bool = False) -> None:
        self.id = secrets.token_urlsafe(24)
        self.session = session
        self.client = client
        self.lease = lease
        self.key = key
        self.once = once
        self.used = time.monotonic()
        self.waiting = 0
        self._number = -1
        self._future: Future[Reply] = Future()
        self._lock = threading.Lock()

    def submit(self, number: int | None, start: Callable[[], Future[Reply]]) -> Future[Reply]:
        """Start a request, or return the one of the same number that was started before.

        Args:
            number: counts the requests of the session; None for a request that is never repeated.
            start: sends the request.

        Raises:
            StaleNumber: a later request was started meanwhile.
        """
        with self._lock:
            if number is not None and number < self._number:
                raise StaleNumber(f"request {number} comes after request {self._number}; count upwards")
            if number is None or number > self._number:
                future = start()
                if number is None:
                    return future
                self._number, self._future = number, future
            return self._future

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep the session from being idle."""
        with self._lock:
            self.waiting += 1
        try:
            yield
        finally:
            with self._lock:
                self.waiting -= 1
                self.used = time.monotonic()
