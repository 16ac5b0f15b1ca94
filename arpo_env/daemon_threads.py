"""Daemon threads for blocking work that nothing can interrupt (a name look-up, a slow server, a library).

The threads of `ThreadPoolExecutor` are joined when the interpreter exits; these are not, so that Ctrl-C ends a run at
once. They are not for work that has to be finished, such as writing.
"""

from __future__ import annotations

import functools
import queue
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

T = TypeVar("T")
_Jobs = queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]


def run_in_daemon_thread(work: Callable[[], T], name: str) -> Future[T]:
    """Start `work` on a new thread called `name`; the future gets its result or its exception."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # the caller may stop waiting; the work goes on
    threading.Thread(target=_carry_out, args=(future, work), name=name, daemon=True).start()
    return future


class DaemonThreads(Executor):
    """An executor with daemon threads, started when they are needed.

    Args:
        most: most threads, and so most jobs at once; other jobs wait.
        name: of the threads.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name = most, name
        self._jobs: _Jobs = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._threads = 0
        self._over = False
        self._lock = threading.Lock()
        # The threads end when the executor is garbage collected.
        weakref.finalize(self, self._jobs.put, None).atexit = False

    def submit(self, work: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Run `work` on the next free thread.

        Raises:
            RuntimeError: after `shutdown`.
        """
        future: Future[T] = Future()
        with self._lock:
            if self._over:
                raise RuntimeError(f"the threads {self._name} were shut down")
            self._jobs.put((future, functools.partial(work, *args, **kwargs)))
            if not self._idle.acquire(blocking=False) and self._threads < self._most:
                self._threads += 1
                threading.Thread(target=_serve, args=(self._jobs, self._idle), name=self._name, daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more work. It never waits. With `cancel_futures`, work that has not begun is cancelled."""
        with self._lock:
            self._over = True
            while cancel_futures:
                try:
                    job = self._jobs.get_nowait()
                except queue.Empty:
                    break
                if job is not None:
                    job[0].cancel()
            self._jobs.put(None)


def _serve(jobs: _Jobs, idle: threading.Semaphore) -> None:
    while (job := jobs.get()) is not None:
        if job[0].set_running_or_notify_cancel():
            _carry_out(*job)
        del job  # do not keep its arguments alive while waiting for the next job
        idle.release()
    jobs.put(None)  # the next thread ends too


def _carry_out(future: Future[T], work: Callable[[], T]) -> None:
    try:
        result = work()
    except BaseException as error:  # raised by whoever waits for the future
        future.set_exception(error)
    else:
        future.set_result(result)
