"""`OverlappingTrainer`: its next rollout is played while it learns (`max_staleness`)."""

from __future__ import annotations

import itertools
import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arpo_trainer.rollout.engine import Engine, GroupsUnderWay, OwnGroups, gather, joint_trees, rank_count, share
from arpo_trainer.training.resume import ResumableTrainer
from arpo_trainer.training.rollout_batch import RolloutBatch
from arpo_trainer.training.trl_hooks import micro_batch
from arpo_trainer.tree import RolloutTree
from envs_registry import Task

logger = logging.getLogger(__name__)

# Which tasks each rollout of a run will play, and which step will use it first. TRL asks for a rollout when it needs
# one. To play one ahead, its tasks, its step and the numbers of its groups have to be known before; they follow from
# the order of the sampler and from the sizes of batches. Rollouts are numbered from 0 over the whole run, and so are
# micro-batches: rollout n is used from micro-batch n * uses on.


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
    """The tasks of a rollout, the step that uses it first, from 1, and the number of its first group in that step."""

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
        """Return a rollout; numbers may be asked in increasing order only."""
        while self._ahead[0] < number:
            self._ahead = next(self._rollouts)
        tasks = [Task.from_dict(json.loads(self._task_json(row))) for row in self._ahead[1]]
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


# Rollout n + 1 begins as soon as at most `max_staleness` steps lie between the weights that it gets and its first use.
# It keeps these weights to its end. What it played is taken when TRL asks for that rollout, so that its trees, rewards
# and metrics belong to the step that learns from them. Its seeds are those which it would have without any overlap.
# Evaluations and checkpoints wait for the rollout ahead. A checkpoint contains it, so that a resumed run is the same.


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
            self.saved = self.groups.result()
        return self.saved


class RolloutAhead:
    """At most one rollout ahead of the trainer.

    Args:
        plan: the rollouts of the run.
        most: maximum number of steps between the weights of a rollout and its first use (`max_staleness`).
        engine: plays training rollouts.
    """

    def __init__(self, plan: RolloutPlan, most: int, engine: Engine) -> None:
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

    def take(self, number: int, tasks: Sequence[Task], step: int, first_group: int) -> RolloutBatch:
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
        ahead, asked = self._ahead, PlannedRollout(list(tasks), step, first_group)
        if ahead is None or not self._expected(ahead, number, asked):
            self.stop()
            ahead = self._begin(number, asked, step - 1)
        trees, seconds = joint_trees(self._engine, ahead.own)
        self._ended = ahead.groups.ended if ahead.groups else 0.0
        self._ahead = None
        overlap = {"staleness": float(step - 1 - ahead.weights), "seconds_rollout_idle": ahead.idle}
        return RolloutBatch(trees, seconds, ahead.own().spent, overlap)

    def begin_if_due(self, micro_batch: int, step: int) -> None:
        """Begin the next rollout if its weights would not be too old at its first use. Every process must call it."""
        sizes, number = self.plan.sizes, micro_batch // self.plan.sizes.uses + 1
        first_use = sizes.first_use(number)
        if self._ahead or self._restored or not self._holds or sizes.step(micro_batch) != step:
            return
        # a rollout that no step would use is not begun
        if first_use >= sizes.steps or first_use - step > self.most:
            return
        self._begin(number, self.plan.rollout(number), step)

    def _begin(self, number: int, planned: PlannedRollout, weights: int) -> _Ahead:
        groups = GroupsUnderWay(self._engine, planned.tasks, planned.step, planned.first_group)
        idle = max(0.0, groups.started - self._ended) if self._ended else 0.0
        self._ahead = _Ahead(number, planned, weights, idle, groups)  # kept, so that an interrupt finds it
        return self._ahead

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


class OverlappingTrainer(ResumableTrainer):
    """Adds `args.max_staleness` to `ResumableTrainer`.

    Attributes:
        engine: plays the rollouts.
        ahead: the rollout ahead; None without overlap, and outside training.
    """

    engine: Engine
    ahead: RolloutAhead | None = None
    _waited = 0.0
    _saved_ahead: dict[str, Any] | None = None

    def check_overlap(self) -> None:
        """Refuse data whose order cannot be known before, and choose TRL's correction of old weights."""
        if not self.args.max_staleness:
            return
        if not hasattr(self.train_dataset, "__len__"):
            raise ValueError(
                f"max_staleness={self.args.max_staleness} with an iterable data set: the tasks of the next rollout "
                "cannot be known before. Give a data set with a length, or leave max_staleness out"
            )
        self.corrects_sampling = bool(self.args.vllm_importance_sampling_correction)

    def train(self, resume_from_checkpoint: str | Path | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """Train; however it ends, no rollout is left running. See `ResumableTrainer.train`."""
        self._saved_ahead = None
        try:
            return super().train(resume_from_checkpoint, *args, **kwargs)
        finally:
            ahead, self.ahead = self.ahead, None
            if ahead:
                ahead.stop()

    def take_rollout(self, engine: Engine, tasks: list[Task], step: int, first_group: int) -> RolloutBatch:
        """Return a rollout, and begin the next one if that is due. Every process must call it."""
        if not (self.args.max_staleness and self.model.training):
            groups = GroupsUnderWay(engine, tasks, step, first_group)
            trees, seconds = joint_trees(engine, groups.result)
            return RolloutBatch(trees, seconds, groups.result().spent)
        began = time.perf_counter()
        ahead = self._rollouts_ahead()
        taken = ahead.take(micro_batch(self) // ahead.plan.sizes.uses, tasks, step, first_group)
        ahead.begin_if_due(micro_batch(self), self.state.global_step)
        taken.overlap["seconds_trainer_idle"] = self._waited + time.perf_counter() - began
        return taken

    def before_loss(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Begin the next rollout if that has become due with the last step."""
        if self.args.max_staleness and self.model.training:
            # also if no rollout was taken yet, in a run that was resumed in the middle of one
            self._rollouts_ahead().begin_if_due(micro_batch(self), self.state.global_step)
        return super().before_loss(inputs)

    def before_rollout(self) -> None:
        """Wait for the rollout ahead: TRL hands weights over next, and nothing may generate then."""
        began = time.perf_counter()
        if self.ahead:
            self.ahead.wait()
        self._waited = time.perf_counter() - began

    def _rollouts_ahead(self) -> RolloutAhead:
        if self.ahead is None:
            self.ahead = RolloutAhead(self._plan(), self.args.max_staleness, self.engine)
            self.ahead.restore(self._saved_ahead)
            self._saved_ahead = None
        return self.ahead

    def _plan(self) -> RolloutPlan:
        args, groups = self.args, self.args.generation_batch_size // self.num_generations
        sizes = StepSizes(
            uses=args.steps_per_generation * self.num_iterations,
            accumulation=args.gradient_accumulation_steps,
            per_epoch=len(self.train_dataset) // groups,
            groups=groups,
            steps=self.state.max_steps,
        )
        return RolloutPlan(
            self.fresh_sampler(), lambda row: str(self.train_dataset[row]["task"]), sizes, self.num_generations
        )

    def resume_state(self) -> dict[str, Any]:
        """Add the rollout ahead."""
        return {**super().resume_state(), "ahead": self.ahead.state() if self.ahead else self._saved_ahead}

    def restore_state(self, state: dict[str, Any]) -> None:
        """Restore the rollout ahead, too."""
        super().restore_state(state)
        self._saved_ahead = state.get("ahead") if self.args.max_staleness else None
