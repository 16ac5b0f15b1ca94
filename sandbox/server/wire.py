"""Frames: the protocol of client, supervisor, zygotes and sessions. This module also runs inside the sandbox.

A frame is a header of fixed size (kind, number, length) and a payload. The number links a reply to its request.
Between client and supervisor the payload is JSON. Sessions are not trusted: their payloads are fixed structs, and every
reader has a limit on the length.
"""

from __future__ import annotations

import array
import os
import socket
import struct
from _socket import socketpair  # kept, since the user's code may replace the names in `socket`
from collections.abc import Sequence

HEADER = struct.Struct(">BQI")
# holds the longest code (8 MiB, see `validation`) even if JSON writes each of its bytes as six
MAX_FRAME = 64 << 20

# client to supervisor, and back
OPEN, RUN, FORK, CLOSE, PING, READ, WRITE, INTERRUPT, LIST, RUN_ONCE = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
HELLO, REPLY = 16, 17
# supervisor to zygote and sessions, and back
SPAWN, CELL, BRANCH, FILE, SWEEP, SETUP, GIVE = 32, 33, 34, 35, 37, 38, 39
READY, DONE, BRANCHED, UNABLE, FILED, DIED = 48, 49, 50, 51, 52, 53

OUTCOME = struct.Struct(">BBII")
"""Payload of DONE: index into STATUSES, flags, lengths of value and error; then the two texts, and the pictures."""
HAS_VALUE, HAS_ERROR, SHORTENED = 1, 2, 4
STATUSES = ("ok", "error", "exit")

PICTURE = struct.Struct(">I")
"""Pictures in DONE, if there are any: how many were left out; then, for each, its length and the PNG file."""
MOST_PICTURES, PICTURE_BYTES = 8, 1 << 20
"""How many pictures of a cell are kept, and their total size in bytes."""

FILE_REQUEST = struct.Struct(">BQI")
"""Payload of FILE: READ, WRITE or LIST, offset, bytes wanted; then the path and, for WRITE, a zero and the data."""
FILE_REPLY = struct.Struct(">IQ")
"""Payload of FILED: errno or 0, and the size of the file; then the data."""
ENTRY = struct.Struct(">Q?H")
"""One directory entry in the data of FILED after a LIST: size, is it a directory, length of the name; then the name."""
LARGEST_PIECE = 1 << 20

ENDED = struct.Struct(">i")
"""Payload of DIED, whose number is a process id: the status as waitpid returns it."""

GAVE_UP = 70
"""Exit code of a session that cannot communicate with the supervisor any more."""

LOSSES = struct.Struct(">II")
"""Payload of BRANCHED: what a fork could not copy, in the order of LOSS_NAMES; a FAULT; the session's new directory.

READY has such a name as well: sessions choose the names of their directories, so that no other session knows them. A
copy's READY and UNABLE begin with its INDEX; then UNABLE has a FAULT. UNABLE of the session that is forked has only a
FAULT. READY of a copy and BRANCHED carry the supervisor's end of a new control socket; the supervisor answers over that
socket with GIVE, which carries the new stdout and stderr.
"""
LOSS_NAMES = ("shared_mappings", "pipes_and_sockets")
INDEX, FAULT = struct.Struct(">I"), struct.Struct(">I")

Frame = tuple[int, int, bytes]


class WireError(Exception):
    """The other side has violated the protocol."""


def pack(kind: int, number: int, payload: bytes = b"") -> bytes:
    """Return the bytes of a frame."""
    return HEADER.pack(kind, number, len(payload)) + payload


class Frames:
    """Splits a stream of bytes into frames with payloads of at most `limit` bytes."""

    def __init__(self, limit: int = MAX_FRAME) -> None:
        self._limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes | memoryview) -> list[Frame]:
        """Return the frames that `data` completes; WireError if a header announces a payload above the limit."""
        self._buffer += data
        frames: list[Frame] = []
        while len(self._buffer) >= HEADER.size:
            kind, number, length = HEADER.unpack_from(self._buffer)
            # refused at the header, before any of the payload is kept
            if length > self._limit:
                raise WireError(f"a frame of {length} bytes is announced; at most {self._limit} are accepted")
            end = HEADER.size + length
            if len(self._buffer) < end:
                break
            frames.append((kind, number, bytes(self._buffer[HEADER.size : end])))
            del self._buffer[:end]
        return frames


def pack_pictures(pictures: Sequence[bytes], left_out: int) -> bytes:
    """Return the part of a DONE that holds the pictures."""
    if not pictures and not left_out:
        return b""
    return PICTURE.pack(left_out) + b"".join(PICTURE.pack(len(picture)) + picture for picture in pictures)


def unpack_pictures(data: bytes) -> tuple[list[bytes], int]:
    """Return the pictures of a DONE, and how many were left out; WireError for malformed, many or large ones."""
    pictures: list[bytes] = []
    if not data:
        return pictures, 0
    try:
        (left_out,) = PICTURE.unpack_from(data)
        at = PICTURE.size
        while at < len(data):
            (length,) = PICTURE.unpack_from(data, at)
            pictures.append(data[at + PICTURE.size : at + PICTURE.size + length])
            at += PICTURE.size + length
    except struct.error as error:
        raise WireError("malformed pictures") from error
    # a last picture that is shorter than announced leaves `at` beyond the end
    if at != len(data) or len(pictures) > MOST_PICTURES or sum(map(len, pictures)) > PICTURE_BYTES:
        raise WireError("malformed pictures")
    return pictures, left_out


# The blocking end of a control socket, for zygotes and sessions.
#
# Frames may carry descriptors, which are attached to the first byte of the frame.

_MOST_DESCRIPTORS = 250


class Channel:
    """A control socket, of which the descriptor is given."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fd)

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._socket.fileno()

    def receive(self) -> tuple[int, int, bytes, list[int]]:
        """Wait for a frame: kind, number, payload, descriptors; EOFError when the other end is gone."""
        kind, number, length, fds = self.receive_header()
        return kind, number, self.receive_payload(length, fds), fds

    def receive_header(self) -> tuple[int, int, int, list[int]]:
        """Wait for the header of a frame: kind, number, length of the payload, descriptors."""
        fds: list[int] = []
        kind, number, length = HEADER.unpack(self._exactly(HEADER.size, fds))
        return kind, number, length, fds

    def receive_payload(self, length: int, fds: list[int]) -> bytes:
        """Wait for the payload that a header has announced; descriptors that come with it are added to `fds`."""
        return self._exactly(length, fds)

    def _exactly(self, size: int, fds: list[int]) -> bytes:
        data = bytearray()
        while len(data) < size:
            part, ancillary, _, _ = self._socket.recvmsg(
                min(size - len(data), 1 << 16), socket.CMSG_SPACE(_MOST_DESCRIPTORS * 4)
            )
            fds += descriptors(ancillary)
            if not part:
                raise EOFError("the supervisor is gone")
            data += part
        return bytes(data)

    def send(self, kind: int, number: int, payload: bytes = b"") -> None:
        """Send a frame; blocks until it is accepted."""
        self._socket.sendall(pack(kind, number, payload))

    def move(self, kind: int, number: int, payload: bytes) -> None:
        """Send a short frame with one end of a new control socket, whose other end replaces the present one.

        OSError: no descriptors are left, and nothing was sent.
        """
        ours, theirs = socketpair()
        rights = array.array("i", (theirs.fileno(),))
        self._socket.sendmsg([pack(kind, number, payload)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        theirs.close()
        os.dup2(ours.fileno(), self.fileno(), inheritable=False)
        ours.close()


def descriptors(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    """Return the descriptors that have come with a message."""
    fds = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            # a list that was cut off may end within a number
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    for fd in fds:
        # received descriptors are inheritable; programs that the code starts must not get them
        os.set_inheritable(fd, False)
    return list(fds)
