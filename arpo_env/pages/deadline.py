"""`deadline`: blocking network code that ends on time, because its sockets are shut at the deadline.

The timeout of `requests` counts from byte to byte, so that a server which sends one byte per second holds it forever.
Here the time counts from the start, for connecting, TLS, headers and body together.

    with deadline(20):
        watch(connected_socket)  # for each connection that the block opens
        ...
"""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import threading
import time
from collections.abc import Iterator

_current = threading.local()


class TooSlow(Exception):
    """Raised when the deadline has passed."""


class TooLarge(Exception):
    """Raised when a body is longer than allowed."""


class _SocketWatch:
    """The connections of one block, and the moment when they are shut."""

    def __init__(self, seconds: float) -> None:
        self.over = False
        self._ends = time.monotonic() + seconds
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        self._timer = threading.Timer(max(0.0, seconds), self._shut)
        self._timer.daemon = True
        self._timer.start()

    def left(self) -> float:
        """Return the seconds until the deadline, 0 if it has passed."""
        return 0.0 if self.over else max(0.0, self._ends - time.monotonic())

    def add(self, opened: socket.socket) -> None:
        # A duplicate, since TLS takes the file descriptor away from the socket that it wraps.
        duplicate = socket.socket(fileno=os.dup(opened.fileno()))
        with self._lock:
            self._sockets.append(duplicate)
        if not self.left():
            raise TooSlow

    def end(self) -> None:
        self._timer.cancel()
        with self._lock:
            for duplicate in self._sockets:
                duplicate.close()

    def _shut(self) -> None:
        with self._lock:
            self.over = True
            for duplicate in self._sockets:
                # shutdown and not close: it also ends a call that is blocked on the socket in another thread.
                with contextlib.suppress(OSError):
                    duplicate.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """End the network use of this thread within the block after so many seconds.

    Raises:
        TooSlow: the time was up before the block was done.
    """
    from urllib3.exceptions import HTTPError

    outer = getattr(_current, "watch", None)
    sockets = _current.watch = _SocketWatch(seconds)
    try:
        yield
        if sockets.over:  # a socket that was shut reads like the end of a body
            raise TooSlow
    except (OSError, HTTPError, http.client.HTTPException):  # errors of requests are OSErrors
        if not sockets.left():
            raise TooSlow from None
        raise
    finally:
        _current.watch = outer
        sockets.end()


def watch(opened: socket.socket) -> None:
    """Shut a connection at the deadline of the block that this thread is in.

    Raises:
        TooSlow: the deadline has passed; the connection is closed.
    """
    sockets: _SocketWatch | None = getattr(_current, "watch", None)
    if sockets is None:
        return
    try:
        sockets.add(opened)
    except TooSlow:
        opened.close()
        raise
