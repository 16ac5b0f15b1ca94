"""One background event loop per process, on a daemon thread.

It gives asynchronous code a synchronous interface: `run(coroutine)` blocks until the coroutine is done, also when the
calling thread has a running loop of its own (Jupyter). Connections that all loops share live on it (HTTP, MCP);
`await run_on_loop(coroutine)` uses them from any other loop.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from typing import Any, Generic, TypeVar

T = TypeVar("T")
CLEANUP_TIMEOUT = 20.0
_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_thread: threading.Thread | None = None
_owner = 0


def run_in_daemon_thread(work: Callable[[], T], name: str) -> Future[T]:
    """Start blocking work that nothing can interrupt on a new thread; the future gets its result or its exception.

    The threads of `asyncio.to_thread` are joined when the interpreter exits; this one is not, so that Ctrl-C ends a run
    at once. It is not for work that has to be finished, such as writing.
    """
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # the caller may stop waiting; the work goes on

    def carry_out() -> None:
        try:
            result = work()
        except BaseException as error:  # raised by whoever waits for the future
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=carry_out, name=name, daemon=True).start()
    return future


class BackgroundCall(Generic[T]):
    """A coroutine that runs on the background loop while the thread that started it goes on."""

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        if threading.current_thread() is _thread:
            # Otherwise Python warns that the coroutine was never awaited.
            coroutine.close()
            raise RuntimeError(
                "a synchronous method was called on the event loop that runs it; use the asynchronous methods there "
                "(areset, astep, afork, aclose)"
            )
        self._done = threading.Event()

        async def signalling() -> T:
            try:
                return await coroutine
            finally:
                self._done.set()

        self._future: Future[T] = asyncio.run_coroutine_threadsafe(signalling(), background_loop())

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
    """Run a coroutine on the background loop and return its result; see `BackgroundCall`."""
    return BackgroundCall(coroutine).result()


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
        """Look a name up on a daemon thread, since nothing interrupts a slow name server."""
        look_up = run_in_daemon_thread(lambda: socket.getaddrinfo(host, port, **options), "arpo-resolve")
        return await asyncio.wrap_future(look_up)


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()  # a thread of the parent may have held it


os.register_at_fork(after_in_child=_after_fork)
