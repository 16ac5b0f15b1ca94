"""What is in a session's directory."""

from __future__ import annotations

import base64
import errno
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from sandbox.files.file_transfer import check_reply
from sandbox.pool.connection import Reply
from sandbox.server.wire import ENTRY, LIST
from sandbox.sync_async import Steps
from sandbox.validation import checked_directory

if TYPE_CHECKING:
    from sandbox.interpreter import Interpreter

_LARGEST = 1 << 62


@dataclass(frozen=True)
class FileInfo:
    """One entry of a directory.

    Attributes:
        name: without the directories above it; bytes that are no UTF-8 are shown by their hexadecimal numbers.
        size: in bytes; of a symbolic link its own.
        is_dir: whether it is one; a symbolic link is none.
    """

    name: str
    size: int
    is_dir: bool


def list_files(interpreter: Interpreter, path: str | PurePath) -> Steps[list[FileInfo]]:
    """Return the entries of a directory; see `Interpreter.ls`."""
    path = checked_directory(path)
    reply: Reply = yield interpreter._request(LIST, path=path)
    check_reply(reply, path)
    return sorted(_entries(base64.b64decode(reply["data"]), path), key=lambda entry: entry.name)


def _entries(data: bytes, path: str) -> list[FileInfo]:
    """Read what the session has sent; its code may have written anything."""
    entries, at = [], 0
    while at < len(data):
        if len(data) - at < ENTRY.size:
            raise _malformed(path)
        size, is_dir, length = ENTRY.unpack_from(data, at)
        name = data[at + ENTRY.size : at + ENTRY.size + length]
        at += ENTRY.size + length
        if len(name) < length or name in (b"", b".", b"..") or b"/" in name or b"\0" in name or size > _LARGEST:
            raise _malformed(path)
        entries.append(FileInfo(name.decode("utf-8", "backslashreplace"), size, is_dir))
    return entries


def _malformed(path: str) -> OSError:
    return OSError(errno.EIO, "the session has given a list of files that makes no sense", path)
