"""An interpreter without memory: each cell runs in a session of its own."""

from __future__ import annotations

import contextlib
from typing import Any, NoReturn

from sandbox.errors import SessionLost
from sandbox.execution import Execution
from sandbox.files.initial_files import write_requests
from sandbox.interpreter import Interpreter
from sandbox.pool.connection import Reply
from sandbox.pool.session_group import RemoteSession
from sandbox.server.wire import OPEN, RUN, RUN_ONCE
from sandbox.session_opener import SessionOpener, check_step
from sandbox.sync_async import Steps
from sandbox.validation import checked_cell, checked_forks, checked_seed


class FreshInterpreter(Interpreter):
    """Runs each cell in a new session, which starts from the setup and is closed afterwards.

    It holds no session between two runs. Runs may happen at the same time; each waits for a slot. Forking returns more
    interpreters of this kind; there are no files to put or get. A setup that fails is an error of each run. A setup
    that ends its session is a result of each run ("killed"), as if the code had ended it. `interrupt` stops all runs,
    except those that are still being opened or prepared.

    Args:
        opener: of the sandbox.
        setup: code that runs first in each session.
        files: that each session has from the start.
    """

    def __init__(self, opener: SessionOpener, setup: str, files: dict[str, bytes]) -> None:
        # not by `Interpreter.__init__`, which attaches a session
        self.lost_on_fork = {}
        self._opener = opener
        self._setup = setup
        self._files = files
        self._closed = False
        self._running: set[RemoteSession] = set()
        # checked here, so that a setup of a wrong type or size is refused before the first run
        self._setup_cell = checked_cell(setup, None, opener.limits)

    def __repr__(self) -> str:
        return f"<FreshInterpreter in {self._opener.pool.plan.backend}{', closed' if self._closed else ''}>"

    def _request(self, kind: int, **fields: Any) -> NoReturn:
        raise ValueError(
            "a fresh interpreter keeps no files from run to run; give it files=, write them in the code or in the "
            "setup, or open an interpreter without fresh=True"
        )

    def _run(self, code: str, timeout: float | None) -> Steps[Execution]:
        fields = checked_cell(code, timeout, self.limits)
        self._check_open()
        session = yield from self._opener.reserve()
        session.count("runs")
        try:
            reply = yield from self._run_in(session, (RUN, {**fields, "setup": False}))
        finally:
            self._running.discard(session)
            session.close()
        return Execution.from_reply(reply, session.container.isolation)

    def _run_in(self, session: RemoteSession, run: tuple[int, dict[str, Any]]) -> Steps[Reply]:
        """Run the setup and the code with one request; files need one more request for each piece."""
        setup = [(RUN, {**self._setup_cell, "setup": True})] if self._setup else []
        if self._files:
            steps = [*write_requests(self._files), *setup]
            # sent together: the server serves them in order, and nothing waits for a reply in between
            opened, *prepared, ran = session.request_all((OPEN, {}), *steps, run)
            self._running.add(session)
            yield opened
            for (kind, step), future in zip(steps, prepared, strict=True):
                check_step(kind, step, (yield future))
            reply: Reply = yield ran
            return reply
        future = session.request(RUN_ONCE, steps=setup, **run[1])
        self._running.add(session)
        reply = yield future
        # the server has closed it with this reply
        session.mark_closed()
        if reply.pop("step", 0):
            check_step(*setup[0], reply)
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
        return [FreshInterpreter(self._opener, self._setup, self._files) for _ in range(checked_forks(n))]
        yield  # makes this a generator, as the methods of `Interpreter` are; it never waits

    def _close(self) -> Steps[None]:
        self._closed = True
        return
        yield

    def _restart(self) -> Steps[None]:
        self._closed = False
        return
        yield

    def _check_open(self) -> None:
        self._opener.pool.state.check_process()
        if self._closed:
            raise SessionLost("this interpreter is closed; open a new one")
