"""One description of a procedure that waits, for the blocking and for the asynchronous face.

A procedure is a generator: it yields a future where it has to wait, and gets back what came of it, or the
exception thrown in. That exception can be the caller's own, a `CancelledError` or a `KeyboardInterrupt`: there a
procedure gives back what nobody will use any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")
Steps = Generator[Future[Any], Any, T]


def finish(steps: Steps[T]) -> T:
    """Go through a procedure, blocking this thread where it waits."""
    try:
        future = next(steps)
        while True:
            try:
                result = future.result()
            except BaseException as error:  # the procedure decides, and raises it again if it has no answer
                future = steps.throw(error)
            else:
                future = steps.send(result)
    except StopIteration as end:
        value: T = end.value
        return value


async def finish_async(steps: Steps[T]) -> T:
    """Go through a procedure; the event loop does other things where it waits."""
    try:
        future = next(steps)
        while True:
            try:
                result = future.result() if future.done() else await asyncio.wrap_future(future)
            except BaseException as error:  # see `finish`
                future = steps.throw(error)
            else:
                future = steps.send(result)
    except StopIteration as end:
        value: T = end.value
        return value
