"""Lists a directory of the session for the client. Runs inside the sandbox, in the session; see `transfer`."""

from __future__ import annotations

import errno
import os
import stat

from sandbox.server.wire import ENTRY, FILE_REPLY, LARGEST_PIECE


def look(path: bytes, directory: int) -> bytes:
    """Return the reply to a LOOK: what is in a directory.

    Args:
        path: of it.
        directory: descriptor of the session's directory.
    """
    try:
        place = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
        try:
            return FILE_REPLY.pack(0, 0) + _entries(place)
        finally:
            os.close(place)
    except (OSError, ValueError) as error:
        return FILE_REPLY.pack(getattr(error, "errno", None) or errno.EINVAL, 0)


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
