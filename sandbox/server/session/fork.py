"""Forks a live session with its variables, generators, open files, directory and random state. Runs inside.

The copy is a forked process, so it has everything that is in memory. This module does what fork(2) does not do: it
gives the copy a directory, open files and memory of its own, new channels, the supervisor as parent, and the state of
`random`, which Python seeds anew in every forked child. Afterwards, nothing is shared with the original or with other
copies. To hand over the channels, each process, including the original, makes a new control socket once it is separate,
sends one end with its report over the old one, and gets new pipes for its output over the new one.

Threads and child processes end, in the original too; pipes, sockets and shared memory are replaced. An original that
has threads is forked once more, and that process takes its place: a thread would stay outside the Landlock domain
that the original enters.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posix
import sys
import time
from typing import Any, NamedTuple, Protocol

from sandbox.server.kernel.confine import Confinement
from sandbox.server.kernel.syscalls import adopt_orphans
from sandbox.server.session.blocking_channel import Channel
from sandbox.server.session.isolate_descriptors import count_channels, separate
from sandbox.server.session.open_files import OpenFile, copy_tree, open_files
from sandbox.server.session.random_state import reseed, restore
from sandbox.server.session.random_state import state as random_state
from sandbox.server.session.unshare_memory import count_writable, own_memory
from sandbox.server.wire import BRANCHED, FAULT, GAVE_UP, INDEX, LOSSES, READY, UNABLE

_pid, _leave, _fork, _sleep = os.getpid, os._exit, os.fork, time.sleep
_WHOLE_DAY = 86400.0


class ForkableSession(Protocol):
    """What forking needs of a session; see `session.Session`."""

    confinement: Confinement
    channel: Channel
    directory: str
    outputs: tuple[tuple[int, int], ...]

    def become_session(self, parent: int) -> None:
        """Give a freshly forked process a process group of its own, and have it end with its parent."""

    def renew_streams(self) -> None:
        """Give sys.stdout and sys.stderr new buffers."""

    def point_to_directory(self, old: str) -> None:
        """Let variables that name the old directory name the one that the session has now."""

    def hide_directory(self) -> bytes:
        """Give the directory a name that is in no other session's memory; return it."""


class _Origin(NamedTuple):
    """What copies have to know about the session they are forked from."""

    number: int
    seed: str
    files: list[OpenFile]
    numbers: Any
    threads: bool


def fork_session(session: ForkableSession, number: int, payload: bytes) -> None:
    """Make one copy for each directory named in the payload; returns in every copy, and in the original.

    Args:
        session: the session to fork.
        number: of the request, for the reply.
        payload: lines: a seed or nothing, "threads" if there are other threads, then the real paths of the copies'
            directories.
    """
    seed, threads, *directories = payload.decode().split("\n")
    try:
        session.confinement.check_depth()
        losses = LOSSES.pack(count_writable(), count_channels({session.channel.fileno()}, session.outputs))
        origin = _Origin(number, seed, open_files(), random_state(), bool(threads))
        waiting = os.pipe()
    except (OSError, MemoryError) as error:
        session.channel.send(UNABLE, number, fault(error))
        return
    code = made = 0
    try:
        between, made = _forked_away(len(directories))
        if between:
            _become_copy(session, origin, between, made, directories[made], waiting)
            return
        if made < len(directories):
            code = errno.EAGAIN
    except OSError as failure:
        code = failure.errno or errno.EIO
    _until_done(waiting, made)  # the original must not change its files while they are copied
    try:
        if threads:
            _replace(session)
    except OSError as failure:
        code = failure.errno or errno.EIO
    _forget_tracker()
    session.confinement.leave_branches()
    session.channel.move(BRANCHED, number, losses + FAULT.pack(code) + session.hide_directory())


def _become_copy(
    session: ForkableSession, origin: _Origin, between: int, index: int, directory: str, waiting: tuple[int, int]
) -> None:
    """Make a copy of this process, which has been forked from the original by the process `between`."""
    prefix = INDEX.pack(index)
    try:
        session.become_session(between)
        session.confinement.enter_branch()  # first, so that all that follows is confined
        if origin.threads:
            session.renew_streams()
        old, here = session.directory, posix.getcwd()
        os.mkdir(directory, 0o700)
        copy_tree(old, directory)
        separate(origin.files, old, directory, {session.channel.fileno(), *waiting}, session.outputs)
        # after the files are copied, since mappings of them move to the copies
        own_memory(old, directory)
        _forget_tracker()
        session.directory = directory
        if here == old or here.startswith(old + "/"):  # the code's working directory is in its directory
            os.chdir(directory + here[len(old) :])
        session.point_to_directory(old)
        restore(origin.numbers)
        if origin.seed:
            reseed(f"{origin.seed}-{index}")
        session.channel.move(READY, origin.number, prefix + session.hide_directory())
    except BaseException as error:  # an incomplete copy must not go on
        with contextlib.suppress(OSError):
            session.channel.send(UNABLE, origin.number, prefix + fault(error))
            os.write(waiting[1], b"!")
        _leave(GAVE_UP)
    os.write(waiting[1], b"!")
    for fd in waiting:
        os.close(fd)


def _until_done(waiting: tuple[int, int], copies: int) -> None:
    """Wait until every copy has reported that it needs the original no more, or all have ended."""
    done, pending = waiting
    # else the pipe would not end when all copies have ended without a word
    os.close(pending)
    while copies > 0:
        said = os.read(done, copies)
        copies = copies - len(said) if said else 0
    os.close(done)


def _replace(session: ForkableSession) -> None:
    """Fork once more and go on in the new process, which has no other threads; the supervisor kills the old one.

    Raises:
        OSError: no process could be created.
    """
    numbers = random_state()
    between, made = _forked_away()
    if not between and not made:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    while not between:
        _sleep(_WHOLE_DAY)
    session.become_session(between)
    session.renew_streams()
    restore(numbers)


def _forget_tracker() -> None:
    """Have multiprocessing start a new resource tracker without a warning, since a fork ends the present one."""
    module = sys.modules.get("multiprocessing.resource_tracker")
    with contextlib.suppress(Exception):  # not imported, or changed by the code
        tracker = module._resource_tracker  # type: ignore[union-attr]
        if tracker._fd is not None:
            os.close(tracker._fd)
            tracker._fd = tracker._pid = None


def _forked_away(copies: int = 1) -> tuple[int, int]:
    """Fork twice, so that the supervisor becomes the new processes' parent and can wait for them.

    The process in between makes them all: from the original, each would take two forks and the end of a process.

    Returns:
        In a new process, the id of the process in between, which is about to end, and the new process's number; in the
        old one, 0 and how many there are.

    Raises:
        OSError: no process could be created.
    """
    adopt_orphans(False)
    try:
        between = _fork()
        if between:
            status = 0
            with contextlib.suppress(ChildProcessError):  # the user's code has SIGCHLD ignored
                status = os.waitpid(between, 0)[1]
            return 0, max(0, copies - os.WEXITSTATUS(status)) if os.WIFEXITED(status) else 0
    finally:
        adopt_orphans()
    between = _pid()
    for number in range(copies):
        try:
            if not _fork():
                return between, number
        except OSError:
            _leave(min(copies - number, 255))
    _leave(0)
    raise AssertionError  # not reached


def fault(error: BaseException) -> bytes:
    """Return the payload of UNABLE for an error."""
    return FAULT.pack((getattr(error, "errno", None) or errno.EIO) & 0xFFFF)
