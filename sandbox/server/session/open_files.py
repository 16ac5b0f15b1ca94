"""Copies what a session has on disk: its directory, and the files it has open. Runs inside the sandbox.

After a fork, parent and child share the offset and the content of each open file. `open_files` records in the parent
what is open where; `reopen` gives the child descriptors of its own, at the same offset, on its own copies. Locks are
not copied. Other kinds of descriptors are handled in `isolate_descriptors`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import tempfile
from typing import NamedTuple


class OpenFile(NamedTuple):
    """A regular file or directory that a session has open.

    Attributes:
        fd: the descriptor.
        path: where it is; None for a file that has no name any more.
        flags: as fcntl(F_GETFL) returns them.
        offset: position; -1 for a directory.
        same_as: an earlier descriptor that shares the offset with this one (dup), or -1.
        identity: device and inode.
    """

    fd: int
    path: str | None
    flags: int
    offset: int
    same_as: int
    identity: tuple[int, int]


def descriptors() -> dict[int, os.stat_result]:
    """Return the open descriptors of this process."""
    found: dict[int, os.stat_result] = {}
    for fd in sorted(map(int, os.listdir("/proc/self/fd"))):
        with contextlib.suppress(OSError):  # the one that listed the directory
            found[fd] = os.fstat(fd)
    return found


def open_files() -> list[OpenFile]:
    """Return every regular file and directory that is open."""
    found: list[OpenFile] = []
    for fd, status in descriptors().items():
        if stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode):
            found.append(_note(fd, status, found))
    return found


def _note(fd: int, status: os.stat_result, earlier: list[OpenFile]) -> OpenFile:
    flags, identity = fcntl.fcntl(fd, fcntl.F_GETFL), identity_of(status)
    path: str | None = os.readlink(f"/proc/self/fd/{fd}")
    try:
        named = os.stat(str(path))
        same = identity_of(named) == identity
    except OSError:
        same = False
    if not same:
        path = None
    if stat.S_ISDIR(status.st_mode) or flags & os.O_PATH:
        return OpenFile(fd, path, flags, -1, -1, identity)
    same_as = _sharing_offset(fd, identity, flags, earlier)
    return OpenFile(fd, path, flags, os.lseek(fd, 0, os.SEEK_CUR), same_as, identity)


def identity_of(status: os.stat_result) -> tuple[int, int]:
    """Return device and inode, which identify a file."""
    return status.st_dev, status.st_ino


def _sharing_offset(fd: int, identity: tuple[int, int], flags: int, earlier: list[OpenFile]) -> int:
    """Return an earlier descriptor that shares its offset with this one, or -1: move one and see whether both move."""
    offset = os.lseek(fd, 0, os.SEEK_CUR)
    for other in earlier:
        if (other.identity, other.flags, other.offset) != (identity, flags, offset) or other.same_as >= 0:
            continue
        os.lseek(other.fd, offset + 1, os.SEEK_SET)
        moved = os.lseek(fd, 0, os.SEEK_CUR) == offset + 1
        os.lseek(other.fd, offset, os.SEEK_SET)
        if moved:
            return other.fd
    return -1


def reopen(file: OpenFile, old: str, new: str) -> bool:
    """Give a descriptor a file of its own at the same offset; files under `old` are taken from `new`.

    Returns:
        Whether that was possible; if not, the descriptor is still that of the original.
    """
    try:
        fd = _own_copy(file, old, new)
        if fd is None:
            return False
        if file.offset >= 0:
            os.lseek(fd, file.offset, os.SEEK_SET)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENOSPC, errno.EDQUOT):
            raise
        return False
    os.dup2(fd, file.fd, inheritable=os.get_inheritable(file.fd))
    os.close(fd)
    return True


def _own_copy(file: OpenFile, old: str, new: str) -> int | None:
    flags = file.flags & ~os.O_NOFOLLOW
    if file.offset >= 0:
        flags &= ~os.O_TMPFILE  # which contains O_DIRECTORY
    if file.path is None:
        return None if file.offset < 0 else _copy_of_nameless(file, new, flags)
    if file.path == old or file.path.startswith(old + "/"):
        return open_anyway(new + file.path[len(old) :], flags)
    return os.open(f"/proc/self/fd/{file.fd}", flags)  # outside: the same file, an offset of its own


def open_anyway(path: str, flags: int) -> int:
    """Open a file of this user, also one whose mode does not allow it any more."""
    try:
        return os.open(path, flags)
    except PermissionError:
        mode = stat.S_IMODE(os.stat(path).st_mode)
        os.chmod(path, 0o600)
        try:
            return os.open(path, flags)
        finally:
            os.chmod(path, mode)


def _copy_of_nameless(file: OpenFile, directory: str, flags: int) -> int:
    source = os.open(f"/proc/self/fd/{file.fd}", os.O_RDONLY)  # an offset of its own; the original's must not move
    target = _nameless(directory)
    try:
        _copy_bytes(source, target)
        return os.open(f"/proc/self/fd/{target}", flags)
    finally:
        os.close(source)
        os.close(target)


def _nameless(directory: str) -> int:
    try:
        return os.open(directory, os.O_TMPFILE | os.O_RDWR, 0o600)
    except OSError:  # a file system without O_TMPFILE
        fd, path = tempfile.mkstemp(dir=directory)
        os.unlink(path)
        return fd


def _copy_bytes(source: int, target: int) -> None:
    """Copy a file from start to end; holes stay holes."""
    size = os.fstat(source).st_size
    os.ftruncate(target, size)
    position = 0
    while position < size:
        try:
            position = os.lseek(source, position, os.SEEK_DATA)
            end = os.lseek(source, position, os.SEEK_HOLE)
        except OSError:  # nothing but a hole from here on
            return
        os.lseek(source, position, os.SEEK_SET)
        os.lseek(target, position, os.SEEK_SET)
        while position < end:
            sent = os.sendfile(target, source, None, end - position)
            if sent == 0:
                return
            position += sent


def copy_tree(old: str, new: str) -> None:
    """Copy a directory with its modes, times, symbolic and hard links and FIFOs; sockets are left out.

    Raises:
        OSError: no space is left, or a file cannot be read.
    """
    links: dict[int, str] = {}
    directories: list[tuple[str, os.stat_result]] = []
    waiting = [""]
    while waiting:
        here = waiting.pop()
        directories.append((new + here, os.stat(old + here)))
        if here:
            os.mkdir(new + here, 0o700)
        with os.scandir(old + here) as entries:
            for entry in entries:
                below = f"{here}/{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(below)
                else:
                    _copy_entry(old + below, new + below, links)
    for path, status in reversed(directories):  # last, since adding entries changes the times
        os.chmod(path, stat.S_IMODE(status.st_mode))
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def _copy_entry(old: str, new: str, links: dict[int, str]) -> None:
    status = os.lstat(old)
    if status.st_nlink > 1 and status.st_ino in links:
        os.link(links[status.st_ino], new, follow_symlinks=False)
        return
    links[status.st_ino] = new
    if stat.S_ISLNK(status.st_mode):
        os.symlink(os.readlink(old), new)
    elif stat.S_ISFIFO(status.st_mode):
        os.mkfifo(new, stat.S_IMODE(status.st_mode))
    elif stat.S_ISREG(status.st_mode):
        _copy_file(old, new, status)


def _copy_file(old: str, new: str, status: os.stat_result) -> None:
    source = open_anyway(old, os.O_RDONLY)
    try:
        target = os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        try:
            _copy_bytes(source, target)
            os.fchmod(target, stat.S_IMODE(status.st_mode))
            os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
        finally:
            os.close(target)
    finally:
        os.close(source)
