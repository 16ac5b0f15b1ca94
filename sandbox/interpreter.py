"""A live Python session, with an asynchronous and a blocking face."""

from __future__ import annotations

import contextlib
import itertools
import logging
import weakref
from concurrent.futures import Future
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from sandbox.errors import SessionLost
from sandbox.execution import Execution
from sandbox.files.directory_listing import FileInfo, list_files
from sandbox.files.file_transfer import fetch, store
from sandbox.pool.connection import Reply
from sandbox.pool.session_group import Session
from sandbox.server.wire import FORK, RUN
from sandbox.sync_async import Steps, finish, finish_async
from sandbox.validation import checked_cell, checked_forks, checked_seed

if TYPE_CHECKING:
    from sandbox.sandbox import Sandbox

_log = logging.getLogger(__name__)
_cells = itertools.count(1)


class Interpreter:
    """One live Python session: variables stay from cell to cell, and the whole can be forked.

    May be used from any number of event loops and threads; cells of one session run one after the other. Made
    by `Sandbox.interpreter`.

    Attributes:
        lost_on_fork: what could not come along when this session was forked from another: number of
            "threads", "processes" (both are gone, in the original too), "shared_mappings" (private copies now) and
            "pipes_and_sockets" (at their end in the copies).
    """

    def __init__(self, sandbox: Sandbox, session: Session, setup: str, files: dict[str, bytes]) -> None:
        self.sandbox = sandbox
        self.lost_on_fork: dict[str, int] = {}
        self._setup = setup
        self._files = files
        self._gone = ""
        self._take(session)

    async def run(self, code: str, timeout: float | None = None) -> Execution:
        """Run a cell and return what came of it. Cancelling this stops the cell as `interrupt` does.

        Args:
            code: any number of statements; the value of a last expression is reported.
            timeout: seconds before it is interrupted; None takes `Limits.timeout`.

        A session that has ended by what its code did, also between cells, says so in the next result: "killed" or
        "memory_limit", not `alive`.

        Raises:
            SessionLost: such a result was returned before, the session was closed, or its container has died.
        """
        return await finish_async(self._run(code, timeout))

    async def interrupt(self) -> bool:
        """Stop the cell that is running; its `run` returns an `Execution` with status "interrupted".

        The code gets a KeyboardInterrupt. If the cell goes on for `Limits.grace` seconds after that, the session is
        ended, too (`Execution.alive` is False). Cells that wait for their turn are not touched.

        Returns:
            Whether a cell was running. This does not wait for its end.
        """
        return await finish_async(self._interrupt())

    async def fork(self, n: int = 1, reseed: bool | int = False) -> list[Interpreter]:
        """Return n copies with the same variables, files and random state, each independent from now on.

        Args:
            n: how many.
            reseed: give each copy a random state of its own: drawn anew (True), or from this number, in which
                case the same copies come of it each time.

        Raises:
            ForkError: it did not work; this session goes on.
            SessionEnded: this session has ended by what its code did, since its last result or in the fork.
            SessionLost: a result has said that it has ended, it was closed, or its container has died.
        """
        return await finish_async(self._fork(n, reseed))

    async def put(self, name: str | PurePath, data: bytes) -> None:
        """Write a file of the session; one that is there is replaced.

        Args:
            name: its path, relative to the session's directory; directories on the way are made.
            data: all of it, at most `Limits.file_size` bytes.

        Raises:
            OSError: as the file system has it: a FileNotFoundError, a "no space left" and so on; EIO for a session that
                has ended or answers with anything else.
            SessionLost: the session was closed, its container has died, or the result of a cell has told of its end.
        """
        await finish_async(store(self, name, data))

    async def get(self, name: str | PurePath, limit: int | None = None) -> bytes:
        """Return a file of the session.

        Args:
            name: its path, relative to the session's directory.
            limit: bytes that it may hold; None takes `Limits.file_size`.

        Raises:
            OSError: as the file system has it, such as a FileNotFoundError; EFBIG for one above the limit; EIO for a
                session that has ended or answers with anything else.
            SessionLost: the session was closed, its container has died, or the result of a cell has told of its end.
        """
        return await finish_async(fetch(self, name, limit))

    async def ls(self, path: str | PurePath = ".") -> list[FileInfo]:
        """Return what is in a directory of the session, by name.

        Args:
            path: of the directory, relative to the session's own.

        Raises:
            OSError: as the file system has it; EFBIG for more than fits into 1 MiB (some 20,000 entries); EIO for a
                session that has ended or answers with anything else.
            SessionLost: the session was closed, its container has died, or the result of a cell has told of its end.
        """
        return await finish_async(list_files(self, path))

    async def restart(self) -> None:
        """Begin anew: close the session, open another one, write its first files and run the setup in it.

        Works after the session was killed, lost or closed, too. A session that was forked from another begins
        with that one's files and setup, not with its variables. Copies are not touched.

        Raises:
            SandboxError: as `Sandbox.interpreter`; then it stays closed, and can be restarted again.
        """
        await finish_async(self._restart())

    async def close(self) -> None:
        """End the session; may be called twice. A cell that is running is ended with it."""
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

    def _take(self, session: Session) -> None:
        self._session = session
        self._finalizer = weakref.finalize(self, session.pool.forget, session)
        self._finalizer.atexit = False

    def _request(self, kind: int, **fields: Any) -> Future[Reply]:
        if self._gone:
            self._session.pool.check_process()
            raise SessionLost(self._gone)
        return self._session.request(kind, **fields)

    def _run(self, code: str, timeout: float | None) -> Steps[Execution]:
        fields = checked_cell(code, timeout, self.sandbox.limits)
        session = self._session
        cell = next(_cells)
        future = self._request(RUN, setup=False, cell=cell, **fields)
        session.pool.count("runs")
        try:
            reply: Reply = yield future
        except BaseException:
            if not future.done():  # a cancellation
                session.give_up(cell)
            raise
        execution = Execution.of(reply, session.container.isolation)
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
        copies = self._session.copies(checked_forks(n))
        try:
            future = self._request(FORK, children=[copy.key for copy in copies], **fields)
        except BaseException:
            copies[0].family.leave(n)
            raise
        try:
            reply: Reply = yield future
        except BaseException:  # also a cancellation: then the copies come, and nobody takes them
            _disown(future, copies)
            raise
        return self._adopt(copies, {name: count for name, count in reply["losses"].items() if count})

    def _adopt(self, copies: list[Session], losses: dict[str, int]) -> list[Interpreter]:
        copies[0].pool.count("forks", len(copies))
        if losses:
            _log.warning("a forked session could not take everything along: %s", losses)
        interpreters = [Interpreter(self.sandbox, copy, self._setup, self._files) for copy in copies]
        for interpreter in interpreters:
            interpreter.lost_on_fork = losses
        return interpreters

    def _close(self) -> Steps[None]:
        self._finalizer.detach()
        future = self._session.close()
        if future is not None:
            with contextlib.suppress(SessionLost):
                yield future

    def _restart(self) -> Steps[None]:
        yield from self._close()
        session = yield from self.sandbox._session(self._setup, self._files)
        try:
            yield from self._close()  # what another caller may have opened meanwhile
        except BaseException:
            session.close()
            raise
        self._gone, self.lost_on_fork = "", {}
        self._take(session)


def _disown(future: Future[Reply], copies: list[Session]) -> None:
    """Close copies that nobody waits for any more, as soon as they exist."""
    pool = copies[0].pool

    def close() -> None:
        pool.count("forks", len(copies))
        for copy in copies:
            copy.close()

    def done(reply: Future[Reply]) -> None:
        if reply.exception() is None:
            pool.wake.put(close)  # not here: the thread that reads must not be kept from it
        else:
            copies[0].family.leave(len(copies))

    future.add_done_callback(done)


class SyncInterpreter:
    """The blocking face of an `Interpreter`; works in any thread, also while an event loop runs in it.

    Attributes:
        interpreter: the asynchronous face of the same session.
    """

    def __init__(self, interpreter: Interpreter) -> None:
        self.interpreter = interpreter

    def run(self, code: str, timeout: float | None = None) -> Execution:
        """Run a cell; see `Interpreter.run`. A KeyboardInterrupt while this waits stops the cell."""
        return finish(self.interpreter._run(code, timeout))

    def interrupt(self) -> bool:
        """Stop the cell that is running, from another thread; see `Interpreter.interrupt`."""
        return finish(self.interpreter._interrupt())

    def fork(self, n: int = 1, reseed: bool | int = False) -> list[SyncInterpreter]:
        """Return n copies; see `Interpreter.fork`."""
        return [copy.sync for copy in finish(self.interpreter._fork(n, reseed))]

    def put(self, name: str | PurePath, data: bytes) -> None:
        """Write a file; see `Interpreter.put`."""
        finish(store(self.interpreter, name, data))

    def get(self, name: str | PurePath, limit: int | None = None) -> bytes:
        """Return a file; see `Interpreter.get`."""
        return finish(fetch(self.interpreter, name, limit))

    def ls(self, path: str | PurePath = ".") -> list[FileInfo]:
        """Return what is in a directory; see `Interpreter.ls`."""
        return finish(list_files(self.interpreter, path))

    def restart(self) -> None:
        """Begin anew; see `Interpreter.restart`."""
        finish(self.interpreter._restart())

    def close(self) -> None:
        """End the session; may be called twice."""
        finish(self.interpreter._close())

    def __enter__(self) -> SyncInterpreter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
