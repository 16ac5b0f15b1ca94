"""Merges equal calls that are made at the same time, from any thread or event loop, into one.

Results are not kept after the call has ended; that is the task of the cache.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")

_CHECK_SECONDS = 0.5  # seconds between checks whether the event loop of the call is still running


@dataclass(frozen=True)
class _Outcome(Generic[T]):
    """The outcome of a call: one value, an error, or neither if it was cancelled."""

    values: tuple[T, ...] = ()
    error: Exception | None = None


@dataclass(eq=False)
class _SharedCall(Generic[T]):
    loop: asyncio.AbstractEventLoop
    finished: Future[_Outcome[T]] = field(default_factory=Future)
    waiting: int = 0
    task: asyncio.Task[None] | None = None


class _NoResult(Exception):
    """Another caller's call ended without a result."""


class SingleFlight(Generic[T]):
    """Merges equal calls.

    The call runs as a separate task on the loop of the first caller. A cancelled caller does not affect the others; the
    call itself is cancelled when its last caller has left. If the call fails, all callers get its error, without
    another attempt, since services retry by themselves. If the first caller's loop stops, another caller starts anew.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: dict[bytes, _SharedCall[T]] = {}

    async def do(self, key: bytes, call: Callable[[], Awaitable[T]]) -> T:
        """Return the result of `call`, or of the running call of another caller with the same key."""
        while True:
            shared, mine = self._join(key, call)
            try:
                return await _wait_for(shared)
            except _NoResult:
                if mine:  # the caller's own task was cancelled, so this caller is too
                    raise asyncio.CancelledError from None
            finally:
                self._leave(key, shared)

    def _join(self, key: bytes, call: Callable[[], Awaitable[T]]) -> tuple[_SharedCall[T], bool]:
        with self._lock:
            shared = self._calls.get(key)
            # a loop that has stopped will never finish its call, so the next caller takes over
            mine = shared is None or not shared.loop.is_running()
            if shared is None or mine:
                shared = self._calls[key] = _SharedCall(asyncio.get_running_loop())
                shared.task = shared.loop.create_task(self._run(key, shared, call))
            shared.waiting += 1
            return shared, mine

    def _leave(self, key: bytes, shared: _SharedCall[T]) -> None:
        with self._lock:
            shared.waiting -= 1
            abandoned = shared.waiting == 0 and not shared.finished.done()
            if abandoned:
                self._remove(key, shared)
        if abandoned and shared.task is not None and not shared.loop.is_closed():
            shared.loop.call_soon_threadsafe(shared.task.cancel)

    async def _run(self, key: bytes, shared: _SharedCall[T], call: Callable[[], Awaitable[T]]) -> None:
        outcome: _Outcome[T] = _Outcome()
        try:
            outcome = _Outcome((await call(),))
        except Exception as error:
            outcome = _Outcome(error=error)
        finally:
            with self._lock:
                self._remove(key, shared)
            shared.finished.set_result(outcome)

    def _remove(self, key: bytes, shared: _SharedCall[T]) -> None:
        if self._calls.get(key) is shared:
            del self._calls[key]


async def _wait_for(shared: _SharedCall[T]) -> T:
    finished = asyncio.wrap_future(shared.finished)
    here = asyncio.get_running_loop()
    while not shared.finished.done():
        # the future does not report that its loop has died, so callers on other loops check from time to time
        await asyncio.wait({finished}, timeout=None if shared.loop is here else _CHECK_SECONDS)
        if not shared.finished.done() and not shared.loop.is_running():
            raise _NoResult
    outcome = shared.finished.result()
    if outcome.error is not None:
        raise outcome.error
    if not outcome.values:
        raise _NoResult
    return outcome.values[0]
