"""Makes a forked session independent: its directory, open files, shared memory and random state. Runs inside.

A copy is a forked process, so it has everything that is in memory. This module does what fork(2) does not do: it gives
the copy a directory, open files and memory of its own, and the state of `random`, which Python seeds anew in every
forked child. Pipes, sockets and shared memory are replaced. Afterwards, nothing is shared with the original or with
other copies. `session` makes the processes and hands over their channels.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import re
import select
import stat
import struct
import sys
from _socket import socketpair
from typing import Any, NamedTuple

# Copies what a session has on disk: its directory, and the files it has open.
#
# After a fork, parent and child share the offset and the content of each open file. `open_files` records in the parent
# what is open where; `reopen` gives the child descriptors of its own, at the same offset, on its own copies. Locks are
# not copied.

Identity = tuple[int, int]


class OpenFile(NamedTuple):
    """A regular file or directory that a session has open."""

    fd: int
    path: str | None  # None for a file that has no name any more
    flags: int  # as fcntl(F_GETFL) returns them
    offset: int  # -1 for a directory
    same_as: int  # an earlier descriptor that shares the offset with this one (dup), or -1
    identity: Identity


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
        if identity_of(os.stat(str(path))) != identity:
            path = None
    except OSError:
        path = None
    if stat.S_ISDIR(status.st_mode) or flags & os.O_PATH:
        return OpenFile(fd, path, flags, -1, -1, identity)
    same_as = _sharing_offset(fd, identity, flags, earlier)
    return OpenFile(fd, path, flags, os.lseek(fd, 0, os.SEEK_CUR), same_as, identity)


def identity_of(status: os.stat_result) -> Identity:
    """Return device and inode, which identify a file."""
    return status.st_dev, status.st_ino


def _sharing_offset(fd: int, identity: Identity, flags: int, earlier: list[OpenFile]) -> int:
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

    Returns whether that was possible; if not, the descriptor is still that of the original.
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
    target = os.open(directory, os.O_TMPFILE | os.O_RDWR, 0o600)
    try:
        _copy_bytes(source, target)
        return os.open(f"/proc/self/fd/{target}", flags)
    finally:
        os.close(source)
        os.close(target)


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
    """Copy a directory with its modes, times, symbolic and hard links and FIFOs; sockets are left out."""
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
    target = os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with open(open_anyway(old, os.O_RDONLY), "rb", 0) as source, open(target, "wb", 0):
        _copy_bytes(source.fileno(), target)
        os.fchmod(target, stat.S_IMODE(status.st_mode))
        os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))


# Replaces the memory that a copy of a session shares with others by its own.
#
# A mapped file of the session's directory is replaced by the copy's own file, other shared memory by private memory
# with the same contents. Files that the session cannot write, such as the C library's tables, stay shared.

_READ, _WRITE, _EXECUTE = 1, 2, 4
_SHARED, _PRIVATE, _FIXED, _ANONYMOUS = 0x01, 0x02, 0x10, 0x20
_MAY_MOVE, _TO_PLACE = 1, 2
_FAILED = ctypes.c_void_p(-1).value
_LINE = re.compile(rb"^(\w+)-(\w+) ([r-])([w-])([x-])s (\w+) \S+ (\d+) *(.*)$", re.MULTILINE)
_QUERY, _QUERY_SIZE, _NEXT_SHARED = 0xC0686611, 104, 0x10 | 0x08  # PROCMAP_QUERY, Linux 6.11
_libc = ctypes.CDLL(None, use_errno=True)
_pointer, _size, _number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
_libc.mmap.restype = _libc.mremap.restype = _pointer
_libc.mmap.argtypes = (_pointer, _size, _number, _number, _number, ctypes.c_long)
_libc.mremap.argtypes = (_pointer, _size, _size, _number, _pointer)
_libc.mprotect.argtypes = (_pointer, _size, _number)


class Mapping(NamedTuple):
    """A shared mapping: its place, its access rights, and its file."""

    start: int
    size: int
    rights: int
    offset: int
    inode: int
    path: str


def shared_mappings() -> list[Mapping]:
    """Return the shared memory of this process."""
    with open("/proc/self/maps", "rb") as maps:
        found = _LINE.findall(maps.read()) if _any_shared(maps.fileno()) else []
    return [
        Mapping(
            int(start, 16),
            int(end, 16) - int(start, 16),
            _READ * (read == b"r") | _WRITE * (write == b"w") | _EXECUTE * (execute == b"x"),
            int(offset, 16),
            int(inode),
            os.fsdecode(path),
        )
        for start, end, read, write, execute, offset, inode, path in found
    ]


def _any_shared(maps: int) -> bool:
    """Ask the kernel for one shared mapping, which is faster than reading the list; older kernels say yes."""
    query = bytearray(struct.pack("=QQQ", _QUERY_SIZE, _NEXT_SHARED, 0).ljust(_QUERY_SIZE, b"\0"))
    try:
        fcntl.ioctl(maps, _QUERY, query)
    except OSError as error:
        return error.errno != errno.ENOENT
    return True


def count_writable() -> int:
    """Return how many shared mappings this process can write to."""
    return sum(bool(mapping.rights & _WRITE) for mapping in shared_mappings())


def own_memory(old: str, new: str) -> None:
    """Replace the shared mappings; `old` is the original's directory, `new` the copy's own."""
    for mapping in shared_mappings():
        size = _size_of(mapping)
        if size is not None and mapping.path.startswith(old + "/"):
            _map_own_file(mapping, new + mapping.path[len(old) :])
        elif size is None or os.access(mapping.path, os.W_OK):
            _copy_contents(mapping, mapping.size if size is None else size - mapping.offset)


def _size_of(mapping: Mapping) -> int | None:
    """Return the size of the mapped file; None if it has no name, or is not a file."""
    try:
        status = os.stat(mapping.path)
    except OSError:
        return None
    return status.st_size if status.st_ino == mapping.inode else None


def _map_own_file(mapping: Mapping, path: str) -> None:
    try:
        file = open_anyway(path, os.O_RDWR)
    except PermissionError:
        file = open_anyway(path, os.O_RDONLY)
    try:
        _map(mapping.start, mapping.size, mapping.rights, _SHARED | _FIXED, file, mapping.offset)
    finally:
        os.close(file)


def _copy_contents(mapping: Mapping, length: int) -> None:
    """Replace shared by private memory. Only the part within the file is copied; beyond its end, reading would fail."""
    place = _map(None, mapping.size, _READ | _WRITE, _PRIVATE | _ANONYMOUS, -1, 0)
    if not mapping.rights & _READ:  # it has to be read once
        _check(_libc.mprotect(mapping.start, mapping.size, _READ))
    ctypes.memmove(place, mapping.start, max(0, min(length, mapping.size)))
    _check(_libc.mprotect(place, mapping.size, mapping.rights))
    # one call, so that the place is never without memory
    moved = _libc.mremap(place, mapping.size, mapping.size, _MAY_MOVE | _TO_PLACE, mapping.start)
    _check(-1 if moved == _FAILED else 0)


def _map(place: int | None, size: int, rights: int, flags: int, file: int, offset: int) -> int:
    found = _libc.mmap(place, size, rights, flags, file, offset)
    _check(-1 if found == _FAILED else 0)
    return int(found)


def _check(result: int) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


# Gives a copy of a session descriptors of its own, so that branches share no open file.
#
# Files and directories are reopened (see `open_files`). What cannot be copied would be a channel between the branches,
# and becomes a dead end: pipes and sockets are at their end for readers and broken for writers, an epoll is empty, an
# eventfd is new, and anything else cannot be used at all. Devices such as /dev/null stay as they are.

_MEMORY_DEVICES = 1  # major number of null, zero, full, random and urandom; terminals have others


def separate(files: list[OpenFile], old: str, new: str, keep: set[int], outputs: tuple[Identity, ...]) -> None:
    """Replace every descriptor that this process, a copy, shares with the session it was forked from.

    `files` is what `open_files` noted there; `old` and `new` are the directories. The descriptors of `keep` are left
    alone, and those of `outputs`, the pipes of stdout and stderr: new ones come later.
    """
    noted = {file.fd: file for file in files}
    own: set[int] = set()
    for fd, status in descriptors().items():
        if fd in keep or (stat.S_ISCHR(status.st_mode) and os.major(status.st_rdev) == _MEMORY_DEVICES):
            continue
        file = noted.get(fd)
        if file is None or file.identity != identity_of(status):
            if identity_of(status) not in outputs:
                _cut_off(fd, status.st_mode)  # a pipe, a socket, or something else that is no file
        elif file.same_as in own:  # a duplicate of one that was reopened: both keep one offset
            os.dup2(file.same_as, fd, inheritable=os.get_inheritable(fd))
        elif file.same_as < 0 and reopen(file, old, new):
            own.add(fd)
        else:
            _cut_off(fd, 0)


def count_channels(keep: set[int], outputs: tuple[Identity, ...]) -> int:
    """Return how many pipes and sockets the code has open."""
    return sum(
        stat.S_ISFIFO(status.st_mode) or stat.S_ISSOCK(status.st_mode)
        for fd, status in descriptors().items()
        if fd not in keep and identity_of(status) not in outputs
    )


def replace(new: dict[Identity, int]) -> None:
    """Replace descriptors by others, including every copy of them."""
    for fd, status in descriptors().items():
        replacement = new.get(identity_of(status))
        if replacement is not None:
            os.dup2(replacement, fd, inheritable=os.get_inheritable(fd))


def _cut_off(fd: int, mode: int) -> None:
    end = _dead_end(fd, mode)
    if end != fd:
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
            os.set_blocking(end, os.get_blocking(fd))
        os.dup2(end, fd, inheritable=os.get_inheritable(fd))
        os.close(end)


def _dead_end(fd: int, mode: int) -> int:
    access = fcntl.fcntl(fd, fcntl.F_GETFL)
    if access & os.O_PATH:
        return _nothing()
    if stat.S_ISSOCK(mode) or (stat.S_ISFIFO(mode) and access & os.O_ACCMODE == os.O_RDWR):
        one, other = socketpair()
        other.close()
        return one.detach()
    if stat.S_ISFIFO(mode):
        reading, writing = os.pipe()
        kept, dropped = (reading, writing) if access & os.O_ACCMODE == os.O_RDONLY else (writing, reading)
        os.close(dropped)
        return kept
    kind = os.readlink(f"/proc/self/fd/{fd}")
    if kind == "anon_inode:[eventpoll]":
        epoll = select.epoll()  # which closes its own descriptor at its end
        return os.dup(epoll.fileno())
    if kind == "anon_inode:[eventfd]" and hasattr(os, "eventfd"):
        return os.eventfd(0)
    return _nothing()


def _nothing() -> int:
    return os.open(os.devnull, os.O_PATH | os.O_CLOEXEC)


# Random state: new sessions differ; forks continue as the original would.


def random_state() -> Any:
    """Return the state of `random`, which Python reseeds in every forked child; that of numpy is copied as memory."""
    random = sys.modules.get("random")
    return random.getstate() if random is not None else None


def restore(kept: Any) -> None:
    """Restore the state of `random`."""
    if kept is not None:
        sys.modules["random"].setstate(kept)


def seed_numpy() -> None:
    """Seed the generator of numpy's old interface by the system's randomness; Python does so for `random` in a fork."""
    numbers = sys.modules.get("numpy.random")
    if numbers is not None:
        numbers.seed(None)
