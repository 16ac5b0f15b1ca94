"""Opens sessions: takes a slot, opens the session, writes its first files and runs the setup in it."""

from __future__ import annotations

from typing import Any

from sandbox.config.limits import Limits
from sandbox.errors import SandboxError, SessionLost
from sandbox.execution import Execution
from sandbox.files.file_transfer import check_reply
from sandbox.files.initial_files import write_requests
from sandbox.pool.connection import Reply
from sandbox.pool.pool import Pool
from sandbox.pool.session_group import RemoteSession
from sandbox.server.wire import OPEN, RUN
from sandbox.sync_async import Steps
from sandbox.validation import checked_cell

_TRIES = 3


class SessionOpener:
    """Opens sessions in the containers of a pool.

    Args:
        pool: the pool.
        limits: of the sandbox.
    """

    def __init__(self, pool: Pool, limits: Limits) -> None:
        self.pool = pool
        self.limits = limits

    def open(self, setup: str, files: dict[str, bytes]) -> Steps[RemoteSession]:
        """Open a session, write its files and run the setup in it.

        Raises:
            OSError: a file cannot be written.
            SandboxError: no session can be opened, or the setup fails.
        """
        fields = checked_cell(setup, None, self.limits)
        session = yield from self._open_empty()
        try:  # files first, since the setup may read them
            for kind, piece in write_requests(files):
                check_reply((yield session.request(kind, **piece)), piece["path"])
            if setup:
                check_setup((yield session.request(RUN, setup=True, **fields)))
        except BaseException:
            session.close()
            raise
        return session

    def _open_empty(self) -> Steps[RemoteSession]:
        for _ in range(_TRIES):
            session = yield from self.reserve()
            try:
                yield session.request(OPEN)
            except BaseException as error:
                session.close()
                if session.lost and isinstance(error, SandboxError):
                    continue  # no code has run in it yet, so another container can take its place
                raise
            return session
        raise SessionLost(f"{_TRIES} containers in a row ended before a session was opened in them")

    def reserve(self) -> Steps[RemoteSession]:
        """Wait for a slot; returns a session in it that the server does not know yet."""
        return self.pool.first_session((yield from self.pool.acquire()))


def check_setup(reply: Reply) -> None:
    """Raise a SandboxError for setup code that has failed."""
    execution = Execution.from_reply(reply, "")
    if execution.status != "ok":
        raise SandboxError(f"the setup code failed ({execution.status}):\n{execution.text}")


def check_step(kind: int, fields: dict[str, Any], reply: Reply) -> None:
    """Raise an exception for a step before the code that has failed.

    A setup that has ended its session is not an error of the machinery: the run reports it as its result.
    """
    if kind != RUN:
        check_reply(reply, fields["path"])
    elif reply["alive"]:
        check_setup(reply)
