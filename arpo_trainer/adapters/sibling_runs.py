"""`together`: lets coroutines that were started at the same time, and that belong together, share one piece of work.

verl starts the rollouts of a prompt as independent coroutines. A tree needs all of them at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass
class _Party:
    size: int = 0
    waiting: int = 0
    work: asyncio.Task[Any] | None = None


_gathering: dict[tuple[asyncio.AbstractEventLoop, Hashable], _Party] = {}


async def together(key: Hashable, work: Callable[[int], Awaitable[T]]) -> tuple[int, T]:
    """Do `work(number of callers)` once for all callers with this key, and return this caller's number and the result.

    The work is cancelled when all callers are.

    Callers belong together if they have the same key and are waiting when the event loop comes to the work: tasks that
    were created one after the other, without an `await` in between. One that comes later begins a new party.

    Args:
        key: names the party.
        work: the function of the first caller is called.

    Raises:
        Exception: what the work raises, in every caller.
    """
    place = (asyncio.get_running_loop(), key)
    party = _gathering.setdefault(place, _Party())
    number, party.size = party.size, party.size + 1
    party.waiting += 1
    if party.work is None:
        # a task runs after all that are ready now, so the other callers have joined when it begins
        party.work = asyncio.create_task(_begin(place, work))
    try:
        # one cancelled caller must not end the work of the others
        return number, await asyncio.shield(party.work)
    finally:
        party.waiting -= 1
        if not party.waiting and not party.work.done():  # all were cancelled
            if _gathering.get(place) is party:
                del _gathering[place]
            party.work.cancel()


async def _begin(place: tuple[asyncio.AbstractEventLoop, Hashable], work: Callable[[int], Awaitable[T]]) -> T:
    return await work(_gathering.pop(place).size)
