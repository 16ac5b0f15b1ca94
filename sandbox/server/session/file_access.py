"""Reads, writes and lists files of a session for the client. Runs inside the sandbox, in the session.

The session opens the files itself, with its own rights, so that no path leads where the code could not go.
Relative paths start at the session's directory, whatever the code's working directory is.
"""

from __future__ import annotations

import errno
import os
import stat

from sandbox.server.wire import ENTRY, FILE_REPLY, FILE_REQUEST, LARGEST_PIECE


def load(payload: bytes, directory: int) -> bytes:
    """Return the reply to a LOAD: a piece of a file.

    Args:
        payload: of the frame.
        directory: descriptor of the session's directory.
    """
    offset, length = FILE_REQUEST.unpack_from(payload)
    path = payload[FILE_REQUEST.size :]
    try:
        file = _open_regular(path, os.O_RDONLY | os.O_NONBLOCK, directory)
        try:
            size = os.fstat(file).st_size
            return FILE_REPLY.pack(0, size) + os.pread(file, min(length, LARGEST_PIECE), offset)
        finally:
            os.close(file)
    except (OSError, ValueError, OverflowError) as error:
        return _refusal(error)


def store(payload: bytes, directory: int) -> bytes:
    """Write a piece of a file, and create its directories; returns the reply to a STORE. See `load`."""
    offset, _ = FILE_REQUEST.unpack_from(payload)
    path, _, data = payload[FILE_REQUEST.size :].partition(b"\0")
    try:
        if offset == 0:
            _make_directories(os.path.dirname(path), directory)
        truncate = os.O_TRUNC if offset == 0 else 0
        file = _open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | truncate, directory)
        try:
            view = memoryview(data)
            while view:
                written = os.pwrite(file, view, offset)
                view, offset = view[written:], offset + written
        finally:
            os.close(file)
    except (OSError, ValueError, OverflowError) as error:
        return _refusal(error)
    return FILE_REPLY.pack(0, 0)


def look(path: bytes, directory: int) -> bytes:
    """Return the reply to a LOOK: the entries of a directory.

    Args:
        path: of the directory.
        directory: descriptor of the session's directory.
    """
    try:
        place = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
        try:
            return FILE_REPLY.pack(0, 0) + _entries(place)
        finally:
            os.close(place)
    except (OSError, ValueError) as error:
        return _refusal(error)


def _entries(place: int) -> bytes:
    data = bytearray()
    with os.scandir(place) as entries:
        for entry in entries:
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:  # removed meanwhile
                continue
            name = os.fsencode(entry.name)
            if len(data) + ENTRY.size + len(name) > LARGEST_PIECE:
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
            data += ENTRY.pack(status.st_size, stat.S_ISDIR(status.st_mode), len(name)) + name
    return bytes(data)


def _open_regular(path: bytes, flags: int, directory: int) -> int:
    file = os.open(path, flags | os.O_CLOEXEC, 0o644, dir_fd=directory)
    mode = os.fstat(file).st_mode
    if not stat.S_ISREG(mode):
        os.close(file)
        code = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        raise OSError(code, os.strerror(code))
    return file


def _make_directories(path: bytes, directory: int) -> None:
    parts = path.split(b"/")
    for end in range(1, len(parts) + 1):
        parent = b"/".join(parts[:end])
        if parent:
            try:
                os.mkdir(parent, 0o755, dir_fd=directory)
            except FileExistsError:
                continue
            except (PermissionError, OSError) as error:
                if error.errno not in (errno.EACCES, errno.EROFS, errno.EISDIR):
                    raise  # the directory may exist and be unreadable; opening the file will tell


def _refusal(error: Exception) -> bytes:
    return FILE_REPLY.pack(getattr(error, "errno", None) or errno.EINVAL, 0)
