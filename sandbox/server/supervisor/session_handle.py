"""The supervisor's side of one session: slot, channel, output, open requests. Runs inside the sandbox."""

from __future__ import annotations

import array
import math
import os
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from sandbox.server.supervisor.event_loop import READ, WRITE, ClientRequest, EventLoop
from sandbox.server.wire import GIVE, LARGEST_PIECE, PICTURE_BYTES, Frame, Frames, WireError, pack

# Keeps the head and the tail of what a session writes.


class OutputCapture:
    """Keeps the head and the tail of a stream of bytes.

    Args:
        keep: how many bytes, head and tail together.
    """

    def __init__(self, keep: int) -> None:
        self._half = max(1, keep // 2)
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def add(self, data: bytes) -> None:
        """Add the next bytes."""
        self.total += len(data)
        room = self._half - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 4 * self._half:  # cut rarely, since each cut moves the whole tail
            del self._tail[: -self._half]

    @property
    def truncated(self) -> bool:
        """Whether bytes were left out."""
        return self.total > 2 * self._half

    def text(self) -> str:
        """Return what was kept, with a note where bytes were left out."""
        if not self.truncated:
            return (self._head + self._tail).decode("utf-8", "replace")
        tail = self._tail[-self._half :]
        left_out = self.total - len(self._head) - len(tail)
        note = f"\n... [{left_out} bytes left out] ...\n"
        # each cut may fall within a character; half of one is replaced
        return self._head.decode("utf-8", "replace") + note + tail.decode("utf-8", "replace")


# The supervisor's end of a session's control socket.
#
# The kernel reports the sender of each message, and never joins bytes of two senders. Nothing here waits: every call
# passes MSG_DONTWAIT, since whoever holds the other end may have made the socket a blocking one.

_CREDENTIALS = struct.Struct("3i")
# room for one descriptor, which is all that any message needs; the kernel closes those that do not fit
_ANCILLARY = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(array.array("i").itemsize)
_NOW = socket.MSG_DONTWAIT
_MOST_IGNORED = 1 << 20


class Message(NamedTuple):
    """Received bytes and descriptors, with the sender's pid and user as the kernel reports them."""

    data: bytes
    pid: int
    uid: int
    fds: list[int]


class ControlSocket:
    """A control socket.

    Args:
        control: the socket, owned by this object from now on.
        limit: the longest payload of a frame that is accepted.
    """

    def __init__(self, control: socket.socket, limit: int) -> None:
        control.setblocking(False)
        control.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)  # the kernel adds pid and user of the sender
        self._socket = control
        self._frames = Frames(limit)
        self._unsent = bytearray()
        self._ignored = 0

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._socket.fileno()

    def send(self, kind: int, number: int, payload: bytes, fds: tuple[int, ...] = ()) -> None:
        """Send a frame; what does not fit is kept for `flush`.

        Raises:
            OSError: the session has closed its end, or there is no place for descriptors.
        """
        data = pack(kind, number, payload)
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        try:
            sent = self._socket.sendmsg([data], ancillary, _NOW)
        except BlockingIOError:
            if fds:  # descriptors cannot be sent later, with another byte
                raise
            sent = 0
        self._unsent += data[sent:]

    def flush(self) -> bool:
        """Send what was kept; returns whether everything is sent.

        Raises:
            OSError: the session has closed its end.
        """
        try:
            sent = self._socket.send(self._unsent, _NOW) if self._unsent else 0
        except BlockingIOError:
            sent = 0
        del self._unsent[:sent]
        return not self._unsent

    def receive(self) -> Message | None:
        """Return what one sender has sent; None at the end. The caller closes the descriptors."""
        try:
            data, ancillary, _, _ = self._socket.recvmsg(1 << 16, _ANCILLARY, _NOW | socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return Message(b"", 0, -1, [])
        except OSError:
            return None
        pid, uid, fds = 0, -1, array.array("i")
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
                pid, uid, _ = _CREDENTIALS.unpack_from(content)
            elif level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                # a list that was cut off may end within a number
                fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
        return Message(data, pid, uid, list(fds)) if data else None

    def frames(self, data: bytes) -> list[Frame]:
        """Return the frames that these bytes of the session's own process complete.

        Raises:
            WireError: the bytes are malformed.
        """
        return self._frames.feed(data)

    def ignore(self, data: bytes) -> None:
        """Drop bytes of another process. It can have the descriptor only from the session itself.

        Raises:
            WireError: there are too many of them.
        """
        self._ignored += len(data)
        if self._ignored > _MOST_IGNORED:
            raise WireError("frames of other processes")

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


def adopted(fd: int, pid: int) -> socket.socket:
    """Return a control socket that a process has made for itself.

    Args:
        fd: the socket; it is closed if it is refused.
        pid: the process.

    Raises:
        OSError: it is not such a socket, or another process has made it.
    """
    try:
        control = socket.socket(fileno=fd)
    except OSError:
        os.close(fd)
        raise
    try:
        kind = (control.family, control.type)
        maker = _CREDENTIALS.unpack(control.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))[0]
        if kind != (socket.AF_UNIX, socket.SOCK_STREAM) or maker not in (
            pid,
            os.getpid(),
        ):  # gVisor reports this process itself
            raise OSError("not a control socket of this process")
    except OSError:
        control.close()
        raise
    return control


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


# Connects the control sockets of sessions to the event loop.


class SessionChannels:
    """Listens to sessions, and sends to them without waiting.

    Args:
        loop: the supervisor's event loop.
        on_readable: called when a session has sent something, or its channel has ended.
    """

    def __init__(self, loop: EventLoop, on_readable: Callable[[SessionHandle], None]) -> None:
        self._loop = loop
        self._on_readable = on_readable

    def listen_to(self, handle: SessionHandle) -> None:
        """Call back for what a session sends on its control socket."""
        self._loop.watch(handle.channel.fileno(), lambda: self._on_readable(handle))

    def send(self, handle: SessionHandle, kind: int, number: int, payload: bytes) -> None:
        """Send a frame; what does not fit is sent when the session reads on.

        Raises:
            OSError: the session has closed its end.
        """
        handle.channel.send(kind, number, payload)
        if not handle.channel.flush():
            self._loop.watch(handle.channel.fileno(), lambda: self._send_rest(handle), READ | WRITE)

    def _send_rest(self, handle: SessionHandle) -> None:
        try:
            done = handle.channel.flush()
        # the session has closed its end, which reading reports
        except OSError:
            done = True
        if done:
            self.listen_to(handle)
        # always, since the loop calls back once for both directions
        self._on_readable(handle)

    def close(self, handle: SessionHandle) -> None:
        """Stop listening to a session, and close what is open for it."""
        if handle.control is not None:
            self._loop.unwatch(handle.control.fileno())
        for fd in handle.outputs:
            self._loop.unwatch(fd)
        handle.close_channels()
