"""`CheckPool`: symbolic checks in child processes, and `shared_pool`, the pool of this process.

A check that runs too long, or crashes its process, raises `GradingError`; it is never scored as a wrong answer. After
`os.fork` the child starts processes of its own.
"""

from __future__ import annotations

import atexit
import functools
import importlib.util
import json
import logging
import os
import sys
import threading
from typing import Any

from arpo_env.errors import GradingError
from arpo_env.worker_pool import PoolClosed, WorkerDied, WorkerError, WorkerPool, WorkerTimeout

_log = logging.getLogger(__name__)

WORKERS = 2
SECONDS = 5.0  # per check
MEMORY = 2 * 1024**3  # bytes of address space per worker
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from arpo_env.grading.math_check.worker_process import main; main({}, {})"
)


class CheckPool:
    """Symbolic checks in `workers` processes, each started when it is first needed.

    Args:
        workers: most processes.
        seconds: limit of one check.
        memory: bytes of address space that a process may have.
    """

    def __init__(self, workers: int = WORKERS, seconds: float = SECONDS, memory: int = MEMORY) -> None:
        self.seconds, self.memory = seconds, memory
        self._pool = WorkerPool(
            [sys.executable, "-P", "-c", _PROGRAM.format(memory, seconds), json.dumps(sys.path)],
            processes=workers,
            seconds=seconds,
            name="arpo-math",
            environment=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )

    async def check(self, answer: str, gold: str) -> bool:
        """Return whether two prepared answers are equal.

        Raises:
            GradingError: it could not be decided.
        """
        job = json.dumps({"answer": answer, "gold": gold}).encode()
        try:
            try:
                reply = json.loads(await self._pool.run(job))
            except WorkerDied:  # perhaps while it was idle: a check that kills its process does so again
                reply = json.loads(await self._pool.run(job))
        except PoolClosed as error:
            raise GradingError("the pool for symbolic checks is closed") from error
        except WorkerTimeout as error:
            raise GradingError(f"a symbolic check took {error}") from error
        except WorkerError as error:
            raise GradingError(f"a symbolic check failed: {error}") from error
        if "error" in reply:
            raise GradingError(f"the symbolic check failed on {answer!r:.200} against {gold!r:.200}: {reply['error']}")
        return bool(reply["same"])

    def close(self) -> None:
        """End the processes; checks under way raise `GradingError`."""
        self._pool.close()

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers that are up."""
        return self._pool.pids


_CURE = "mpmath is not installed, and only it can grade answers that need algebra: pip install 'arpo-gym[math]'"
_shared: dict[str, Any] = {"pool": None, "owner": 0}
_guard = threading.Lock()


def shared_pool() -> CheckPool:
    """Return the pool of this process, started at first use and closed at exit.

    Raises:
        ModuleNotFoundError: mpmath is not installed.
    """
    with _guard:
        if _shared["pool"] is None or _shared["owner"] != os.getpid():  # its threads do not exist after os.fork
            if importlib.util.find_spec("mpmath") is None:
                raise ModuleNotFoundError(_CURE)
            _shared["pool"], _shared["owner"] = CheckPool(), os.getpid()
            atexit.register(_close, os.getpid())
        pool: CheckPool = _shared["pool"]
        return pool


@functools.cache
def warn_without_library() -> None:
    """Warn once if only numbers and equal texts can be graded here."""
    if importlib.util.find_spec("mpmath") is None:
        _log.warning(_CURE)


def _close(owner: int) -> None:
    if owner == os.getpid() and _shared["owner"] == owner:
        _shared["pool"].close()


def _after_fork() -> None:
    global _guard
    _guard = threading.Lock()  # a thread of the parent may have held it
    _shared["pool"] = None  # never closed here: its processes belong to the parent


os.register_at_fork(after_in_child=_after_fork)
