"""`requests` that end on time: at the deadline the sockets in use are shut, wherever the request stands.

The timeout of `requests` counts from byte to byte; a server that sends one byte a second holds it for ever. Here the
time counts from the start: name look-up, connecting, TLS, headers and body together. A session may be used again and
again, by many threads; each use has a deadline of its own.

    session = watched_session()
    with deadline(20):
        response = session.get(url, timeout=20, stream=True)
        body = read_body(response, 1_000_000)
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from arpo_env.net.daemon_threads import run_in_daemon_thread

if TYPE_CHECKING:
    import requests

_CHUNK = 65536
_here = threading.local()


class TooSlow(Exception):
    """Raised when the deadline has passed."""


class TooLarge(Exception):
    """Raised when a body is longer than allowed."""


class _Watch:
    """The connections that one request uses, and the moment when they are shut."""

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

    def add(self, used: socket.socket) -> None:
        # A duplicate of it, since TLS takes the file descriptor away from the socket that it wraps.
        double = socket.socket(fileno=os.dup(used.fileno()))
        with self._lock:
            self._sockets.append(double)
        if not self.left():
            raise TooSlow

    def end(self) -> None:
        self._timer.cancel()
        with self._lock:
            for double in self._sockets:
                double.close()

    def _shut(self) -> None:
        with self._lock:
            self.over = True
            for double in self._sockets:
                with contextlib.suppress(OSError):
                    double.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Let what this thread asks of a `watched_session` within the block end `seconds` from now.

    Raises:
        TooSlow: the time was up before the block was done.
    """
    from urllib3.exceptions import HTTPError

    outer = getattr(_here, "watch", None)
    watch = _here.watch = _Watch(seconds)
    try:
        yield
        if watch.over:  # a shut socket reads like the end of a body
            raise TooSlow
    except (OSError, HTTPError, http.client.HTTPException):  # errors of requests are OSErrors
        if not watch.left():
            raise TooSlow from None
        raise
    finally:
        _here.watch = outer
        watch.end()


@contextlib.contextmanager
def deadline_session(seconds: float) -> Iterator[requests.Session]:
    """Give a session of its own to a block, whose requests end `seconds` from now.

    Raises:
        TooSlow: the time was up before the block was done.
    """
    with deadline(seconds), watched_session(connections=1) as session:
        yield session


def watched_session(connections: int = 10) -> requests.Session:
    """Return a session that obeys `deadline` and keeps up to `connections` connections to a host for reuse.

    Raises:
        ModuleNotFoundError: `requests` is not installed.
    """
    try:
        import requests
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("requests is not installed: pip install 'arpo-gym[search]'") from error

    adapter = _adapter_class()(pool_maxsize=connections)
    session = requests.Session()
    session.mount("http://", adapter)
    session.mount("https://", adapter)
    return session


def read_body(response: requests.Response, max_bytes: int) -> bytes:
    """Return the decoded body of a streamed response, and close it.

    Raises:
        TooLarge: it is longer than `max_bytes` when unpacked; hardly more than that has been read or unpacked.
        requests.RequestException: the connection broke.
    """
    body = bytearray()
    with response:
        for chunk in response.iter_content(_CHUNK):
            body += chunk
            if len(body) > max_bytes:
                raise TooLarge
    return bytes(body)


@functools.lru_cache(1)
def _adapter_class() -> type[Any]:
    from requests.adapters import HTTPAdapter
    from urllib3.connection import HTTPConnection, HTTPSConnection
    from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

    class Plain(HTTPConnection):
        def _new_conn(self) -> socket.socket:
            return _opened(super()._new_conn)

        def putrequest(self, *arguments: Any, **options: Any) -> None:
            watch(self.sock)
            super().putrequest(*arguments, **options)

    class Secure(HTTPSConnection):
        def _new_conn(self) -> socket.socket:
            return _opened(super()._new_conn)

        def putrequest(self, *arguments: Any, **options: Any) -> None:
            watch(self.sock)
            super().putrequest(*arguments, **options)

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class SecurePool(HTTPSConnectionPool):
        ConnectionCls = Secure

    pools = {"http": PlainPool, "https": SecurePool}

    class Adapter(HTTPAdapter):
        def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
            super().init_poolmanager(*arguments, **options)
            self.poolmanager.pool_classes_by_scheme = pools

        def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
            manager = super().proxy_manager_for(proxy, **options)
            manager.pool_classes_by_scheme = pools
            return manager

    return Adapter


def watch(opened: socket.socket | None) -> None:
    """Shut this connection at the deadline of the block that the thread is in, if it is in one.

    Raises:
        TooSlow: the deadline has passed.
    """
    current: _Watch | None = getattr(_here, "watch", None)
    if current is not None and opened is not None:
        current.add(opened)


def _opened(connect: Callable[[], socket.socket]) -> socket.socket:
    """Connect on a thread that can be left behind: nothing interrupts a name look-up."""
    current: _Watch | None = getattr(_here, "watch", None)
    if current is None:
        return connect()
    opening = run_in_daemon_thread(connect, "arpo-connect")
    try:
        opened = opening.result(current.left())
    except TimeoutError:
        opening.add_done_callback(_discard)
        raise TooSlow from None
    try:
        current.add(opened)
    except TooSlow:
        opened.close()
        raise
    return opened


def _discard(opening: Future[socket.socket]) -> None:
    if opening.exception() is None:
        opening.result().close()
