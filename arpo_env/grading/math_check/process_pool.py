"""A few supervised processes for symbolic checks: `CheckPool`, and the one of this process, `shared_pool`.

A check that runs too long, or takes its process down, raises `GradingError`; the process is ended and the next check
gets a fresh one. Any thread and any event loop may call. After `os.fork` the child starts its own.

The processes are plain `python -c` children, not `multiprocessing` ones: those run the user's main script again when
they start, and a fork of a process with threads and a GPU is not safe.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import importlib.util
import json
import logging
import os
import select
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from arpo_env.grading.grader import GradingError

_log = logging.getLogger(__name__)

WORKERS = 2
SECONDS = 5.0  # a check
MEMORY = 2 * 1024**3  # bytes of address space a worker
_START = 120.0  # seconds for a worker to come up, on a machine that is busy
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from arpo_env.grading.math_check.worker_process import main; main({})"
)


class WorkerDied(GradingError):
    """Raised when the process ended by itself or was ended from outside."""


class Worker:
    """One child process; not for use by two threads at once."""

    def __init__(self, memory: int) -> None:
        program = [sys.executable, "-c", _PROGRAM.format(memory), json.dumps(sys.path)]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
        )
        try:
            self._read(_START)
        except BaseException:
            self.kill()
            raise

    def check(self, answer: str, gold: str, seconds: float) -> bool:
        """Say whether two prepared answers are equal.

        Raises:
            GradingError: no reply in time, or the process died.
        """
        request = {"answer": answer, "gold": gold, "seconds": seconds}
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
        except OSError as error:
            raise WorkerDied(f"the process for symbolic checks died: {error}") from error
        reply = json.loads(self._read(seconds))
        if "error" in reply:
            raise GradingError(f"the symbolic check failed on {answer!r:.200} against {gold!r:.200}: {reply['error']}")
        return bool(reply["same"])

    def kill(self) -> None:
        """End the process now."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _read(self, seconds: float) -> bytes:
        assert self.process.stdout is not None
        handle, line, end = self.process.stdout.fileno(), b"", time.monotonic() + seconds
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        while not line.endswith(b"\n"):
            left = end - time.monotonic()
            if left <= 0 or not poll.poll(left * 1000):
                raise GradingError(f"a symbolic check took more than {seconds:g} s")
            chunk = os.read(handle, 65536)
            if not chunk:
                raise WorkerDied("the process for symbolic checks died: out of memory, or ended from outside")
            line += chunk
        return line


class CheckPool:
    """Symbolic checks in `workers` processes, each started when it is first needed.

    Args:
        workers: processes.
        seconds: limit of one check.
        memory: bytes of address space a process may have.
    """

    def __init__(self, workers: int = WORKERS, seconds: float = SECONDS, memory: int = MEMORY) -> None:
        self.seconds, self.memory = seconds, memory
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="arpo-math")
        self._mine = threading.local()
        self._lock = threading.Lock()
        self._workers: list[Worker] = []
        self._closed = False

    async def check(self, answer: str, gold: str) -> bool:
        """Say whether two prepared answers are equal.

        Raises:
            GradingError: it could not be decided.
        """
        if self._closed:
            raise GradingError("the pool for symbolic checks is closed")
        return await asyncio.wrap_future(self._threads.submit(self._check, answer, gold))

    def close(self) -> None:
        """End the processes; checks under way raise `GradingError`."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            for worker in self._workers:
                worker.process.kill()

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers that are up."""
        with self._lock:
            return [worker.process.pid for worker in self._workers]

    def _check(self, answer: str, gold: str) -> bool:
        try:
            return self._try(answer, gold)
        except WorkerDied:  # perhaps while it was idle: a check that kills its process does so again
            return self._try(answer, gold)

    def _try(self, answer: str, gold: str) -> bool:
        worker = self._worker()
        try:
            return worker.check(answer, gold, self.seconds)
        except BaseException:
            self._discard(worker)
            raise

    def _worker(self) -> Worker:
        """Return this thread's worker; one that died while idle is replaced."""
        worker: Worker | None = getattr(self._mine, "worker", None)
        if worker is not None and worker.process.poll() is None:
            return worker
        if worker is not None:
            self._discard(worker)
        if self._closed:
            raise GradingError("the pool for symbolic checks is closed")
        worker = self._mine.worker = Worker(self.memory)
        with self._lock:
            self._workers.append(worker)
        return worker

    def _discard(self, worker: Worker) -> None:
        self._mine.worker = None
        with self._lock:
            if worker in self._workers:
                self._workers.remove(worker)
        worker.kill()


_CURE = "mpmath is not installed, and only it can grade answers that need algebra: pip install 'arpo-gym[math]'"
_shared: dict[str, Any] = {"pool": None, "owner": 0}
_guard = threading.Lock()


def shared_pool() -> CheckPool:
    """Return the pool of this process, started at first use and closed at exit.

    Raises:
        ModuleNotFoundError: mpmath is not installed.
    """
    with _guard:
        if _shared["pool"] is None or _shared["owner"] != os.getpid():  # after os.fork its threads are not here
            if importlib.util.find_spec("mpmath") is None:
                raise ModuleNotFoundError(_CURE)
            _shared["pool"], _shared["owner"] = CheckPool(), os.getpid()
            atexit.register(_close, os.getpid())
        pool: CheckPool = _shared["pool"]
        return pool


@functools.cache
def warn_without_library() -> None:
    """Say once that only numbers and equal texts can be graded here, if it is so."""
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
