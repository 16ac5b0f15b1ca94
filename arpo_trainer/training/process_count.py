"""How many processes a run has, known before any is started: what the launcher says, or what a plan is made for.

`arpo train --num_processes 8 --dry-run` asks what eight would do, on a machine that has none of them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextvars import ContextVar

_planned: ContextVar[int | None] = ContextVar("planned", default=None)


def process_count() -> int:
    """Return how many processes the run has, over all machines."""
    return _planned.get() or int(os.environ.get("WORLD_SIZE", 1))  # the launcher's


def planned_processes() -> int | None:
    """Return how many a plan is made for; None where it is no plan."""
    return _planned.get()


@contextlib.contextmanager
def planning(processes: int | None) -> Iterator[None]:
    """Read settings as if there were so many processes; None changes nothing.

    Raises:
        ValueError: less than one.
    """
    if processes is not None and processes < 1:
        raise ValueError(f"--num_processes must be at least 1, got {processes}")
    token = _planned.set(processes)
    try:
        yield
    finally:
        _planned.reset(token)
