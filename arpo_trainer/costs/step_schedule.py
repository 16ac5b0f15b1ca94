"""How often a run does what: optimizer steps, rollouts, prompts, trajectories. Arithmetic on settings alone.

It follows TRL's sampler (a rollout's prompts are repeated until its rows have been used `num_iterations` times, what
does not fill a rollout is left out) and transformers' loop (an epoch's last step may have fewer micro-batches).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from arpo_trainer.training.config import ARPOConfig


@dataclass(frozen=True)
class StepSchedule:
    """What happens from the first step to the last.

    Attributes:
        steps: updates of the optimizer.
        rollouts: how often the policy plays.
        prompts: played in one rollout, by all processes.
        trajectories: of one rollout, by all processes; the rows that are trained on.
        updates: optimizer steps that use one rollout; not always a whole number.
        uses: how often a trajectory is trained on (`num_iterations`).
        micro_batches: of one process, in the whole run.
        rows: of one micro-batch of one process.
        tasks: there are to train on; None if not known.
        processes: that train.
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
        """Rows that go through the model with a gradient, of all processes and the whole run."""
        return self.micro_batches * self.rows * self.processes

    @property
    def tasks_played(self) -> int:
        """Different tasks that are played, at most: those of one pass, less what fills no rollout."""
        played = self.rollouts * self.prompts
        return played if self.tasks is None else min(played, self.tasks // self.prompts * self.prompts)


def schedule(args: ARPOConfig, tasks: int | None) -> StepSchedule:
    """Return what a run does.

    Args:
        args: its settings.
        tasks: to train on; None if that is not known, which takes `max_steps`.

    Raises:
        ValueError: fewer tasks than one rollout plays, or nothing that says when the run ends.
    """
    group, rows = args.num_generations or 1, args.generation_batch_size or 1
    prompts, accumulation = rows // group, args.gradient_accumulation_steps
    rollout = (args.steps_per_generation or accumulation) * args.num_iterations  # micro-batches that use one rollout
    if tasks is not None and tasks < prompts:
        raise ValueError(
            f"a rollout plays {prompts} prompts, and there are {tasks} tasks: nothing would be trained. Lower "
            "gradient_accumulation_steps or per_device_train_batch_size, or give more tasks"
        )
    steps, micro_batches = _loop(args, None if tasks is None else tasks // prompts * rollout, accumulation)
    return StepSchedule(
        steps=steps,
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
    """Return the optimizer steps and a process's micro-batches; an epoch has `epoch` of them, None is without end."""
    if epoch is None:
        if args.max_steps <= 0:
            raise ValueError("how many tasks there are is not known: give max_steps, or a local file as `data`")
        return args.max_steps, args.max_steps * accumulation
    a_pass = math.ceil(epoch / accumulation)  # the last step of a pass may have fewer micro-batches
    steps: int = args.max_steps if args.max_steps > 0 else math.ceil(args.num_train_epochs * a_pass)
    whole, rest = divmod(steps, a_pass)
    return steps, whole * epoch + min(rest * accumulation, epoch)
