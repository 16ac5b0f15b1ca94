"""The client's end of a server's stream of bytes: one reader thread, and a future for each request.

Any number of threads and event loops may send at the same time. A reply that nobody waits for is dropped. When the
stream ends, or the server is given up, all open and later requests fail with `SessionLost` or `SandboxError`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import Any, Protocol

from sandbox.errors import BY_NAME, SandboxError, SessionLost
from sandbox.server.wire import HELLO, OPEN, REPLY, Frames, WireError, pack

Reply = dict[str, Any]
START_SECONDS = 60.0
"""How long a server may take from the return of its backend to its greeting, where nothing has to be waited for."""


class Stream(Protocol):
    """What every backend returns when it has started a server: bytes to and from it.

    Attributes:
        isolation: what the backend puts around the server, such as "docker(runc)".
        unenforced: names of limits that the backend cannot enforce here.
        start_seconds: how long the server may take until it greets.
    """

    isolation: str
    unenforced: tuple[str, ...]
    start_seconds: float

    def send(self, data: bytes) -> None:
        """Send everything."""

    def receive(self) -> bytes:
        """Wait for bytes; returns none at the end of the stream."""

    def post_mortem(self) -> str:
        """Return what is known about why the stream has ended."""

    def close(self) -> None:
        """Tell the server to end; `receive` then reaches the end. Any thread may call this, any number of times."""

    def kill(self) -> None:
        """End the server by force."""

    def finish(self) -> None:
        """After the end of `receive`: wait until the server is gone and release its resources."""

    def abandon(self) -> None:
        """In a process forked from the one that opened the stream: close descriptors without affecting the server."""


class Connection:
    """Requests and replies over a stream to a server that is about to send HELLO."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.lost = ""
        self.isolation = stream.isolation
        self.hello: Future[Reply] = Future()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, tuple[int, Future[Reply]]] = {}
        self._lock = threading.Lock()
        self._sending = threading.Lock()  # may be held for long, while a server does not read
        self._closed = False

    def request(self, kind: int, fields: Mapping[str, Any]) -> Future[Reply]:
        """Send a request; the future holds the reply or the exception.

        Cancelling a task that waits for the future does not undo the request.
        """
        return self.request_all([(kind, fields)])[0]

    def request_all(self, requests: Sequence[tuple[int, Mapping[str, Any]]]) -> list[Future[Reply]]:
        """Send several requests at once, without waiting for replies in between; see `request`."""
        futures: list[Future[Reply]] = []
        data = bytearray()
        for kind, fields in requests:
            number, future = next(self._numbers), Future[Reply]()
            future.set_running_or_notify_cancel()
            futures.append(future)
            data += pack(kind, number, json.dumps(fields).encode())
            with self._lock:
                lost = self.lost  # under the lock, so that `fail` sees every future that is registered
                if not lost:
                    self._waiting[number] = (kind, future)
            if lost:
                future.set_exception(_failure(kind, lost))
        with self._sending, contextlib.suppress(OSError):  # the reader sees the end as well and fails the futures
            if not self.lost:
                self.stream.send(bytes(data))
        return futures

    def read(self) -> None:
        """Resolve futures until the stream ends; this is what the reader thread runs."""
        frames = Frames()
        why = ""
        try:
            while data := self.stream.receive():
                for kind, number, payload in frames.feed(data):
                    self._take(kind, number, json.loads(payload))
        except (OSError, ValueError, WireError) as error:
            why = f"{type(error).__name__}: {error}"
        if not self.lost:
            self.fail("the sandbox was closed" if self._closed else why or self.stream.post_mortem())
        self.stream.close()
        self.stream.finish()

    def _take(self, kind: int, number: int, fields: Reply) -> None:
        if kind == HELLO:
            missing = [*self.stream.unenforced, *fields.get("unenforced", [])]
            unenforced = [f"no({','.join(missing)})"] if missing else []
            self.isolation = "+".join([self.stream.isolation, *fields.get("separation", []), *unenforced])
            with contextlib.suppress(InvalidStateError):
                self.hello.set_result(fields)
        elif kind == REPLY:
            with self._lock:
                _, future = self._waiting.pop(number, (0, None))
            if future is None:
                return  # the request has failed meanwhile
            if "failure" in fields:
                future.set_exception(BY_NAME.get(fields["failure"], SandboxError)(fields["message"]))
            else:
                future.set_result(fields)

    def fail(self, why: str) -> None:
        """Fail all open and later requests; only the first reason is kept."""
        with self._lock:
            if self.lost:
                return
            self.lost = f"the session is gone: {why}"
            waiting, self._waiting = self._waiting, {}
        with contextlib.suppress(InvalidStateError):
            self.hello.set_exception(SandboxError(f"the sandbox does not start: {why}"))
        for kind, future in waiting.values():
            future.set_exception(_failure(kind, self.lost))

    def close(self) -> None:
        """Tell the server to end; the reader thread ends with it."""
        self._closed = True
        self.stream.close()


def _failure(kind: int, why: str) -> SandboxError:
    if kind == OPEN:
        return SandboxError(why)
    return SessionLost(f"{why}; open a new interpreter, or restart this one")


class PythonExiting(SandboxError):
    """No thread can be started, since the interpreter is exiting."""


def start_thread(name: str, work: Callable[..., object], *args: Any) -> threading.Thread:
    """Start a daemon thread.

    Sandboxes are closed a little later than the interpreter begins to exit, and since Python 3.12 it starts no thread
    then; the monitor, and callers that wait for a session, have to expect that.

    Raises:
        PythonExiting: the interpreter is exiting.
        RuntimeError: the operating system has no more threads.
    """
    thread = threading.Thread(target=work, args=args, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        if "interpreter shutdown" not in str(error):
            raise
        raise PythonExiting("Python is exiting: no more sessions can be opened in the sandbox") from error
    return thread
