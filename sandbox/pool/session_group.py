"""Sessions as the client sees them, and the groups in which they hold a slot of a container.

A group is a session with all its forks. It holds one slot until the server has confirmed that its last member is
closed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from sandbox.errors import SandboxError, SessionLost
from sandbox.pool.connection import Reply
from sandbox.pool.container import Container
from sandbox.pool.state import PoolState
from sandbox.server.wire import CLOSE, INTERRUPT


class SessionGroup:
    """A session, all its forks, and the forks of those.

    Args:
        state: of the pool.
        container: the container in which the group holds a slot.
        on_leave: called with the group and a number of members that are gone.

    Attributes:
        members: number of sessions that are open or about to be. It starts at 1, for the first session.
    """

    def __init__(self, state: PoolState, container: Container, on_leave: Callable[[SessionGroup, int], object]) -> None:
        self.state = state
        self.container = container
        self.members = 1
        self._on_leave = on_leave

    def leave(self, number: int = 1) -> None:
        """Note that members are gone; the last one frees the slot."""
        self._on_leave(self, number)


class RemoteSession:
    """One session of a container, as the client knows it.

    Args:
        group: the group that it belongs to.
    """

    def __init__(self, group: SessionGroup) -> None:
        self.group = group
        self.container = group.container
        self.key = group.state.new_key()
        self.closed = False
        connection = group.container.connection
        if connection is None:  # cannot happen: only open containers have free slots
            raise RuntimeError("a slot was assigned in a container that has not been started")
        self._state = group.state
        self._connection = connection

    def copies(self, number: int) -> list[RemoteSession]:
        """Return sessions of the same group that are about to be forked from this one."""
        with self._state.lock:
            self.group.members += number
        return [RemoteSession(self.group) for _ in range(number)]

    @property
    def lost(self) -> str:
        """Why its container is gone; empty while the container lives."""
        return self._connection.lost

    def request(self, kind: int, **fields: Any) -> Future[Reply]:
        """Send a request.

        Raises:
            SessionLost: the session was closed.
            SandboxError: this process was forked from the one that opened the session.
        """
        return self.request_all((kind, fields))[0]

    def request_all(self, *requests: tuple[int, dict[str, Any]]) -> list[Future[Reply]]:
        """Send several requests at once, without waiting for replies in between; see `request`."""
        self.check_process()
        if self.closed:
            raise SessionLost("this session is closed; open a new interpreter")
        return self._connection.request_all([(kind, {"session": self.key, **fields}) for kind, fields in requests])

    def check_process(self) -> None:
        """Raise a SandboxError in a process that was forked from the one that opened the session."""
        self._state.check_process()

    def interrupt(self, cell: int | None) -> Future[Reply]:
        """Stop a cell, or the one that is running (None). The reply says whether there was one; see `request`."""
        return self.request(INTERRUPT, cell=cell)

    def interrupt_later(self, cell: int) -> None:
        """Stop a cell that nobody waits for any more. Takes no lock, so that garbage collection may call it."""

        def stop() -> None:
            with contextlib.suppress(SandboxError):  # the session is closed, and the cell ended with it
                self.interrupt(cell)

        self.call_later(stop)

    def call_later(self, action: Callable[[], object]) -> None:
        """Have the health monitor's thread run an action; returns at once."""
        self._state.wake.put(action)

    def count(self, name: str, by: int = 1) -> None:
        """Add to a counter of the pool; see `Sandbox.stats`."""
        self._state.count(name, by)

    def forget(self) -> None:
        """Note that nobody holds the session any more. Takes no lock, since it runs during garbage collection."""
        self._state.forgotten.append(self.close)
        self._state.wake.put(None)

    def mark_closed(self) -> None:
        """Note that the server has closed the session with its last answer."""
        with self._state.lock:
            if self.closed:
                return
            self.closed = True
            self._state.counts["closed"] += 1
        self.group.leave()

    def close(self) -> Future[Reply] | None:
        """End the session; returns the future of the server's confirmation, or None if none will come."""
        state = self._state
        with state.lock:
            if self.closed:
                return None
            self.closed = True
            state.counts["closed"] += 1
            if self._connection.lost and self.container.state != "ended" and not state.closed:
                state.counts["lost"] += 1  # before the pool itself has noticed
        # a forked child must not write to the stream, which belongs to its parent
        if self._connection.lost or not state.is_own_process():
            self.group.leave()
            return None
        future = self._connection.request(CLOSE, {"session": self.key})
        future.add_done_callback(lambda _: self.group.leave())
        return future
