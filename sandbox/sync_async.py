"""Runs procedures that wait for futures, either blocking or asynchronously.

A procedure is a generator. It yields a future where it has to wait, and is sent the result, or has the exception
thrown in. That exception can also be the caller's own, a `CancelledError` or a `KeyboardInterrupt`; a procedure then
releases what nobody will use any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")
Steps = Generator[Future[Any], Any, T]


def finish(steps: Steps[T]) -> T:
    """Run a procedure; this thread blocks where it waits."""
    try:
        future = next(steps)
        while True:
            try:
                result = future.result()
            except BaseException as error:  # the procedure cleans up, and raises it again
                future = steps.throw(error)
            else:
                future = steps.send(result)
    except StopIteration as end:
        value: T = end.value
        return value


async def finish_async(steps: Steps[T]) -> T:
    """Run a procedure; the event loop serves other tasks where it waits."""
    try:
        future = next(steps)
        while True:
            try:
                # a future that is done takes no round of the event loop
                result = future.result() if future.done() else await asyncio.wrap_future(future)
            except BaseException as error:  # see `finish`
                future = steps.throw(error)
            else:
                future = steps.send(result)
    except StopIteration as end:
        value: T = end.value
        return value
