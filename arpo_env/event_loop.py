"""One background event loop per process, on a daemon thread.

It gives asynchronous code a synchronous interface: `run(coroutine)` blocks until the coroutine is done, also when the
calling thread has a running loop of its own (Jupyter). Connections that all loops share live on it (HTTP, MCP);
`await run_on_loop(coroutine)` uses them from any other loop.
"""

from __future__ import annotations

import asyncio
import functools
import os
import queue
import socket
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future, wait
from typing import Any, Generic, TypeVar

# Daemon threads for blocking work that nothing can interrupt (a name look-up, a slow server, a library).
#
# The threads of `ThreadPoolExecutor` are joined when the interpreter exits; these are not, so that Ctrl-C ends a run at
# once. They are not for work that has to be finished, such as writing.

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


CLEANUP_TIMEOUT = 20.0
_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_thread: threading.Thread | None = None
_owner = 0


class BackgroundCall(Generic[T]):
    """A coroutine that runs on the background loop while the thread that started it goes on.

    Args:
        coroutine: it starts at once.

    Raises:
        RuntimeError: it was made on the background loop itself, where waiting for it would deadlock.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        if threading.current_thread() is _thread:
            # Otherwise Python warns that the coroutine was never awaited.
            coroutine.close()
            raise RuntimeError(
                "a synchronous method was called on the event loop that runs it; use the asynchronous methods there "
                "(areset, astep, afork, aclose)"
            )
        self._done = threading.Event()
        self._future: Future[T] = asyncio.run_coroutine_threadsafe(
            _signalling(coroutine, self._done), background_loop()
        )

    def result(self) -> T:
        """Wait for the result, or raise the coroutine's error.

        A KeyboardInterrupt while waiting stops the coroutine; a second one does not wait for its clean-up.
        """
        try:
            return self._future.result()
        except BaseException:
            # Mostly a KeyboardInterrupt; if the coroutine itself raised, `done` is set and nothing waits.
            self.stop()
            raise

    def wait(self) -> None:
        """Wait until the coroutine has ended, in whatever way; an interrupt while waiting leaves it running."""
        wait([self._future])

    def stop(self) -> None:
        """Cancel the coroutine and wait for its clean-up, at most `CLEANUP_TIMEOUT`."""
        self._future.cancel()
        self._done.wait(CLEANUP_TIMEOUT)


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the background loop and return its result.

    A KeyboardInterrupt while waiting cancels the coroutine and waits for its clean-up, at most `CLEANUP_TIMEOUT`; a
    second one does not wait.

    Raises:
        RuntimeError: it was called on the background loop itself, which would deadlock.
    """
    return BackgroundCall(coroutine).result()


async def _signalling(coroutine: Coroutine[Any, Any, T], done: threading.Event) -> T:
    try:
        return await coroutine
    finally:
        done.set()


async def run_on_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the background loop while the calling loop goes on; cancelling this cancels the coroutine."""
    loop = background_loop()
    if asyncio.get_running_loop() is loop:
        return await coroutine
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, loop))


def background_loop() -> asyncio.AbstractEventLoop:
    """Return the running background loop of this process, started at first use."""
    global _loop, _thread, _owner
    with _lock:
        if _loop is None or _owner != os.getpid():  # the parent's thread does not exist after os.fork
            _loop, _owner = _Loop(), os.getpid()
            _thread = threading.Thread(target=_loop.run_forever, name="arpo-env", daemon=True)
            _thread.start()
        return _loop


class _Loop(asyncio.SelectorEventLoop):
    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        """Look a name up on a daemon thread.

        asyncio's own threads are joined when the interpreter exits, and nothing interrupts a slow name server.
        """
        look_up = run_in_daemon_thread(lambda: socket.getaddrinfo(host, port, **options), "arpo-resolve")
        return await asyncio.wrap_future(look_up)


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()  # a thread of the parent may have held it


os.register_at_fork(after_in_child=_after_fork)
