"""The supervisor's end of a session's control socket. Runs inside the sandbox, in the supervisor.

The kernel reports the sender of each message, and never joins bytes of two senders. Nothing here waits: every call
passes MSG_DONTWAIT, since whoever holds the other end may have made the socket a blocking one.
"""

from __future__ import annotations

import array
import os
import socket
import struct
from typing import NamedTuple

from sandbox.server.wire import Frame, Frames, WireError, pack

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
