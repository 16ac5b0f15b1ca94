"""One background event loop, so that asynchronous code has a synchronous face that works anywhere.

`run(coroutine)` blocks until it is done, also when the calling thread has a running loop of its own (Jupyter).
`await there(coroutine)` is for callers on any other loop, about things that live on this one.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

TIDY = 20.0
_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_thread: threading.Thread | None = None
_owner = 0


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the background loop and return its result.

    A KeyboardInterrupt while waiting cancels it, and waits until it has put away what it held (at most `TIDY` seconds;
    a second one does not wait).

    Raises:
        RuntimeError: it was called on the background loop, which would wait for itself for ever.
    """
    if threading.current_thread() is _thread:
        coroutine.close()
        raise RuntimeError(
            "the synchronous face was called from within the event loop that does its work; use the asynchronous one "
            "there (areset, astep, afork, aclose)"
        )
    over = threading.Event()
    future = asyncio.run_coroutine_threadsafe(_noted(coroutine, over), _running_loop())
    try:
        return future.result()
    except BaseException:
        future.cancel()
        over.wait(TIDY)
        raise


async def _noted(coroutine: Coroutine[Any, Any, T], over: threading.Event) -> T:
    try:
        return await coroutine
    finally:
        over.set()


async def there(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the background loop while the calling loop goes on; cancelling this cancels it."""
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, _running_loop()))


def _running_loop() -> asyncio.AbstractEventLoop:
    global _loop, _thread, _owner
    with _lock:
        if _loop is None or _owner != os.getpid():  # after os.fork the thread of the parent is not here
            _loop, _owner = asyncio.new_event_loop(), os.getpid()
            _thread = threading.Thread(target=_loop.run_forever, name="arpo-env", daemon=True)
            _thread.start()
        return _loop
