"""Forks a live session: the same variables, generators, open files, directory and random state, twice. Runs inside.

The copy is the process itself, so everything in memory comes along; this module does what fork(2) does not
do: a directory and open files of its own, new channels, a supervisor as parent, and the state of `random`,
which Python seeds anew in every forked child. Lost are threads and child processes; pipes, sockets and shared
mappings stay shared. What was lost is counted in the reply.
"""

from __future__ import annotations

import contextlib
import os
import posix
import stat
from typing import TYPE_CHECKING, Any

from sandbox.inside.channel import Channel
from sandbox.inside.files import OpenFile, copy_tree, open_files, own_descriptors, reopen
from sandbox.inside.linux import adopt_orphans
from sandbox.inside.processes import children
from sandbox.inside.random_state import reseed, restore
from sandbox.inside.random_state import state as random_state
from sandbox.wire import BRANCHED, GAVE_UP, LOSSES, READY, UNABLE

if TYPE_CHECKING:
    from sandbox.inside.session import Session

_pid, _leave, _fork = os.getpid, os._exit, os.fork


def fork_session(session: Session, number: int, payload: bytes, fds: list[int]) -> None:
    """Make one copy for each directory named in the payload; returns in the original and in every copy.

    Args:
        session: the one to fork.
        number: of the request, for the reply.
        payload: a seed or nothing, then the real paths of the copies' directories, one a line.
        fds: for each copy its control socket, its stdout and its stderr.
    """
    seed, *directories = payload.decode().split("\n")
    try:
        session.confinement.check_depth()
        if len(fds) != 3 * len(directories):
            raise OSError("too many open files: the session has no descriptors left for its copies")
        losses = _losses(session, fds)
        copied = _fork_all(session, seed, directories, fds)
        if not copied:
            session.confinement.leave_branches()
    except (OSError, MemoryError) as error:
        for fd in fds:
            os.close(fd)
        session.channel.send(UNABLE, number, f"{type(error).__name__}: {error}".encode(errors="replace")[:2000])
        return
    name = session.hide_directory()
    if copied:
        session.channel.send(READY, 0, name)
    else:
        session.channel.send(BRANCHED, number, LOSSES.pack(*losses) + name)


def _fork_all(session: Session, seed: str, directories: list[str], fds: list[int]) -> bool:
    """Fork, and wait until every copy has its own files; True in a copy."""
    files = open_files()
    numbers = random_state()
    done, pending = os.pipe()
    adopt_orphans(False)
    try:
        for index, directory in enumerate(directories):
            between = forked_away(fds[3 * index])
            if between:
                os.close(done)
                own_seed = f"{seed}-{index}" if seed else None
                _become_copy(session, between, directory, fds, index, files, numbers, own_seed)
                os.close(pending)
                return True
    finally:
        adopt_orphans()
    os.close(pending)
    for fd in fds:
        os.close(fd)
    while os.read(done, 1):  # ends when the last copy has closed its side
        continue
    os.close(done)
    return False


def _become_copy(
    session: Session,
    between: int,
    directory: str,
    fds: list[int],
    index: int,
    files: list[OpenFile],
    numbers: Any,
    seed: str | None,
) -> None:
    control, out, err = fds[3 * index : 3 * index + 3]
    try:
        session.become_session(between)
        session.confinement.enter_branch()
        _replace_outputs(session, out, err)
        old, here = session.directory, posix.getcwd()
        os.mkdir(directory, 0o700)
        copy_tree(old, directory)
        reopen(files, old, directory)
        session.directory = directory
        if here == old or here.startswith(old + "/"):
            os.chdir(directory + here[len(old) :])
        session.point_to_directory(old)
        restore(numbers)
        if seed is not None:
            reseed(seed)
        os.dup2(control, session.channel.fileno(), inheritable=False)
        for fd in fds:
            os.close(fd)
    except BaseException as error:  # half a copy must not go on
        refuse(control, error)
        _leave(GAVE_UP)


def _replace_outputs(session: Session, out: int, err: int) -> None:
    """Put the copy's own pipes wherever the original has its stdout and stderr, redirected copies included."""
    new = dict(zip(session.outputs, (out, err)))  # noqa: B905  (Python 3.9)
    for fd in own_descriptors():
        status = os.fstat(fd)
        replacement = new.get((status.st_dev, status.st_ino))
        if replacement is not None:
            os.dup2(replacement, fd, inheritable=os.get_inheritable(fd))
    session.outputs = tuple((os.fstat(fd).st_dev, os.fstat(fd).st_ino) for fd in (out, err))


def _losses(session: Session, fds: list[int]) -> tuple[int, int, int, int]:
    ours = {session.channel.fileno(), *fds}
    channels = 0
    for fd in own_descriptors():
        status = os.fstat(fd)
        if fd in ours or (status.st_dev, status.st_ino) in session.outputs:
            continue
        channels += stat.S_ISFIFO(status.st_mode) or stat.S_ISSOCK(status.st_mode)
    threads = len(os.listdir("/proc/self/task")) - 1
    return threads, len(children(_pid())), _shared_mappings(), channels


def _shared_mappings() -> int:
    with open("/proc/self/maps") as maps:
        rights = [line.split()[1] for line in maps]
    return sum(1 for right in rights if right[1] == "w" and right[3] == "s")


def forked_away(control: int) -> int:
    """Fork twice, so that the supervisor becomes the new process's parent and can wait for it.

    Returns:
        In the new process the id of the process in between, which is about to end; 0 in the old one.
    """
    try:
        between = _fork()
    except OSError as error:
        refuse(control, error)
        return 0
    if between:
        with contextlib.suppress(ChildProcessError):  # the user's code has SIGCHLD ignored
            os.waitpid(between, 0)
        return 0
    between = _pid()
    try:
        grandchild = _fork()
    except OSError as error:
        refuse(control, error)
        _leave(1)
    if grandchild:
        _leave(0)
    return between


def refuse(control: int, error: BaseException) -> None:
    """Tell the supervisor, over the new session's own channel, that there will be no such session."""
    text = f"{type(error).__name__}: {error}".encode(errors="replace")[:2000]
    with contextlib.suppress(OSError):  # the supervisor sees the end of the channel instead
        Channel(os.dup(control)).send(UNABLE, 0, text)
