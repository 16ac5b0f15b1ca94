"""The supervisor's side of one session: slot, channel, output, open requests. Runs inside the sandbox."""

from __future__ import annotations

import math
import os
import socket
from collections import deque
from typing import Any, Protocol

from sandbox.server.supervisor.client_stream import ClientRequest
from sandbox.server.supervisor.output_capture import OutputCapture
from sandbox.server.supervisor.session_socket import ControlSocket, adopted
from sandbox.server.wire import GIVE, LARGEST_PIECE, PICTURE_BYTES, WireError

# room in a frame for the structs around texts, data and pictures
_SLACK = 4096
_READS_AT_ONCE = 32


class SessionSpawner(Protocol):
    """What forks sessions: the client of a zygote.

    Attributes:
        pid: of the zygote.
    """

    pid: int

    def open(self, handle: SessionHandle) -> None:
        """Have a session forked for this handle."""

    def settled(self, handle: SessionHandle) -> None:
        """The session has started, or never will."""


class SessionControl(Protocol):
    """What the parts that serve requests may do to a session."""

    def answer(self, handle: SessionHandle, request: ClientRequest, fields: dict[str, Any], succeeded: bool) -> None:
        """Answer a request."""

    def advance(self, handle: SessionHandle) -> None:
        """Start the next request of a session, if the session is free."""

    def kill(self, handle: SessionHandle, cause: str, why: str) -> None:
        """Kill a session; its open requests are answered when its process has ended."""

    def discard(self, handle: SessionHandle, lost: str) -> None:
        """Release what a session that is gone has held."""

    def forget(self, handle: SessionHandle) -> None:
        """Remove a session that is gone, and tell the client that it is closed."""


class Slot:
    """A user and a directory for one group of sessions.

    Args:
        path: the directory. It belongs to the supervisor; sessions cannot list it.
        uid: the user; 0 for the supervisor's own.

    Attributes:
        members: the sessions of the group.
        leftovers: directories of members that are gone.
        sweeping: whether the slot is being emptied.
        swept: whether a process has begun to empty it.
        tries: how often that was done in vain.
    """

    def __init__(self, path: str, uid: int) -> None:
        self.path = path
        self.uid = uid
        self.members: set[SessionHandle] = set()
        self.leftovers: list[str] = []
        self.sweeping = False
        self.swept = False
        self.tries = 0


class SessionHandle:
    """One session, as the supervisor sees it.

    Args:
        key: the client's key for it.
        limits: the client's limits.
        spawner: what forks it, unless another session does.

    Attributes:
        pid: its process; 0 until that is known.
        idle: whether its process may have idle priority.
        inherited: bytes of memory that it shared, when it began, with the session it was forked from.
        created_after: clock ticks; its process starts no earlier.
        lost: why there is no process any more.
        ended: status and text of the outcome of later cells, once the code has ended its own session.
        cause: the status of the cell because of which the supervisor has killed it; `why` explains it in words.
        bystander: it ends through nothing that its code has done: its zygote has ended first, or the kernel has taken
            it for the memory of others.
        blamed: when its group was last found to hold most of a memory that was running out, in `time.monotonic`.
        queue: requests that wait.
        current: the request that it works on.
        closing: numbers of the requests to close it; 0 for a close without a reply.
        given: the session's ends of its channels, until it has them.
        once: it is closed as soon as its only run has been answered.
    """

    def __init__(self, key: int, limits: dict[str, Any], spawner: SessionSpawner) -> None:
        self.key = key
        self.spawner = spawner
        self.slot: Slot | None = None
        self.directory = ""
        self.pid = 0
        self.attempts = 0
        self.idle = False
        self.inherited = 0
        self.created_after = 0
        self.parent = 0
        self.lost = ""
        self.ended: tuple[str, str] | None = None
        self.cause = ""
        self.why = ""
        self.bystander = False
        self.blamed = -math.inf
        self.queue: deque[ClientRequest] = deque()
        self.current: ClientRequest | None = None
        self.closing: list[int] = []
        self.control: ControlSocket | None = None
        self.outputs: tuple[int, ...] = ()
        self.given: tuple[int, ...] = ()
        self.once = False
        self._limits = limits
        self.begin_output()

    @property
    def home(self) -> Slot:
        """The slot of a session that lives.

        Raises:
            WireError: it has none.
        """
        if self.slot is None:
            raise WireError("a session without a slot")
        return self.slot

    def rename(self, name: bytes) -> None:
        """Take note of the name that a session has given its directory.

        Raises:
            WireError: it is not a valid name.
        """
        text = name.decode("ascii", "replace")
        # the name comes from the session; with a "/" or ".." in it, another directory would be removed later
        if len(text) != 32 or set(text) - set("0123456789abcdef"):
            raise WireError("a malformed name of a directory")
        self.directory = os.path.join(self.home.path, text)

    def open_channels(self) -> None:
        """Make a control socket and the pipes of stdout and stderr, for a session that the zygote is about to fork.

        Raises:
            OSError: no descriptors are left.
        """
        ours, theirs = socket.socketpair()
        self._use(ours)
        self.given = (theirs.detach(), *self._open_outputs())

    def adopt(self, fd: int, pid: int) -> None:
        """Use a control socket that a process has made for itself, and send it new pipes for stdout and stderr.

        Args:
            fd: the socket, owned by the handle from now on.
            pid: the process.

        Raises:
            OSError: it is not such a socket, or another process has made it.
        """
        control = adopted(fd, pid)
        self.drain()  # what was written before the fork is shown with the next cell
        self.close_channels()
        self._use(control)
        ends = self._open_outputs()
        try:
            self.channel.send(GIVE, 0, b"", ends)
        finally:
            for end in ends:
                os.close(end)

    def _use(self, control: socket.socket) -> None:
        # value and error have at most `output_bytes` characters each, of at most 6 bytes each (an escaped surrogate)
        most = max(12 * self._limits["output_bytes"], LARGEST_PIECE) + PICTURE_BYTES + _SLACK
        self.control = ControlSocket(control, most)

    def _open_outputs(self) -> tuple[int, int]:
        """Make the pipes of stdout and stderr; returns the ends to write to."""
        out, out_end = os.pipe()
        err, err_end = os.pipe()
        self.outputs = (out, err)
        for fd in self.outputs:
            os.set_blocking(fd, False)
        return out_end, err_end

    def begin_output(self) -> None:
        """Start with empty captures."""
        self.captures = tuple(OutputCapture(self._limits["output_bytes"]) for _ in ("stdout", "stderr"))

    def release(self) -> None:
        """Close the session's ends of its channels, once the session has them."""
        # else the supervisor itself would keep the channel and the pipes open, and never see their end
        for fd in self.given:
            os.close(fd)
        self.given = ()

    def read_output(self, fd: int) -> int | None:
        """Read from stdout or stderr; returns 0 at its end, None when there is nothing to read now."""
        try:
            data = os.read(fd, 1 << 16)
        except BlockingIOError:
            return None
        self.captures[self.outputs.index(fd)].add(data)
        return len(data)

    def drain(self) -> None:
        """Read what has been written so far. Bounded, since a background process may write for ever."""
        for fd in self.outputs:
            for _ in range(_READS_AT_ONCE):
                if not self.read_output(fd):
                    break

    @property
    def written(self) -> int:
        """Number of bytes that the current cell has written."""
        return sum(capture.total for capture in self.captures)

    @property
    def channel(self) -> ControlSocket:
        """The control socket.

        Raises:
            OSError: the session has none.
        """
        if self.control is None:
            raise OSError("the session has no control socket")
        return self.control

    def close_channels(self) -> None:
        """Close everything that is open for the session."""
        self.release()
        if self.control is not None:
            self.control.close()
            self.control = None
        for fd in self.outputs:
            os.close(fd)
        self.outputs = ()
