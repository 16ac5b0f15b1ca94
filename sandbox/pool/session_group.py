"""What holds a slot of a container: a family of sessions, and the client's view of one session.

A family holds its slot until the server has confirmed that its last member is closed.
"""

from __future__ import annotations

import contextlib
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from sandbox.errors import SandboxError, SessionLost
from sandbox.pool.connection import Reply
from sandbox.server.wire import CLOSE, INTERRUPT

if TYPE_CHECKING:
    from sandbox.pool.container import Container
    from sandbox.pool.pool import Pool


class Family:
    """A session, all its forks, and the forks of those.

    Args:
        pool: whose.
        container: where its slot is.

    Attributes:
        members: sessions that are open or about to be; the first is there from the start.
    """

    def __init__(self, pool: Pool, container: Container) -> None:
        self.pool = pool
        self.container = container
        self.members = 1

    def leave(self, number: int = 1) -> None:
        """Count members that are gone; with the last one the slot is free."""
        self.pool.leave(self, number)


class Session:
    """One session of a container, as the client knows it.

    Args:
        family: it belongs to.
    """

    def __init__(self, family: Family) -> None:
        self.family = family
        self.pool = family.pool
        self.container = family.container
        self.key = family.pool.new_key()
        self.closed = False
        connection = family.container.connection
        if connection is None:
            raise RuntimeError("a slot was given away in a container that has not been started")
        self._connection = connection

    def copies(self, number: int) -> list[Session]:
        """Return sessions of the same family that are about to be forked from this one."""
        with self.pool.lock:
            self.family.members += number
        return [Session(self.family) for _ in range(number)]

    @property
    def lost(self) -> str:
        """Why its container is gone; empty while it is not."""
        return self._connection.lost

    def request(self, kind: int, **fields: Any) -> Future[Reply]:
        """Send a request.

        Raises:
            SessionLost: it was closed.
            SandboxError: this process was forked from the one that opened it.
        """
        return self.request_all((kind, fields))[0]

    def request_all(self, *requests: tuple[int, dict[str, Any]]) -> list[Future[Reply]]:
        """Send requests in one piece, none of them waiting for the reply to another; see `request`."""
        self.pool.check_process()
        if self.closed:
            raise SessionLost("this session is closed; open a new interpreter")
        return self._connection.request_all([(kind, {"session": self.key, **fields}) for kind, fields in requests])

    def interrupt(self, cell: int | None) -> Future[Reply]:
        """Stop a cell; None takes the one that runs. The reply says whether there was one; see `request`."""
        return self.request(INTERRUPT, cell=cell)

    def give_up(self, cell: int) -> None:
        """Stop a cell that nobody waits for any more; may be called during garbage collection, takes no lock."""

        def stop() -> None:
            with contextlib.suppress(SandboxError):  # it is closed: the cell has ended with it
                self.interrupt(cell)

        self.pool.wake.put(stop)

    def ended(self) -> None:
        """Note that the server has closed it by itself, with its last answer."""
        with self.pool.lock:
            if self.closed:
                return
            self.closed = True
            self.pool.counts["closed"] += 1
        self.family.leave()

    def close(self) -> Future[Reply] | None:
        """End it; returns the server's confirmation to come, or None if there is nothing to wait for."""
        with self.pool.lock:
            if self.closed:
                return None
            self.closed = True
            self.pool.counts["closed"] += 1
            if self._connection.lost and self.container.state != "ended" and not self.pool.closed:
                self.pool.counts["lost"] += 1  # before the pool itself has noticed
        if self._connection.lost or not self.pool.is_ours():
            self.family.leave()
            return None
        future = self._connection.request(CLOSE, {"session": self.key})
        future.add_done_callback(lambda _: self.family.leave())
        return future
