"""One live Python session: a process that waits for cells, runs them, and forks when told to. Runs inside.

It is forked from the zygote (`start`) or from another session (`fork`). The supervisor trusts nothing that it sends,
since the user's code shares its memory and can change anything here.
"""

from __future__ import annotations

import contextlib
import os
import posix
import signal
import sys
import types
from collections.abc import Callable
from typing import Any

from sandbox.server.kernel.confine import Confinement
from sandbox.server.kernel.syscalls import adopt_orphans, die_with_parent
from sandbox.server.session.blocking_channel import Channel
from sandbox.server.session.file_access import load, look, store
from sandbox.server.session.fork import fork_session
from sandbox.server.session.isolate_descriptors import replace
from sandbox.server.session.open_files import identity_of
from sandbox.server.session.python_environment import WORK, WORK_FD, point_variables_to, renew_streams
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

CONTROL_FD = 199
_HIGHEST_FD = 1024
_pid, _leave = os.getpid, os._exit  # kept, since the user's code may replace the names in `os`
_current: Session | None = None


class Session:
    """The state of a session apart from the user's variables: channel, directory, number of cells.

    Args:
        config: what the client sent to the server; limits, mostly.
        confinement: what confines the session.
        directory: real path of the session's own directory.

    Attributes:
        channel: to the supervisor.
        outputs: device and inode of the pipes of stdout and stderr.
        pid: of the process that is the session.
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
        """Give a freshly forked process a process group of its own, and have it end with its parent.

        Args:
            parent: a process in between that is about to end (see `forked_away`), or 0.
        """
        self.pid = _pid()
        os.setsid()
        adopt_orphans()
        while posix.getppid() == parent:  # else the death signal would come from the process in between
            os.sched_yield()
        die_with_parent()

    def take_over(self, control: int, out: int, err: int) -> None:
        """Make a process forked from the zygote a session: directory, descriptors, confinement."""
        global _current
        _current = self
        os.mkdir(self.directory, 0o700)
        os.chdir(self.directory)
        place = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
        self.confinement.close_off()  # before any code runs, after the directory was opened
        os.dup2(control, CONTROL_FD, inheritable=False)
        os.dup2(place, WORK_FD, inheritable=True)
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.closerange(3, CONTROL_FD)  # descriptors of the zygote
        os.closerange(WORK_FD + 1, _HIGHEST_FD)
        self.channel = Channel(CONTROL_FD)
        self.note_outputs()
        self.point_to_directory("")
        reseed(None)
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
        self.outputs = tuple(identity_of(os.fstat(fd)) for fd in (1, 2))

    def take_outputs(self, fds: list[int]) -> None:
        """Put new pipes in place of stdout and stderr, including redirected copies.

        Raises:
            OSError: the pipes could not be received, since no descriptors are left.
        """
        if len(fds) != len(self.outputs):
            raise OSError("too many open files: the session has no descriptors left for its output")
        replace(dict(zip(self.outputs, fds)))  # noqa: B905  (Python 3.9)
        self.outputs = tuple(identity_of(os.fstat(fd)) for fd in fds)
        for fd in fds:
            os.close(fd)

    def renew_streams(self) -> None:
        """Give sys.stdout and sys.stderr new buffers; see `python_environment`."""
        renew_streams()

    def point_to_directory(self, old: str) -> None:
        """Let variables that name the old directory name the one that the session has now."""
        if not self.config["work"]:  # else they name /work, which is the same in every session
            point_variables_to(self.directory, old)

    def _interrupt(self, number: int, frame: types.FrameType | None) -> None:
        """Handle SIGINT: stop the cell, once; between cells it is ignored."""
        if self._running and not self._interrupted:
            self._interrupted = True
            raise KeyboardInterrupt

    def serve(self) -> None:
        """Report that the session is ready, then serve requests until the channel ends."""
        self.channel.send(READY, 0, self.hide_directory())
        while True:
            try:
                kind, number, length, fds = self.channel.receive_header()
                if kind == SETUP:  # its text must not be read into this process; see `task_setup`
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
            except KeyboardInterrupt:  # the signal came a moment after the cell had ended
                continue

    def _cell(self, number: int, payload: bytes) -> None:
        self._cells += 1
        source, name = payload.decode("utf-8", "surrogatepass"), f"<cell {self._cells}>"
        keep = self.config["limits"]["output_bytes"]
        self._execute(number, lambda: run_cell(source, name, self._namespace, keep, self._own_files()))

    def _setup(self, number: int, length: int) -> None:
        self._execute(number, lambda: run_setup(self.channel, length, self._namespace, self._own_files()))

    def _execute(self, number: int, run: Callable[[], Outcome]) -> None:
        """Run the user's code and send the outcome to the supervisor."""
        outcome = self._guarded(run)
        flush_output()
        # a child must not answer for the session
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
        """Return the prefixes of the names of the user's own files."""
        return ("<cell ", "<setup>", self.directory + "/", WORK + "/")


def current_directory() -> str:
    """Return the directory of the session that this process is; empty in the zygote."""
    return _current.directory if _current else ""


def _packed(outcome: Outcome) -> bytes:
    value = _encoded(outcome.value)
    error = _encoded(outcome.error)
    flags = HAS_VALUE * (outcome.value is not None) | HAS_ERROR * (outcome.error is not None)
    flags |= SHORTENED * outcome.shortened
    head = OUTCOME.pack(STATUSES.index(outcome.status), flags, len(value), len(error))
    return head + value + error + pack_pictures(*outcome.pictures)


def _encoded(text: str | None) -> bytes:
    return (text or "").encode("utf-8", "backslashreplace")


def refuse(control: int, error: BaseException) -> None:
    """Report to the supervisor, over the new session's own channel, that the session cannot be created."""
    text = f"{type(error).__name__}: {error}".encode(errors="replace")[:2000]
    with contextlib.suppress(OSError):  # the supervisor sees the end of the channel instead
        Channel(os.dup(control)).send(UNABLE, 0, text)


def start(config: dict[str, Any], confinement: Confinement, order: dict[str, Any], fds: list[int]) -> int:
    """Fork a session from the zygote. Returns in the zygote only: the new process's id, or 0."""
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
    except BaseException as error:  # a session must never return into the zygote's own code
        for fd in (control, CONTROL_FD):
            refuse(fd, error)
        _leave(GAVE_UP)
    _leave(0)
    return 0
