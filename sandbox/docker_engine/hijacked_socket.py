"""The hijacked connection of an attached container, over a Unix, TCP or TLS socket.

Two threads can read and write a Unix or TCP socket at the same time. A TLS connection needs a lock for each operation,
and no thread waits while it holds the lock.
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
        raw: what `attach_socket` of the Docker SDK has returned.
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
            view = view[self._retry(lambda rest=view[:_PIECE]: self._socket.send(rest)) :]

    def receive(self) -> bytes:
        """Wait for bytes; returns none at the end of the stream."""
        if self._tls is None:
            return bytes(self._socket.recv(_PIECE))
        return bytes(self._retry(lambda: self._socket.recv(_PIECE)))

    def _retry(self, act: Any) -> Any:
        """Do one TLS operation as soon as that is possible without waiting."""
        while True:
            try:
                with self._tls or contextlib.nullcontext():
                    return act()
            except ssl.SSLWantReadError:
                select.select([self._socket], [], [], 1.0)
            except ssl.SSLWantWriteError:
                select.select([], [self._socket], [], 1.0)

    def end(self) -> None:
        """Signal that nothing more will be sent; receiving goes on."""
        with contextlib.suppress(OSError):
            if isinstance(self._socket, socket.socket):
                # the method of SSLSocket would end receiving as well
                socket.socket.shutdown(self._socket, socket.SHUT_WR)
            else:
                self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close this process's copy."""
        with contextlib.suppress(OSError):
            self._response.close()  # first, since it warns when it is collected after its connection was closed
            self._raw.close()
            self._socket.close()
