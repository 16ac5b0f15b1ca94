"""The blocking end of a control socket, for zygotes and sessions. Runs inside the sandbox.

Frames may carry descriptors, which are attached to the first byte of the frame.
"""

from __future__ import annotations

import array
import os
import socket
from _socket import socketpair  # kept, since the user's code may replace the names in `socket`

from sandbox.server.wire import HEADER, pack

_MOST_DESCRIPTORS = 250


class Channel:
    """A control socket.

    Args:
        fd: its descriptor, owned by the channel from now on.
    """

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fd)

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._socket.fileno()

    def receive(self) -> tuple[int, int, bytes, list[int]]:
        """Wait for a frame: kind, number, payload, descriptors.

        Raises:
            EOFError: the other end is gone.
        """
        kind, number, length, fds = self.receive_header()
        return kind, number, self.receive_payload(length, fds), fds

    def receive_header(self) -> tuple[int, int, int, list[int]]:
        """Wait for the header of a frame: kind, number, length of the payload, descriptors.

        Raises:
            EOFError: the other end is gone.
        """
        fds: list[int] = []
        kind, number, length = HEADER.unpack(self._exactly(HEADER.size, fds))
        return kind, number, length, fds

    def receive_payload(self, length: int, fds: list[int]) -> bytes:
        """Wait for the payload that a header has announced; descriptors that come with it are added to `fds`.

        Raises:
            EOFError: the other end is gone.
        """
        return self._exactly(length, fds)

    def _exactly(self, size: int, fds: list[int]) -> bytes:
        data = bytearray()
        while len(data) < size:
            part, ancillary, _, _ = self._socket.recvmsg(
                min(size - len(data), 1 << 16), socket.CMSG_SPACE(_MOST_DESCRIPTORS * 4)
            )
            fds += _descriptors(ancillary)
            if not part:
                raise EOFError("the supervisor is gone")
            data += part
        return bytes(data)

    def send(self, kind: int, number: int, payload: bytes = b"") -> None:
        """Send a frame; blocks until it is accepted."""
        self._socket.sendall(pack(kind, number, payload))

    def move(self, kind: int, number: int, payload: bytes) -> None:
        """Send a short frame with one end of a new control socket; the other end replaces the present socket.

        Raises:
            OSError: no descriptors are left; nothing was sent.
        """
        ours, theirs = socketpair()
        rights = array.array("i", (theirs.fileno(),))
        self._socket.sendmsg([pack(kind, number, payload)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        theirs.close()
        os.dup2(ours.fileno(), self.fileno(), inheritable=False)
        ours.close()


def _descriptors(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    fds = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    for fd in fds:
        # received descriptors are inheritable; programs that the code starts must not get them
        os.set_inheritable(fd, False)
    return list(fds)
