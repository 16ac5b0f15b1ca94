"""Waiting for what other threads and processes do, and for servers of theirs."""

import socket
import time
from collections.abc import Callable
from pathlib import Path


def wait_for(condition: Callable[[], object], seconds: float = 20.0) -> None:
    """Wait until something holds; a test fails if it does not come."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"it has not come within {seconds:g} s"
        time.sleep(0.01)


def has_ended(pid: int) -> bool:
    """Whether a process has ended, be it that nobody has waited for it yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def free_port() -> int:
    """A port of 127.0.0.1 at which nobody listens."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return int(unused.getsockname()[1])


def listens(port: int) -> bool:
    """Whether somebody does."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
