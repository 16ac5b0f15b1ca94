"""A live Python session, with an asynchronous and a blocking face."""

from __future__ import annotations

import asyncio
import logging
import weakref
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from sandbox.connection import Connection, Reply
from sandbox.errors import SessionLost
from sandbox.execution import Execution
from sandbox.wire import CLOSE, FORK, RUN

if TYPE_CHECKING:
    from sandbox.sandbox import Sandbox

_MOST_FORKS = 64
_LONGEST_CODE = 8 << 20
_log = logging.getLogger(__name__)


class Interpreter:
    """One live Python session: variables stay from cell to cell, and the whole can be forked.

    May be used from any number of event loops and threads; cells of one session run one after the other. Made
    by `Sandbox.interpreter`.

    Attributes:
        lost_on_fork: what could not come along when this session was forked from another: number of
        "threads",
            "processes" (both are gone), "shared_mappings" and "pipes_and_sockets" (both stay shared).
    """

    def __init__(self, sandbox: Sandbox, connection: Connection, key: int) -> None:
        self.sandbox = sandbox
        self.lost_on_fork: dict[str, int] = {}
        self._connection = connection
        self._key = key
        self._gone = ""
        self._finalizer = weakref.finalize(self, sandbox._forget, connection, key)
        self._finalizer.atexit = False

    async def run(self, code: str, timeout: float | None = None) -> Execution:
        """Run a cell and return what came of it.

        Args:
            code: any number of statements; the value of a last expression is reported.
            timeout: seconds before it is interrupted; None takes `Limits.timeout`.

        Raises:
            SessionLost: the session has ended before, or its sandbox has died.
        """
        return self._execution(await self._wait(self._start_run(code, timeout)))

    async def fork(self, n: int = 1) -> list[Interpreter]:
        """Return n copies with the same variables, files and random state, each independent from now on.

        Raises:
            ForkError: it did not work; this session goes on.
            SessionLost: the session has ended.
        """
        future, keys = self._start_fork(n)
        try:
            return self._forked(keys, await self._wait(future))
        except asyncio.CancelledError:
            self.sandbox._close_when_there(self._connection, future, keys)
            raise

    async def close(self) -> None:
        """End the session; may be called twice. A cell that is running is ended with it."""
        future = self._start_close()
        if future is not None:
            await self._wait(future)

    @property
    def sync(self) -> SyncInterpreter:
        """The same session with blocking methods."""
        return SyncInterpreter(self)

    async def __aenter__(self) -> Interpreter:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<Interpreter {self._key} in {self._connection.isolation}{', gone' if self._gone else ''}>"

    @staticmethod
    async def _wait(future: Future[Reply]) -> Reply:
        return await asyncio.wrap_future(future)

    def _request(self, kind: int, **fields: Any) -> Future[Reply]:
        self.sandbox._check_process(self._connection)
        if self._gone:
            raise SessionLost(self._gone)
        return self._connection.request(kind, {"session": self._key, **fields})

    def _start_run(self, code: str, timeout: float | None, setup: bool = False) -> Future[Reply]:
        if not isinstance(code, str):
            raise TypeError(f"code has to be a str, not {type(code).__name__}")
        if len(code) > _LONGEST_CODE:
            raise ValueError(f"code of {len(code)} characters; at most {_LONGEST_CODE} can be sent")
        seconds = self.sandbox.limits.timeout if timeout is None else timeout
        if not 0 < seconds < float("inf"):
            raise ValueError(f"timeout={timeout}; it has to be a positive number of seconds")
        self.sandbox._count("runs")
        return self._request(RUN, code=code, timeout=seconds, setup=setup)

    def _execution(self, reply: Reply) -> Execution:
        execution = Execution(**reply, isolation=self._connection.isolation)
        if not execution.alive:
            self._gone = f"the session has ended ({execution.status}: {execution.error}); open a new interpreter"
        return execution

    def _start_fork(self, n: int) -> tuple[Future[Reply], list[int]]:
        if not 1 <= n <= _MOST_FORKS:
            raise ValueError(f"fork({n}): n has to be from 1 to {_MOST_FORKS}; fork again for more")
        keys = [self.sandbox._new_key() for _ in range(n)]
        return self._request(FORK, children=keys), keys

    def _forked(self, keys: list[int], reply: Reply) -> list[Interpreter]:
        copies = [Interpreter(self.sandbox, self._connection, key) for key in keys]
        self.sandbox._count("forks", len(copies))
        losses = {name: count for name, count in reply["losses"].items() if count}
        if losses:
            _log.warning("a forked session could not take everything along: %s", losses)
        for copy in copies:
            copy.lost_on_fork = losses
        return copies

    def _start_close(self) -> Future[Reply] | None:
        if not self._finalizer.detach():
            return None
        self._gone = self._gone or "this session is closed; open a new interpreter"
        self.sandbox._count("closed")
        if self._connection.lost or not self.sandbox._same_process(self._connection):
            return None
        return self._connection.request(CLOSE, {"session": self._key})


class SyncInterpreter:
    """The blocking face of an `Interpreter`; works in any thread, also while an event loop runs in it.

    Attributes:
        interpreter: the asynchronous face of the same session.
    """

    def __init__(self, interpreter: Interpreter) -> None:
        self.interpreter = interpreter

    def run(self, code: str, timeout: float | None = None) -> Execution:
        """Run a cell; see `Interpreter.run`."""
        face = self.interpreter
        return face._execution(face._start_run(code, timeout).result())

    def fork(self, n: int = 1) -> list[SyncInterpreter]:
        """Return n copies; see `Interpreter.fork`."""
        future, keys = self.interpreter._start_fork(n)
        try:
            reply = future.result()
        except KeyboardInterrupt:
            self.interpreter.sandbox._close_when_there(self.interpreter._connection, future, keys)
            raise
        return [copy.sync for copy in self.interpreter._forked(keys, reply)]

    def close(self) -> None:
        """End the session; may be called twice."""
        future = self.interpreter._start_close()
        if future is not None:
            future.result()

    def __enter__(self) -> SyncInterpreter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
