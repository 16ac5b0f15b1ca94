"""The hijacked connection of an attached container, whatever the engine is reached by.

A Unix or TCP socket can be read and written by two threads at once. A TLS connection can not: there a lock
keeps reading and writing apart, and nobody waits while holding it.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
from typing import Any

_PIECE = 1 << 16


class HijackedSocket:
    """A stream of bytes.

    Args:
        raw: what the Docker SDK's `attach_socket` has returned.
    """

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self._response: Any = getattr(raw, "_response", raw)  # the HTTP response that it was part of
        self._socket: Any = getattr(raw, "_sock", raw)
        self._tls = threading.Lock() if isinstance(self._socket, ssl.SSLSocket) else None
        self._socket.settimeout(None if self._tls is None else 0.0)

    def send(self, data: bytes) -> None:
        """Send everything."""
        if self._tls is None:
            self._socket.sendall(data)
            return
        view = memoryview(data)
        while view:
            view = view[self._patiently(lambda rest=view[:_PIECE]: self._socket.send(rest)) :]

    def receive(self) -> bytes:
        """Wait for bytes; empty at the end."""
        if self._tls is None:
            return bytes(self._socket.recv(_PIECE))
        return bytes(self._patiently(lambda: self._socket.recv(_PIECE)))

    def _patiently(self, act: Any) -> Any:
        """Do one TLS operation as soon as it can be done without waiting."""
        while True:
            try:
                with self._tls or contextlib.nullcontext():
                    return act()
            except ssl.SSLWantReadError:
                select.select([self._socket], [], [], 1.0)
            except ssl.SSLWantWriteError:
                select.select([], [self._socket], [], 1.0)

    def end(self) -> None:
        """Say that nothing more will be sent; receiving goes on."""
        with contextlib.suppress(OSError):
            if isinstance(self._socket, socket.socket):
                socket.socket.shutdown(self._socket, socket.SHUT_WR)  # SSLSocket's own would end receiving, too
            else:
                self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close this process's copy."""
        with contextlib.suppress(OSError):
            self._response.close()  # first: one whose connection is closed under it complains when it is collected
            self._raw.close()
            self._socket.close()
