"""The HTTP interface to sessions: which path does what, how fields are checked, and which status an error has.

All requests are POST with a JSON object. Each path takes the fields that `ROUTES` names. `openapi` in
`run_code_endpoint` describes them to programs.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
import math
import os
import secrets
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sandbox.connection import Reply, start_thread
from sandbox.errors import ForkError, SandboxError, SandboxFull, SandboxUnavailable, SessionLost
from sandbox.http.json_server import check_token, sends_token
from sandbox.interpreter import open_session
from sandbox.options import checked_cell, checked_forks, checked_path, checked_seed
from sandbox.pool import RemoteSession
from sandbox.sandbox import Sandbox
from sandbox.server.wire import FORK, INTERRUPT, LARGEST_PIECE, LIST, READ, RUN, RUN_ONCE, WRITE
from sandbox.sync_async import finish

# One session that a server holds for an HTTP client, and the answer to its last numbered request.


class StaleNumber(ValueError):
    """A request has a smaller number than one that the session has served."""


class HostedSession:
    """One session, with the answer to its last numbered request.

    Args:
        session: in the pool.
        client: the name of the client that it belongs to.
        lease: what its client calls the program that opened it.
        key: of the request that created it; empty for a fork.
        once: whether it ends with its first cell.

    Attributes:
        id: what the client calls it; nobody can guess it.
        used: when it was last used, by `time.monotonic`.
        waiting: how many requests wait for it now; it is not idle then.
    """

    def __init__(self, session: RemoteSession, client: str, lease: str, key: str = "", once: bool = False) -> None:
        self.id = secrets.token_urlsafe(24)
        self.session = session
        self.client = client
        self.lease = lease
        self.key = key
        self.once = once
        self.used = time.monotonic()
        self.waiting = 0
        self._number = -1
        self._future: Future[Reply] = Future()
        self._lock = threading.Lock()

    def submit(self, number: int | None, start: Callable[[], Future[Reply]]) -> Future[Reply]:
        """Start a request, or return the one of the same number that was started before.

        Args:
            number: counts the requests of the session; None for a request that is never repeated.
            start: sends the request.

        Raises:
            StaleNumber: a later request was started meanwhile.
        """
        with self._lock:
            if number is not None and number < self._number:
                raise StaleNumber(f"request {number} comes after request {self._number}; count upwards")
            if number is None or number > self._number:
                future = start()
                if number is None:
                    return future
                self._number, self._future = number, future
            return self._future

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep the session from being idle."""
        with self._lock:
            self.waiting += 1
        try:
            yield
        finally:
            with self._lock:
                self.waiting -= 1
                self.used = time.monotonic()


# The clients of a sandbox server: whom a token stands for, and how many sessions each may have open.
#
# A token names its client. Without any token, which only a server on loopback may do, all requests come from one
# client.

_DANGER = "run code in the sandbox"
_VARIABLE = "ARPO_SANDBOX_TOKEN"


@dataclass(frozen=True)
class Client:
    """One client of a server.

    Attributes:
        name: for the log and for messages.
        token: what its requests send; empty if the server needs none.
        sessions: how many sessions it may have open, not counting their forks; None for all of the server's.
    """

    name: str
    token: str = field(default="", repr=False)
    sessions: int | None = None


class ClientTable:
    """The clients of one server.

    Args:
        clients: all of them; a single one without a token stands for everybody.
    """

    def __init__(self, clients: Sequence[Client]) -> None:
        self._clients = tuple(clients)

    @property
    def needs_token(self) -> bool:
        """Whether requests have to send a token."""
        return any(client.token for client in self._clients)

    def find(self, authorization: str) -> Client | None:
        """Return the client that an Authorization header names; takes the same time for any wrong token."""
        if not self.needs_token:
            return self._clients[0]
        found = [client for client in self._clients if sends_token(authorization, client.token)]
        return found[0] if found else None

    def check(self, host: str) -> None:
        """Check the tokens before a server listens on an address.

        Raises:
            ValueError: others can reach the address and there is no token, or a header cannot hold one of the tokens.
        """
        for client in self._clients:
            check_token(host, client.token, _VARIABLE, _DANGER)


def clients_of(token: str = "", file: Path | None = None) -> ClientTable:
    """Return the clients that a token or a file names.

    Args:
        token: of a single client; empty for none.
        file: has a line "NAME TOKEN" or "NAME TOKEN SESSIONS" for each client; "#" begins a comment.

    Raises:
        ValueError: both are given, or the file is malformed, or others can read it.
        OSError: the file cannot be read.
    """
    if file is None:
        return ClientTable([Client("client", token)])
    if token:
        raise ValueError(f"give either a token ({_VARIABLE} or --token) or a file of clients (--clients), not both")
    if file.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ValueError(f"other users may read {file}, which holds tokens: run chmod 600 {file}")
    lines = enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
    rows = [(number, text.partition("#")[0].split()) for number, text in lines]
    clients = [_client(f"{file}, line {number}", words) for number, words in rows if words]
    if not clients:
        raise ValueError(f"{file} names no client; write a line 'NAME TOKEN [SESSIONS]' for each")
    for what in ("name", "token"):
        if len({getattr(client, what) for client in clients}) < len(clients):
            raise ValueError(f"{file} has the same {what} twice; each client needs its own")
    return ClientTable(clients)


def _client(where: str, words: list[str]) -> Client:
    if not 2 <= len(words) <= 3:
        raise ValueError(f"{where}: {len(words)} words; write 'NAME TOKEN' or 'NAME TOKEN SESSIONS'")
    if len(words) == 2:
        return Client(words[0], words[1])
    if not (words[2].isascii() and words[2].isdigit() and int(words[2][:9]) > 0):
        raise ValueError(f"{where}: {words[2]!r} sessions; it has to be a whole number, at least 1")
    return Client(words[0], words[1], int(words[2]))


# The sessions that a server holds for its HTTP clients.
#
# A session belongs to one client, and only that client finds it. A request that is sent again, since its answer was
# lost, has the key or the number of the first one and gets the same answer: no code runs twice. Sessions live in this
# process. After a restart nobody finds the old ones, and the clients report them as lost.

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
        options = self.sandbox._pool.options
        most = options.containers * options.sessions
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
            start_thread("sandbox session", self._open, client.name, key, creation, once)
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
        pool = self.sandbox._pool
        try:
            session = finish(pool.reserve() if once else open_session(pool, "", {}))
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
            copies[0].pool.count("forks", n)
            made = [HostedSession(copy, hosted.client, hosted.lease) for copy in copies]
            with self._lock:
                self._sessions.update((one.id, one) for one in made)
                over = (hosted.client, hosted.lease) in self._over
            if over:  # not here, since this thread reads the replies
                copies[0].pool.wake.put(lambda: [self.close(one) for one in made])
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
            if hosted.session.mark_closed():
                hosted.session.group.leave()
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


LONGEST_WAIT = 20.0
"""Seconds after which a request is answered with 202; the client sends it again, and waits on."""
_LARGEST, _LONGEST_NAME = 1 << 40, 200
Answer = tuple[int, dict[str, Any]]


class WrongServer(SandboxError):
    """The request is for a server that was restarted since."""


_STATUSES: tuple[tuple[type[Exception], int], ...] = (
    (StaleNumber, 409),
    (WrongServer, 409),
    (SessionLost, 410),
    (ForkError, 422),
    (SandboxFull, 429),
    (SandboxUnavailable, 503),
    (SandboxError, 500),
    (TypeError, 400),
    (ValueError, 400),
    (RecursionError, 400),
)


class SessionApi:
    """Answers the requests of clients.

    Args:
        sessions: of the server.
    """

    def __init__(self, sessions: HostedSessions) -> None:
        self._sessions = sessions
        # actions of a session that take their turn, and may be sent again with the same number
        self._actions: dict[str, Callable[[HostedSession, dict[str, Any]], Future[Reply]]] = {
            "run": self._run,
            "fork": self._fork,
            "put": _put,
            "get": _get,
            "ls": _ls,
        }
        self._others: dict[str, Callable[[Client, dict[str, Any]], Answer]] = {
            "/v1/hello": self._hello,
            "/v1/sessions": self._create,
            "/v1/keep": self._keep,
            "/v1/close": self._close_all,
        }

    def takes(self, path: str) -> bool:
        """Return whether there is such a path."""
        return path in self._others or self._split(path) is not None

    def answer(self, client: Client, path: str, body: bytes) -> Answer:
        """Return the status and the answer to a POST."""
        try:
            request = json.loads(body)
            if not isinstance(request, dict):
                raise ValueError("the body has to be a JSON object")
            if path in self._others:
                return self._others[path](client, request)
            identity, action = self._split(path) or ("", "")
            return self._act(self._sessions.find(client, identity), action, request)
        except (SandboxError, ValueError, TypeError, RecursionError) as error:
            return _failure(error)
        except Exception as error:  # without an answer the client would take the server for gone, with all sessions
            _log.exception("a request to %s failed", path.rpartition("/")[2])
            return _failure(SandboxError(f"the server failed: {type(error).__name__}: {error}"))

    def _split(self, path: str) -> tuple[str, str] | None:
        empty, version, what, *rest = [*path.split("/"), "", "", ""][:6]
        if (empty, version, what) != ("", "v1", "sessions") or path.count("/") != 4:
            return None
        return (rest[0], rest[1]) if rest[1] in (*self._actions, "interrupt", "close") else None

    def _hello(self, client: Client, request: dict[str, Any]) -> Answer:
        sandbox = self._sessions.sandbox
        options = sandbox._pool.options
        return 200, {
            "server": self._sessions.instance,
            "client": client.name,
            "isolation": sandbox.isolation,
            "slots": self._sessions.capacity(client),
            "profile": options.profile,
            "packages": list(options.packages),
            "limits": asdict(sandbox.limits),
            "idle_seconds": self._sessions.idle_seconds,
        }

    def _create(self, client: Client, request: dict[str, Any]) -> Answer:
        key, lease, server = (_text(request, name) for name in ("key", "lease", "server"))
        if server and server != self._sessions.instance:
            raise WrongServer("the server was restarted, and its sessions are lost")
        once, wait = request.get("once", False) is True, _seconds(request, "wait")
        longest, key = (LONGEST_WAIT, key) if key else (math.inf, secrets.token_urlsafe(12))
        future = self._sessions.create(client, key, lease, once)
        status, answer = _await(future, 201, min(longest, wait))
        if status == 201 or wait > longest:
            return status, answer
        if self._sessions.give_up(client, key):
            raise SandboxFull(
                "no session of the server became free in time; close sessions, or start the server with more "
                "--containers or --sessions"
            )
        return _await(future, 201)  # it has come at the last moment

    def _keep(self, client: Client, request: dict[str, Any]) -> Answer:
        held = self._sessions.keep(client, _text(request, "lease"))
        slots = self._sessions.capacity(client)
        return 200, {"server": self._sessions.instance, "slots": slots, "sessions": held}

    def _close_all(self, client: Client, request: dict[str, Any]) -> Answer:
        final = request.get("final", False) is True
        return 200, {"closed": self._sessions.close_lease(client, _text(request, "lease"), final)}

    def _act(self, hosted: HostedSession, action: str, request: dict[str, Any]) -> Answer:
        if action == "close":
            closed = self._sessions.close(hosted)
            return _await(closed) if closed is not None else (200, {})
        if action == "interrupt":
            cell = request.get("cell")
            return _await(hosted.session.request(INTERRUPT, cell=None if cell is None else _whole(request, "cell")))
        number = None if request.get("number") is None else _whole(request, "number")
        with hosted.in_use():
            future = hosted.submit(number, lambda: self._actions[action](hosted, request))
            status, answer = _await(future, 200, math.inf if number is None else LONGEST_WAIT)
        if status == 200 and hosted.once and action == "run":
            self._sessions.close(hosted, ended=True)
        return (422, _named(answer)) if "errno" in answer else (status, answer)

    def _fork(self, hosted: HostedSession, request: dict[str, Any]) -> Future[Reply]:
        seed = request.get("reseed")
        copies = checked_forks(request.get("n", 1))
        return self._sessions.fork(hosted, copies, checked_seed(False if seed is None else seed))

    def _run(self, hosted: HostedSession, request: dict[str, Any]) -> Future[Reply]:
        limits = self._sessions.sandbox.limits
        cell = checked_cell(request.get("code", ""), request.get("timeout"), limits)
        name = None if request.get("cell") is None else _whole(request, "cell")
        fields = {**cell, "setup": request.get("setup", False) is True, "cell": name}
        hosted.session.pool.count("runs")
        if not hosted.once:
            return hosted.session.request(RUN, **fields)
        before = checked_cell(request.get("before", ""), request.get("before_timeout"), limits)
        steps = [(RUN, {**before, "setup": True})] if before["code"] else []
        return hosted.session.request(RUN_ONCE, steps=steps, **fields)


def _put(hosted: HostedSession, request: dict[str, Any]) -> Future[Reply]:
    data = request.get("data", "")
    try:
        content = base64.b64decode(data, validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise ValueError("'data' has to be base64") from error
    if len(content) > LARGEST_PIECE:
        raise ValueError(f"{len(content)} bytes of data; send at most {LARGEST_PIECE} at once, and go on with 'offset'")
    path = checked_path(request.get("path", ""))
    return hosted.session.request(WRITE, path=path, offset=_whole(request, "offset"), data=data)


def _get(hosted: HostedSession, request: dict[str, Any]) -> Future[Reply]:
    path = checked_path(request.get("path", ""))
    length = min(_whole(request, "length", LARGEST_PIECE), LARGEST_PIECE)
    return hosted.session.request(READ, path=path, offset=_whole(request, "offset"), length=length)


def _ls(hosted: HostedSession, request: dict[str, Any]) -> Future[Reply]:
    return hosted.session.request(LIST, path=checked_path(request.get("path", "."), directory=True))


def _await(future: Future[Reply], status: int = 200, seconds: float = math.inf) -> Answer:
    """Wait for an answer; the status is 202 if it takes too long."""
    done, _ = futures.wait([future], None if seconds == math.inf else seconds)
    return (status, future.result()) if done else (202, {"running": True})


def _whole(request: dict[str, Any], name: str, default: int = 0) -> int:
    value = request.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _LARGEST:
        raise ValueError(f"{name!r} is {value!r}; it has to be a whole number, at least 0")
    return value


def _seconds(request: dict[str, Any], name: str) -> float:
    value = request.get(name, math.inf)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
        raise ValueError(f"{name!r} is {value!r}; it has to be a number of seconds, at least 0")
    return math.inf if value > _LARGEST else float(value)


def _text(request: dict[str, Any], name: str) -> str:
    value = request.get(name, "")
    if not isinstance(value, str) or len(value) > _LONGEST_NAME:
        raise ValueError(f"{name!r} has to be a text of at most {_LONGEST_NAME} characters")
    return value


def _named(answer: dict[str, Any]) -> dict[str, Any]:
    return {**answer, "failure": "OSError", "message": os.strerror(answer["errno"])}


def _failure(error: Exception) -> Answer:
    status = next(status for kind, status in _STATUSES if isinstance(error, kind))
    return status, {"failure": type(error).__name__, "message": str(error)}
