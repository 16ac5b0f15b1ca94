"""`OverlappingTrainer`: its next rollout is played while it learns (`max_staleness`); see `rollout_ahead`."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from arpo_trainer.rollout.distributed import GroupsUnderWay, joint_trees
from arpo_trainer.rollout.engine import Engine
from arpo_trainer.training.resume import ResumableTrainer
from arpo_trainer.training.rollout_ahead import RolloutAhead, TakenRollout
from arpo_trainer.training.rollout_plan import RolloutPlan, StepSizes
from arpo_trainer.training.trl_hooks import micro_batch
from envs_registry import Task


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
        """Refuse data whose order cannot be known before, and choose TRL's correction of old weights.

        Raises:
            ValueError: the data are iterable only.
        """
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

    def take_rollout(self, tasks: list[Task], step: int, first_group: int) -> TakenRollout:
        """Return a rollout, and begin the next one if that is due. Every process must call it."""
        if not (self.args.max_staleness and self.model.training):
            groups = GroupsUnderWay(self.engine, tasks, step, first_group)
            trees, seconds = joint_trees(self.engine, groups.own)
            return TakenRollout(trees, seconds, groups.own().spent)
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
            self.ahead = RolloutAhead(self._plan(), self.args.max_staleness, self._training_engine)
            self.ahead.restore(self._saved_ahead)
            self._saved_ahead = None
        return self.ahead

    def _training_engine(self) -> Engine:
        return replace(self.engine, settings=self.args.rollout_settings(num_generations=self.num_generations))

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

    def _rollout_state(self) -> dict[str, Any]:
        return {**super()._rollout_state(), "ahead": self.ahead.state() if self.ahead else self._saved_ahead}

    def _restore(self, state: dict[str, Any]) -> None:
        super()._restore(state)
        self._saved_ahead = state.get("ahead") if self.args.max_staleness else None
