"""Where a sandbox server is started, and what all backends share: the stream to a server, and threads that read it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

from sandbox.errors import SandboxError


class Stream(Protocol):
    """What every backend returns when it has started a server: bytes to and from it.

    Attributes:
        isolation: what the backend puts around the server, such as "docker(runc)".
        unenforced: names of limits that the backend cannot enforce here.
        start_seconds: how long the server may take until it greets, from the return of the backend.
    """

    isolation: str
    unenforced: tuple[str, ...]
    start_seconds: float = 60.0

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
