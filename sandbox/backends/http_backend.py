"""The backend "http": sessions of a sandbox server elsewhere (`arpo sandbox serve`).

To the pool it is a stream to one more container: the frames of the pool become calls of the server, and answers
become frames. Requests of one session are sent one after the other, as a container serves them. If the server does
not answer any more, or was restarted, the stream ends, and its sessions are lost; no code is sent to another session
instead. Before the first session it asks the server what it is, and compares that with what was asked for.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import secrets
import shlex
import socket
import ssl
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from queue import SimpleQueue
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from sandbox.backends import Stream, start_thread
from sandbox.errors import BY_NAME, SandboxError, SandboxUnavailable, SessionLost
from sandbox.options import PROFILES, Limits, SandboxOptions
from sandbox.server import wire

TOKEN_VARIABLE = "ARPO_SANDBOX_TOKEN"


def is_http_address(backend: object) -> bool:
    """Return whether the name of a backend is the address of a server."""
    return isinstance(backend, str) and backend.lower().startswith(("http://", "https://"))


def without_password(text: str) -> str:
    """Return the name of a backend without a password, also if it is malformed, for messages."""
    # as far as the last "@" of each address, since a password that was not quoted may contain "/" or ","
    return re.sub(r"(?<=//)(?:(?!,\s*https?://).)*@", "", text, flags=re.IGNORECASE)


def http_addresses(text: str, token: str | None = None) -> tuple[list[str], str]:
    """Return the addresses in a text without credentials, and the token.

    A given token comes first, then a password as in http://user:TOKEN@host:8080, then ARPO_SANDBOX_TOKEN.
    """
    urls: list[str] = []
    passwords: set[str] = set()
    for one in re.split(r",(?=\s*https?://)", text.strip(" ,"), flags=re.IGNORECASE):
        part = _split(one.strip(" ,"))
        urls.append(urlunsplit((part.scheme, part.netloc.rpartition("@")[2], part.path.rstrip("/"), "", "")))
        passwords |= {unquote(part.password)} if part.password else set()
    if len(passwords) > 1 and token is None:
        raise ValueError("the addresses have different tokens; all servers of one sandbox take the same")
    given = token if token is not None else next(iter(passwords), os.environ.get(TOKEN_VARIABLE, ""))
    if not isinstance(given, str) or not re.fullmatch(r"[!-~]*", given):
        raise ValueError("the token has to consist of visible ASCII characters, without spaces")
    return urls, given


def _split(address: str) -> SplitResult:
    wrong = f"{without_password(address)!r} is not the address of a sandbox server; write http://host:8080 or "
    wrong += "https://host, several separated by commas"
    quoting = "; in a token, write / as %2F, ? as %3F, # as %23" if "@" in address else ""
    try:
        part = urlsplit(address)
        good = part.scheme in ("http", "https") and bool(re.fullmatch(r"[^\s,]+", part.hostname or ""))
        good = good and (part.port is None or part.port > 0)
    except ValueError:
        good = False
    # an "@" in the path belongs to a token that was cut off there
    if not good or part.query or part.fragment or "@" in part.path:
        # without the cause, which may have the token
        raise ValueError(wrong + quoting) from None
    return part


# longer than a server waits before it answers with 202
_SECONDS = 60.0
PAUSES = (0.0, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds before each repetition. The first is at once: the server may have closed a connection that was idle."""
_NO_SERVER = "not as a sandbox server; check the address, and that `arpo sandbox serve` of this version runs there"
Fields = dict[str, Any]
Answer = tuple[int, Fields]


class ServerGone(SandboxUnavailable):
    """There is no sandbox server at the address, or it refuses the token."""


class HttpCalls:
    """Sends requests to one server, over as many connections as there are calls at the same time.

    A call whose answer was lost is sent again. That is safe, since every request names its session and has a number or
    a key: a server that has served it gives the same answer, and a restarted server does not know the session.

    Attributes:
        closed: whether calls are given up without a repetition.
    """

    def __init__(self, url: str, token: str) -> None:
        self.url = url
        self.closed = False
        self._parts = urlsplit(url)
        self._headers = {"Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._free: list[http.client.HTTPConnection] = []

    def call(self, path: str, fields: Fields, again: bool = True, seconds: float = _SECONDS) -> Answer:
        """Return the status and the answer of a POST; a call that has failed is repeated after each of PAUSES.

        Raises:
            ServerGone: there is no sandbox server, or it refuses the token; the message says what to do.
        """
        body = json.dumps(fields).encode()
        for pause in (*(PAUSES if again else ()), None):
            try:
                return self._checked(*self._send(path, body, seconds))
            except (OSError, http.client.HTTPException) as error:
                if pause is None or self.closed or isinstance(error, ssl.SSLCertVerificationError):
                    raise ServerGone(f"{self.url}: {_cure(error)}") from error
                time.sleep(pause)
        raise AssertionError("unreachable: the last pause is None")

    def _send(self, path: str, body: bytes, seconds: float) -> tuple[int, bytes]:
        connection = self._connection()
        connection.timeout = seconds
        if connection.sock is not None:
            connection.sock.settimeout(seconds)
        try:
            connection.request("POST", self._parts.path + path, body, self._headers)
            response = connection.getresponse()
            answer = response.status, response.read()
        except BaseException:
            connection.close()
            # the free ones were used before it: if it was closed for idleness, by the server or a proxy, so were they
            self._close_free()
            raise
        self._free.append(connection)
        if self.closed:
            self._close_free()
        return answer

    def _connection(self) -> http.client.HTTPConnection:
        with contextlib.suppress(IndexError):
            return self._free.pop()
        secure = self._parts.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        return kind(self._parts.hostname or "", self._parts.port)  # sets TCP_NODELAY when it connects

    def _checked(self, status: int, data: bytes) -> Answer:
        if status in (401, 403):
            raise ServerGone(
                f"{self.url} refuses the token (HTTP {status}); set {TOKEN_VARIABLE}, or token=, to one that the "
                "server was started with"
            )
        if status in (502, 504):  # of a proxy whose server is away
            raise ConnectionRefusedError(f"HTTP {status}")
        try:
            answer = json.loads(data)
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or (status == 404 and "failure" not in answer) or 300 <= status < 400:
            raise ServerGone(f"{self.url} answers with HTTP {status}, and {_NO_SERVER}")
        if status == 404:
            raise ServerGone(f"{self.url}: {answer.get('message')}")
        return status, answer

    def close(self) -> None:
        """Close the connections that are not in use; the others end with their calls."""
        self.closed = True
        self._close_free()

    def _close_free(self) -> None:
        with contextlib.suppress(IndexError):  # none is left; other threads take some as well
            while True:
                self._free.pop().close()


def _cure(error: BaseException) -> str:
    if isinstance(error, socket.gaierror):
        return f"there is no such host ({error.strerror}); check the address of the sandbox server"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message}); set SSL_CERT_FILE to that of its authority"
    if isinstance(error, ssl.SSLError):
        return f"no TLS connection ({error.reason}); `arpo sandbox serve` itself speaks http:// only"
    if isinstance(error, (ConnectionRefusedError, http.client.RemoteDisconnected, ConnectionResetError)):
        return (
            f"no sandbox server answers there ({error}); start one with `arpo sandbox serve`, and check host and port"
        )
    return f"the sandbox server cannot be reached: {type(error).__name__}: {error}"


@dataclass
class _RemoteQueue:
    """The requests of one session of the server that have not been sent yet, in their order.

    Attributes:
        id: of the session on the server; empty until it is open.
        number: of the last request.
        requests: kind, number of the frame, and fields.
        busy: whether a thread is sending them.
        closing: whether it is to be closed, so that nothing more is run in it.
        cell: the name of the cell whose answer is awaited; None if there is none.
    """

    id: str = ""
    number: int = 0
    requests: deque[tuple[int, int, Fields]] = field(default_factory=deque)
    busy: bool = False
    closing: bool = False
    cell: int | None = None


class _WorkerThreads:
    """Runs actions that block, each at once: as many threads as there is work at the same time, kept for the next.

    Unlike those of an executor, its threads do not keep Python from exiting.
    """

    def __init__(self) -> None:
        self._actions: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._idle = 0
        self._threads = 0
        self._lock = threading.Lock()

    def run(self, action: Callable[[], object]) -> None:
        """Run an action in a thread; raises `PythonExiting` if it would need a new one then."""
        with self._lock:
            new = self._idle == 0
            self._idle -= not new
            self._threads += new
        self._actions.put(action)
        if new:
            start_thread("sandbox http", self._work)

    def _work(self) -> None:
        while (action := self._actions.get()) is not None:
            action()
            del action  # else it would be kept until the next one
            with self._lock:
                self._idle += 1

    def end(self) -> None:
        """Let the threads end when they have nothing to do."""
        for _ in range(self._threads):
            self._actions.put(None)


_FULL_PAUSE, _RACE_PAUSE, _LAST_SECONDS = 0.5, 0.02, 5.0
_LONGEST = 1e9  # seconds: JSON has no infinity
_PATHS = {wire.READ: "get", wire.WRITE: "put", wire.LIST: "ls"}
_NOT_BEGUN = {
    "stdout": "",
    "stderr": "",
    "value": None,
    "error": "Interrupted: stopped on request, before the cell had begun",
    "status": "interrupted",
    "duration": 0.0,
    "truncated": False,
    "alive": True,
}


class _HttpStream(Stream):
    """Frames to and from a server that is reached by HTTP; `hello` is its answer to the first call."""

    def __init__(self, calls: HttpCalls, hello: Fields, unenforced: tuple[str, ...], wait: float) -> None:
        self.isolation = f"http+{hello['isolation']}"
        self.unenforced = unenforced
        self._calls = calls
        self._server = hello["server"]
        self._wait = wait
        self._lease = secrets.token_urlsafe(18)
        self._sessions: dict[int, _RemoteQueue] = {}
        self._incoming = wire.Frames()
        self._frames: SimpleQueue[bytes] = SimpleQueue()
        self._workers = _WorkerThreads()
        self._lock = threading.Lock()
        self._closing = threading.Lock()
        self._why = ""
        self._ended = False
        facts = {"slots": hello["slots"], "separation": []}
        self._frames.put(wire.pack(wire.HELLO, 0, json.dumps(facts).encode()))

    def send(self, data: bytes) -> None:
        for kind, number, payload in self._incoming.feed(data):
            self._dispatch(kind, number, json.loads(payload))

    def receive(self) -> bytes:
        return b"" if self._ended and self._frames.empty() else self._frames.get()

    def post_mortem(self) -> str:
        return self._why or "the sandbox was closed"

    def close(self) -> None:
        with self._closing:
            if self._end(""):
                # if this fails, the server closes them when they have been idle for long enough
                with contextlib.suppress(SandboxError):
                    self._calls.call("/v1/close", {"lease": self._lease}, False, _LAST_SECONDS)
                self._calls.close()
                self._workers.end()

    def kill(self) -> None:
        self.close()

    def finish(self) -> None:
        with self._closing:  # the reader comes here at once, while the server is still told
            self._calls.close()
            self._workers.end()

    def abandon(self) -> None:
        self._ended = True
        self._calls.close()

    def _end(self, why: str) -> bool:
        """Let `receive` reach the end; returns False if it has before."""
        with self._lock:
            if self._ended:
                return False
            self._ended, self._why = True, why
        self._frames.put(b"")
        return True

    # from frames to calls

    def _dispatch(self, kind: int, number: int, fields: Fields) -> None:
        if kind == wire.PING:
            self._run(number, self._ping)
            return
        key = fields.pop("session")
        with self._lock:
            if kind in (wire.OPEN, wire.RUN_ONCE):
                self._sessions[key] = _RemoteQueue()
            queue = self._sessions.get(key)
            if queue is not None and not self._is_beside(kind, queue):
                queue.requests.append((kind, number, fields))
                queue.closing = queue.closing or kind == wire.CLOSE
                if queue.busy:
                    return
                queue.busy = True
        if queue is None:
            self._fail(number, SessionLost("this session is closed; open a new interpreter"))
        elif kind == wire.INTERRUPT:
            self._run(number, lambda: self._interrupt(queue, fields["cell"]))
        elif self._is_beside(kind, queue):
            self._run(number, lambda: self._close_session(key, queue))
        else:
            self._run(0, lambda: self._serve(key, queue))

    def _is_beside(self, kind: int, queue: _RemoteQueue) -> bool:
        """Whether a request does not wait for its turn; before a session is open, there is nothing to close."""
        return kind == wire.INTERRUPT or (kind == wire.CLOSE and bool(queue.id))

    def _run(self, number: int, act: Callable[[], Fields | None]) -> None:
        """Run in another thread what answers the frame of this number, or answers by itself (0)."""
        try:
            self._workers.run(lambda: self._answer(number, act))
        except RuntimeError as error:  # Python is exiting, or there are no more threads
            self._fail(number, SandboxError(str(error)))

    def _answer(self, number: int, act: Callable[[], Fields | None]) -> None:
        try:
            fields = act()
        except ServerGone as error:
            self._end(str(error))
        except SandboxError as error:
            self._fail(number, error)
        except Exception as error:  # else a caller would wait for ever
            self._fail(number, SandboxError(f"{self._calls.url}: {type(error).__name__}: {error}"))
        else:
            if fields is not None:
                self._frames.put(wire.pack(wire.REPLY, number, json.dumps(fields).encode()))

    def _fail(self, number: int, error: SandboxError) -> None:
        fields = {"failure": type(error).__name__, "message": str(error)}
        self._frames.put(wire.pack(wire.REPLY, number, json.dumps(fields).encode()))

    def _serve(self, key: int, queue: _RemoteQueue) -> None:
        """Send the requests of a session, one after the other."""
        while True:
            with self._lock:
                if not queue.requests:
                    queue.busy = False
                    return
                kind, number, fields = queue.requests.popleft()
            self._answer(number, partial(self._request, kind, key, queue, fields))

    def _request(self, kind: int, key: int, queue: _RemoteQueue, fields: Fields) -> Fields:
        if kind == wire.CLOSE:
            return self._close_session(key, queue)
        if kind == wire.OPEN:
            return self._open(queue)
        if kind == wire.FORK:
            return self._fork(queue, **fields)
        if kind == wire.RUN:
            return self._run_cell(queue, fields)
        if kind == wire.RUN_ONCE:
            return self._run_once(key, queue, **fields)
        return self._call(queue, _PATHS[kind], fields)

    def _run_cell(self, queue: _RemoteQueue, fields: Fields) -> Fields:
        queue.cell = None if fields["setup"] else fields["cell"]
        try:
            return self._call(queue, "run", fields)
        finally:
            queue.cell = None

    def _run_once(self, key: int, queue: _RemoteQueue, before: Fields | None, **cell: Any) -> Fields:
        self._open(queue)
        try:
            if before is not None and (reply := self._call(queue, "run", before))["status"] != "ok":
                return {**reply, "of_setup": True}
            return self._run_cell(queue, cell)
        finally:  # before the answer, after which the next one may take this session's place in a quota
            with contextlib.suppress(SandboxError):
                self._close_session(key, queue)

    def _open(self, queue: _RemoteQueue) -> Fields:
        asked = {"lease": self._lease, "server": self._server}
        deadline = time.monotonic() + self._wait
        key = secrets.token_urlsafe(12)
        while True:
            left = min(max(0.0, deadline - time.monotonic()), _LONGEST)
            status, answer = self._calls.call("/v1/sessions", {"key": key, "wait": left, **asked})
            if status == 201:
                queue.id = answer["session"]
                return {}
            if status == 409:
                raise ServerGone(f"{self._calls.url}: {answer['message']}")
            if status == 429 and time.monotonic() < deadline and not self._ended:
                key = secrets.token_urlsafe(12)  # the old one stands for the failure
                time.sleep(_FULL_PAUSE)
            elif status != 202 or self._ended:
                raise _error(answer)

    def _call(self, queue: _RemoteQueue, action: str, fields: Fields) -> Fields:
        if not queue.id or queue.closing:
            raise SessionLost("this session is closed; open a new interpreter")
        queue.number += 1
        path = f"/v1/sessions/{queue.id}/{action}"
        while not self._ended:
            status, answer = self._calls.call(path, {"number": queue.number, **fields})
            if status == 202:  # it takes long; the same number waits on for the same answer
                continue
            if "errno" in answer:
                return {"errno": answer["errno"]}
            if status != 200:
                raise _error(answer)
            return answer
        raise SessionLost(self.post_mortem())

    def _fork(self, queue: _RemoteQueue, children: list[int]) -> Fields:
        answer = self._call(queue, "fork", {"n": len(children)})
        for key, identity in zip(children, answer["sessions"], strict=True):
            copy = _RemoteQueue()
            copy.id = identity
            self._sessions[key] = copy
        return {"losses": answer["losses"]}

    def _interrupt(self, queue: _RemoteQueue, cell: int | None) -> Fields:
        with self._lock:
            waiting = [one for one in queue.requests if cell is not None and one[2].get("cell") == cell]
            if waiting:
                queue.requests.remove(waiting[0])
        if waiting:
            self._answer(waiting[0][1], lambda: dict(_NOT_BEGUN))
            return {"interrupted": True}
        running = queue.cell
        if running is None or cell not in (None, running) or not queue.id:
            return {"interrupted": False}
        found = False
        # the cell travels on another connection, and may arrive later than this
        while not found and queue.cell == running and not self._ended:
            _, answer = self._calls.call(f"/v1/sessions/{queue.id}/interrupt", {"cell": running})
            found = answer.get("interrupted", False)
            time.sleep(0 if found else _RACE_PAUSE)
        return {"interrupted": found}

    def _close_session(self, key: int, queue: _RemoteQueue) -> Fields:
        self._sessions.pop(key, None)
        if queue.id:
            self._calls.call(f"/v1/sessions/{queue.id}/close", {})  # a session that is lost is closed, too
        return {}

    def _ping(self) -> Fields:
        _, answer = self._calls.call("/v1/keep", {"lease": self._lease})
        if answer.get("server") != self._server:
            raise ServerGone(f"{self._calls.url}: the server was restarted, and its sessions are lost")
        return {"slots": answer["slots"]}


def _error(answer: Fields) -> SandboxError:
    kind = BY_NAME.get(answer.get("failure", ""), SandboxError)
    return kind(str(answer.get("message", "the sandbox server gives no reason")))


_FIELDS = {"server", "isolation", "slots", "profile", "packages", "limits"}


def start_http(options: SandboxOptions) -> _HttpStream:
    """Return a stream to a sandbox server.

    Raises:
        ValueError: an option is not for this backend.
        SandboxUnavailable: there is no sandbox server at the address, it refuses the token, or has no working sandbox
            or not the profile or the packages.
    """
    for option in ("image", "runtime"):
        if getattr(options, option):
            raise ValueError(f"{option}={getattr(options, option)!r} cannot be chosen by a client of a sandbox server")
    calls = HttpCalls(options.host or "", options.token)
    try:
        hello = _hello(calls, options)
    except BaseException:
        calls.close()
        raise
    return _HttpStream(calls, hello, _unenforced(calls.url, options.limits, hello), options.wait)


def _hello(calls: HttpCalls, options: SandboxOptions) -> dict[str, Any]:
    """Return what the server says about itself."""
    status, hello = calls.call("/v1/hello", {}, again=False)
    if status != 200:
        raise SandboxUnavailable(f"the sandbox server {calls.url} has no working sandbox: {hello.get('message')}")
    if not set(hello) >= _FIELDS or hello["profile"] not in PROFILES:
        raise SandboxUnavailable(f"{calls.url} answers, and {_NO_SERVER}")
    if PROFILES.index(hello["profile"]) < PROFILES.index(options.profile):
        raise SandboxUnavailable(
            f"the sandbox server {calls.url} has the profile {hello['profile']!r}, with fewer packages than "
            f"{options.profile!r}; ask for profile={hello['profile']!r}, or start it with --profile {options.profile}"
        )
    if missing := [name for name in options.packages if name not in hello["packages"]]:
        raise SandboxUnavailable(
            f"the sandbox server {calls.url} has not the packages {', '.join(missing)}; start it with --packages "
            f"{shlex.join(options.packages)}"
        )
    return hello


def _unenforced(url: str, limits: Limits, hello: dict[str, Any]) -> tuple[str, ...]:
    """Warn of limits that were asked for and that the server does not have; return their names."""
    if hello["isolation"] == "none":
        warnings.warn(f"the sandbox server {url} isolates nothing (unsafe_local)", RuntimeWarning, stacklevel=2)
    asked, default = asdict(limits), asdict(Limits())
    # a timeout is sent with each cell
    own = [
        name for name in asked if name != "timeout" and asked[name] not in (default[name], hello["limits"].get(name))
    ]
    for name in own:
        warnings.warn(
            f"Limits.{name}={asked[name]!r} is not enforced: the sandbox server {url} has "
            f"{hello['limits'].get(name)!r}; start it with --set {name}={asked[name]}",
            RuntimeWarning,
            stacklevel=2,
        )
    return tuple(own)
