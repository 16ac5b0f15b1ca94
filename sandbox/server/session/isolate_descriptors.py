"""Gives a copy of a session descriptors of its own, so that branches share no open file. Runs inside.

Files and directories are reopened (see `open_files`). What cannot be copied would be a channel between the branches,
and becomes a dead end: pipes and sockets are at their end for readers and broken for writers, an epoll is empty, an
eventfd is new, and anything else cannot be used at all. Devices such as /dev/null stay as they are.
"""

from __future__ import annotations

import fcntl
import os
import select
import stat
from _socket import socketpair

from sandbox.server.session.open_files import OpenFile, descriptors, identity_of, reopen

Identity = tuple[int, int]
_MEMORY_DEVICES = 1  # major number of null, zero, full, random and urandom; terminals have others


def separate(files: list[OpenFile], old: str, new: str, keep: set[int], outputs: tuple[Identity, ...]) -> None:
    """Replace every descriptor that this process, a copy, shares with the session it was forked from.

    Args:
        files: what `open_files` noted in the original.
        old: the original's directory.
        new: the copy's own.
        keep: descriptors that are left alone.
        outputs: the pipes of stdout and stderr, which are left alone: the new ones come later.

    Raises:
        OSError: no descriptors are left, or no space.
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
        return _empty_epoll()
    if kind == "anon_inode:[eventfd]" and hasattr(os, "eventfd"):
        return os.eventfd(0)
    return _nothing()


def _empty_epoll() -> int:
    epoll = select.epoll()
    try:
        return os.dup(epoll.fileno())
    finally:
        epoll.close()


def _nothing() -> int:
    return os.open(os.devnull, os.O_PATH | os.O_CLOEXEC)
