"""The number of processes of a run, known before they start: that of the launcher, or that of a dry run.

`arpo train --num-processes 8 --dry-run` plans for eight processes on a machine that may have fewer devices.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextvars import ContextVar

_planned: ContextVar[int | None] = ContextVar("planned", default=None)


def process_count() -> int:
    """Return the number of processes of the run, over all machines."""
    return _planned.get() or int(os.environ.get("WORLD_SIZE", 1))  # set by the launcher


def planned_processes() -> int | None:
    """Return the number of processes of a dry run; None outside of one."""
    return _planned.get()


@contextlib.contextmanager
def planning(processes: int | None) -> Iterator[None]:
    """Let settings be read for this number of processes; None changes nothing.

    Raises:
        ValueError: the number is below 1.
    """
    if processes is not None and processes < 1:
        raise ValueError(f"--num-processes must be at least 1, got {processes}")
    token = _planned.set(processes)
    try:
        yield
    finally:
        _planned.reset(token)
