"""One live Python session: a process that waits for cells, runs them, and forks when told to. Runs inside.

It is forked from the zygote (`start`) or from another session (`fork`). Nothing it says is trusted by the supervisor:
the user's code shares its memory and may do here whatever it likes.
"""

from __future__ import annotations

import builtins
import contextlib
import io
import os
import posix
import signal
import subprocess
import sys
import types
from collections.abc import Callable
from importlib.machinery import PathFinder
from typing import Any

from sandbox.server.kernel.confine import Confinement
from sandbox.server.kernel.syscalls import adopt_orphans, die_with_parent
from sandbox.server.session.blocking_channel import Channel
from sandbox.server.session.file_chunks import load, store
from sandbox.server.session.fork import fork_session
from sandbox.server.session.isolate_descriptors import replace
from sandbox.server.session.list_directory import look
from sandbox.server.session.open_files import identity_of
from sandbox.server.session.random_state import reseed
from sandbox.server.session.run_cell import Outcome, flush_output, restore_input, run_cell
from sandbox.server.session.task_setup import run_setup
from sandbox.server.wire import (
    BRANCH,
    CELL,
    DONE,
    FILED,
    GAVE_UP,
    GIVE,
    HAS_ERROR,
    HAS_VALUE,
    LOAD,
    LOOK,
    OUTCOME,
    READY,
    SETUP,
    SHORTENED,
    STATUSES,
    STORE,
    UNABLE,
    pack_pictures,
)

CONTROL_FD, WORK_FD = 199, 200
_HIGHEST_FD = 1024
WORK = "/work"
_places = ["HOME", "TMPDIR"]
_pid, _leave = os.getpid, os._exit  # kept, since the user's code may replace the names in `os`
_current: Session | None = None
_streams: dict[int, io.TextIOWrapper] = {}
_retired: list[Any] = []  # buffers whose lock is held for ever; deleting one would wait for it


class Session:
    """The state of a session that is not the user's: channel, directory, counter of cells.

    Args:
        config: what the client sent to the server; limits, mostly.
        confinement: what holds the session.
        directory: real path of the session's own directory.
    """

    def __init__(self, config: dict[str, Any], confinement: Confinement, directory: str) -> None:
        self.config = config
        self.confinement = confinement
        self.directory = directory
        self.channel: Channel
        self.outputs: tuple[tuple[int, int], ...] = ()
        self.pid = 0
        self._cells = 0
        self._running = False
        self._interrupted = False
        self._namespace = sys.modules["__main__"].__dict__

    def become_session(self, parent: int) -> None:
        """Turn a freshly forked process into a process group of its own that ends with its parent.

        Args:
            parent: a process in between that is about to end (see `forked_away`), or 0.
        """
        self.pid = _pid()
        os.setsid()
        adopt_orphans()
        while posix.getppid() == parent:
            os.sched_yield()
        die_with_parent()

    def take_over(self, control: int, out: int, err: int) -> None:
        """Make a process forked from the zygote a session: directory, descriptors, confinement."""
        global _current
        _current = self
        os.mkdir(self.directory, 0o700)
        os.chdir(self.directory)
        place = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
        self.confinement.close_off()
        os.dup2(control, CONTROL_FD, inheritable=False)
        os.dup2(place, WORK_FD, inheritable=True)
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.closerange(3, CONTROL_FD)
        os.closerange(WORK_FD + 1, _HIGHEST_FD)
        self.channel = Channel(CONTROL_FD)
        self.note_outputs()
        self.point_to_directory("")
        reseed(None)
        signal.signal(signal.SIGINT, self._interrupt)

    def hide_directory(self) -> bytes:
        """Give the directory a name that is in no other session's memory; return it."""
        if self.config["work"]:  # else code may have kept the name
            hidden = os.path.join(os.path.dirname(self.directory), posix.urandom(16).hex())
            with contextlib.suppress(OSError):  # the code has removed it
                posix.rename(self.directory, hidden)
                self.directory = hidden
        return os.path.basename(self.directory).encode()

    def note_outputs(self) -> None:
        """Remember which pipes are stdout and stderr, wherever the user's code may copy them to."""
        self.outputs = tuple(identity_of(os.fstat(fd)) for fd in (1, 2))

    def take_outputs(self, fds: list[int]) -> None:
        """Put new pipes wherever stdout and stderr are, redirected copies included.

        Raises:
            OSError: the pipes have not come, for no descriptors are left.
        """
        if len(fds) != len(self.outputs):
            raise OSError("too many open files: the session has no descriptors left for its output")
        replace(dict(zip(self.outputs, fds)))  # noqa: B905  (Python 3.9)
        self.outputs = tuple(identity_of(os.fstat(fd)) for fd in fds)
        for fd in fds:
            os.close(fd)

    def renew_streams(self) -> None:
        """Give sys.stdout and sys.stderr new buffers: a thread that is gone may hold the locks of the old ones."""
        for fd, stream in _streams.items():
            with contextlib.suppress(Exception):  # detached by the code
                _retired.append(stream.buffer)
            _open_output(stream, fd)

    def point_to_directory(self, old: str) -> None:
        """Let what named the old directory name the one that the session has now."""
        if self.config["work"]:
            return  # which is named by a path that never changes
        home = self.directory
        for name in _places:
            if os.environ.get(name) in (None, old):
                os.environ[name] = home
        tempfile = sys.modules.get("tempfile")
        if tempfile is not None and tempfile.tempdir == old:
            tempfile.tempdir = home  # type: ignore[attr-defined]

    def _interrupt(self, number: int, frame: types.FrameType | None) -> None:
        """Handle SIGINT: stop the cell, once; between cells it means nothing."""
        if self._running and not self._interrupted:
            self._interrupted = True
            raise KeyboardInterrupt

    def serve(self) -> None:
        """Say that the session is there, then do what is asked until the channel ends."""
        self.channel.send(READY, 0, self.hide_directory())
        while True:
            try:
                kind, number, length, fds = self.channel.receive_header()
                if kind == SETUP:  # its text must not come into this process
                    self._setup(number, length)
                    continue
                payload = self.channel.receive_payload(length, fds)
                if kind == CELL:
                    self._cell(number, payload)
                elif kind == BRANCH:
                    fork_session(self, number, payload)
                elif kind == GIVE:
                    self.take_outputs(fds)
                elif kind == LOAD:
                    self.channel.send(FILED, number, load(payload, WORK_FD))
                elif kind == STORE:
                    self.channel.send(FILED, number, store(payload, WORK_FD))
                elif kind == LOOK:
                    self.channel.send(FILED, number, look(payload, WORK_FD))
            except KeyboardInterrupt:  # came a moment after the cell had ended
                continue

    def _cell(self, number: int, payload: bytes) -> None:
        self._cells += 1
        source, name = payload.decode("utf-8", "surrogatepass"), f"<cell {self._cells}>"
        keep = self.config["limits"]["output_bytes"]
        self._execute(number, lambda: run_cell(source, name, self._namespace, keep, self._own_files()))

    def _setup(self, number: int, length: int) -> None:
        self._execute(number, lambda: run_setup(self.channel, length, self._namespace, self._own_files()))

    def _execute(self, number: int, run: Callable[[], Outcome]) -> None:
        """Run the user's code and tell the supervisor what came of it."""
        outcome = self._guarded(run)
        flush_output()
        if _pid() != self.pid:  # the code called os.fork() and this is the child
            _leave(0)
        restore_input()
        self.channel.send(DONE, number, _packed(outcome))

    def _guarded(self, run: Callable[[], Outcome]) -> Outcome:
        self._interrupted = False
        self._running = True
        try:
            return run()
        except BaseException as error:  # an interrupt between the cell and the next line
            return Outcome("error", None, f"{type(error).__name__}: the cell was interrupted")
        finally:
            self._running = False

    def _own_files(self) -> tuple[str, ...]:
        """Return how the names of the user's own files begin."""
        return ("<cell ", "<setup>", self.directory + "/", WORK + "/")


def furnish(config: dict[str, Any]) -> None:
    """In the zygote: do once what every session would have to do, since a fork is cheap where nothing is touched."""
    os.environ.pop("GLIBC_TUNABLES", None)
    if PathFinder.find_spec("matplotlib") is not None:
        os.environ["MPLBACKEND"] = "Agg"
        _places.append("MPLCONFIGDIR")  # it wants a directory that it can write, and makes two where it is not told
    for name in _places:
        if config["work"]:
            os.environ[name] = WORK
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # type: ignore[misc]  # noqa: SIM115
    for fd, name in ((1, "stdout"), (2, "stderr")):
        stream = _streams[fd] = io.TextIOWrapper.__new__(io.TextIOWrapper)
        _open_output(stream, fd)
        stream.mode = "w"  # type: ignore[misc]
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    main = types.ModuleType("__main__")
    main.__builtins__ = builtins  # type: ignore[attr-defined]
    for name in [name for name in sys.modules if name.split(".")[0] == "sandbox"]:
        del sys.modules[name]
    sys.modules["__main__"] = main
    sys.path.insert(0, "")
    if config["work"]:
        _show_work()


def _open_output(stream: io.TextIOWrapper, fd: int) -> None:
    """Let a stream write to a descriptor, line by line; what refers to the stream goes on to do so."""
    buffer = io.BufferedWriter(io.FileIO(fd, "w", closefd=False))
    stream.__init__(buffer, encoding="utf-8", errors="backslashreplace", line_buffering=True)  # type: ignore[misc]


def _show_work() -> None:
    """Have getcwd() say /work/..., a path that means the same in every fork."""

    def getcwd() -> str:
        real, own = posix.getcwd(), _current.directory if _current else ""
        return WORK + real[len(own) :] if own and (real == own or real.startswith(own + "/")) else real

    os.getcwd = getcwd
    os.getcwdb = lambda: os.fsencode(getcwd())
    _pass_work_on()


def _packed(outcome: Outcome) -> bytes:
    value = _encoded(outcome.value)
    error = _encoded(outcome.error)
    flags = HAS_VALUE * (outcome.value is not None) | HAS_ERROR * (outcome.error is not None)
    flags |= SHORTENED * outcome.shortened
    head = OUTCOME.pack(STATUSES.index(outcome.status), flags, len(value), len(error))
    return head + value + error + pack_pictures(*outcome.pictures)


def _encoded(text: str | None) -> bytes:
    return (text or "").encode("utf-8", "backslashreplace")


def _pass_work_on() -> None:
    """Have subprocesses inherit the descriptor that /work stands for; subprocess closes it otherwise."""
    plain = subprocess.Popen.__init__

    def init(self: Any, *args: Any, **options: Any) -> None:
        if len(args) < 8 and options.get("close_fds", True):
            options["pass_fds"] = (*options.get("pass_fds", ()), WORK_FD)
        plain(self, *args, **options)

    subprocess.Popen.__init__ = init  # type: ignore[method-assign]


def refuse(control: int, error: BaseException) -> None:
    """Tell the supervisor, over the new session's own channel, that there will be no such session."""
    text = f"{type(error).__name__}: {error}".encode(errors="replace")[:2000]
    with contextlib.suppress(OSError):  # the supervisor sees the end of the channel instead
        Channel(os.dup(control)).send(UNABLE, 0, text)


def start(config: dict[str, Any], confinement: Confinement, order: dict[str, Any], fds: list[int]) -> int:
    """Fork a session from the zygote; returns in the zygote only, with the new process's id, or 0."""
    control, out, err = fds
    try:
        confinement.prepare(order["slot"])
        child = os.fork()
    except OSError as error:
        refuse(control, error)
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
    except BaseException as error:  # nothing may run on into the zygote's own code
        for fd in (control, CONTROL_FD):
            refuse(fd, error)
        _leave(GAVE_UP)
    _leave(0)
    return 0
