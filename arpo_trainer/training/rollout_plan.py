"""`RolloutPlan`: which tasks each rollout of a training run will play, and which step will use it first.

TRL asks for a rollout when it needs one. To play one ahead, its tasks, its step and the numbers of its groups have to
be known before, and whether it will be used at all. They follow from the order of the sampler and from the sizes of
batches. Rollouts are numbered from 0 over the whole run, and so are micro-batches: rollout n is used from micro-batch
n * uses on.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from arpo_trainer.tree import RolloutTree
from envs_registry import Task


@dataclass(frozen=True)
class StepSizes:
    """How rollouts, micro-batches and steps of a run follow each other.

    Attributes:
        uses: micro-batches that use one rollout (`steps_per_generation * num_iterations`).
        accumulation: micro-batches of one step (`gradient_accumulation_steps`).
        per_epoch: rollouts in one pass over the data.
        groups: groups in one rollout, those of all processes.
        steps: steps of the run.
    """

    uses: int
    accumulation: int
    per_epoch: int
    groups: int
    steps: int

    def step(self, micro_batch: int) -> int:
        """Return how many steps are done when a micro-batch begins."""
        length = self.per_epoch * self.uses
        epoch, place = divmod(micro_batch, length)
        # the last step of an epoch may have fewer micro-batches; the next one begins with the epoch
        return epoch * -(-length // self.accumulation) + place // self.accumulation

    def first_use(self, rollout: int) -> int:
        """Return how many steps are done when a rollout is first used."""
        return self.step(rollout * self.uses)

    def first_group(self, rollout: int) -> int:
        """Return the number of a rollout's first group: those of one step number their groups on."""
        step, first = self.first_use(rollout), rollout
        while first and self.first_use(first - 1) == step:
            first -= 1
        return (rollout - first) * self.groups


@dataclass(frozen=True)
class PlannedRollout:
    """A rollout of the run.

    Attributes:
        tasks: of its groups.
        step: number of the step that uses it first, from 1.
        first_group: number of its first group in that step.
    """

    tasks: list[Task]
    step: int
    first_group: int


class RolloutPlan:
    """The rollouts of a run, in order.

    Args:
        sampler: gives the numbers of the rows of one epoch at each pass, each row `size` times and each rollout
            `sizes.uses` times in a row, as TRL's does.
        task_json: returns the task of a row as JSON.
        sizes: of the run.
        size: trajectories per group.
    """

    def __init__(self, sampler: Iterable[int], task_json: Callable[[int], str], sizes: StepSizes, size: int) -> None:
        self.sizes, self.size, self._task_json = sizes, size, task_json
        self._rollouts = enumerate(_rollouts(sampler, sizes, size))
        self._ahead: tuple[int, list[int]] = (-1, [])

    def rollout(self, number: int) -> PlannedRollout:
        """Return a rollout; numbers may be asked in increasing order only.

        Raises:
            ValueError: an earlier number was asked, or the data are empty.
        """
        while self._ahead[0] < number:
            self._ahead = next(self._rollouts)
        found, rows = self._ahead
        if found != number:
            raise ValueError(f"rollout {number} is behind rollout {found}, which was asked before")
        tasks = [Task.from_dict(json.loads(self._task_json(row))) for row in rows]
        return PlannedRollout(tasks, self.sizes.first_use(number) + 1, self.sizes.first_group(number))

    def fits(self, planned: PlannedRollout, own: range, trees: Sequence[RolloutTree]) -> bool:
        """Return whether trees are those of a process in a rollout: of its tasks, step and groups, and of the size."""
        wanted = [(planned.tasks[n].as_dict(), planned.step, planned.first_group + n, self.size) for n in own]
        return wanted == [(tree.task, tree.meta["step"], tree.meta["group"], len(tree.trajectories)) for tree in trees]


def _rollouts(sampler: Iterable[int], sizes: StepSizes, size: int) -> Iterator[list[int]]:
    """Yield one row per group for each rollout, epoch after epoch."""
    played = sizes.groups * size
    while True:
        rows, found = iter(sampler), False
        while rollout := list(itertools.islice(rows, played * sizes.uses)):
            found = True
            yield rollout[:played:size]
        if not found:
            raise ValueError("the data hold no whole rollout: give more tasks, or a smaller batch")
