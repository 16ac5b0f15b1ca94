"""Starts the daemon threads of a pool, also while Python exits.

Since Python 3.12 no thread can be started once the interpreter has begun to exit. Sandboxes are closed a little later,
so the health monitor and callers that wait for a session may still need a thread until then.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from sandbox.errors import SandboxError


class PythonExiting(SandboxError):
    """No thread can be started, since the interpreter is exiting."""


def start_thread(thread: threading.Thread) -> None:
    """Start a thread.

    Raises:
        PythonExiting: the interpreter is exiting.
        RuntimeError: the operating system has no more threads.
    """
    try:
        thread.start()
    except RuntimeError as error:
        if "interpreter shutdown" not in str(error):
            raise
        raise PythonExiting("Python is exiting: no more sessions can be opened in the sandbox") from error


def daemon_thread(work: Callable[..., object], name: str, *args: Any) -> threading.Thread:
    """Return a daemon thread that has not been started."""
    return threading.Thread(target=work, args=args, name=name, daemon=True)
