"""One call for all who ask the same at the same time, whichever thread or event loop they are on.

It remembers nothing once the call has ended: that is the cache's work.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")

_LOOK = 0.5  # seconds between looks whether the loop that does the work still runs


@dataclass(frozen=True)
class _Landing(Generic[T]):
    """How a call ended: with one value, with an error, or with neither because it was cancelled."""

    values: tuple[T, ...] = ()
    error: Exception | None = None


@dataclass(eq=False)
class _Flight(Generic[T]):
    loop: asyncio.AbstractEventLoop
    landed: Future[_Landing[T]] = field(default_factory=Future)
    waiting: int = 0
    task: asyncio.Task[None] | None = None


class _Lost(Exception):
    """The flight of another caller ended without a result."""


class SingleFlight(Generic[T]):
    """Joins equal calls.

    The call runs as a task of its own on the loop of the first caller. A caller who is cancelled leaves the others
    alone; when the last has left, the call is cancelled. All see the error of a call that fails: the calls behind it
    have been repeated already where that makes sense. If the first caller's loop stops, another caller begins anew.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._flights: dict[bytes, _Flight[T]] = {}

    async def do(self, key: bytes, call: Callable[[], Awaitable[T]]) -> T:
        """Return what `call` returns, or what the call of someone with the same key does."""
        while True:
            flight, mine = self._join(key, call)
            try:
                return await _landing(flight)
            except _Lost:
                if mine:
                    raise asyncio.CancelledError from None
            finally:
                self._leave(key, flight)

    def _join(self, key: bytes, call: Callable[[], Awaitable[T]]) -> tuple[_Flight[T], bool]:
        with self._lock:
            flight = self._flights.get(key)
            mine = flight is None or not flight.loop.is_running()
            if flight is None or mine:
                flight = self._flights[key] = _Flight(asyncio.get_running_loop())
                flight.task = flight.loop.create_task(self._fly(key, flight, call))
            flight.waiting += 1
            return flight, mine

    def _leave(self, key: bytes, flight: _Flight[T]) -> None:
        with self._lock:
            flight.waiting -= 1
            abandoned = flight.waiting == 0 and not flight.landed.done()
            if abandoned:
                self._remove(key, flight)
        if abandoned and flight.task is not None and not flight.loop.is_closed():
            flight.loop.call_soon_threadsafe(flight.task.cancel)

    async def _fly(self, key: bytes, flight: _Flight[T], call: Callable[[], Awaitable[T]]) -> None:
        landing: _Landing[T] = _Landing()
        try:
            landing = _Landing((await call(),))
        except Exception as error:
            landing = _Landing(error=error)
        finally:
            with self._lock:
                self._remove(key, flight)
            flight.landed.set_result(landing)

    def _remove(self, key: bytes, flight: _Flight[T]) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]


async def _landing(flight: _Flight[T]) -> T:
    landed = asyncio.wrap_future(flight.landed)
    here = asyncio.get_running_loop()
    while not flight.landed.done():
        await asyncio.wait({landed}, timeout=None if flight.loop is here else _LOOK)
        if not flight.landed.done() and not flight.loop.is_running():
            raise _Lost
    landing = flight.landed.result()
    if landing.error is not None:
        raise landing.error
    if not landing.values:
        raise _Lost
    return landing.values[0]
