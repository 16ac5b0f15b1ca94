"""Calls of a sandbox server: a connection for each thread, answers in JSON, and what a failed call means.

A call whose answer was lost is sent again. That is safe, since every request names its session and has a number or a
key: a server that has served it gives the same answer, and a restarted server does not know the session.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import threading
import time
from typing import Any
from urllib.parse import urlsplit

from sandbox.backends.http_address import TOKEN_VARIABLE
from sandbox.errors import SandboxUnavailable

# longer than a server waits before it answers with 202
_SECONDS = 60.0
PAUSES = (0.0, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds before each repetition. The first is at once: the server may have closed a connection that was idle."""
Answer = tuple[int, dict[str, Any]]


class ServerGone(SandboxUnavailable):
    """There is no sandbox server at the address, or it refuses the token."""


class HttpCalls:
    """Sends requests to one server.

    Args:
        url: of the server, without credentials.
        token: what requests send; empty for none.

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
        self._mine = threading.local()
        self._connections: list[http.client.HTTPConnection] = []
        self._lock = threading.Lock()

    def call(
        self,
        path: str,
        fields: dict[str, Any],
        pauses: tuple[float, ...] | None = None,
        seconds: float = _SECONDS,
    ) -> Answer:
        """Return the status and the answer of a POST.

        Args:
            path: after the address of the server.
            fields: of the JSON object.
            pauses: seconds before each repetition of a call that has failed; None is PAUSES.
            seconds: how long to wait for the answer of each.

        Raises:
            ServerGone: there is no sandbox server, or it refuses the token; the message says what to do.
        """
        body = json.dumps(fields).encode()
        for pause in (*(PAUSES if pauses is None else pauses), None):
            try:
                return self._checked(*self._send(path, body, seconds))
            except (OSError, http.client.HTTPException) as error:
                self._drop()
                if pause is None or self.closed or isinstance(error, ssl.SSLCertVerificationError):
                    raise ServerGone(f"{self.url}: {_cure(error)}") from error
                time.sleep(pause)
        raise AssertionError("unreachable: the last pause is None")

    def _send(self, path: str, body: bytes, seconds: float) -> tuple[int, bytes]:
        connection = self._connection(seconds)
        connection.request("POST", self._parts.path + path, body, self._headers)
        response = connection.getresponse()
        return response.status, response.read()

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
            raise ServerGone(
                f"{self.url} answers with HTTP {status}, and not as a sandbox server; check the address, and that "
                "`arpo sandbox serve` of this version runs there"
            )
        if status == 404:
            raise ServerGone(f"{self.url}: {answer.get('message')}")
        return status, answer

    def _connection(self, seconds: float) -> http.client.HTTPConnection:
        connection: http.client.HTTPConnection | None = getattr(self._mine, "connection", None)
        if connection is None:
            secure = self._parts.scheme == "https"
            kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
            connection = self._mine.connection = kind(self._parts.hostname or "", self._parts.port)
            with self._lock:
                self._connections.append(connection)
        connection.timeout = seconds
        # http.client connects with TCP_NODELAY
        if connection.sock is not None:
            connection.sock.settimeout(seconds)
        return connection

    def _drop(self) -> None:
        connection = getattr(self._mine, "connection", None)
        if connection is not None:
            connection.close()

    def close(self) -> None:
        """Close the connections; calls that wait for an answer fail."""
        self.closed = True
        with self._lock:
            connections, self._connections = self._connections, []
        for connection in connections:
            if connection.sock is not None:
                with contextlib.suppress(OSError):  # it was closed by the server
                    connection.sock.shutdown(socket.SHUT_RDWR)

    def abandon(self) -> None:
        """In a forked process: close the descriptors, without a word to the server."""
        self.closed = True
        for connection in self._connections:
            if connection.sock is not None:
                connection.sock.close()


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
