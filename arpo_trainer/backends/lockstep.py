"""Processes that step one engine together: before each step all of them say what they have, and all do the same.

A tensor-parallel engine is as many processes, each with an engine of its own that must be given the same requests in
the same order: a step is collective. Every process asks for turns of its own, at times of its own. So before each step
they exchange what is new and what is gone, and apply it in the order of their ranks. Who has nothing steps for the
others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from arpo_trainer.backends.base import Request


@dataclass(frozen=True)
class Tick:
    """What one process says before a step.

    Attributes:
        new: requests to begin with, by name; names are unique in the group.
        gone: names of requests that nobody waits for any more.
        over: it has no requests and will have none in this rollout.
    """

    new: list[tuple[str, Request]]
    gone: list[str]
    over: bool


class Lockstep:
    """A group of processes that step together, or one alone.

    Args:
        group: a torch.distributed group for objects on the CPU (gloo); None is this process alone.
    """

    def __init__(self, group: Any = None) -> None:
        self.group, self.rank, self.size = group, 0, 1
        if group is not None:
            import torch.distributed as dist

            self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)

    def exchange(self, mine: Tick) -> list[Tick]:
        """Return what all say, in the order of their ranks; waits for all of them."""
        if self.group is None:
            return [mine]
        import torch.distributed as dist

        every: list[Any] = [None] * self.size
        dist.all_gather_object(every, mine, group=self.group)
        return every
