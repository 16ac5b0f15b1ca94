"""The numbers of optimizer steps, rollouts, prompts and trajectories of a run, from its settings alone.

They follow TRL's sampler (a rollout's prompts are repeated until its rows have been used `num_iterations` times; tasks
that do not fill a rollout are left out) and transformers' loop (an epoch's last step may have fewer micro-batches).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from arpo_trainer.training.config import ARPOConfig


@dataclass(frozen=True)
class StepSchedule:
    """The schedule from the first step to the last.

    Attributes:
        steps: updates of the optimizer.
        rollouts: rollouts of the policy.
        prompts: prompts of one rollout, over all processes.
        trajectories: trajectories of one rollout, over all processes; these are the rows to train on.
        updates: optimizer steps per rollout; not always a whole number.
        uses: how often a trajectory is trained on (`num_iterations`).
        micro_batches: micro-batches of one process in the whole run.
        rows: rows of one micro-batch of one process.
        tasks: the number of training tasks; None if it is not known.
        processes: the number of processes.
    """

    steps: int
    rollouts: int
    prompts: int
    trajectories: int
    updates: float
    uses: int
    micro_batches: int
    rows: int
    tasks: int | None
    processes: int

    @property
    def trained_rows(self) -> int:
        """Rows that the model computes with a gradient, over all processes and the whole run."""
        return self.micro_batches * self.rows * self.processes

    @property
    def tasks_played(self) -> int:
        """Different tasks that are played, at most: those of one epoch that fill whole rollouts."""
        played = self.rollouts * self.prompts
        return played if self.tasks is None else min(played, self.tasks // self.prompts * self.prompts)


def step_schedule(args: ARPOConfig, tasks: int | None) -> StepSchedule:
    """Return the schedule of a run.

    Args:
        args: the settings of the run.
        tasks: the number of training tasks; None if it is not known, and `max_steps` is set.

    Raises:
        ValueError: there are fewer tasks than one rollout plays, or nothing sets the end of the run.
    """
    group, rows = args.num_generations or 1, args.generation_batch_size or 1
    prompts, accumulation = rows // group, args.gradient_accumulation_steps
    rollout = (args.steps_per_generation or accumulation) * args.num_iterations  # micro-batches per rollout
    if tasks is not None and tasks < prompts:
        raise ValueError(
            f"a rollout plays {prompts} prompts, but there are only {tasks} tasks: nothing would be trained. Lower "
            "gradient_accumulation_steps or per_device_train_batch_size, or give more tasks"
        )
    steps, micro_batches = _loop(args, None if tasks is None else tasks // prompts * rollout, accumulation)
    return StepSchedule(
        steps=steps,
        # rounded up: training may end before the last rollout is used up
        rollouts=-(-micro_batches // rollout),
        prompts=prompts,
        trajectories=rows,
        updates=rollout / accumulation,
        uses=args.num_iterations,
        micro_batches=micro_batches,
        rows=args.per_device_train_batch_size,
        tasks=tasks,
        processes=args.world_size,
    )


def _loop(args: ARPOConfig, epoch: int | None, accumulation: int) -> tuple[int, int]:
    """Return the optimizer steps and a process's micro-batches; an epoch has `epoch` of them, or no end (None)."""
    if epoch is None:
        if args.max_steps <= 0:
            raise ValueError("the number of tasks is not known: set max_steps, or give a local file as `data`")
        return args.max_steps, args.max_steps * accumulation
    a_pass = math.ceil(epoch / accumulation)  # the last step of an epoch may have fewer micro-batches
    steps: int = args.max_steps if args.max_steps > 0 else math.ceil(args.num_train_epochs * a_pass)
    whole, rest = divmod(steps, a_pass)
    return steps, whole * epoch + min(rest * accumulation, epoch)


def checkpoint_count(args: ARPOConfig, plan: StepSchedule) -> int:
    """Return the number of checkpoints that stay on disk."""
    strategy = str(getattr(args.save_strategy, "value", args.save_strategy))
    made = occasions(strategy, args.save_steps, args, plan) if strategy != "best" else 1
    if strategy == "steps" and plan.steps % step_interval(args.save_steps, plan):
        made += 1  # the last step always has one
    return min(made, args.save_total_limit or made)


def occasions(strategy: str, every: float | None, args: ARPOConfig, plan: StepSchedule) -> int:
    """Return how often something happens that transformers does every few steps, or once per epoch."""
    if strategy == "steps":
        return plan.steps // step_interval(every or args.logging_steps, plan)
    if strategy != "epoch":
        return 0
    if plan.tasks is None:
        return 1
    a_pass: int = plan.tasks // plan.prompts * (args.steps_per_generation or 1) * args.num_iterations
    return -(-plan.micro_batches // a_pass)


def step_interval(steps: float, plan: StepSchedule) -> int:
    """Return a number of steps; one below 1 is a share of all steps."""
    return max(1, round(steps * plan.steps) if steps < 1 else int(steps))
