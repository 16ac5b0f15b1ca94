"""One background event loop, through which synchronous code can run coroutines anywhere, also in Jupyter.

`run(coroutine)` blocks until the coroutine is done, also if the calling thread has a running event loop.
`await run_on_loop(coroutine)` runs it on the background loop for callers on another loop.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

CLEANUP_TIMEOUT = 20.0
_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_thread: threading.Thread | None = None
_owner = 0


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the background loop and return its result.

    A KeyboardInterrupt while waiting cancels the coroutine and waits until it has cleaned up (at most
    `CLEANUP_TIMEOUT` seconds; a second KeyboardInterrupt does not wait).

    Raises:
        RuntimeError: it was called on the background loop itself, which would deadlock.
    """
    if threading.current_thread() is _thread:
        coroutine.close()
        raise RuntimeError(
            "a synchronous method was called on the event loop that runs it; use the asynchronous methods "
            "there (areset, astep, afork, aclose)"
        )
    done = threading.Event()
    future = asyncio.run_coroutine_threadsafe(_signalling(coroutine, done), _running_loop())
    try:
        return future.result()
    except BaseException:
        future.cancel()
        done.wait(CLEANUP_TIMEOUT)
        raise


async def _signalling(coroutine: Coroutine[Any, Any, T], done: threading.Event) -> T:
    try:
        return await coroutine
    finally:
        done.set()


async def run_on_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the background loop and await its result on the calling loop; cancellation is passed on."""
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, _running_loop()))


def _running_loop() -> asyncio.AbstractEventLoop:
    global _loop, _thread, _owner
    with _lock:
        if _loop is None or _owner != os.getpid():  # threads do not survive os.fork
            _loop, _owner = asyncio.new_event_loop(), os.getpid()
            _thread = threading.Thread(target=_loop.run_forever, name="arpo-env", daemon=True)
            _thread.start()
        return _loop
