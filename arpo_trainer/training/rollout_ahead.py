"""`RolloutAhead`: plays the next rollout while the trainer learns from the last one.

    trainer       | wait r0 | update 0    | update 1    | ...
    rollout side  | r0      | r1          | r2          | ...

Rollout n + 1 begins as soon as at most `max_staleness` steps lie between the weights that it gets and its first use. It
keeps these weights to its end: new ones are handed over only between rollouts. What it played is taken when TRL asks
for that rollout, so that its trees, rewards and metrics belong to the step that learns from them. Its seeds are those
which it would have without any overlap, so its trees depend on the run alone and not on timing.

Evaluations and checkpoints wait for the rollout ahead. A checkpoint contains it, so that a resumed run is the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from arpo_trainer.rollout.distributed import GroupsUnderWay, OwnGroups, gather, joint_trees, rank_count, share
from arpo_trainer.rollout.engine import Engine
from arpo_trainer.training.rollout_plan import PlannedRollout, RolloutPlan
from arpo_trainer.tree import RolloutTree
from envs_registry import Task

logger = logging.getLogger(__name__)


@dataclass
class TakenRollout:
    """A rollout that the trainer has taken.

    Attributes:
        trees: of all processes, in order.
        seconds: that the slowest process played.
        spent: seconds of this process by activity.
        overlap: "staleness" and "seconds_rollout_idle", to which the trainer adds "seconds_trainer_idle"; empty where
            nothing is played ahead.
    """

    trees: list[RolloutTree]
    seconds: float
    spent: dict[str, float]
    overlap: dict[str, float] = field(default_factory=dict)


@dataclass
class _Ahead:
    """A rollout that was begun ahead: under way, or over and read from a checkpoint (`own`)."""

    number: int
    planned: PlannedRollout
    weights: int  # steps that they had learned
    idle: float  # seconds from the end of the rollout before to its beginning
    groups: GroupsUnderWay | None = None
    saved: OwnGroups | None = None

    def own(self) -> OwnGroups:
        if self.saved is None:
            assert self.groups is not None
            self.saved = self.groups.own()
        return self.saved


class RolloutAhead:
    """At most one rollout ahead of the trainer.

    Args:
        plan: the rollouts of the run.
        most: most steps between the weights of a rollout and its first use (`max_staleness`).
        engine: returns the engine that plays training rollouts.
    """

    def __init__(self, plan: RolloutPlan, most: int, engine: Callable[[], Engine]) -> None:
        self.plan, self.most, self._engine = plan, most, engine
        self._ahead: _Ahead | None = None
        self._restored: dict[str, Any] | None = None
        self._ended = 0.0  # when the last rollout ended, by `time.perf_counter`
        self._holds = True

    def wait(self) -> None:
        """Wait until nothing is being played; what was played is kept."""
        if self._ahead and self._ahead.groups:
            self._ahead.groups.wait()

    def stop(self) -> None:
        """Stop the rollout ahead, whose trajectories are lost, and wait until its environments are closed."""
        if self._ahead and self._ahead.groups and self._ahead.saved is None:
            self._ahead.groups.stop()
        self._ahead = None

    def take(self, number: int, tasks: Sequence[Task], step: int, first_group: int) -> TakenRollout:
        """Return a rollout: the one ahead if it is this one; otherwise it is played now. Every process must call it.

        Args:
            number: of the rollout.
            tasks: that TRL asks for.
            step: number of the step that uses it, from 1.
            first_group: number of its first group in that step.

        Raises:
            RuntimeError: on every process, if the rollout failed on one.
        """
        self._resume(number)
        ahead = self._ahead
        if ahead is None or not self._expected(ahead, number, PlannedRollout(list(tasks), step, first_group)):
            self.stop()
            groups = GroupsUnderWay(self._engine(), tasks, step, first_group)
            ahead = _Ahead(number, PlannedRollout(list(tasks), step, first_group), step - 1, self._idle(groups), groups)
            self._ahead = ahead  # so that an interrupt finds it
        trees, seconds = joint_trees(self._engine(), ahead.own)
        self._ended = ahead.groups.ended if ahead.groups else 0.0
        self._ahead = None
        overlap = {"staleness": float(step - 1 - ahead.weights), "seconds_rollout_idle": ahead.idle}
        return TakenRollout(trees, seconds, ahead.own().spent, overlap)

    def begin_if_due(self, micro_batch: int, step: int) -> None:
        """Begin the next rollout if its weights would not be too old at its first use. Every process must call it.

        Args:
            micro_batch: the one that is being used.
            step: steps done.
        """
        sizes, number = self.plan.sizes, micro_batch // self.plan.sizes.uses + 1
        first_use = sizes.first_use(number)
        if self._ahead or self._restored or not self._holds or sizes.step(micro_batch) != step:
            return
        # a rollout that no step would use is not begun
        if first_use >= sizes.steps or first_use - step > self.most:
            return
        planned = self.plan.rollout(number)
        groups = GroupsUnderWay(self._engine(), planned.tasks, planned.step, planned.first_group)
        self._ahead = _Ahead(number, planned, step, self._idle(groups), groups)

    def state(self) -> dict[str, Any] | None:
        """Wait for the rollout ahead, and return it as plain data; None if there is none, or if it failed."""
        if self._ahead is None:
            return self._restored
        try:
            own = self._ahead.own()
        except Exception:  # `take` raises it; a checkpoint without this rollout is as good as any
            return None
        return {
            "number": self._ahead.number,
            "weights": self._ahead.weights,
            "idle": self._ahead.idle,
            "ranks": rank_count(),
            "seconds": own.seconds,
            "spent": own.spent,
            "trees": [tree.to_json() for tree in own.trees],
        }

    def restore(self, state: dict[str, Any] | None) -> None:
        """Go on with what `state` returned in the run that is resumed."""
        self._restored = state

    def _resume(self, number: int) -> None:
        """Take up the rollout of the checkpoint, if every process has its part of it, and it is still the next one."""
        state, self._restored = self._restored, None
        if self._ahead or not any(gather([state is not None])):
            return
        planned = self.plan.rollout(number)
        trees = [RolloutTree.from_json(line) for line in state["trees"]] if state else []
        fits = state is not None and (state["number"], state["ranks"]) == (number, rank_count())
        # the settings may be others than those of the run that played them
        fits = fits and self.plan.fits(planned, share(len(planned.tasks)), trees)
        if state is None or not all(gather([fits])):
            logger.warning(
                "the rollout ahead in the checkpoint is not the next one of this run (another number of processes, "
                "other sizes, tasks or seed): it is played again"
            )
            return
        own = OwnGroups(trees, state["seconds"], state["spent"])
        self._ahead = _Ahead(number, planned, state["weights"], state["idle"], saved=own)

    def _expected(self, ahead: _Ahead, number: int, asked: PlannedRollout) -> bool:
        """Return whether the rollout ahead is the one that is asked for; if not, none is begun ahead any more."""
        if ahead.number == number and ahead.planned == asked:
            return True
        logger.warning(
            "the data loader asks for other tasks than its sampler has planned, so rollouts are not played ahead any "
            "more: max_staleness needs the data loader of TRL, with its sampler"
        )
        self._holds = False
        return False

    def _idle(self, groups: GroupsUnderWay) -> float:
        return max(0.0, groups.started - self._ended) if self._ended else 0.0
