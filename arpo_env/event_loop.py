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
from collections.abc import Coroutine
from typing import Any, TypeVar

from arpo_env.daemon_threads import run_in_daemon_thread

T = TypeVar("T")

CLEANUP_TIMEOUT = 20.0
_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_thread: threading.Thread | None = None
_owner = 0


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the background loop and return its result.

    A KeyboardInterrupt while waiting cancels the coroutine and waits for its clean-up, at most `CLEANUP_TIMEOUT`; a
    second one does not wait.

    Raises:
        RuntimeError: it was called on the background loop itself, which would deadlock.
    """
    if threading.current_thread() is _thread:
        # Otherwise Python warns that the coroutine was never awaited.
        coroutine.close()
        raise RuntimeError(
            "a synchronous method was called on the event loop that runs it; use the asynchronous methods there "
            "(areset, astep, afork, aclose)"
        )
    done = threading.Event()
    future = asyncio.run_coroutine_threadsafe(_signalling(coroutine, done), background_loop())
    try:
        return future.result()
    except BaseException:
        # Mostly a KeyboardInterrupt; if the coroutine itself raised, `done` is set and nothing waits.
        future.cancel()
        done.wait(CLEANUP_TIMEOUT)
        raise


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
