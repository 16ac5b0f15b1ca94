"""Requests under way in a backend of this process, and the worker task that computes them.

The worker serves one event loop at a time. A worker whose loop was closed is gone, and its requests with it.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from arpo_trainer.backends.base import EntropyWindow, Generation, GenerationError, Request
from arpo_trainer.backends.stop_strings import StopFinder

if TYPE_CHECKING:
    from arpo_trainer.backends.kv_cache import PrefixStore
    from arpo_trainer.backends.token_filters import TokenFilters

Worker = asyncio.Task[None] | None


@dataclass(eq=False)
class DecodingRow:
    """A request, the caller that waits for it, and what has been generated so far.

    Attributes:
        request: what to generate.
        future: resolved with the generation; cancelled when the caller does not wait any more.
        window: told the first entropies.
        stops: finds the stop strings of the request.
        store: the prefixes of the rollout that the request belongs to.
        out: what has been generated so far.
        filters: of the request's sampling; None if it has none.
    """

    request: Request
    future: asyncio.Future[Generation]
    window: EntropyWindow
    stops: StopFinder
    store: PrefixStore
    out: Generation = field(default_factory=Generation)
    filters: TokenFilters | None = None
    asked: float = field(default_factory=time.perf_counter)

    def begin(self) -> None:
        """Note that the model begins with the request: it has waited until now."""
        self.out.queued = time.perf_counter() - self.asked

    def tell(self) -> None:
        """Tell the entropies of the first tokens once they are there; call it on the event loop."""
        self.window.tell(self.out.entropies)

    def answer(self) -> None:
        """Give the generation to the caller; call it on the event loop."""
        if not self.future.done():
            # a turn may be over before it has filled the window
            self.window.tell(self.out.entropies, last=True)
            self.future.set_result(self.out)

    def fail(self, error: Exception) -> None:
        """Give an error to the caller; call it on the event loop."""
        if not self.future.done():
            self.future.set_exception(error)


def at_work(worker: Worker) -> bool:
    """Return whether a worker is running on this event loop.

    Raises:
        GenerationError: it is running on another loop, which cannot answer callers on this one.
    """
    # a task whose loop was closed in its midst never becomes done
    if worker is None or worker.done() or worker.get_loop().is_closed():
        return False
    if worker.get_loop() is not asyncio.get_running_loop():
        raise GenerationError(
            "this backend is generating on another event loop: await its requests there, and end that rollout first"
        )
    return True


async def finished(worker: Worker) -> None:
    """Wait until a worker has nothing left to do; cancelling this wait does not stop the worker."""
    if worker is not None and at_work(worker):
        # awaiting the worker itself would pass a cancellation on to it, and raise its error here, too
        await asyncio.wait([worker])
