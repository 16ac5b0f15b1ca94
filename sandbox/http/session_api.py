"""The HTTP interface to sessions: clients, their sessions, which path does what, and which status an error has.

All requests are POST with a JSON object; `openapi.yaml` has their fields. A session belongs to one client, and only
that one finds it. A request that is sent again, since its answer was lost, has the key or the number of the first one
and gets the same answer: no code runs twice. Sessions live in this process. After a restart nobody finds the old ones,
and the clients report them as lost. Everything here runs on the event loop of the server.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import math
import os
import re
import secrets
import stat
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from sandbox.backends.http_backend import TOKEN_VARIABLE
from sandbox.errors import ForkError, SandboxError, SandboxFull, SandboxUnavailable, SessionLost
from sandbox.http.json_server import Answer, sends_token
from sandbox.interpreter import Interpreter, checked_cell, checked_forks, checked_path
from sandbox.pool import Reply
from sandbox.sandbox import Sandbox
from sandbox.server.wire import INTERRUPT, LARGEST_PIECE, LIST, READ, RUN, WRITE

LONGEST_WAIT = 20.0
"""Seconds after which a request is answered with 202; the client sends it again, and waits on."""
_LARGEST = 1 << 40
UNKNOWN = (
    "the server has no such session for this client: it was closed, nobody used it for the idle time, or the server "
    "was restarted; open a new one"
)
_log = logging.getLogger(__name__)
F = TypeVar("F", bound="asyncio.Future[Any]")


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


def find_client(clients: Sequence[Client], authorization: str) -> Client | None:
    """Return the client that an Authorization header names; a single one without a token stands for everybody."""
    if not any(client.token for client in clients):
        return clients[0]
    # all are compared, so that any wrong token takes the same time
    found = [client for client in clients if sends_token(authorization, client.token)]
    return found[0] if found else None


def clients_of(token: str = "", file: Path | None = None) -> tuple[Client, ...]:
    """Return the clients that a token or a file names.

    Args:
        token: of a single client; empty for none.
        file: has a line "NAME TOKEN" or "NAME TOKEN SESSIONS" for each client; "#" begins a comment.

    Raises:
        ValueError: both are given, or the file is malformed, or others can read it.
        OSError: the file cannot be read.
    """
    if file is None:
        return (Client("client", token),)
    if token:
        raise ValueError(f"give a token ({TOKEN_VARIABLE} or --token) or a file of clients (--clients), not both")
    if file.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ValueError(f"other users may read {file}, which holds tokens: run chmod 600 {file}")
    clients = []
    for number, text in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        match text.partition("#")[0].split():
            case []:
                continue
            case [name, token]:
                clients.append(Client(name, token))
            case [name, token, most] if re.fullmatch("[1-9][0-9]{0,8}", most):
                clients.append(Client(name, token, int(most)))
            case _:
                raise ValueError(f"{file}, line {number}: write 'NAME TOKEN' or 'NAME TOKEN SESSIONS'")
    for what in ("name", "token"):
        if len({getattr(client, what) for client in clients}) < len(clients):
            raise ValueError(f"{file} has the same {what} twice; each client needs its own")
    if not clients:
        raise ValueError(f"{file} names no client; write a line 'NAME TOKEN [SESSIONS]' for each")
    return tuple(clients)


class StaleNumber(ValueError):
    """A request has a smaller number than one that the session has served."""


class WrongServer(SandboxError):
    """The request is for a server that was restarted since."""


class HostedSession:
    """One session, with the answer to its last numbered request.

    Attributes:
        id: what the client calls it; nobody can guess it.
        client: the name of the client that it belongs to.
        lease: what its client calls the program that opened it.
        key: of the request that created it; empty for a fork.
        used: when it was last used, by `time.monotonic`.
        waiting: how many requests wait for it now; it is not idle then.
    """

    def __init__(self, python: Interpreter, client: str, lease: str, key: str = "") -> None:
        self.id = secrets.token_urlsafe(24)
        self.python, self.session = python, python._session
        self.client, self.lease, self.key = client, lease, key
        self.used = time.monotonic()
        self.waiting = 0
        self._number = -1
        self._future: asyncio.Future[Reply] | None = None

    def submit(self, number: int | None, start: Callable[[], asyncio.Future[Reply]]) -> asyncio.Future[Reply]:
        """Start a request, or return the one of the same number that was started before; None is never repeated.

        Raises:
            StaleNumber: a later request was started meanwhile.
        """
        if number is None:
            return start()
        if number < self._number:
            raise StaleNumber(f"request {number} comes after request {self._number}; count upwards")
        if self._future is None or number > self._number:
            self._number, self._future = number, start()
        return self._future

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep the session from being idle."""
        self.waiting += 1
        try:
            yield
        finally:
            self.waiting -= 1
            self.used = time.monotonic()


class HostedSessions:
    """Opens, finds, forks and closes sessions for clients.

    Args:
        sandbox: where they are opened.
        idle_seconds: a session that was not used for this long is closed.

    Attributes:
        instance: a new name each time that a server is started.
    """

    def __init__(self, sandbox: Sandbox, idle_seconds: float) -> None:
        if not idle_seconds > 0:
            raise ValueError(f"the idle time-out is {idle_seconds!r}; it has to be a positive number of seconds")
        self.sandbox = sandbox
        self.idle_seconds = idle_seconds
        self.instance = secrets.token_urlsafe(12)
        self._sessions: dict[str, HostedSession] = {}
        # by client and key: the lease, and the answer
        self._creations: dict[tuple[str, str], tuple[str, asyncio.Task[Reply]]] = {}
        self._others: Counter[str] = Counter()

    def capacity(self, client: Client) -> int:
        """Return how many sessions a client may have open, not counting their forks."""
        options = self.sandbox._pool.options
        most = options.containers * options.sessions
        return most if client.sessions is None else min(most, client.sessions)

    def create(self, client: Client, key: str, lease: str) -> asyncio.Task[Reply]:
        """Open a session; the answer has its id. The same key stands for the same session.

        Raises:
            SandboxFull: the client has as many sessions as it may have.
        """
        key = key or secrets.token_urlsafe(12)
        if known := self._creations.get((client.name, key)):
            return known[1]
        self._check_quota(client)
        task = _kept(asyncio.create_task(self._open(client.name, key, lease)))
        self._creations[client.name, key] = (lease, task)
        return task

    async def _open(self, client: str, key: str, lease: str) -> Reply:
        try:
            python = await self.sandbox.interpreter()
        except asyncio.CancelledError:
            raise SessionLost(UNKNOWN) from None
        hosted = HostedSession(python, client, lease, key)
        self._sessions[hosted.id] = hosted
        return {"session": hosted.id}

    def give_up(self, client: Client, key: str) -> bool:
        """Open no session for a key any more; returns False if it is open already, or could not be opened."""
        _, task = self._creations.get((client.name, key), ("", None))
        if task is None or task.done():
            return False
        task.cancel()
        del self._creations[client.name, key]
        return True

    @contextmanager
    def slot(self, client: Client) -> Iterator[None]:
        """Count one session that is opened and closed elsewhere.

        Raises:
            SandboxFull: the client has as many sessions as it may have.
        """
        self._check_quota(client)
        self._others[client.name] += 1
        try:
            yield
        finally:
            self._others[client.name] -= 1

    def _check_quota(self, client: Client) -> None:
        if client.sessions is None:
            return
        groups = {id(one.session.group) for one in self._sessions.values() if one.client == client.name}
        opening = sum(name == client.name and not task.done() for (name, _), (_, task) in self._creations.items())
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

    async def fork(self, hosted: HostedSession, n: int) -> Reply:
        """Fork a session; returns the ids of the copies, and what could not be copied."""
        copies = await hosted.python.fork(n)
        made = [HostedSession(copy, hosted.client, hosted.lease) for copy in copies]
        self._sessions.update((one.id, one) for one in made)
        return {"sessions": [one.id for one in made], "losses": copies[0].lost_on_fork}

    def close(self, hosted: HostedSession) -> asyncio.Future[None]:
        """End a session; the result is awaited until the server has confirmed it."""
        self._sessions.pop(hosted.id, None)
        self._creations.pop((hosted.client, hosted.key), None)
        return _kept(asyncio.create_task(hosted.python.close()))

    def keep(self, client: Client, lease: str) -> int:
        """Note that a program lives; returns how many sessions it has open."""
        mine = self._of(client, lease)
        for hosted in mine:
            hosted.used = time.monotonic()
        return len(mine)

    def close_lease(self, client: Client, lease: str) -> int:
        """End all sessions of a program, also those that are being opened; returns how many."""
        for (name, _), (of, task) in self._creations.items():
            if name == client.name and of == lease:
                task.cancel()
        mine = self._of(client, lease)
        for hosted in mine:
            self.close(hosted)
        return len(mine)

    def _of(self, client: Client, lease: str) -> list[HostedSession]:
        return [one for one in self._sessions.values() if one.client == client.name and one.lease == lease]

    def close_idle(self) -> int:
        """Close the sessions that nobody has used for too long; returns how many."""
        now = time.monotonic()
        for at, (_, task) in list(self._creations.items()):
            if task.done() and (task.cancelled() or task.exception()):
                del self._creations[at]  # whoever asks again, tries again
        idle = [one for one in self._sessions.values() if not one.waiting and one.used < now - self.idle_seconds]
        for hosted in idle:
            self.close(hosted)
        if idle:
            _log.info("closed %d sessions that were idle for %g s", len(idle), self.idle_seconds)
        return len(idle)

    async def watch(self) -> None:
        """Close idle sessions until this is cancelled."""
        while True:
            await asyncio.sleep(min(self.idle_seconds / 4, 15.0))
            self.close_idle()


def _kept(future: F) -> F:
    """Return a future whose exception nobody has to ask for."""
    future.add_done_callback(lambda done: done.cancelled() or done.exception())
    return future


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
    """Answers the requests of clients."""

    def __init__(self, sessions: HostedSessions) -> None:
        self._sessions = sessions
        # actions of a session that take their turn, and may be sent again with the same number
        self._actions: dict[str, Callable[[HostedSession, dict[str, Any]], asyncio.Future[Reply]]] = {
            "run": self._run,
            "fork": self._fork,
            "put": _put,
            "get": _get,
            "ls": _ls,
        }
        self._others: dict[str, Callable[[Client, dict[str, Any]], Awaitable[Answer]]] = {
            "/v1/hello": self._hello,
            "/v1/sessions": self._create,
            "/v1/keep": self._keep,
            "/v1/close": self._close_all,
        }

    async def answer(self, client: Client, path: str, body: bytes) -> Answer | None:
        """Return the status and the answer to a POST; None if there is no such path."""
        identity, action = self._split(path)
        if path not in self._others and not action:
            return None
        try:
            request = json.loads(body)
            if not isinstance(request, dict):
                raise ValueError("the body has to be a JSON object")
            if not action:
                return await self._others[path](client, request)
            return await self._act(self._sessions.find(client, identity), action, request)
        except (SandboxError, ValueError, TypeError, RecursionError) as error:
            return _failure(error)
        except Exception as error:  # without an answer the client would take the server for gone, with all sessions
            _log.exception("a request to %s failed", path.rpartition("/")[2])
            return _failure(SandboxError(f"the server failed: {type(error).__name__}: {error}"))

    def _split(self, path: str) -> tuple[str, str]:
        """Return the session and the action of a path, or nothing."""
        found = re.fullmatch(r"/v1/sessions/([^/]+)/(\w+)", path)
        known = found and found[2] in (*self._actions, "interrupt", "close")
        return (found[1], found[2]) if found and known else ("", "")

    async def _hello(self, client: Client, request: dict[str, Any]) -> Answer:
        sandbox = self._sessions.sandbox
        options = sandbox._pool.options
        return 200, {
            "server": self._sessions.instance,
            "client": client.name,
            "isolation": await asyncio.to_thread(lambda: sandbox.isolation),  # may have to start a container first
            "slots": self._sessions.capacity(client),
            "profile": options.profile,
            "packages": list(options.packages),
            "limits": asdict(sandbox.limits),
            "idle_seconds": self._sessions.idle_seconds,
        }

    async def _create(self, client: Client, request: dict[str, Any]) -> Answer:
        key, lease, server = (_text(request, name) for name in ("key", "lease", "server"))
        if server and server != self._sessions.instance:
            raise WrongServer("the server was restarted, and its sessions are lost")
        wait = _number(request, "wait", math.inf, whole=False)
        longest, key = (LONGEST_WAIT, key) if key else (math.inf, secrets.token_urlsafe(12))
        task = self._sessions.create(client, key, lease)
        status, answer = await _wait(task, 201, min(longest, wait))
        if status == 201 or wait > longest:
            return status, answer
        if self._sessions.give_up(client, key):
            raise SandboxFull(
                "no session of the server became free in time; close sessions, or start the server with more "
                "--containers or --sessions"
            )
        return await _wait(task, 201)  # it has come at the last moment

    async def _keep(self, client: Client, request: dict[str, Any]) -> Answer:
        held = self._sessions.keep(client, _text(request, "lease"))
        slots = self._sessions.capacity(client)
        return 200, {"server": self._sessions.instance, "slots": slots, "sessions": held}

    async def _close_all(self, client: Client, request: dict[str, Any]) -> Answer:
        return 200, {"closed": self._sessions.close_lease(client, _text(request, "lease"))}

    async def _act(self, hosted: HostedSession, action: str, request: dict[str, Any]) -> Answer:
        if action == "close":
            await self._sessions.close(hosted)
            return 200, {}
        if action == "interrupt":
            return await _wait(_sent(hosted, INTERRUPT, cell=_number(request, "cell", None)))
        number = _number(request, "number", None)
        with hosted.in_use():
            future = hosted.submit(number, lambda: _kept(self._actions[action](hosted, request)))
            status, answer = await _wait(future, 200, math.inf if number is None else LONGEST_WAIT)
        if "errno" in answer:
            return 422, {**answer, "failure": "OSError", "message": os.strerror(answer["errno"])}
        return status, answer

    def _fork(self, hosted: HostedSession, request: dict[str, Any]) -> asyncio.Future[Reply]:
        return asyncio.create_task(self._sessions.fork(hosted, checked_forks(request.get("n", 1))))

    def _run(self, hosted: HostedSession, request: dict[str, Any]) -> asyncio.Future[Reply]:
        limits = self._sessions.sandbox.limits
        cell = checked_cell(request.get("code", ""), request.get("timeout"), limits)
        hosted.session.pool.count("runs")
        setup = request.get("setup", False) is True
        return _sent(hosted, RUN, **cell, setup=setup, cell=_number(request, "cell", None))


def _put(hosted: HostedSession, request: dict[str, Any]) -> asyncio.Future[Reply]:
    data = request.get("data", "")
    try:
        content = base64.b64decode(data, validate=True)
    except (TypeError, ValueError) as error:
        raise ValueError("'data' has to be base64") from error
    if len(content) > LARGEST_PIECE:
        raise ValueError(f"{len(content)} bytes of data; send at most {LARGEST_PIECE} at once, and go on with 'offset'")
    path = checked_path(request.get("path", ""))
    return _sent(hosted, WRITE, path=path, offset=_number(request, "offset"), data=data)


def _get(hosted: HostedSession, request: dict[str, Any]) -> asyncio.Future[Reply]:
    path = checked_path(request.get("path", ""))
    length = min(_number(request, "length", LARGEST_PIECE), LARGEST_PIECE)
    return _sent(hosted, READ, path=path, offset=_number(request, "offset"), length=length)


def _ls(hosted: HostedSession, request: dict[str, Any]) -> asyncio.Future[Reply]:
    return _sent(hosted, LIST, path=checked_path(request.get("path", "."), directory=True))


def _sent(hosted: HostedSession, kind: int, **fields: Any) -> asyncio.Future[Reply]:
    """Send a request now, in the order in which requests came, and return the future of its reply."""
    return asyncio.wrap_future(hosted.session.request(kind, **fields))


async def _wait(future: asyncio.Future[Reply], status: int = 200, seconds: float = math.inf) -> Answer:
    """Wait for an answer; the status is 202 if it takes too long."""
    await asyncio.wait([future], timeout=None if seconds == math.inf else seconds)
    if future.cancelled():  # its program closed everything before the session began to open
        raise SessionLost(UNKNOWN)
    return (status, future.result()) if future.done() else (202, {"running": True})


def _number(request: dict[str, Any], name: str, default: Any = 0, whole: bool = True) -> Any:
    value = request.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)) or not 0 <= value < _LARGEST:
        raise ValueError(f"{name!r} is {value!r}; it has to be a {'whole ' * whole}number, at least 0")
    return value


def _text(request: dict[str, Any], name: str) -> str:
    value = request.get(name, "")
    if not isinstance(value, str) or len(value) > 200:  # it is kept for as long as the session
        raise ValueError(f"{name!r} has to be a text of at most 200 characters")
    return value


def _failure(error: Exception) -> Answer:
    status = next(status for kind, status in _STATUSES if isinstance(error, kind))
    return status, {"failure": type(error).__name__, "message": str(error)}
