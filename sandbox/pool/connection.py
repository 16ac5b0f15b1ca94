"""The client's end of a sandbox's stream: one reader thread, and a future for each request.

Any number of threads and event loops may send at the same time. A reply that nobody waits for any more is
dropped. When the stream ends, or when the server is given up, every request that is open, and every later one,
fails with `SessionLost` or `SandboxError`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import Any, Protocol

from sandbox.errors import BY_NAME, SandboxError, SessionLost
from sandbox.server.wire import HELLO, OPEN, REPLY, Frames, WireError, pack

Reply = dict[str, Any]


class Stream(Protocol):
    """What a backend gives: bytes to and from a server that has been started."""

    isolation: str
    unkept: tuple[str, ...]

    def send(self, data: bytes) -> None:
        """Send everything."""

    def receive(self) -> bytes:
        """Wait for bytes; empty at the end."""

    def post_mortem(self) -> str:
        """Say what is known about why the stream has ended."""

    def close(self) -> None:
        """Tell the server to end; `receive` then comes to its end. From any thread, any number of times."""

    def kill(self) -> None:
        """End the server by force."""

    def finish(self) -> None:
        """After the end of `receive`: wait until the server is gone, give back what is left."""

    def abandon(self) -> None:
        """In a process forked from the one that opened it: let go of descriptors, harm nothing."""


class Connection:
    """Requests and replies over a stream.

    Args:
        stream: to a server that is about to say hello.
    """

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.owner = os.getpid()
        self.lost = ""
        self.isolation = stream.isolation
        self.hello: Future[Reply] = Future()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, tuple[int, Future[Reply]]] = {}
        self._lock = threading.Lock()
        self._sending = threading.Lock()  # may be held for long, while a server does not read
        self._closed = False

    def request(self, kind: int, fields: Mapping[str, Any]) -> Future[Reply]:
        """Send a request; the future has the reply, or raises what went wrong.

        Cancelling what waits for the future does not undo the request.
        """
        return self.request_all([(kind, fields)])[0]

    def request_all(self, requests: Sequence[tuple[int, Mapping[str, Any]]]) -> list[Future[Reply]]:
        """Send requests in one piece, none of them waiting for the reply to another; see `request`."""
        futures: list[Future[Reply]] = []
        data = bytearray()
        for kind, fields in requests:
            number, future = next(self._numbers), Future[Reply]()
            future.set_running_or_notify_cancel()
            futures.append(future)
            data += pack(kind, number, json.dumps(fields).encode())
            with self._lock:
                lost = self.lost
                if not lost:
                    self._waiting[number] = (kind, future)
            if lost:
                future.set_exception(_failure(kind, lost))
        with self._sending, contextlib.suppress(OSError):  # the reader sees the end, too, and fails the futures
            if not self.lost:
                self.stream.send(bytes(data))
        return futures

    def read(self) -> None:
        """Hand out replies until the stream ends: the reader thread's work."""
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
            unkept = [f"no({','.join(self.stream.unkept)})"] if self.stream.unkept else []
            self.isolation = "+".join([self.stream.isolation, *fields.get("separation", []), *unkept])
            with contextlib.suppress(InvalidStateError):
                self.hello.set_result(fields)
        elif kind == REPLY:
            with self._lock:
                _, future = self._waiting.pop(number, (0, None))
            if future is None:
                return
            if "failure" in fields:
                future.set_exception(BY_NAME.get(fields["failure"], SandboxError)(fields["message"]))
            else:
                future.set_result(fields)

    def fail(self, why: str) -> None:
        """Fail everything that waits, and all that comes; the first reason counts."""
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
        """End the server; the reader thread ends with it."""
        self._closed = True
        self.stream.close()


def _failure(kind: int, why: str) -> SandboxError:
    if kind == OPEN:
        return SandboxError(why)
    return SessionLost(f"{why}; open a new interpreter, or restart this one")
