"""The project's folder in the user's cache directory: where it is, locks and progress messages while it is filled.

A first use may install packages and make an image for a minute; `announce` tells the user so.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox.errors import SandboxError

_log = logging.getLogger(__name__)


def cache_directory() -> Path:
    """Return the folder: `ARPO_CACHE`, else `$XDG_CACHE_HOME/arpo`, else `~/.cache/arpo`. It need not exist."""
    if override := os.environ.get("ARPO_CACHE"):
        return Path(override)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "arpo"


def announce(log: logging.Logger, text: str, *values: object) -> None:
    """Log at INFO; in a program that has not configured logging as WARNING, which Python then writes to stderr.

    `logging.getLogger("sandbox").setLevel(logging.ERROR)` silences it in such a program.
    """
    log.log(logging.INFO if log.hasHandlers() else logging.WARNING, text, *values)


@contextmanager
def locked(name: str, folder: str = "sandbox-packages", work: str = "prepares the sandbox") -> Iterator[Path]:
    """Hold a lock against all threads and processes of this user; yields a folder in the cache.

    Args:
        name: of the lock.
        folder: name of the folder.
        work: what is done under the lock; shown to whoever has to wait.

    Raises:
        SandboxError: the folder cannot be written.
    """
    path = cache_directory() / folder
    try:
        path.mkdir(parents=True, exist_ok=True)
        # an open file of its own for each call: such locks hold between threads too, and end with the process
        file = open(path / f".{name}.lock", "w")  # noqa: SIM115
    except OSError as error:
        raise SandboxError(f"{error}; set ARPO_CACHE to a writable folder") from error
    with file:
        try:
            # tried without waiting first, so that a wait can be announced
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            announce(_log, "waiting for another process that %s", work)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield path
