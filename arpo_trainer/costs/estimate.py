"""What a run will cost, before it is started: `estimate` puts the parts together as one plain object.

What cannot be known here is left out and said so in `notes`. Time is not among the parts: it is not a matter of
settings, and a number without a measurement would be made up.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Protocol

from arpo_env import ToolEnv
from arpo_env.budget import BYTES_A_TOKEN
from arpo_trainer.costs.episode_usage import (
    EpisodeLimits,
    GroupTokens,
    ServiceUse,
    asked,
    episode_limits,
    group_sampling,
)
from arpo_trainer.costs.memory import MemoryNeeds, checkpoint_bytes, memory
from arpo_trainer.costs.model_shape import ModelShape
from arpo_trainer.costs.sharding import ProcessLayout
from arpo_trainer.costs.step_schedule import StepSchedule, schedule
from arpo_trainer.rollout.rendering import Renderer
from arpo_trainer.training.config import ARPOConfig

PROMPTS_READ = 16  # tasks whose prompts are measured
TRACE_BYTES = 75  # of a token in traces.jsonl: id, log-probability, entropy, text; small runs wrote 48 to 55


class CostSettings(Protocol):
    """The settings that an estimate needs beside `ARPOConfig`; `RunArguments` has them."""

    dtype: str
    eval_tasks: int
    cold_start_examples: int
    search_price: float | None


@dataclass(frozen=True)
class PromptLengths:
    """Tokens of the prompts, measured on the first tasks.

    Attributes:
        mean: of those.
        longest: of those.
        measured: with the model's tokenizer; else a token is taken for four bytes.
    """

    mean: float
    longest: int
    measured: bool


@dataclass(frozen=True)
class EvaluationCosts:
    """Greedy answers to held-out tasks.

    Attributes:
        times: how often, before and after training included.
        tasks: each time.
        episode: limits of one answer.
        asked: of services outside, for one answer.
    """

    times: int
    tasks: int
    episode: EpisodeLimits
    asked: ServiceUse

    @property
    def answers(self) -> int:
        """How many there are in all."""
        return self.times * self.tasks


@dataclass(frozen=True)
class Costs:
    """The whole report.

    Attributes:
        schedule: steps, rollouts, trajectories.
        episode: limits of one trajectory.
        group: tokens one prompt's trajectories cost to sample.
        asked: of services outside, for one trajectory.
        prompts: their tokens.
        passes: forward passes over a rollout's rows without a gradient: old and reference log-probabilities.
        evaluations: None without evaluation.
        demonstrations: of the cold start.
        shape: of the model; None if its configuration could not be had.
        memory: of one process; None likewise.
        layout: how the model lies on the processes.
        checkpoints: kept on disk.
        checkpoint_bytes: of one.
        trace_bytes: of traces.jsonl, at most.
        notes: what is left out, and why.
    """

    schedule: StepSchedule
    episode: EpisodeLimits
    group: GroupTokens
    asked: ServiceUse
    prompts: PromptLengths
    passes: int
    evaluations: EvaluationCosts | None
    demonstrations: int
    shape: ModelShape | None
    memory: MemoryNeeds | None
    layout: ProcessLayout
    checkpoints: int
    checkpoint_bytes: int
    trace_bytes: int
    notes: tuple[str, ...] = ()

    @property
    def trajectories(self) -> int:
        """Of the whole training."""
        return self.schedule.rollouts * self.schedule.trajectories

    @property
    def groups(self) -> int:
        """Prompts that are played, again and again counted."""
        return self.schedule.rollouts * self.schedule.prompts

    @property
    def sampled(self) -> int:
        """Tokens sampled for training, at most."""
        return self.groups * self.group.most

    @property
    def learned(self) -> int:
        """Tokens in the loss, at most, each as often as it is used."""
        return self.schedule.trained_rows * self.episode.sampled

    @property
    def computed(self) -> int:
        """Tokens that go through the model with a gradient, at most; trees that are packed have fewer."""
        return round(self.schedule.trained_rows * (self.prompts.mean + self.episode.room))

    @property
    def calls(self) -> int:
        """Tool calls of the training, at most."""
        return self.trajectories * self.episode.calls

    @property
    def searches(self) -> int:
        """Searches of training and evaluation, at most."""
        held_out = self.evaluations
        return self.trajectories * self.asked.searches + (held_out.answers * held_out.asked.searches if held_out else 0)

    @property
    def search_usd(self) -> float | None:
        """Price of all searches, at most; None if it is not known."""
        parts = [(self.trajectories * self.asked.searches, self.asked.usd)]
        if self.evaluations:
            parts.append((self.evaluations.answers * self.evaluations.asked.searches, self.evaluations.asked.usd))
        if any(usd is None for searches, usd in parts if searches):
            return None
        return sum(searches * (usd or 0.0) / 1000 for searches, usd in parts)

    def as_dict(self) -> dict[str, Any]:
        """Return what run.json keeps: the bounds that can be compared with what happened, and all parts."""
        names = ("trajectories", "groups", "sampled", "learned", "computed", "calls", "searches", "search_usd")
        bounds = {name: getattr(self, name) for name in names}
        peak = self.memory.peak if self.memory else None
        parts = dataclasses.asdict(self) | {
            "layout": {"processes": self.layout.processes, "sharding": self.layout.sharding}  # a set is not JSON
        }
        return {"at_most": bounds, "memory_peak": peak, **parts}


def estimate(
    run: CostSettings,
    args: ARPOConfig,
    env: ToolEnv,
    held_out: ToolEnv | None,
    tasks: int | None,
    *,
    tokenizer: Any = None,
    shape: ModelShape | None = None,
    layout: ProcessLayout | None = None,
    on_cpu: bool = False,
    notes: tuple[str, ...] = (),
) -> Costs:
    """Return what a run will cost.

    Args:
        run: its arguments.
        args: its settings.
        env: to train on.
        held_out: to evaluate on; None if nothing is.
        tasks: how many there are to train on; None if not known.
        tokenizer: of the model; without it the prompts are taken for four bytes a token.
        shape: of the model; without it no memory is estimated.
        layout: how the model lies on the processes; by default as the environment says.
        on_cpu: whether it trains on CPU.
        notes: what has been left out already.

    Raises:
        ValueError: settings that cannot make a run; see `schedule`.
    """
    layout = layout or ProcessLayout.of(args.world_size)
    plan, episode = schedule(args, tasks), episode_limits(env, args)
    group, prompts = group_sampling(episode, args), prompt_tokens(env, args, tokenizer)
    dtype = str((args.model_init_kwargs or {}).get("dtype", run.dtype)).removeprefix("torch.")
    dtype = shape.dtype if shape and dtype == "auto" else dtype
    needs = memory(shape, args, layout, prompts.longest, episode.room, dtype, on_cpu) if shape else None
    traced = group.most + args.num_generations * (episode.room - episode.sampled)
    traces = 0 if not args.trace_every else -(-plan.rollouts // args.trace_every) * plan.prompts * traced * TRACE_BYTES
    return Costs(
        schedule=plan,
        episode=episode,
        group=group,
        asked=asked(env, episode, run.search_price),
        prompts=prompts,
        passes=_passes(args),
        evaluations=_evaluations(run, args, held_out, plan),
        demonstrations=run.cold_start_examples,
        shape=shape,
        memory=needs,
        layout=layout,
        checkpoints=_checkpoints(args, plan),
        checkpoint_bytes=checkpoint_bytes(shape, args, dtype) if shape else 0,
        trace_bytes=traces,
        notes=notes,
    )


def prompt_tokens(env: ToolEnv, args: ARPOConfig, tokenizer: Any = None) -> PromptLengths:
    """Return how long prompts are."""
    size = env.tasks.size
    tasks = [env.tasks.task(number) for number in range(PROMPTS_READ if size is None else min(size, PROMPTS_READ))]
    opened = [env.messages(task) for task in tasks] or [[{"role": "system", "content": env.system_prompt}]]
    if tokenizer is None:
        lengths = [sum(len(part["content"].encode()) for part in parts) // BYTES_A_TOKEN for parts in opened]
    else:
        renderer = Renderer(tokenizer, env.protocol, args.chat_template_kwargs)
        lengths = [len(renderer.prompt_ids(parts, env.schemas)) for parts in opened]
    return PromptLengths(sum(lengths) / len(lengths), max(lengths), tokenizer is not None)


def _passes(args: ARPOConfig) -> int:
    """Return how often TRL goes over a rollout's rows before it learns from them."""
    used = (args.steps_per_generation or 1) * args.num_iterations
    corrected = args.use_vllm and args.vllm_importance_sampling_correction
    return int(bool(args.gradient_accumulation_steps % used or corrected)) + int(args.beta != 0)


def _evaluations(
    run: CostSettings, args: ARPOConfig, held_out: ToolEnv | None, plan: StepSchedule
) -> EvaluationCosts | None:
    if held_out is None or not run.eval_tasks:
        return None
    episode = episode_limits(held_out, args)
    tasks = min(run.eval_tasks, held_out.tasks.size or run.eval_tasks)  # without end, or not to be had here
    during = _occasions(str(getattr(args.eval_strategy, "value", args.eval_strategy)), args.eval_steps, args, plan)
    every = _every(args.eval_steps or args.logging_steps, plan)
    repeated = during and str(getattr(args.eval_strategy, "value", args.eval_strategy)) == "steps"
    known = bool(repeated and plan.steps % every == 0 and not args.load_best_model_at_end)  # the last one is that after
    return EvaluationCosts(2 + during - known, tasks, episode, asked(held_out, episode, run.search_price))


def _checkpoints(args: ARPOConfig, plan: StepSchedule) -> int:
    strategy = str(getattr(args.save_strategy, "value", args.save_strategy))
    made = _occasions(strategy, args.save_steps, args, plan) if strategy != "best" else 1
    if strategy == "steps" and plan.steps % _every(args.save_steps, plan):
        made += 1  # the last step's
    return min(made, args.save_total_limit or made)


def _occasions(strategy: str, every: float | None, args: ARPOConfig, plan: StepSchedule) -> int:
    """Return how often something happens that transformers does every so many steps, or once a pass over the tasks."""
    if strategy == "steps":
        return plan.steps // _every(every or args.logging_steps, plan)
    if strategy != "epoch":
        return 0
    if plan.tasks is None:
        return 1
    a_pass: int = plan.tasks // plan.prompts * (args.steps_per_generation or 1) * args.num_iterations
    return -(-plan.micro_batches // a_pass)


def _every(steps: float, plan: StepSchedule) -> int:
    """Return a number of steps that may be given as a share of all."""
    return max(1, round(steps * plan.steps) if steps < 1 else int(steps))
