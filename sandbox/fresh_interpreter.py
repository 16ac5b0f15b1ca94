"""An interpreter without a memory: each cell runs in a session of its own."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NoReturn

from sandbox.errors import SandboxError, SessionLost
from sandbox.execution import Execution
from sandbox.files.file_transfer import check_reply
from sandbox.files.initial_files import writes
from sandbox.interpreter import Interpreter
from sandbox.pool.connection import Reply
from sandbox.pool.session_group import Session
from sandbox.server.wire import OPEN, RUN, RUN_ONCE
from sandbox.sync_async import Steps
from sandbox.validation import checked_cell, checked_forks, checked_seed

if TYPE_CHECKING:
    from sandbox.sandbox import Sandbox


class FreshInterpreter(Interpreter):
    """Each `run` happens in a new session, which starts from the setup and is gone afterwards.

    It holds nothing between two runs, and runs may happen at the same time, each waiting for its turn. Forking
    gives more of the same; there are no files to put or get. A setup that fails is an error of each run; one that ends
    its session is a result of each run ("killed"), as if the code had done it. `interrupt` stops all runs, but for
    those that are still opened or prepared.

    Args:
        sandbox: where.
        setup: code that runs first in each session.
        files: that each session has from the start.
    """

    def __init__(self, sandbox: Sandbox, setup: str, files: dict[str, bytes]) -> None:
        self.sandbox = sandbox
        self.lost_on_fork = {}
        self._setup = setup
        self._files = files
        self._closed = False
        self._running: set[Session] = set()
        self._setup_cell = checked_cell(setup, None, sandbox.limits)

    def __repr__(self) -> str:
        return f"<FreshInterpreter in {self.sandbox.backend}{', closed' if self._closed else ''}>"

    def _request(self, kind: int, **fields: Any) -> NoReturn:
        raise ValueError(
            "a fresh interpreter keeps no files from run to run; give it files=, write them in the code or in the "
            "setup, or open an interpreter without fresh=True"
        )

    def _run(self, code: str, timeout: float | None) -> Steps[Execution]:
        fields = checked_cell(code, timeout, self.sandbox.limits)
        self._check_open()
        session = self.sandbox._pool.first_session((yield from self.sandbox._pool.enter()))
        session.pool.count("runs")
        try:
            reply = yield from self._run_in(session, (RUN, {**fields, "setup": False}))
        finally:
            self._running.discard(session)
            session.close()
        return Execution.of(reply, session.container.isolation)

    def _run_in(self, session: Session, run: tuple[int, dict[str, Any]]) -> Steps[Reply]:
        """Run the setup and the code in one request; where there are files, each piece of them is one of its own."""
        setup = [(RUN, {**self._setup_cell, "setup": True})] if self._setup else []
        if self._files:
            steps = [*writes(self._files), *setup]
            opened, *prepared, ran = session.request_all((OPEN, {}), *steps, run)
            self._running.add(session)
            yield opened
            for (kind, step), future in zip(steps, prepared, strict=True):
                _check_step(kind, step, (yield future))
            reply: Reply = yield ran
            return reply
        future = session.request(RUN_ONCE, steps=setup, **run[1])
        self._running.add(session)
        reply = yield future
        session.ended()
        if reply.pop("step", 0):
            _check_step(*setup[0], reply)
        return reply

    def _interrupt(self) -> Steps[bool]:
        found = False
        for session in list(self._running):
            with contextlib.suppress(SessionLost):
                reply: Reply = yield session.interrupt(None)
                found = found or reply["interrupted"]
        return found

    def _fork(self, n: int, reseed: bool | int) -> Steps[list[Interpreter]]:
        checked_seed(reseed)
        self._check_open()
        return [FreshInterpreter(self.sandbox, self._setup, self._files) for _ in range(checked_forks(n))]
        yield  # a procedure that never has to wait

    def _close(self) -> Steps[None]:
        self._closed = True
        return
        yield

    def _restart(self) -> Steps[None]:
        self._closed = False
        return
        yield

    def _check_open(self) -> None:
        self.sandbox._pool.check_process()
        if self._closed:
            raise SessionLost("this interpreter is closed; open a new one")


def _check_step(kind: int, fields: dict[str, Any], reply: Reply) -> None:
    """Raise what has gone wrong before the code; a setup that has ended its session is a result of the run."""
    if kind != RUN:
        check_reply(reply, fields["path"])
    elif reply["alive"]:
        check_setup(reply)


def check_setup(reply: Reply) -> None:
    """Raise a SandboxError for setup code that has failed."""
    execution = Execution.of(reply, "")
    if execution.status != "ok":
        raise SandboxError(f"the setup code failed ({execution.status}):\n{execution.text}")
