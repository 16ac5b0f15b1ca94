"""Processes that step a tensor-parallel engine together: before each step they exchange their requests.

Each process has an engine of its own that must get the same requests in the same order, since a step is collective. But
each process plays its own trajectories at its own speed. So before each step they exchange new and cancelled requests
and apply them in the order of their ranks. A process without requests steps for the others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from arpo_trainer.backends.base import Request


@dataclass(frozen=True)
class Tick:
    """What one process sends before a step.

    Attributes:
        new: new requests by name; names are unique in the group.
        gone: names of cancelled requests.
        over: whether it has no requests and will have none in this rollout.
    """

    new: list[tuple[str, Request]]
    gone: list[str]
    over: bool


class Lockstep:
    """A group of processes that step together, or a single process.

    Args:
        group: a torch.distributed group for objects on the CPU (gloo); None for a single process.
    """

    def __init__(self, group: Any = None) -> None:
        self.group, self.rank, self.size = group, 0, 1
        if group is not None:
            import torch.distributed as dist

            self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)

    def exchange(self, mine: Tick) -> list[Tick]:
        """Return what all processes sent, in the order of their ranks; waits for all of them."""
        if self.group is None:
            return [mine]
        import torch.distributed as dist

        # this is also the barrier: no process steps before all have said what they add
        every: list[Any] = [None] * self.size
        dist.all_gather_object(every, mine, group=self.group)
        return every


# The current GPU of a thread: CUDA gives every new thread the first one, whichever its process uses.


def device_of(accelerator: Any) -> contextlib.AbstractContextManager[object]:
    """Return a context in which the GPU of a process is the current one; for code on the thread of the event loop."""
    import torch

    device = accelerator.device
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()


def same_device() -> tuple[Callable[..., object], tuple[Any, ...]] | tuple[()]:
    """Return the initializer and its arguments that start the threads of a pool on the GPU of this thread."""
    import torch

    # asking for the current device would initialise CUDA, also for a model that runs on the CPU
    used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return (torch.cuda.set_device, (torch.cuda.current_device(),)) if used else ()
