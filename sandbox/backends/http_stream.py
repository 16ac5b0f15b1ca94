"""The backend "http": sessions of a sandbox server elsewhere (`arpo sandbox serve`).

To the pool it is a stream to one more container: the frames of the pool become calls of the server, and answers become
frames. Requests of one session are sent one after the other, as a container serves them. If the server does not answer
any more, or was restarted, the stream ends, and its sessions are lost; no code is sent to another session instead.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import threading
import time
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any

from sandbox.backends.http_calls import HttpCalls, ServerGone
from sandbox.backends.remote_queue import RemoteQueue
from sandbox.backends.stream import START_SECONDS
from sandbox.backends.worker_threads import WorkerThreads
from sandbox.errors import BY_NAME, SandboxError, SessionLost
from sandbox.server.wire import (
    CLOSE,
    FORK,
    HELLO,
    INTERRUPT,
    LIST,
    OPEN,
    PING,
    READ,
    REPLY,
    RUN,
    RUN_ONCE,
    WRITE,
    Frames,
    pack,
)

_FULL_PAUSE, _RACE_PAUSE, _LAST_SECONDS = 0.5, 0.02, 5.0
_LONGEST = 1e9  # seconds: JSON has no infinity
_NAMELESS = -1  # the cell of a session that has only one
_PATHS = {READ: "get", WRITE: "put", LIST: "ls"}
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
Fields = dict[str, Any]


class HttpStream:
    """Frames to and from a server that is reached by HTTP.

    Args:
        calls: of the server.
        hello: its answer to the first call.
        wait: seconds that a session may wait for a free slot there.
    """

    start_seconds = START_SECONDS

    def __init__(self, calls: HttpCalls, hello: Fields, unenforced: tuple[str, ...], wait: float) -> None:
        self.isolation = f"http+{hello['isolation']}"
        self.unenforced = unenforced
        self._calls = calls
        self._server = hello["server"]
        self._wait = wait
        self._lease = secrets.token_urlsafe(18)
        self._sessions: dict[int, RemoteQueue] = {}
        self._incoming = Frames()
        self._frames: SimpleQueue[bytes] = SimpleQueue()
        self._workers = WorkerThreads("sandbox http")
        self._lock = threading.Lock()
        self._closing = threading.Lock()
        self._why = ""
        self._ended = False
        facts = {"slots": hello["slots"], "separation": [], "python": "", "pid": 0}
        self._frames.put(pack(HELLO, 0, json.dumps(facts).encode()))

    def send(self, data: bytes) -> None:
        """Send everything."""
        for kind, number, payload in self._incoming.feed(data):
            self._dispatch(kind, number, json.loads(payload))

    def receive(self) -> bytes:
        """Wait for bytes; empty at the end."""
        return b"" if self._ended and self._frames.empty() else self._frames.get()

    def post_mortem(self) -> str:
        """Return why the stream has ended."""
        return self._why or "the sandbox was closed"

    def close(self) -> None:
        """End the sessions and the stream."""
        with self._closing:
            if self._end(""):
                # if this fails, the server closes them when they have been idle for long enough
                with contextlib.suppress(SandboxError):
                    self._calls.call("/v1/close", {"lease": self._lease, "final": True}, (), _LAST_SECONDS)
                self._calls.close()
                self._workers.end()

    def kill(self) -> None:
        """End the stream."""
        self.close()

    def finish(self) -> None:
        """Release the threads."""
        with self._closing:  # the reader comes here at once, while the server is still told
            self._calls.close()
            self._workers.end()

    def abandon(self) -> None:
        """In a forked process: close the descriptors."""
        self._ended = True
        self._calls.abandon()

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
        if kind == PING:
            self._run(number, self._ping)
            return
        key = fields.pop("session")
        with self._lock:
            if kind in (OPEN, RUN_ONCE):
                self._sessions[key] = RemoteQueue()
            queue = self._sessions.get(key)
            if queue is not None and not self._is_beside(kind, queue):
                queue.requests.append((kind, number, fields))
                queue.closing = queue.closing or kind == CLOSE
                if queue.busy:
                    return
                queue.busy = True
        if queue is None:
            self._fail(number, SessionLost("this session is closed; open a new interpreter"))
        elif kind == INTERRUPT:
            self._run(number, lambda: self._interrupt(queue, fields["cell"]))
        elif self._is_beside(kind, queue):
            self._run(number, lambda: self._close_session(key, queue))
        else:
            self._run(0, lambda: self._serve(key, queue))

    def _is_beside(self, kind: int, queue: RemoteQueue) -> bool:
        """Whether a request does not wait for its turn; before a session is open, there is nothing to close."""
        return kind == INTERRUPT or (kind == CLOSE and bool(queue.id))

    def _run(self, number: int, act: Callable[[], Fields | None]) -> None:
        """Run in another thread what answers the frame of this number, or answers by itself (0)."""
        try:
            self._workers.run(lambda: self._answer(number, act))
        except SandboxError as error:  # Python is exiting
            self._fail(number, error)

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
                self._frames.put(pack(REPLY, number, json.dumps(fields).encode()))

    def _fail(self, number: int, error: SandboxError) -> None:
        fields = {"failure": type(error).__name__, "message": str(error)}
        self._frames.put(pack(REPLY, number, json.dumps(fields).encode()))

    def _serve(self, key: int, queue: RemoteQueue) -> None:
        """Send the requests of a session, one after the other."""
        while True:
            with self._lock:
                if not queue.requests:
                    queue.busy = False
                    return
                kind, number, fields = queue.requests.popleft()
            self._answer(number, partial(self._request, kind, key, queue, fields))

    def _request(self, kind: int, key: int, queue: RemoteQueue, fields: Fields) -> Fields:
        if kind == CLOSE:
            return self._close_session(key, queue)
        if kind == OPEN:
            return self._open(queue)
        if kind == FORK:
            return self._fork(queue, **fields)
        if kind not in (RUN, RUN_ONCE):
            return self._call(queue, _PATHS[kind], fields)
        if kind == RUN_ONCE:
            self._open(queue, once=True)
            for _, step in fields.pop("steps"):
                fields |= {"before": step["code"], "before_timeout": step["timeout"]}
        queue.cell = None if fields["setup"] else fields.get("cell", _NAMELESS)
        try:
            return self._call(queue, "run", fields)
        finally:
            queue.cell = None

    def _open(self, queue: RemoteQueue, once: bool = False) -> Fields:
        asked = {"lease": self._lease, "server": self._server, "once": once}
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

    def _call(self, queue: RemoteQueue, action: str, fields: Fields) -> Fields:
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

    def _fork(self, queue: RemoteQueue, children: list[int], reseed: int | None) -> Fields:
        answer = self._call(queue, "fork", {"n": len(children), "reseed": reseed})
        for key, identity in zip(children, answer["sessions"], strict=True):
            copy = RemoteQueue()
            copy.id = identity
            self._sessions[key] = copy
        return {"losses": answer["losses"]}

    def _interrupt(self, queue: RemoteQueue, cell: int | None) -> Fields:
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
            name = None if running == _NAMELESS else running
            _, answer = self._calls.call(f"/v1/sessions/{queue.id}/interrupt", {"cell": name})
            found = answer.get("interrupted", False)
            if running == _NAMELESS:  # its setup may be what runs, which is not interrupted
                break
            time.sleep(0 if found else _RACE_PAUSE)
        return {"interrupted": found}

    def _close_session(self, key: int, queue: RemoteQueue) -> Fields:
        self._sessions.pop(key, None)
        if queue.id:
            self._calls.call(f"/v1/sessions/{queue.id}/close", {})  # a session that is lost is closed, too
        return {}

    def _ping(self) -> Fields:
        _, answer = self._calls.call("/v1/keep", {"lease": self._lease})
        if answer.get("server") != self._server:
            raise ServerGone(f"{self._calls.url}: the server was restarted, and its sessions are lost")
        slots, held = answer["slots"], answer["sessions"]
        unknown = {"memory": 0, "memory_limit": 0, "processes": 0, "retired": 0}
        return {**unknown, "slots": slots, "sessions": held, "free": max(0, slots - held)}


def _error(answer: Fields) -> SandboxError:
    kind = BY_NAME.get(answer.get("failure", ""), SandboxError)
    return kind(str(answer.get("message", "the sandbox server gives no reason")))
