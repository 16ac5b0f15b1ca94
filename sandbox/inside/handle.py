"""The supervisor's side of one session: its channel, its output, what it is busy with. Runs inside the sandbox."""

from __future__ import annotations

import array
import os
import socket
import struct
from collections import deque
from typing import TYPE_CHECKING, Any

from sandbox.wire import HAS_ERROR, HAS_VALUE, LARGEST_PIECE, OUTCOME, SHORTENED, STATUSES, Frames, WireError, pack

if TYPE_CHECKING:
    from sandbox.inside.slots import Slot
    from sandbox.inside.timers import Timer

_CREDENTIALS = struct.Struct("3i")
_SLACK = 4096


class Capture:
    """Keeps the head and the tail of a stream of bytes.

    Args:
        keep: how many bytes in all.
    """

    def __init__(self, keep: int) -> None:
        self._half = max(1, keep // 2)
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def add(self, data: bytes) -> None:
        """Take in the next bytes."""
        self.total += len(data)
        room = self._half - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 4 * self._half:
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
        return self._head.decode("utf-8", "replace") + note + tail.decode("utf-8", "replace")


class Request:
    """What the client wants of a session: kind, number and the fields of the JSON payload."""

    def __init__(self, kind: int, number: int, fields: dict[str, Any]) -> None:
        self.kind = kind
        self.number = number
        self.fields = fields
        self.started = 0.0
        self.timer: Timer | None = None
        self.stopped = ""  # the limit that made the supervisor interrupt it


class Handle:
    """One session, as the supervisor sees it.

    Args:
        key: the client's name for it.
        limits: the client's limits.
    """

    def __init__(self, key: int, limits: dict[str, Any]) -> None:
        self.key = key
        self.slot: Slot | None = None
        self.directory = ""
        self.pid = 0
        self.attempts = 0
        self.born_after = 0
        self.lost = ""  # why there is no process any more
        self.cause = ""  # the status of the cell that made the supervisor kill it
        self.why = ""  # the same in words
        self.queue: deque[Request] = deque()
        self.current: Request | None = None
        self.closing: list[int] = []
        self._limits = limits
        self.open_channels()
        self.begin_output()

    @property
    def home(self) -> Slot:
        """The slot of a session that lives."""
        if self.slot is None:
            raise WireError("a session without a place")
        return self.slot

    def rename(self, name: bytes) -> None:
        """Take note of the name that a session has given its directory.

        Raises:
            WireError: it is no such name.
        """
        text = name.decode("ascii", "replace")
        if len(text) != 32 or set(text) - set("0123456789abcdef"):
            raise WireError("a directory's name that makes no sense")
        self.directory = os.path.join(self.home.path, text)

    def open_channels(self) -> None:
        """Make a control socket and the pipes of stdout and stderr.

        Raises:
            OSError: no descriptors are left.
        """
        self._frames = Frames(max(12 * self._limits["output_bytes"], LARGEST_PIECE) + _SLACK)
        self._unsent = bytearray()
        self.control, theirs = socket.socketpair()
        self.control.setblocking(False)
        self.control.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        out, out_end = os.pipe()
        err, err_end = os.pipe()
        self.outputs = (out, err)
        self.given: tuple[int, ...] = (theirs.detach(), out_end, err_end)
        for fd in self.outputs:
            os.set_blocking(fd, False)

    def begin_output(self) -> None:
        """Start with empty captures."""
        self.captures = tuple(Capture(self._limits["output_bytes"]) for _ in self.outputs)

    def release(self) -> None:
        """Close the ends that belong to the session, once it has them."""
        for fd in self.given:
            os.close(fd)
        self.given = ()

    def read_output(self, fd: int) -> int | None:
        """Read from stdout or stderr; 0 at the end of it, None when there is nothing for now."""
        try:
            data = os.read(fd, 1 << 16)
        except BlockingIOError:
            return None
        self.captures[self.outputs.index(fd)].add(data)
        return len(data)

    def drain(self) -> None:
        """Read what has been written so far; bounded, since a background process may go on for ever."""
        for fd in self.outputs:
            for _ in range(32):
                if not self.read_output(fd):
                    break

    @property
    def written(self) -> int:
        """How many bytes the current cell has written."""
        return sum(capture.total for capture in self.captures)

    def send(self, kind: int, number: int, payload: bytes, fds: tuple[int, ...] = ()) -> None:
        """Send a frame; what does not fit is kept for `flush`.

        Raises:
            OSError: the session has closed its end.
        """
        data = pack(kind, number, payload)
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        try:
            sent = self.control.sendmsg([data], ancillary)
        except BlockingIOError:
            if fds:
                raise
            sent = 0
        self._unsent += data[sent:]

    def flush(self) -> bool:
        """Send on; True when everything is out."""
        try:
            sent = self.control.send(self._unsent) if self._unsent else 0
        except BlockingIOError:
            sent = 0
        del self._unsent[:sent]
        return not self._unsent

    def receive(self) -> list[tuple[int, int, bytes, int, int]] | None:
        """Return the frames that have come, each with its sender's pid and uid from the kernel; None at the end.

        Raises:
            WireError: the session sends garbage.
        """
        try:
            data, ancillary, _, _ = self.control.recvmsg(1 << 16, socket.CMSG_SPACE(_CREDENTIALS.size))
        except BlockingIOError:
            return []
        except OSError:
            return None
        if not data:
            return None
        pid, uid = 0, -1
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
                pid, uid, _ = _CREDENTIALS.unpack_from(content)
        return [(*frame, pid, uid) for frame in self._frames.feed(data)]

    def close_channels(self) -> None:
        """Close everything that is open for the session."""
        self.release()
        self.control.close()
        for fd in self.outputs:
            os.close(fd)


def outcome_fields(payload: bytes) -> dict[str, Any]:
    """Read the payload of a DONE frame.

    Raises:
        WireError: it is not one.
    """
    if len(payload) < OUTCOME.size:
        raise WireError("an outcome that is too short")
    status, flags, value, error = OUTCOME.unpack_from(payload)
    texts = payload[OUTCOME.size :]
    if status >= len(STATUSES) or len(texts) != value + error:
        raise WireError("an outcome that makes no sense")
    return {
        "status": STATUSES[status],
        "value": texts[:value].decode("utf-8", "replace") if flags & HAS_VALUE else None,
        "error": texts[value:].decode("utf-8", "replace") if flags & HAS_ERROR else None,
        "truncated": bool(flags & SHORTENED),
    }
