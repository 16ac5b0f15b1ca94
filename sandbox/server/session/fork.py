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
import ctypes
import errno
import fcntl
import hashlib
import os
import posix
import re
import select
import stat
import struct
import sys
import tempfile
import time
from _socket import socketpair
from typing import Any, NamedTuple, Protocol

from sandbox.server.kernel.confine import Confinement, adopt_orphans
from sandbox.server.wire import BRANCHED, FAULT, GAVE_UP, INDEX, LOSSES, READY, UNABLE, Channel

# Copies what a session has on disk: its directory, and the files it has open.
#
# After a fork, parent and child share the offset and the content of each open file. `open_files` records in the parent
# what is open where; `reopen` gives the child descriptors of its own, at the same offset, on its own copies. Locks are
# not copied. Other kinds of descriptors are handled in `isolate_descriptors`.


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


# Gives a copy of a session descriptors of its own, so that branches share no open file.
#
# Files and directories are reopened (see `open_files`). What cannot be copied would be a channel between the branches,
# and becomes a dead end: pipes and sockets are at their end for readers and broken for writers, an epoll is empty, an
# eventfd is new, and anything else cannot be used at all. Devices such as /dev/null stay as they are.

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


# Random state: new sessions differ; forks continue as the original would, or differ on request.


def random_state() -> Any:
    """Return the state of `random`, which Python reseeds in every forked child; that of numpy is copied as memory."""
    random = sys.modules.get("random")
    return random.getstate() if random is not None else None


def restore(kept: Any) -> None:
    """Restore the state of `random`."""
    if kept is not None:
        sys.modules["random"].setstate(kept)


def reseed(seed: str | None) -> None:
    """Seed the generators of `random` and of numpy's old interface, where they have been imported.

    Args:
        seed: any text; None uses the system's randomness. Generators that the code has created are not changed.
    """
    random = sys.modules.get("random")
    # without a seed nothing is left to do for `random`: Python has seeded it anew in the forked child
    if random is not None and seed is not None:
        random.seed(seed)
    numbers = sys.modules.get("numpy.random")
    if numbers is not None:
        # numpy's old interface takes 32 bits
        numbers.seed(None if seed is None else int.from_bytes(hashlib.sha256(seed.encode()).digest()[:4], "big"))


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
