"""The supervisor's end of the stream to the client: requests in, replies out. Runs inside the sandbox.

The stream is descriptors 0 and 1. The loop ends when the client closes it or dies.
"""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable
from typing import Any

from sandbox.server.supervisor.event_loop import WRITE, EventLoop, Timer
from sandbox.server.wire import REPLY, Frames, pack


class ClientRequest:
    """What the client asks: kind, number and the fields of the JSON payload.

    Args:
        step: for the steps of a RUN_ONCE that come before its code: their position, counted from 1. A step is answered
            only if it fails. 0 for every other request.

    Attributes:
        started: when its session began with it, on the monotonic clock.
        timer: its time limit.
        stopped: status of the limit for which the supervisor has interrupted it.
    """

    def __init__(self, kind: int, number: int, fields: dict[str, Any], step: int = 0) -> None:
        self.kind = kind
        self.number = number
        self.fields = fields
        self.step = step
        self.started = 0.0
        self.timer: Timer | None = None
        self.stopped = ""


class ClientStream:
    """Reads requests and writes replies, without ever waiting for the client.

    Args:
        loop: the supervisor's event loop.
        on_request: called with each request.
    """

    def __init__(self, loop: EventLoop, on_request: Callable[[ClientRequest], None]) -> None:
        self._loop = loop
        self._on_request = on_request
        self._incoming = Frames()
        self._outgoing = bytearray()

    def open(self) -> None:
        """Start to read."""
        for fd in (0, 1):
            os.set_blocking(fd, False)
        self._loop.watch(0, self._read)

    def _read(self) -> None:
        try:
            data = os.read(0, 1 << 18)
        except BlockingIOError:
            return
        if not data:
            self._loop.stop()
        for kind, number, payload in self._incoming.feed(data):
            try:
                self._on_request(ClientRequest(kind, number, json.loads(payload)))
            # a request without any reply would make its caller wait for ever
            except Exception as error:
                traceback.print_exc()
                self.fail(number, "SandboxError", f"the request failed: {type(error).__name__}: {error}")

    def reply(self, number: int, fields: dict[str, Any]) -> None:
        """Answer a request."""
        self.send(REPLY, number, fields)

    def fail(self, number: int, kind: str, message: str) -> None:
        """Answer a request with an error of the machinery; `kind` is the name of the client's exception."""
        self.send(REPLY, number, {"failure": kind, "message": message})

    def send(self, kind: int, number: int, fields: dict[str, Any]) -> None:
        """Send a frame as soon as the client takes it."""
        idle = not self._outgoing  # if not, the loop flushes, and the order of frames is kept
        self._outgoing += pack(kind, number, json.dumps(fields).encode())
        if idle:
            self._flush()

    def _flush(self) -> None:
        try:
            del self._outgoing[: os.write(1, self._outgoing)]
        except BlockingIOError:
            pass
        except OSError:
            self._loop.stop()
            return
        if self._outgoing:
            self._loop.watch(1, self._flush, WRITE)
        else:
            self._loop.unwatch(1)
