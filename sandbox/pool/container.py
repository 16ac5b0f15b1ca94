"""One started server: its slots, and the thread that starts it and reads its replies.

"Container" stands for whatever a backend starts. Nothing here takes a lock: `Pool` decides about containers, and
implements `ContainerEvents`.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Any, Literal, Protocol

from sandbox.backends.stream import Stream
from sandbox.docker_engine.hosts import Host
from sandbox.errors import SandboxError
from sandbox.pool.connection import Connection
from sandbox.pool.daemon_threads import PythonExiting, daemon_thread, start_thread

_KILL_SECONDS = 5.0
_log = logging.getLogger(__name__)


class SlotHolder(Protocol):
    """What holds a slot: a group of sessions.

    Attributes:
        members: number of its sessions.
    """

    members: int


class ContainerEvents(Protocol):
    """What a container reports to its pool, from its own thread."""

    def start_stream(self, host: Host) -> Stream:
        """Start a server and return the stream to it; may take long."""

    def on_open(self, container: Container, facts: dict[str, Any]) -> None:
        """The server has sent HELLO with these facts about its isolation."""

    def on_start_failure(self, container: Container, error: BaseException) -> None:
        """The server could not be started."""

    def on_end(self, container: Container) -> None:
        """The stream has ended."""


class Container:
    """A server that is starting, open, draining (it takes no new groups), or ended.

    Args:
        events: told when the container opens, fails and ends.
        host: the engine it runs on.
        slots: how many groups of sessions it holds.

    Attributes:
        connection: to the server, once there is one.
        groups: those that hold a slot.
        capacity: how many slots it had when it opened; fewer can be usable later.
        served: how many groups have held a slot so far.
        bloated_pings: pings in a row that found too much memory in use.
        missed_pings: rounds of the health monitor since the server last answered. Rounds and not seconds, since this
            program may have been suspended.
    """

    def __init__(self, events: ContainerEvents, host: Host, slots: int) -> None:
        self.host = host
        self.slots = self.capacity = slots
        self.state: Literal["starting", "open", "draining", "ended"] = "starting"
        self.connection: Connection | None = None
        self.groups: set[SlotHolder] = set()
        self.served = 0
        self.missed_pings = 0
        self.bloated_pings = 0
        self.thread = daemon_thread(self._run, "sandbox")
        self._events = events

    @property
    def free(self) -> int:
        """Number of slots that a new group can take now."""
        if self.state != "open" or self.connection is None or self.connection.lost:
            return 0
        return max(0, self.slots - len(self.groups))

    @property
    def isolation(self) -> str:
        """What separates the code from the machine and from other groups; empty until the container is open."""
        return self.connection.isolation if self.connection is not None else ""

    @property
    def lost(self) -> str:
        """Why the container is gone; empty while it is not."""
        return self.connection.lost if self.connection is not None else ""

    def start(self) -> None:
        """Begin to start the server; the result is reported to the pool."""
        try:
            start_thread(self.thread)
        except RuntimeError as error:  # is passed on to those who wait for a container
            self._events.on_start_failure(self, error)

    def _run(self) -> None:
        """Start the server and read its replies.

        Both happen in one thread, since bubblewrap ends with the thread that started it.
        """
        try:
            stream = self._events.start_stream(self.host)
        except Exception as error:  # is passed on to those who wait for a container
            self._events.on_start_failure(self, error)
            return
        self.connection = connection = Connection(stream)
        self.missed_pings = 0
        connection.hello.add_done_callback(lambda hello: self._on_hello(hello.exception(), hello.result))
        if self.state == "ended":  # the pool was closed meanwhile
            connection.close()
        connection.read()
        self._events.on_end(self)

    def _on_hello(self, error: BaseException | None, facts: Callable[[], dict[str, Any]]) -> None:
        if error is not None:
            self._events.on_start_failure(self, error)
            return
        self.missed_pings = 0
        self._events.on_open(self, facts())

    def give_up(self, why: str) -> None:
        """Fail everything that waits for the server, and end it by force; returns at once."""
        connection = self.connection
        if connection is None:
            return
        connection.fail(why)
        with contextlib.suppress(PythonExiting):  # the server is killed when the pool is closed
            start_thread(daemon_thread(_kill, "sandbox kill", connection.stream))

    def end(self) -> None:
        """Tell the server to end; returns at once."""
        if self.connection is not None:
            self.connection.close()

    def join(self, seconds: float) -> None:
        """Wait for a server that was told to end, and kill it if that takes too long."""
        if self.thread.ident is None:  # it was about to start, and will end by itself
            return
        self.thread.join(seconds)
        if self.thread.is_alive() and self.connection is not None:
            _log.warning("a sandbox container did not end in time; killing it")
            _kill(self.connection.stream)
            self.thread.join(_KILL_SECONDS)


def _kill(stream: Stream) -> None:
    with contextlib.suppress(OSError, SandboxError):
        stream.kill()
