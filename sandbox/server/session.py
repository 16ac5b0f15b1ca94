"""The processes that code runs in: the zygote, and sessions, forked from it or from each other. Runs inside.

A session waits for cells, runs them, and forks when told to. The supervisor trusts nothing that it sends, since the
user's code shares its memory and can change anything here.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import importlib
import json
import os
import posix
import select
import signal
import stat
import sys
import time
import types
from collections.abc import Callable
from typing import Any, BinaryIO

from sandbox.server import cells, confine, fork, wire
from sandbox.server.confine import Confinement
from sandbox.server.processes import ended_children, remove_tree
from sandbox.server.wire import ENTRY, FAULT, FILE_REPLY, FILE_REQUEST, INDEX, LARGEST_PIECE, LOSSES, OUTCOME, Channel

# kept, since the user's code may replace the names in `os`
_fork, _pid, _leave, _sleep = os.fork, os.getpid, os._exit, time.sleep
_WHOLE_DAY = 86400.0
CONTROL_FD = 199
_HIGHEST_FD = 1024
_current: Session | None = None


class Session:
    """The state of a session apart from the user's variables: channel, directory (a real path), number of cells."""

    def __init__(self, config: dict[str, Any], confinement: Confinement, directory: str) -> None:
        self.config = config
        self.confinement = confinement
        self.directory = directory
        self.channel: Channel
        self.outputs: tuple[tuple[int, int], ...] = ()  # device and inode of the pipes of stdout and stderr
        self.pid = 0
        self._cells = 0
        self._running = False
        self._interrupted = False
        self._namespace = sys.modules["__main__"].__dict__

    def become_session(self, parent: int) -> None:
        """Give a freshly forked process a process group of its own, and have it end with its parent.

        `parent` is a process in between that is about to end (see `_forked_away`), or 0.
        """
        self.pid = _pid()
        os.setsid()
        confine.adopt_orphans()
        pause = 0.0001
        while posix.getppid() == parent:  # else the death signal would come from the process in between
            _sleep(pause)  # without the processor, which the one in between needs to make the other copies
            pause = min(2 * pause, 0.005)
        confine.die_with_parent()

    def take_over(self, control: int, out: int, err: int) -> None:
        """Make a process forked from the zygote a session: directory, descriptors, confinement."""
        global _current
        _current = self
        os.mkdir(self.directory, 0o700)
        os.chdir(self.directory)
        place = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
        self.confinement.close_off()  # before any code runs, after the directory was opened
        os.dup2(control, CONTROL_FD, inheritable=False)
        os.dup2(place, cells.WORK_FD, inheritable=True)
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.closerange(3, CONTROL_FD)  # descriptors of the zygote
        os.closerange(cells.WORK_FD + 1, _HIGHEST_FD)
        self.channel = Channel(CONTROL_FD)
        self.note_outputs()
        self.point_to_directory("")
        fork.seed_numpy()
        signal.signal(signal.SIGINT, self._interrupt)

    def hide_directory(self) -> bytes:
        """Give the directory a name that is in no other session's memory; return it.

        Without /work the name stays, since the code may have stored it.
        """
        if self.config["work"]:
            hidden = os.path.join(os.path.dirname(self.directory), posix.urandom(16).hex())
            with contextlib.suppress(OSError):  # the code has removed it
                posix.rename(self.directory, hidden)
                self.directory = hidden
        return os.path.basename(self.directory).encode()

    def note_outputs(self) -> None:
        """Remember which pipes are stdout and stderr, since the user's code may copy their descriptors."""
        self.outputs = tuple(fork.identity_of(os.fstat(fd)) for fd in (1, 2))

    def take_outputs(self, fds: list[int]) -> None:
        """Put new pipes in place of stdout and stderr, including redirected copies."""
        if len(fds) != len(self.outputs):
            raise OSError("too many open files: the session has no descriptors left for its output")
        fork.replace(dict(zip(self.outputs, fds)))  # noqa: B905  (Python 3.9)
        self.outputs = tuple(fork.identity_of(os.fstat(fd)) for fd in fds)
        for fd in fds:
            os.close(fd)

    def point_to_directory(self, old: str) -> None:
        """Let variables that name the old directory name the one that the session has now."""
        if not self.config["work"]:  # else they name /work, which is the same in every session
            cells.point_variables_to(self.directory, old)

    def _interrupt(self, number: int, frame: types.FrameType | None) -> None:
        """Handle SIGINT: stop the cell, once; between cells it is ignored."""
        if self._running and not self._interrupted:
            self._interrupted = True
            raise KeyboardInterrupt

    def serve(self) -> None:
        """Report that the session is ready, then serve requests until the channel ends."""
        self.channel.send(wire.READY, 0, self.hide_directory())
        while True:
            try:
                kind, number, length, fds = self.channel.receive_header()
                if kind == wire.SETUP:  # its text must not be read into this process
                    self._setup(number, length)
                    continue
                payload = self.channel.receive_payload(length, fds)
                if kind == wire.CELL:
                    self._cell(number, payload)
                elif kind == wire.BRANCH:
                    _fork_session(self, number, payload)
                elif kind == wire.GIVE:
                    self.take_outputs(fds)
                elif kind == wire.FILE:
                    self.channel.send(wire.FILED, number, answer_file(payload, cells.WORK_FD))
            except KeyboardInterrupt:  # the signal came a moment after the cell had ended
                continue

    def _cell(self, number: int, payload: bytes) -> None:
        self._cells += 1
        source, name = payload.decode("utf-8", "surrogatepass"), f"<cell {self._cells}>"
        keep = self.config["limits"]["output_bytes"]
        self._execute(number, lambda: cells.run_cell(source, name, self._namespace, keep, self._own_files()))

    def _setup(self, number: int, length: int) -> None:
        self._execute(number, lambda: cells.run_setup(self.channel, length, self._namespace, self._own_files()))

    def _execute(self, number: int, run: Callable[[], cells.Outcome]) -> None:
        """Run the user's code and send the outcome to the supervisor."""
        outcome = self._guarded(run)
        cells.flush_output()
        # a child must not answer for the session
        if _pid() != self.pid:  # the code called os.fork() and this is the child
            _leave(0)
        cells.restore_input()
        self.channel.send(wire.DONE, number, _packed(outcome))

    def _guarded(self, run: Callable[[], cells.Outcome]) -> cells.Outcome:
        self._interrupted = False
        self._running = True
        try:
            return run()
        except BaseException as error:  # an interrupt between the cell and the next line
            return cells.Outcome("error", None, f"{type(error).__name__}: the cell was interrupted")
        finally:
            self._running = False

    def _own_files(self) -> tuple[str, ...]:
        """Return the prefixes of the names of the user's own files."""
        return ("<cell ", "<setup>", self.directory + "/", cells.WORK + "/")


def _current_directory() -> str:
    """Return the directory of the session that this process is; empty in the zygote."""
    return _current.directory if _current else ""


def _packed(outcome: cells.Outcome) -> bytes:
    value = _encoded(outcome.value)
    error = _encoded(outcome.error)
    flags = wire.HAS_VALUE * (outcome.value is not None) | wire.HAS_ERROR * (outcome.error is not None)
    flags |= wire.SHORTENED * outcome.shortened
    head = OUTCOME.pack(wire.STATUSES.index(outcome.status), flags, len(value), len(error))
    return head + value + error + wire.pack_pictures(*outcome.pictures)


def _encoded(text: str | None) -> bytes:
    return (text or "").encode("utf-8", "backslashreplace")


def _refuse(control: int, error: BaseException) -> None:
    """Report to the supervisor, over the new session's own channel, that the session cannot be created."""
    text = f"{type(error).__name__}: {error}".encode(errors="replace")[:2000]
    with contextlib.suppress(OSError):  # the supervisor sees the end of the channel instead
        Channel(os.dup(control)).send(wire.UNABLE, 0, text)


def _start(config: dict[str, Any], confinement: Confinement, order: dict[str, Any], fds: list[int]) -> int:
    """Fork a session from the zygote. Returns in the zygote only: the new process's id, or 0."""
    control, out, err = fds
    try:
        confinement.prepare(order["slot"])
        child = os.fork()
    except OSError as error:
        _refuse(control, error)
        return 0
    if child:
        return child
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        confinement.separate(order["uid"])
        session = Session(config, confinement, order["directory"])
        session.become_session(0)
        session.take_over(control, out, err)
        session.serve()
    except EOFError:
        pass
    except BaseException as error:  # a session must never return into the zygote's own code
        for fd in (control, CONTROL_FD):
            _refuse(fd, error)
        _leave(wire.GAVE_UP)
    _leave(0)
    return 0


# Files of a session, for the client.
#
# The session opens the files itself, with its own rights, so that no path leads where the code could not go. Relative
# paths start at the session's directory, whatever the code's working directory is.


def answer_file(payload: bytes, directory: int) -> bytes:
    """Read or write a piece of a file, or list a directory; returns the reply to a FILE."""
    operation, offset, length = FILE_REQUEST.unpack_from(payload)
    path = payload[FILE_REQUEST.size :]
    try:
        if operation == wire.LIST:
            return FILE_REPLY.pack(0, 0) + _entries(path, directory)
        if operation == wire.READ:
            with _regular(path, os.O_RDONLY, directory) as file:
                size = os.fstat(file.fileno()).st_size
                return FILE_REPLY.pack(0, size) + os.pread(file.fileno(), min(length, LARGEST_PIECE), offset)
        path, _, data = path.partition(b"\0")
        if offset == 0:
            with contextlib.suppress(FileExistsError):  # it is a file, which opening tells
                os.makedirs(os.path.join(b"/proc/self/fd/%d" % directory, os.path.dirname(path)), 0o755, exist_ok=True)
        with _regular(path, os.O_WRONLY | os.O_CREAT | (0 if offset else os.O_TRUNC), directory) as file:
            file.seek(offset)
            file.write(data)
        return FILE_REPLY.pack(0, 0)
    except (OSError, ValueError, OverflowError) as error:
        return FILE_REPLY.pack(getattr(error, "errno", None) or errno.EINVAL, 0)


def _entries(path: bytes, directory: int) -> bytes:
    place, data = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory), bytearray()
    try:
        with os.scandir(place) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                    status, name = entry.stat(follow_symlinks=False), os.fsencode(entry.name)
                    data += ENTRY.pack(status.st_size, stat.S_ISDIR(status.st_mode), len(name)) + name
                if len(data) > LARGEST_PIECE:
                    raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    finally:
        os.close(place)
    return bytes(data)


def _regular(path: bytes, flags: int, directory: int) -> BinaryIO:
    file = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o644, dir_fd=directory)
    mode = os.fstat(file).st_mode
    if not stat.S_ISREG(mode):
        os.close(file)
        code = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        raise OSError(code, os.strerror(code))
    return open(file, "wb" if flags & os.O_WRONLY else "rb")


# Forks of a session; `fork` has what a forked process needs besides.
#
# To hand over the channels, each process, including the original, makes a new control socket once it is separate, sends
# one end with its report over the old one, and gets new pipes for its output over the new one.
#
# Threads and child processes end, in the original too. An original that has threads is forked once more, and that
# process takes its place: a thread would stay outside the Landlock domain that the original enters.


def _fork_session(session: Session, number: int, payload: bytes) -> None:
    """Make one copy for each directory named in the payload; returns in every copy, and in the original.

    The payload has lines: "threads" if there are other threads, or nothing; then the real paths of the copies'
    directories.
    """
    threads, *directories = payload.decode().split("\n")
    try:
        session.confinement.check_depth()
        losses = LOSSES.pack(fork.count_writable(), fork.count_channels({session.channel.fileno()}, session.outputs))
        files, numbers, waiting = fork.open_files(), fork.random_state(), os.pipe()
    except (OSError, MemoryError) as error:
        session.channel.send(wire.UNABLE, number, _fault(error))
        return
    code = made = 0
    try:
        between, made = _forked_away(len(directories))
        if between:
            prefix = INDEX.pack(made)
            try:
                session.become_session(between)
                _become_copy(session, directories[made], files, waiting, bool(threads))
                fork.restore(numbers)
                session.channel.move(wire.READY, number, prefix + session.hide_directory())
            except BaseException as error:  # an incomplete copy must not go on
                with contextlib.suppress(OSError):
                    session.channel.send(wire.UNABLE, number, prefix + _fault(error))
                    os.write(waiting[1], b"!")
                _leave(wire.GAVE_UP)
            os.write(waiting[1], b"!")
            for fd in waiting:
                os.close(fd)
            return
        if made < len(directories):
            code = errno.EAGAIN
    except OSError as failure:
        code = failure.errno or errno.EIO
    _until_done(waiting, made)  # the original must not change its files while they are copied
    try:
        if threads:
            _replace_by_fork(session)
    except OSError as failure:
        code = failure.errno or errno.EIO
    _forget_tracker()
    session.confinement.leave_branches()
    session.channel.move(wire.BRANCHED, number, losses + FAULT.pack(code) + session.hide_directory())


def _become_copy(
    session: Session, directory: str, files: list[fork.OpenFile], waiting: tuple[int, int], threads: bool
) -> None:
    """Give this process, a fork of the session, a directory, files and memory of its own."""
    session.confinement.enter_branch()  # first, so that all that follows is confined
    if threads:
        cells.renew_streams()
    old, here = session.directory, posix.getcwd()
    os.mkdir(directory, 0o700)
    fork.copy_tree(old, directory)
    fork.separate(files, old, directory, {session.channel.fileno(), *waiting}, session.outputs)
    # after the files are copied, since mappings of them move to the copies
    fork.own_memory(old, directory)
    _forget_tracker()
    session.directory = directory
    if here == old or here.startswith(old + "/"):  # the code's working directory is in its directory
        os.chdir(directory + here[len(old) :])
    session.point_to_directory(old)


def _until_done(waiting: tuple[int, int], copies: int) -> None:
    """Wait until every copy has reported that it needs the original no more, or all have ended."""
    done, pending = waiting
    # else the pipe would not end when all copies have ended without a word
    os.close(pending)
    while copies > 0:
        said = os.read(done, copies)
        copies = copies - len(said) if said else 0
    os.close(done)


def _replace_by_fork(session: Session) -> None:
    """Fork once more and go on in the new process, which has no other threads; the supervisor kills the old one."""
    numbers = fork.random_state()
    between, made = _forked_away()
    if not between and not made:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    while not between:
        _sleep(_WHOLE_DAY)
    session.become_session(between)
    cells.renew_streams()
    fork.restore(numbers)


def _forget_tracker() -> None:
    """Have multiprocessing start a new resource tracker without a warning, since a fork ends the present one."""
    with contextlib.suppress(Exception):  # not imported, or changed by the code
        tracker = sys.modules["multiprocessing.resource_tracker"]._resource_tracker
        if tracker._fd is not None:
            os.close(tracker._fd)
            tracker._fd = tracker._pid = None


def _forked_away(copies: int = 1) -> tuple[int, int]:
    """Fork twice, so that the supervisor becomes the new processes' parent and can wait for them.

    The process in between makes them all: from the original, each would take two forks and the end of a process.

    Returns:
        In a new process, the id of the process in between, which is about to end, and the new process's number; in the
        old one, 0 and how many there are.
    """
    confine.adopt_orphans(False)
    try:
        between = _fork()
        if between:
            status = 0
            with contextlib.suppress(ChildProcessError):  # the user's code has SIGCHLD ignored
                status = os.waitpid(between, 0)[1]
            return 0, max(0, copies - os.WEXITSTATUS(status)) if os.WIFEXITED(status) else 0
    finally:
        confine.adopt_orphans()
    between = _pid()
    for number in range(copies):
        try:
            if not _fork():
                return between, number
        except OSError:
            _leave(min(copies - number, 255))
    _leave(0)
    raise AssertionError  # not reached


def _fault(error: BaseException) -> bytes:
    """Return the payload of UNABLE for an error."""
    return FAULT.pack((getattr(error, "errno", None) or errno.EIO) & 0xFFFF)


# The zygote: the process that every session is forked from.
#
# It never sees any code, so a session finds nothing of other sessions in its memory. It is a process of its own,
# started by exec, so a session finds nothing of the supervisor either. It imports the modules of the image's profile
# once. Sessions are its children; it reports their exits to the supervisor.


def serve_zygote(config: dict[str, Any]) -> None:
    """Serve the supervisor's orders, which come on descriptor 0, until it ends."""
    confine.die_with_parent()
    channel = Channel(os.dup(0))
    nothing = os.open(os.devnull, os.O_RDWR)  # sessions inherit standard input
    os.dup2(nothing, 0)
    os.close(nothing)
    confine.hide_memory()
    imported = [name for name in config["preload"] if _import(name)]
    confinement = Confinement(config)
    confinement.begin()
    facts = {**_facts(config, confinement), "packages": _installed()}
    channel.send(wire.HELLO, 0, json.dumps(facts).encode())
    zygote = Zygote(config, channel, confinement)
    if "sympy" in imported:
        _use_sympy()
    cells.furnish(config, _current_directory)
    gc.collect()
    gc.freeze()  # a collection in a session would otherwise write to every page that is shared
    confine.collapse_heap()
    zygote.serve()


def _use_sympy() -> None:
    # what it imports and tabulates at its first uses takes 0.2 s, which each session would spend anew
    import sympy

    x = sympy.Symbol("x")
    sympy.solve(x**2 - 3 * x + 2, x)
    sympy.integrate(x * sympy.sin(x), x)


def _import(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True


def _installed() -> list[str]:
    """Return the names of the installed packages, without the standard library."""
    found: set[str] = set()
    for place in sys.path:
        if os.path.basename(place) in ("site-packages", "dist-packages") or place == os.environ.get("PYTHONPATH"):
            with contextlib.suppress(OSError):
                found.update(name.partition(".")[0] for name in os.listdir(place))
    return sorted(name for name in found if name.isidentifier())


def _facts(config: dict[str, Any], confinement: Confinement) -> dict[str, Any]:
    """Confine a child as sessions are confined, and return what it measures."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            facts = confinement.facts(config["first_uid"])
        except OSError as error:
            facts = {"fault": f"a session cannot be confined: {error}"}
        os.write(writing, json.dumps(facts).encode())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        found: dict[str, Any] = json.loads(pipe.read())
    os.waitpid(child, 0)
    return found


class Zygote:
    """Forks sessions, and reports their exits."""

    def __init__(self, config: dict[str, Any], channel: Channel, confinement: Confinement) -> None:
        self._config, self._channel, self._confinement = config, channel, confinement

    def serve(self) -> None:
        """Serve until the supervisor is gone."""
        exits, wakeup = os.pipe()
        for fd in (exits, wakeup):
            os.set_blocking(fd, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        poll = select.poll()
        poll.register(self._channel.fileno(), select.POLLIN)
        poll.register(exits, select.POLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd != exits:
                    self._serve_order()
                    continue
                os.read(exits, 1 << 12)
                for pid, status in ended_children():
                    self._channel.send(wire.DIED, pid, wire.ENDED.pack(status))

    def _serve_order(self) -> None:
        try:
            kind, _, payload, fds = self._channel.receive()
        except (EOFError, OSError):
            os._exit(0)
        order = json.loads(payload)
        if kind == wire.SPAWN and len(fds) == 3:
            _start(self._config, self._confinement, order, fds)
        elif kind == wire.SWEEP and len(fds) == 1:
            self._sweep(order)
        for fd in fds:
            os.close(fd)

    def _sweep(self, order: dict[str, Any]) -> None:
        """Fork a process that removes directories as the user they belong to, and closes the descriptor at its end."""
        try:
            child = os.fork()
        except OSError:
            return  # the supervisor sees that nothing has been removed, and asks again
        if child:
            return
        try:
            directories = order["directories"]
            if order["kill"]:  # listed while still root, since the user cannot list these
                directories += [os.path.join(order["slot"], name) for name in os.listdir(order["slot"])]
                directories += [entry.path for entry in os.scandir("/dev/shm") if _owner(entry) == order["uid"]]
            if order["uid"]:
                confine.drop_to(order["uid"])
            confine.hide_memory()
            if order["kill"]:
                confine.end_all_of_this_user()
            for directory in directories:
                remove_tree(directory)
        finally:
            os._exit(0)


def _owner(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_uid
    except FileNotFoundError:
        return -1
