"""A live Python session, with asynchronous and with blocking methods."""

from __future__ import annotations

import contextlib
import itertools
import logging
import weakref
from concurrent.futures import Future
from pathlib import PurePath
from typing import Any

from sandbox.config.limits import Limits
from sandbox.errors import SessionLost
from sandbox.execution import Execution
from sandbox.files.directory_listing import FileInfo, list_directory
from sandbox.files.file_transfer import read_file, write_file
from sandbox.pool.connection import Reply
from sandbox.pool.session_group import RemoteSession
from sandbox.server.wire import FORK, RUN
from sandbox.session_opener import SessionOpener
from sandbox.sync_async import Steps, finish, finish_async
from sandbox.validation import checked_cell, checked_forks, checked_seed

_log = logging.getLogger(__name__)
_cells = itertools.count(1)


class Interpreter:
    """One live Python session. Variables stay from cell to cell, and the session can be forked.

    May be used from any number of event loops and threads; cells of one session run one after the other. Created
    by `Sandbox.interpreter`.

    Attributes:
        lost_on_fork: what could not be copied when this session was forked from another: number of
            "threads", "processes" (both have ended, in the original too), "shared_mappings" (private copies now) and
            "pipes_and_sockets" (dead ends in the copies).
    """

    def __init__(self, opener: SessionOpener, session: RemoteSession, setup: str, files: dict[str, bytes]) -> None:
        self.lost_on_fork: dict[str, int] = {}
        self._opener = opener
        self._setup = setup
        self._files = files
        self._gone = ""
        self._attach(session)

    @property
    def limits(self) -> Limits:
        """The limits of the sandbox."""
        return self._opener.limits

    async def run(self, code: str, timeout: float | None = None) -> Execution:
        """Run a cell and return its outcome. Cancelling this stops the cell as `interrupt` does.

        Args:
            code: any number of statements; the value of a last expression is reported.
            timeout: seconds before it is interrupted; None uses `Limits.timeout`.

        If the code has ended its own session, in a cell or between cells, the next result says so: its status is
        "killed" or "memory_limit", and `alive` is False.

        Raises:
            SessionLost: such a result was returned before, the session was closed, or its container has died.
        """
        return await finish_async(self._run(code, timeout))

    async def interrupt(self) -> bool:
        """Stop the running cell; its `run` returns an `Execution` with status "interrupted".

        The code gets a KeyboardInterrupt. If the cell goes on for `Limits.grace` seconds after that, the session is
        ended as well (`Execution.alive` is False). Cells that wait for their turn are not affected.

        Returns:
            Whether a cell was running. This does not wait for its end.
        """
        return await finish_async(self._interrupt())

    async def fork(self, n: int = 1, reseed: bool | int = False) -> list[Interpreter]:
        """Return n copies with the same variables, files and random state, each independent from now on.

        Args:
            n: how many.
            reseed: give each copy a random state of its own: drawn at random (True), or derived from this number,
                so that repeated forks give the same states.

        Raises:
            ForkError: the fork failed; this session goes on.
            SessionEnded: the code has ended this session, since its last result or during the fork.
            SessionLost: an earlier result reported the end of the session, it was closed, or its container has died.
        """
        return await finish_async(self._fork(n, reseed))

    async def put(self, name: str | PurePath, data: bytes) -> None:
        """Write a file of the session; an existing file is replaced.

        Args:
            name: its path, relative to the session's directory; missing directories are created.
            data: the whole content, at most `Limits.file_size` bytes.

        Raises:
            OSError: an error of the file system, such as a FileNotFoundError or "no space left"; EIO for a session
                that has ended or gives a malformed answer.
            SessionLost: the session was closed, its container has died, or an earlier result reported its end.
        """
        await finish_async(write_file(self._request, name, data, self.limits.file_size))

    async def get(self, name: str | PurePath, limit: int | None = None) -> bytes:
        """Return a file of the session.

        Args:
            name: its path, relative to the session's directory.
            limit: the largest size in bytes; None uses `Limits.file_size`.

        Raises:
            OSError: an error of the file system, such as a FileNotFoundError; EFBIG for a file above the limit; EIO
                for a session that has ended or gives a malformed answer.
            SessionLost: the session was closed, its container has died, or an earlier result reported its end.
        """
        return await finish_async(read_file(self._request, name, limit, self.limits.file_size))

    async def ls(self, path: str | PurePath = ".") -> list[FileInfo]:
        """Return the entries of a directory of the session, sorted by name.

        Args:
            path: of the directory, relative to the session's directory.

        Raises:
            OSError: an error of the file system; EFBIG for a listing above 1 MiB (about 20,000 entries); EIO for a
                session that has ended or gives a malformed answer.
            SessionLost: the session was closed, its container has died, or an earlier result reported its end.
        """
        return await finish_async(list_directory(self._request, path))

    async def restart(self) -> None:
        """Start over: close the session, open another one, write its first files and run the setup in it.

        This works after the session was killed, lost or closed as well. A session that was forked from another starts
        with that one's files and setup, without its variables. Copies are not affected.

        Raises:
            SandboxError: as in `Sandbox.interpreter`. The session stays closed, and can be restarted again.
        """
        await finish_async(self._restart())

    async def close(self) -> None:
        """End the session, and the running cell with it; may be called twice."""
        await finish_async(self._close())

    @property
    def sync(self) -> SyncInterpreter:
        """The same session with blocking methods."""
        return SyncInterpreter(self)

    async def __aenter__(self) -> Interpreter:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        gone = ", gone" if self._gone or self._session.closed else ""
        return f"<Interpreter {self._session.key} in {self._session.container.isolation}{gone}>"

    def _attach(self, session: RemoteSession) -> None:
        self._session = session
        self._finalizer = weakref.finalize(self, session.forget)
        # at exit the sandbox is closed as a whole, with all its sessions
        self._finalizer.atexit = False

    def _request(self, kind: int, **fields: Any) -> Future[Reply]:
        if self._gone:
            # in a forked process that is the reason to report, whatever has become of the session
            self._session.check_process()
            raise SessionLost(self._gone)
        return self._session.request(kind, **fields)

    def _run(self, code: str, timeout: float | None) -> Steps[Execution]:
        fields = checked_cell(code, timeout, self.limits)
        # kept, since a restart may put another one in its place while this waits
        session = self._session
        cell = next(_cells)
        future = self._request(RUN, setup=False, cell=cell, **fields)
        session.count("runs")
        try:
            reply: Reply = yield future
        except BaseException:
            if not future.done():  # the caller was cancelled
                session.interrupt_later(cell)
            raise
        execution = Execution.from_reply(reply, session.container.isolation)
        if not execution.alive and session is self._session:
            why = f"{execution.status}: {execution.error}"
            self._gone = f"the session has ended ({why}); open a new interpreter, or restart this one"
        return execution

    def _interrupt(self) -> Steps[bool]:
        try:
            reply: Reply = yield self._session.interrupt(None)
        except SessionLost:
            return False
        found: bool = reply["interrupted"]
        return found

    def _fork(self, n: int, reseed: bool | int) -> Steps[list[Interpreter]]:
        fields = {"reseed": checked_seed(reseed)}
        copies = self._session.copies(checked_forks(n))  # counted as members now, so that the slot is not freed
        try:
            future = self._request(FORK, children=[copy.key for copy in copies], **fields)
        except BaseException:
            copies[0].group.leave(n)
            raise
        try:
            reply: Reply = yield future
        except BaseException:  # includes a cancellation, after which nobody would close the copies
            _close_when_forked(future, copies)
            raise
        return self._adopt(copies, {name: count for name, count in reply["losses"].items() if count})

    def _adopt(self, copies: list[RemoteSession], losses: dict[str, int]) -> list[Interpreter]:
        copies[0].count("forks", len(copies))
        if losses:
            _log.warning("a fork could not copy everything: %s", losses)
        interpreters = [Interpreter(self._opener, copy, self._setup, self._files) for copy in copies]
        for interpreter in interpreters:
            interpreter.lost_on_fork = losses
        return interpreters

    def _close(self) -> Steps[None]:
        self._finalizer.detach()  # else the session would be forgotten and closed once more
        future = self._session.close()
        if future is not None:
            with contextlib.suppress(SessionLost):
                yield future

    def _restart(self) -> Steps[None]:
        # first, since its slot may be the only one; the new session would wait for it
        yield from self._close()
        session = yield from self._opener.open(self._setup, self._files)
        try:
            yield from self._close()  # another caller may have opened a session meanwhile
        except BaseException:
            session.close()
            raise
        self._gone, self.lost_on_fork = "", {}
        self._attach(session)


def _close_when_forked(future: Future[Reply], copies: list[RemoteSession]) -> None:
    """Close copies that nobody waits for any more, as soon as they exist."""

    def close() -> None:
        copies[0].count("forks", len(copies))
        for copy in copies:
            copy.close()

    def on_reply(reply: Future[Reply]) -> None:
        if reply.exception() is None:
            copies[0].call_later(close)  # not here, since this runs in the thread that reads the replies
        else:
            copies[0].group.leave(len(copies))

    future.add_done_callback(on_reply)


class SyncInterpreter:
    """The blocking methods of an `Interpreter`. They work in any thread, also in one that runs an event loop.

    Attributes:
        interpreter: the same session, with asynchronous methods.
    """

    def __init__(self, interpreter: Interpreter) -> None:
        self.interpreter = interpreter

    def run(self, code: str, timeout: float | None = None) -> Execution:
        """Run a cell; see `Interpreter.run`. A KeyboardInterrupt while this waits stops the cell."""
        return finish(self.interpreter._run(code, timeout))

    def interrupt(self) -> bool:
        """Stop the running cell, from another thread; see `Interpreter.interrupt`."""
        return finish(self.interpreter._interrupt())

    def fork(self, n: int = 1, reseed: bool | int = False) -> list[SyncInterpreter]:
        """Return n copies; see `Interpreter.fork`."""
        return [copy.sync for copy in finish(self.interpreter._fork(n, reseed))]

    def put(self, name: str | PurePath, data: bytes) -> None:
        """Write a file; see `Interpreter.put`."""
        finish(write_file(self.interpreter._request, name, data, self.interpreter.limits.file_size))

    def get(self, name: str | PurePath, limit: int | None = None) -> bytes:
        """Return a file; see `Interpreter.get`."""
        return finish(read_file(self.interpreter._request, name, limit, self.interpreter.limits.file_size))

    def ls(self, path: str | PurePath = ".") -> list[FileInfo]:
        """Return the entries of a directory; see `Interpreter.ls`."""
        return finish(list_directory(self.interpreter._request, path))

    def restart(self) -> None:
        """Start over; see `Interpreter.restart`."""
        finish(self.interpreter._restart())

    def close(self) -> None:
        """End the session; may be called twice."""
        finish(self.interpreter._close())

    def __enter__(self) -> SyncInterpreter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
