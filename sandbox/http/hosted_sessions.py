"""The sessions that a server holds for its HTTP clients.

A session belongs to one client, and only that client finds it. A request that is sent again, since its answer was lost,
has the key or the number of the first one and gets the same answer: no code runs twice. Sessions live in this process.
After a restart nobody finds the old ones, and the clients report them as lost.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field

from sandbox.errors import SandboxError, SandboxFull, SessionLost
from sandbox.http.client_table import Client
from sandbox.http.hosted_session import HostedSession
from sandbox.pool.connection import Reply
from sandbox.pool.daemon_threads import daemon_thread, start_thread
from sandbox.sandbox import Sandbox
from sandbox.server.wire import FORK
from sandbox.sync_async import finish

_FAILURE_SECONDS = 60.0
UNKNOWN = (
    "the server has no such session for this client: it was closed, nobody used it for the idle time, or the server "
    "was restarted; open a new one"
)
_log = logging.getLogger(__name__)


def check_idle_seconds(seconds: float) -> None:
    """Raise a ValueError unless it is a positive number of seconds."""
    if not seconds > 0:
        raise ValueError(f"the idle time-out is {seconds!r}; it has to be a positive number of seconds")


@dataclass
class HostedCreation:
    """A session that is being opened, or was opened, for one key."""

    lease: str
    future: Future[Reply] = field(default_factory=Future)
    open: bool = False
    cancelled: bool = False
    started: float = field(default_factory=time.monotonic)


class HostedSessions:
    """Opens, finds, forks and closes sessions for clients.

    Args:
        sandbox: where they are opened.
        idle_seconds: a session that was not used for this long is closed.

    Attributes:
        instance: a new name each time that a server is started.
    """

    def __init__(self, sandbox: Sandbox, idle_seconds: float) -> None:
        self.sandbox = sandbox
        self.idle_seconds = idle_seconds
        self.instance = secrets.token_urlsafe(12)
        self._sessions: dict[str, HostedSession] = {}
        self._creations: dict[tuple[str, str], HostedCreation] = {}
        self._others: Counter[str] = Counter()
        self._over: dict[tuple[str, str], float] = {}  # leases of programs that have ended, and when
        self._lock = threading.Lock()
        self._ended = threading.Event()

    def capacity(self, client: Client) -> int:
        """Return how many sessions a client may have open, not counting their forks."""
        plan = self.sandbox._pool.plan
        most = plan.containers * plan.options.sessions
        return most if client.sessions is None else min(most, client.sessions)

    def create(self, client: Client, key: str, lease: str, once: bool) -> Future[Reply]:
        """Open a session; the answer has its id. The same key stands for the same session.

        Raises:
            SandboxFull: the client has as many sessions as it may have.
            SessionLost: the lease was closed for good.
        """
        key = key or secrets.token_urlsafe(12)
        with self._lock:
            known = self._creations.get((client.name, key))
            if known is not None:
                return known.future
            if (client.name, lease) in self._over:
                raise SessionLost("the program with this lease has closed all its sessions")
            self._check_quota(client)
            creation = self._creations[client.name, key] = HostedCreation(lease)
        try:
            start_thread(daemon_thread(self._open, "sandbox session", client.name, key, creation, once))
        except (RuntimeError, SandboxError) as error:  # else the quota would count it for ever
            creation.future.set_exception(SandboxError(f"the server cannot open a session: {error}"))
        return creation.future

    def give_up(self, client: Client, key: str) -> bool:
        """Open no session for a key any more; returns False if it is open already, or could not be opened."""
        with self._lock:
            creation = self._creations.get((client.name, key))
            if creation is None or creation.open or creation.future.done():
                return False
            creation.cancelled = True
            del self._creations[client.name, key]
        return True

    def _open(self, client: str, key: str, creation: HostedCreation, once: bool) -> None:
        opener = self.sandbox._opener
        try:
            session = finish(opener.reserve() if once else opener.open("", {}))
        except BaseException as error:  # is the answer to the request
            creation.future.set_exception(error)
            return
        hosted = HostedSession(session, client, creation.lease, key, once)
        with self._lock:
            creation.open = not creation.cancelled
            if creation.open:
                self._sessions[hosted.id] = hosted
        if creation.open:
            creation.future.set_result({"session": hosted.id})
        else:
            session.close()
            creation.future.set_exception(SessionLost(UNKNOWN))

    @contextmanager
    def slot(self, client: Client) -> Iterator[None]:
        """Count one session that is opened and closed elsewhere.

        Raises:
            SandboxFull: the client has as many sessions as it may have.
        """
        with self._lock:
            self._check_quota(client)
            self._others[client.name] += 1
        try:
            yield
        finally:
            with self._lock:
                self._others[client.name] -= 1

    def _check_quota(self, client: Client) -> None:
        if client.sessions is None:
            return
        groups = {id(one.session.group) for one in self._sessions.values() if one.client == client.name}
        mine = [one for (name, _), one in self._creations.items() if name == client.name]
        opening = sum(not one.open and not one.cancelled and not one.future.done() for one in mine)
        held = len(groups) + opening + self._others[client.name]
        if held >= client.sessions:
            raise SandboxFull(
                f"client {client.name!r} has {held} sessions open, each with its forks, and may have "
                f"{client.sessions}; close some, or have the quota raised on the server"
            )

    def find(self, client: Client, identity: str) -> HostedSession:
        """Return a session of a client.

        Raises:
            SessionLost: the client has no such session.
        """
        hosted = self._sessions.get(identity)
        if hosted is None or hosted.client != client.name:
            raise SessionLost(UNKNOWN)
        hosted.used = time.monotonic()
        return hosted

    def fork(self, hosted: HostedSession, n: int, seed: int | None) -> Future[Reply]:
        """Fork a session; the answer has the ids of the copies, and what could not be copied."""
        copies = hosted.session.copies(n)
        answer: Future[Reply] = Future()
        try:
            future = hosted.session.request(FORK, children=[copy.key for copy in copies], reseed=seed)
        except BaseException:
            copies[0].group.leave(n)
            raise

        def on_reply(reply: Future[Reply]) -> None:
            error = reply.exception()
            if error is not None:
                copies[0].group.leave(n)
                answer.set_exception(error)
                return
            copies[0].count("forks", n)
            made = [HostedSession(copy, hosted.client, hosted.lease) for copy in copies]
            with self._lock:
                self._sessions.update((one.id, one) for one in made)
                over = (hosted.client, hosted.lease) in self._over
            if over:  # not here, since this thread reads the replies
                copies[0].call_later(lambda: [self.close(one) for one in made])
            answer.set_result({"sessions": [one.id for one in made], "losses": reply.result()["losses"]})

        future.add_done_callback(on_reply)
        return answer

    def close(self, hosted: HostedSession, ended: bool = False) -> Future[Reply] | None:
        """End a session, or note that it has ended; returns the future of the confirmation, None if none comes."""
        with self._lock:
            self._sessions.pop(hosted.id, None)
            if hosted.key:
                self._creations.pop((hosted.client, hosted.key), None)
        if ended:
            hosted.session.mark_closed()
            return None
        return hosted.session.close()

    def keep(self, client: Client, lease: str) -> int:
        """Note that a program lives; returns how many sessions it has open."""
        now = time.monotonic()
        mine = self._of(client, lease)
        for hosted in mine:
            hosted.used = now
        return len(mine)

    def close_lease(self, client: Client, lease: str, final: bool = False) -> int:
        """End all sessions of a program, also those that are being opened; returns how many.

        Args:
            client: whose program it is.
            lease: of the program.
            final: open none for this lease any more, since a request may still be on its way.
        """
        with self._lock:
            if final:
                self._over[client.name, lease] = time.monotonic()
            for (name, _), creation in self._creations.items():
                if name == client.name and creation.lease == lease:
                    creation.cancelled = True
        mine = self._of(client, lease)
        for hosted in mine:
            self.close(hosted)
        return len(mine)

    def _of(self, client: Client, lease: str) -> list[HostedSession]:
        with self._lock:
            return [one for one in self._sessions.values() if one.client == client.name and one.lease == lease]

    def close_idle(self) -> int:
        """Close the sessions that nobody has used for too long; returns how many."""
        now = time.monotonic()
        with self._lock:
            every = list(self._sessions.values())
            self._over = {name: when for name, when in self._over.items() if when > now - _FAILURE_SECONDS}
            for name, creation in list(self._creations.items()):
                failed = creation.future.done() and creation.future.exception() is not None
                if failed and creation.started < now - _FAILURE_SECONDS:
                    del self._creations[name]
        idle = [one for one in every if not one.waiting and one.used < now - self.idle_seconds]
        for hosted in idle:
            self.close(hosted)
        if idle:
            _log.info("closed %d sessions that were idle for %g s", len(idle), self.idle_seconds)
        return len(idle)

    def watch(self) -> None:
        """Close idle sessions until `end` is called; for a thread of its own."""
        while not self._ended.wait(min(self.idle_seconds / 4, 15.0)):
            self.close_idle()

    def end(self) -> None:
        """Let `watch` return. The sessions end with the sandbox."""
        self._ended.set()
