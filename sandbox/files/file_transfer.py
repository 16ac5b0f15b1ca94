"""Files into a session and out of it, in pieces of 1 MiB.

The pieces are requests like any other; what the code, or another caller, does to the file between two of them
is theirs to decide.
"""

from __future__ import annotations

import base64
import errno
import os
from collections.abc import Iterator
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from sandbox.pool.connection import Reply
from sandbox.server.wire import READ, WRITE
from sandbox.sync_async import Steps
from sandbox.validation import checked_name

if TYPE_CHECKING:
    from sandbox.interpreter import Interpreter

_PIECE = 1 << 20


def store(interpreter: Interpreter, name: str | PurePath, data: bytes) -> Steps[None]:
    """Write a file; see `Interpreter.put`."""
    name = checked_name(name)
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise TypeError(f"data has to be bytes, not {type(data).__name__}; encode text first, such as text.encode()")
    content = bytes(data)
    check_size(name, len(content), interpreter.sandbox.limits.file_size)
    for kind, fields in pieces(name, content):
        check_reply((yield interpreter._request(kind, **fields)), name)


def pieces(name: str, content: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    """Return the requests that write a file."""
    for offset in range(0, max(1, len(content)), _PIECE):
        piece = base64.b64encode(content[offset : offset + _PIECE]).decode()
        yield WRITE, {"path": name, "offset": offset, "data": piece}


def fetch(interpreter: Interpreter, name: str | PurePath, limit: int | None) -> Steps[bytes]:
    """Return the content of a file; see `Interpreter.get`."""
    name = checked_name(name)
    most = interpreter.sandbox.limits.file_size if limit is None else limit
    if isinstance(most, bool) or not isinstance(most, int) or most < 0:
        raise ValueError(f"limit={limit!r}; it has to be a number of bytes")
    content = bytearray()
    while True:
        request = interpreter._request(READ, path=name, offset=len(content), length=_PIECE)
        reply: Reply = yield request
        check_reply(reply, name)
        check_size(name, reply["size"], most)
        piece = base64.b64decode(reply["data"])
        content += piece
        check_size(name, len(content), most)
        if len(piece) < _PIECE or len(content) >= reply["size"]:  # a short piece is the last one
            return bytes(content)


def check_reply(reply: Reply, name: str) -> None:
    """Raise the OSError that a session has answered with, for the file of this name."""
    if "errno" in reply:
        raise OSError(reply["errno"], os.strerror(reply["errno"]), name)


def check_size(name: str, size: int, most: int) -> None:
    """Raise an OSError (EFBIG) for a file of more bytes than `most`."""
    if size > most:
        raise OSError(errno.EFBIG, f"{os.strerror(errno.EFBIG)}: {size} bytes, and {most} are the limit", name)
