"""Writes files of a session and reads them, in pieces of 1 MiB.

Each piece is a request of its own. The code, or another caller, may change the file between two of them.
"""

from __future__ import annotations

import base64
import errno
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import PurePath
from typing import Any

from sandbox.pool.connection import Reply
from sandbox.server.wire import READ, WRITE
from sandbox.sync_async import Steps
from sandbox.validation import checked_name

_PIECE = 1 << 20
SendRequest = Callable[..., Future[Reply]]
"""Sends a request to a session: kind, and fields by name."""


def write_file(send: SendRequest, name: str | PurePath, data: bytes, most: int) -> Steps[None]:
    """Write a file of at most `most` bytes; see `Interpreter.put`."""
    name = checked_name(name)
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise TypeError(f"data has to be bytes, not {type(data).__name__}; encode text first, such as text.encode()")
    content = bytes(data)
    check_size(name, len(content), most)
    for kind, fields in write_pieces(name, content):
        check_reply((yield send(kind, **fields)), name)


def write_pieces(name: str, content: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the requests that write a file."""
    for offset in range(0, max(1, len(content)), _PIECE):  # an empty file is one empty piece
        piece = base64.b64encode(content[offset : offset + _PIECE]).decode()
        yield WRITE, {"path": name, "offset": offset, "data": piece}


def read_file(send: SendRequest, name: str | PurePath, limit: int | None, default: int) -> Steps[bytes]:
    """Return the content of a file of at most `limit` bytes, or `default` if that is None; see `Interpreter.get`."""
    name = checked_name(name)
    most = default if limit is None else limit
    if isinstance(most, bool) or not isinstance(most, int) or most < 0:
        raise ValueError(f"limit={limit!r}; it has to be a number of bytes")
    content = bytearray()
    while True:
        reply: Reply = yield send(READ, path=name, offset=len(content), length=_PIECE)
        check_reply(reply, name)
        check_size(name, reply["size"], most)
        piece = base64.b64decode(reply["data"])
        content += piece
        # once more, since the session may send more than the size that it has reported
        check_size(name, len(content), most)
        if len(piece) < _PIECE or len(content) >= reply["size"]:  # a short piece is the last one
            return bytes(content)


def check_reply(reply: Reply, name: str) -> None:
    """Raise the OSError that a session has reported for the file of this name, if any."""
    if "errno" in reply:
        raise OSError(reply["errno"], os.strerror(reply["errno"]), name)


def check_size(name: str, size: int, most: int) -> None:
    """Raise an OSError (EFBIG) for a file of more bytes than `most`."""
    if size > most:
        raise OSError(errno.EFBIG, f"{os.strerror(errno.EFBIG)}: {size} bytes; the limit is {most}", name)
