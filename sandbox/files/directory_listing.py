"""Lists a directory of a session."""

from __future__ import annotations

import base64
import errno
from dataclasses import dataclass
from pathlib import PurePath

from sandbox.files.file_transfer import SendRequest, check_reply
from sandbox.pool.connection import Reply
from sandbox.server.wire import ENTRY, LIST
from sandbox.sync_async import Steps
from sandbox.validation import checked_directory

_LARGEST = 1 << 62


@dataclass(frozen=True)
class FileInfo:
    """One entry of a directory.

    Attributes:
        name: without its parent directories. Bytes that are not UTF-8 are shown as hexadecimal escapes.
        size: in bytes; for a symbolic link, the size of the link itself.
        is_dir: whether it is a directory; False for a symbolic link.
    """

    name: str
    size: int
    is_dir: bool


def list_directory(send: SendRequest, path: str | PurePath) -> Steps[list[FileInfo]]:
    """Return the entries of a directory; see `Interpreter.ls`."""
    path = checked_directory(path)
    reply: Reply = yield send(LIST, path=path)
    check_reply(reply, path)
    return sorted(_entries(base64.b64decode(reply["data"]), path), key=lambda entry: entry.name)


def _entries(data: bytes, path: str) -> list[FileInfo]:
    """Parse what the session has sent. It is not trusted, since the code may have written anything."""
    entries, at = [], 0
    while at < len(data):
        if len(data) - at < ENTRY.size:
            raise _malformed(path)
        size, is_dir, length = ENTRY.unpack_from(data, at)
        name = data[at + ENTRY.size : at + ENTRY.size + length]
        at += ENTRY.size + length
        # a name with "/" or ".." would lead a caller who joins paths out of the directory
        if len(name) < length or name in (b"", b".", b"..") or b"/" in name or b"\0" in name or size > _LARGEST:
            raise _malformed(path)
        entries.append(FileInfo(name.decode("utf-8", "backslashreplace"), size, is_dir))
    return entries


def _malformed(path: str) -> OSError:
    return OSError(errno.EIO, "the session has sent a malformed list of files", path)
