"""One started server: the thread that starts it and reads from it, and the slots in it.

"Container" stands for whatever a backend starts. Its slots are held by families: a session, all its forks, and
the forks of those. What decides about containers is the `Pool`; nothing here takes a lock.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from sandbox.backends.docker_hosts import Host
from sandbox.daemon_threads import PythonExiting, daemon, start_thread
from sandbox.errors import SandboxError
from sandbox.pool.connection import Connection, Stream

if TYPE_CHECKING:
    from sandbox.pool.pool import Pool
    from sandbox.pool.session_group import Family

_DYING = 5.0
_log = logging.getLogger(__name__)


class Container:
    """A server that is starting, open, draining (it takes no new families), or ended.

    Args:
        pool: whose; it is told when the container opens, fails and ends.
        host: the engine it runs on.
        slots: how many families it holds.

    Attributes:
        connection: to the server, once there is one.
        families: those that hold a slot.
        served: how many have had one.
        bloated: pings in a row that found too much memory in use.
        missed: rounds of the keeper since it last gave a sign of life. Not seconds: this program may have slept.
    """

    def __init__(self, pool: Pool, host: Host, slots: int) -> None:
        self.host = host
        self.slots = slots
        self.state: Literal["starting", "open", "draining", "ended"] = "starting"
        self.connection: Connection | None = None
        self.families: set[Family] = set()
        self.served = 0
        self.missed = 0
        self.bloated = 0
        self.thread = daemon(self._live, "sandbox")
        self._pool = pool

    @property
    def free(self) -> int:
        """Slots that a new family can have now."""
        if self.state != "open" or self.connection is None or self.connection.lost:
            return 0
        return max(0, self.slots - len(self.families))

    @property
    def isolation(self) -> str:
        """What stands between the code, the machine and the other families; empty before it is open."""
        return self.connection.isolation if self.connection is not None else ""

    @property
    def lost(self) -> str:
        """Why it is gone; empty while it is not."""
        return self.connection.lost if self.connection is not None else ""

    def start(self) -> None:
        """Begin to start the server; the pool is told what comes of it."""
        try:
            start_thread(self.thread)
        except RuntimeError as error:  # belongs to those who wait for a container
            self._pool.failed(self, error)

    def _live(self) -> None:
        """Start the server and hand out its replies: one thread, since bubblewrap ends with the one that started it."""
        try:
            stream = self._pool.start_stream(self.host)
        except Exception as error:  # belongs to those who wait for a container
            self._pool.failed(self, error)
            return
        self.connection = connection = Connection(stream)
        self.missed = 0
        connection.hello.add_done_callback(lambda hello: self._greeted(stream, hello.exception(), hello.result))
        if self.state == "ended":  # the pool was closed meanwhile
            connection.close()
        connection.read()
        self._pool.ended(self)

    def _greeted(self, stream: Stream, error: BaseException | None, facts: Callable[[], dict[str, Any]]) -> None:
        if error is not None:
            self._pool.failed(self, error)
            return
        self.missed = 0
        self._pool.opened(self, facts())

    def give_up(self, why: str) -> None:
        """Fail everything that waits for the server, and end it by force, which may take a while."""
        connection = self.connection
        if connection is None:
            return
        connection.fail(why)
        with contextlib.suppress(PythonExiting):  # then it is killed when the pool is closed
            start_thread(daemon(_kill, "sandbox kill", connection.stream))

    def end(self) -> None:
        """Tell the server to end; returns at once."""
        if self.connection is not None:
            self.connection.close()

    def join(self, seconds: float) -> None:
        """Wait for the end of a server that was told to end, and insist if that takes too long."""
        if self.thread.ident is None:  # about to start; it will end by itself
            return
        self.thread.join(seconds)
        if self.thread.is_alive() and self.connection is not None:
            _log.warning("a container of the sandbox did not end in time and is killed")
            _kill(self.connection.stream)
            self.thread.join(_DYING)


def _kill(stream: Stream) -> None:
    with contextlib.suppress(OSError, SandboxError):
        stream.kill()
