"""The supervisor's side of one session: its channel, its output, what it is busy with. Runs inside the sandbox."""

from __future__ import annotations

import base64
import os
import socket
from collections import deque
from typing import TYPE_CHECKING, Any

from sandbox.server.supervisor.control_socket import Control, adopted
from sandbox.server.supervisor.output_capture import Capture
from sandbox.server.wire import (
    GIVE,
    HAS_ERROR,
    HAS_VALUE,
    LARGEST_PIECE,
    OUTCOME,
    PICTURE_BYTES,
    SHORTENED,
    STATUSES,
    WireError,
    unpack_pictures,
)

if TYPE_CHECKING:
    from sandbox.server.supervisor.slots import Slot
    from sandbox.server.supervisor.timers import Timer
    from sandbox.server.supervisor.zygote_client import Spawner

_SLACK = 4096


class Request:
    """What the client wants of a session: kind, number and the fields of the JSON payload.

    Args:
        step: which of the steps of a RUN_ONCE it is, counted from 1, that come before its code and are answered only if
            they fail; 0 for everything else.
    """

    def __init__(self, kind: int, number: int, fields: dict[str, Any], step: int = 0) -> None:
        self.kind = kind
        self.number = number
        self.fields = fields
        self.step = step
        self.started = 0.0
        self.timer: Timer | None = None
        self.stopped = ""  # the limit that made the supervisor interrupt it


class Handle:
    """One session, as the supervisor sees it.

    Args:
        key: the client's name for it.
        limits: the client's limits.
        spawner: what forks it, unless another session does.

    Attributes:
        lost: why there is no process any more.
        ended: status and text of the outcome of later cells, once the session has ended by its own doing.
        cause: the status of the cell that made the supervisor kill it; `why` says the same in words.
        orphaned: the zygote has ended before it, and has taken it along.
    """

    def __init__(self, key: int, limits: dict[str, Any], spawner: Spawner) -> None:
        self.key = key
        self.spawner = spawner
        self.slot: Slot | None = None
        self.directory = ""
        self.pid = 0
        self.attempts = 0
        self.idle = False  # its process may have idle priority
        self.inherited = 0  # bytes of memory that it shared at its birth with the session it was forked from
        self.born_after = 0
        self.parent = 0
        self.lost = ""
        self.ended: tuple[str, str] | None = None
        self.cause = ""
        self.why = ""
        self.orphaned = False
        self.queue: deque[Request] = deque()
        self.current: Request | None = None
        self.closing: list[int] = []
        self.control: Control | None = None
        self.outputs: tuple[int, ...] = ()
        self.given: tuple[int, ...] = ()
        self.once = False  # closed as soon as its only run has been answered
        self._limits = limits
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
        """Make a control socket and the pipes of stdout and stderr, for a session that the zygote is about to fork.

        Raises:
            OSError: no descriptors are left.
        """
        ours, theirs = socket.socketpair()
        self._use(ours)
        self.given = (theirs.detach(), *self._open_outputs())

    def adopt(self, fd: int, pid: int) -> None:
        """Take a control socket that a process has made for itself, and give it pipes for stdout and stderr over it.

        Args:
            fd: the socket, owned by the handle from now on.
            pid: the process.

        Raises:
            OSError: it is no such socket, or is not its own.
        """
        control = adopted(fd, pid)
        self.drain()  # what came before the fork is shown with the next cell
        self.close_channels()
        self._use(control)
        ends = self._open_outputs()
        try:
            self.send(GIVE, 0, b"", ends)
        finally:
            for end in ends:
                os.close(end)

    def _use(self, control: socket.socket) -> None:
        most = max(12 * self._limits["output_bytes"], LARGEST_PIECE) + PICTURE_BYTES + _SLACK
        self.control = Control(control, most)

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
        self.captures = tuple(Capture(self._limits["output_bytes"]) for _ in ("stdout", "stderr"))

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
        """Send a frame; what does not fit is kept for `Control.flush`.

        Raises:
            OSError: the session has closed its end, or there is no place for descriptors.
        """
        self.channel.send(kind, number, payload, fds)

    @property
    def channel(self) -> Control:
        """The control socket of a session that has one.

        Raises:
            OSError: it has none.
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


def outcome_fields(payload: bytes) -> dict[str, Any]:
    """Read the payload of a DONE frame.

    Raises:
        WireError: it is not one.
    """
    if len(payload) < OUTCOME.size:
        raise WireError("an outcome that is too short")
    status, flags, value, error = OUTCOME.unpack_from(payload)
    texts, rest = payload[OUTCOME.size :][: value + error], payload[OUTCOME.size + value + error :]
    if status >= len(STATUSES) or len(texts) != value + error:
        raise WireError("an outcome that makes no sense")
    fields: dict[str, Any] = {
        "status": STATUSES[status],
        "value": texts[:value].decode("utf-8", "replace") if flags & HAS_VALUE else None,
        "error": texts[value:].decode("utf-8", "replace") if flags & HAS_ERROR else None,
        "truncated": bool(flags & SHORTENED),
    }
    if rest:
        pictures, fields["pictures_left_out"] = unpack_pictures(rest)
        fields["pictures"] = [base64.b64encode(picture).decode() for picture in pictures]
    return fields
