"""Replaces the memory that a copy of a session shares with others by its own. Runs inside the sandbox, in the copy.

A mapped file of the session's directory is replaced by the copy's own file, other shared memory by private memory with
the same contents. Files that the session cannot write, such as the C library's tables, stay shared.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
import struct
from typing import NamedTuple

from sandbox.server.session.open_files import open_anyway

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
    """Replace the shared mappings.

    Args:
        old: the original's directory.
        new: the copy's own.

    Raises:
        OSError: there is not enough memory.
    """
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
