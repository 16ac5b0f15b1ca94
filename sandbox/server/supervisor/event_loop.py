"""The supervisor's event loop: descriptors that are ready, and timers. Runs inside the sandbox, in the supervisor.

Nearly all timers are cancelled, since a cell ends long before its limit. A cancelled timer releases its callback at
once and stays in the heap; the heap is rebuilt when most of it is cancelled timers.
"""

from __future__ import annotations

import heapq
import json
import os
import selectors
import time
import traceback
from collections.abc import Callable
from typing import Any

from sandbox.server.wire import REPLY, Frames, pack

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
_LONGEST_WAIT = 3600.0
_MOST_FAILURES = 1000  # after so many exceptions there must be a fault that repeats itself
_MANY_CANCELLED = 256


class Timer:
    """A callback at a time.

    Args:
        due: when, on the monotonic clock.
        callback: what to call.
    """

    __slots__ = ("callback", "due")

    def __init__(self, due: float, callback: Callable[[], object]) -> None:
        self.due = due
        self.callback: Callable[[], object] | None = callback

    def __lt__(self, other: Timer) -> bool:
        return self.due < other.due


class EventLoop:
    """Calls back when descriptors are ready and when timers are due."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: list[Timer] = []  # a heap
        self._cancelled = 0
        self._stopped = False
        self._failures = 0

    def run(self) -> None:
        """Serve until `stop` is called."""
        while not self._stopped:
            for key, _ in self._selector.select(self._wait_seconds()):
                if self._selector.get_map().get(key.fd) is key:  # an earlier callback may have closed it
                    self._call(key.data)
            self._fire_timers()

    def stop(self) -> None:
        """Make `run` return after the callbacks of this round."""
        self._stopped = True

    def watch(self, fd: int, callback: Callable[[], None], events: int = READ) -> None:
        """Call back whenever a descriptor can be read (or, with WRITE, written)."""
        if fd in self._selector.get_map():
            self._selector.modify(fd, events, callback)
        else:
            self._selector.register(fd, events, callback)

    def unwatch(self, fd: int) -> None:
        """Stop calling back for a descriptor; does nothing if it is not watched."""
        if fd in self._selector.get_map():
            self._selector.unregister(fd)

    def call_in(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Call back once, later; returns a timer that can be cancelled."""
        timer = Timer(time.monotonic() + seconds, callback)
        heapq.heappush(self._timers, timer)
        return timer

    def cancel(self, timer: Timer | None) -> None:
        """Cancel a timer; does nothing for None, or if it has fired or was cancelled."""
        if timer is None or timer.callback is None:
            return
        timer.callback = None  # releases what the callback refers to
        self._cancelled += 1
        if self._cancelled > _MANY_CANCELLED and 2 * self._cancelled > len(self._timers):
            # rebuilding takes time in proportion to the heap, and halves it: constant per cancelled timer
            self._timers = [one for one in self._timers if one.callback is not None]
            heapq.heapify(self._timers)
            self._cancelled = 0

    def _wait_seconds(self) -> float:
        seconds = self._until_next_timer()
        return _LONGEST_WAIT if seconds is None else min(seconds, _LONGEST_WAIT)

    def _until_next_timer(self) -> float | None:
        while self._timers and self._timers[0].callback is None:
            heapq.heappop(self._timers)
            self._cancelled -= 1
        return max(0.0, self._timers[0].due - time.monotonic()) if self._timers else None

    def _fire_timers(self) -> None:
        while self._until_next_timer() == 0.0:
            timer = heapq.heappop(self._timers)
            callback, timer.callback = timer.callback, None
            if callback is not None:
                self._call(callback)

    def _call(self, callback: Callable[[], object]) -> None:
        """Call back. An exception must not end the supervisor, whatever a session has done to cause it."""
        try:
            callback()
        except Exception:
            traceback.print_exc()
            self._failures += 1
            if self._failures > _MOST_FAILURES:
                raise


# The supervisor's end of the stream to the client: requests in, replies out.
#
# The stream is descriptors 0 and 1. The loop ends when the client closes it or dies.


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
