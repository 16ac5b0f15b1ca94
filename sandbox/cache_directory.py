"""This project's folder in the user's cache directory, and locks between the processes that fill it."""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox.errors import SandboxError
from sandbox.progress_message import announce

_log = logging.getLogger(__name__)


def cache_directory() -> Path:
    """Return the folder: `ARPO_CACHE`, else `$XDG_CACHE_HOME/arpo`, else `~/.cache/arpo`. It need not exist."""
    if override := os.environ.get("ARPO_CACHE"):
        return Path(override)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "arpo"


@contextmanager
def locked(name: str) -> Iterator[Path]:
    """Hold a lock against all threads and processes of this user; yields the sandbox's folder in the cache.

    Raises:
        SandboxError: the folder can not be written.
    """
    folder = cache_directory() / "sandbox-packages"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = open(folder / f".{name}.lock", "w")  # noqa: SIM115
    except OSError as error:
        raise SandboxError(f"{error}; set ARPO_CACHE to a folder that can be written") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            announce(_log, "waiting for another process, which is making the sandbox ready")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield folder
