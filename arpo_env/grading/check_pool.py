"""`CheckPool`: symbolic checks in child processes, `shared_pool`, the pool of this process, and `main` of a child.

An answer that takes too much time or memory, or crashes its process, is wrong if the gold answer alone does not: a
policy must not be able to void its sample. A failure of the machine raises `GradingError` and is never scored as a
wrong answer. After `os.fork` the child starts processes of its own.
"""

from __future__ import annotations

import atexit
import functools
import importlib.util
import json
import logging
import os
import resource
import signal
import struct
import sys
from typing import Any, BinaryIO

from arpo_env.errors import GradingError
from arpo_env.worker_pool import PoolClosed, WorkerDied, WorkerError, WorkerPool, WorkerTimeout
from envs_registry.install_line import install_line

_log = logging.getLogger(__name__)

WORKERS = 2
SECONDS = 2.0  # of CPU time per check; one takes milliseconds
MEMORY = 512 * 1024**2  # bytes of address space per worker
_BUSY = 15  # times as long may a check take on a machine that has other things to do
_OWN_DOING = (0, signal.SIGPROF, signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT)  # ends that a check brings on itself
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from arpo_env.grading.check_pool import main; main({}, {}, {})"
)


class CheckPool:
    """Symbolic checks in at most `workers` processes, with CPU seconds for each check and `MEMORY` for each process."""

    def __init__(self, workers: int = WORKERS, seconds: float = SECONDS) -> None:
        self.seconds = seconds
        self._pool = WorkerPool(
            [sys.executable, "-P", "-c", _PROGRAM.format(MEMORY, seconds, _BUSY * seconds), json.dumps(sys.path)],
            processes=workers,
            seconds=_BUSY * seconds,
            environment=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )

    async def check(self, answer: str, gold: str) -> bool:
        """Return whether two prepared answers are equal.

        Raises:
            GradingError: it could not be decided: the machine failed, or the gold answer alone is too expensive.
        """
        found = await self._ask(answer, gold)
        # an answer is to blame only if the gold answer can be evaluated without it
        if isinstance(found, str) and isinstance(alone := await self._ask(gold, gold, by_text=False), str):
            raise GradingError(
                f"the gold answer {gold!r:.200} cannot be evaluated: {alone}. Give a simpler one, or leave its task out"
            )
        return found is True

    async def _ask(self, answer: str, gold: str, by_text: bool = True) -> bool | str:
        """Return the verdict of a process, or what the check cost; raise GradingError if the pool failed."""
        job = json.dumps({"answer": answer, "gold": gold, "by_text": by_text}).encode()
        try:
            try:
                reply = json.loads(await self._pool.run(job))
            except WorkerDied as error:
                if error.signal in _OWN_DOING:
                    return f"more than {self.seconds:g} s" if error.signal == signal.SIGPROF else "its process crashed"
                reply = json.loads(await self._pool.run(job))  # killed from outside, perhaps while it was idle
        except PoolClosed as error:
            raise GradingError("the pool for symbolic checks is closed") from error
        except WorkerTimeout as error:
            raise GradingError(f"a symbolic check took {error}: the machine has too much else to do") from error
        except WorkerError as error:
            raise GradingError(f"a symbolic check failed: {error}") from error
        return str(reply["error"]) if "error" in reply else bool(reply["same"])

    def close(self) -> None:
        """End the processes; checks under way raise `GradingError`."""
        self._pool.close()


_LACK = "mpmath is not installed, and only it can grade answers that need algebra: "


@functools.cache
def shared_pool() -> CheckPool:
    """Return the pool of this process, started at first use and closed at exit."""
    if importlib.util.find_spec("mpmath") is None:
        raise ModuleNotFoundError(_LACK + install_line("math"))
    pool, owner = CheckPool(), os.getpid()
    atexit.register(lambda: pool.close() if os.getpid() == owner else None)
    return pool


os.register_at_fork(after_in_child=shared_pool.cache_clear)  # what a child of os.fork inherits is its parent's


@functools.cache
def warn_without_library() -> None:
    """Warn once if only numbers and equal texts can be graded here."""
    if importlib.util.find_spec("mpmath") is None:
        _log.warning(_LACK + install_line("math"))


# The child process that runs symbolic checks; see `arpo_env.worker_pool` for how jobs arrive.
#
# It limits its own memory, and the kernel ends it if a check takes too much CPU time, or its parent is gone.

_MARGIN = 1.0  # seconds after which the parent should have killed this process


def main(memory: int, cpu: float, wall: float) -> None:
    """Serve checks until the input ends, within limits of memory in bytes, CPU time and time in seconds."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    for number in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(number, signal.SIG_DFL)  # a handler in Python would wait for the arithmetic to return
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    jobs, replies = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not be read as a reply
    from arpo_env.grading.math_equality import same_mathematics

    for answer, gold in (("\\frac{2}{4}", "\\frac{1}{2}"), ("2*sqrt(3)", "\\sqrt{12}"), ("2<x<3", "(2,3)")):
        same_mathematics(answer, gold)  # what is first needed is loaded before time counts
    _send(replies, b"")
    while len(length := jobs.read(4)) == 4:
        job = json.loads(jobs.read(struct.unpack("!I", length)[0]))
        _send(replies, json.dumps(_check(job, cpu, wall)).encode())


def _send(replies: BinaryIO, reply: bytes) -> None:
    replies.write(struct.pack("!I", len(reply)) + reply)
    replies.flush()


def _check(job: dict[str, Any], cpu: float, wall: float) -> dict[str, Any]:
    from arpo_env.grading.math_equality import same_mathematics

    signal.setitimer(signal.ITIMER_PROF, cpu)
    signal.setitimer(signal.ITIMER_REAL, wall + _MARGIN)
    try:
        return {"same": same_mathematics(job["answer"], job["gold"], job["by_text"])}
    except RecursionError:
        return {"same": False}  # the same every time, and no right answer is nested that deeply
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:300]}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
