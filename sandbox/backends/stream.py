"""The interface of a backend's stream: bytes to and from a server that has been started."""

from __future__ import annotations

from typing import Protocol

START_SECONDS = 60.0
"""How long a server may take from the return of its backend to its greeting, where nothing has to be waited for."""


class Stream(Protocol):
    """What every backend returns when it has started a server.

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
