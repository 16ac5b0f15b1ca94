"""The task that computes for all who wait: it works on one event loop at a time, and not for one that is gone."""

from __future__ import annotations

import asyncio

from arpo_trainer.backends.base import GenerationError

Worker = asyncio.Task[None] | None


def at_work(worker: Worker) -> bool:
    """Return whether a worker still works on this event loop; one whose loop was closed does not.

    Raises:
        GenerationError: it works on another loop, from which nobody here can be answered.
    """
    if worker is None or worker.done() or worker.get_loop().is_closed():
        return False
    if worker.get_loop() is not asyncio.get_running_loop():
        raise GenerationError(
            "this backend is generating on another event loop: await its requests there, and end that rollout first"
        )
    return True


async def finished(worker: Worker) -> None:
    """Wait until a worker has nothing left; whoever stops waiting does not stop it."""
    if worker is not None and at_work(worker):
        await asyncio.wait([worker])
