"""The estimate of a run's costs: `estimate` combines the parts into one plain object.

What is not available is left out, and `notes` says so. Time is not estimated: settings do not determine it, and a
number without a measurement would be made up.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Protocol

from arpo_env import ToolEnv
from arpo_env.episode import BYTES_A_TOKEN
from arpo_trainer.costs.episode_usage import (
    EpisodeLimits,
    GroupTokens,
    ServiceUse,
    episode_limits,
    group_tokens,
    service_use,
)
from arpo_trainer.costs.memory import MemoryNeeds, checkpoint_bytes, memory, prompts_computed, will_pack
from arpo_trainer.costs.model_shape import ModelShape
from arpo_trainer.costs.sharding import ProcessLayout
from arpo_trainer.costs.step_schedule import StepSchedule, checkpoint_count, occasions, step_interval, step_schedule
from arpo_trainer.rollout.rendering import Renderer
from arpo_trainer.training.config import ARPOConfig

PROMPTS_READ = 16  # tasks whose prompts are measured
TRACE_BYTES = 75  # per token in traces.jsonl: id, log-probability, entropy, text; small runs wrote 48 to 55


class CostSettings(Protocol):
    """The settings that an estimate needs beside `ARPOConfig`; `RunArguments` has them."""

    dtype: str
    eval_tasks: int
    cold_start_examples: int
    search_price: float | None


@dataclass(frozen=True)
class PromptLengths:
    """Tokens of the prompts of the first tasks.

    Attributes:
        mean: the mean.
        longest: the maximum.
        measured: whether the model's tokenizer counted them; otherwise four bytes count as one token.
    """

    mean: float
    longest: int
    measured: bool


@dataclass(frozen=True)
class EvaluationCosts:
    """Greedy answers to held-out tasks.

    Attributes:
        times: the number of evaluations, with those before and after training.
        tasks: the number of tasks in each.
        episode: the limits of one answer.
        services: what one answer may request from external services.
    """

    times: int
    tasks: int
    episode: EpisodeLimits
    services: ServiceUse

    @property
    def answers(self) -> int:
        """All answers."""
        return self.times * self.tasks


@dataclass(frozen=True)
class Costs:
    """The whole estimate.

    Attributes:
        schedule: steps, rollouts, trajectories.
        episode: the limits of one trajectory.
        group: the tokens that are sampled for the trajectories of one prompt.
        services: what one trajectory may request from external services.
        prompts: the tokens of the prompts.
        prompts_computed: the most prompts that one micro-batch computes: one per row, or per group if rows are packed.
        passes: forward passes over a rollout's rows without a gradient: old and reference log-probabilities.
        evaluations: None without evaluation.
        demonstrations: demonstrations of the cold start.
        shape: the model's shape; None if its configuration is not available.
        memory: the memory of one process; None likewise.
        layout: how the processes share the model.
        checkpoints: checkpoints that stay on disk.
        checkpoint_bytes: the size of one.
        trace_bytes: the largest size of traces.jsonl.
        notes: what is left out, and why.
    """

    schedule: StepSchedule
    episode: EpisodeLimits
    group: GroupTokens
    services: ServiceUse
    prompts: PromptLengths
    prompts_computed: int
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
        """Trajectories of the whole training."""
        return self.schedule.rollouts * self.schedule.trajectories

    @property
    def groups(self) -> int:
        """Prompts that are played, counted each time."""
        return self.schedule.rollouts * self.schedule.prompts

    @property
    def sampled(self) -> int:
        """Tokens sampled for training, at most."""
        return self.groups * self.group.most

    @property
    def learned(self) -> int:
        """Tokens in the loss, at most; a token counts each time it is used."""
        return self.schedule.trained_rows * self.episode.sampled

    @property
    def computed(self) -> int:
        """Tokens that the model computes with a gradient, at most; packed rows compute a group's prompt once."""
        prompts = self.schedule.trained_rows / self.schedule.rows * self.prompts_computed
        return round(prompts * self.prompts.mean + self.schedule.trained_rows * self.episode.room)

    @property
    def calls(self) -> int:
        """Tool calls of training, at most."""
        return self.trajectories * self.episode.calls

    @property
    def searches(self) -> int:
        """Searches of training and evaluation, at most."""
        evaluation = self.evaluations.answers * self.evaluations.services.searches if self.evaluations else 0
        return self.trajectories * self.services.searches + evaluation

    @property
    def search_usd(self) -> float | None:
        """The price of all searches, at most; None if it is not known."""
        parts = [(self.trajectories * self.services.searches, self.services.usd)]
        if self.evaluations:
            parts.append((self.evaluations.answers * self.evaluations.services.searches, self.evaluations.services.usd))
        # an unknown price matters only where something is searched
        if any(usd is None for searches, usd in parts if searches):
            return None
        return sum(searches * (usd or 0.0) / 1000 for searches, usd in parts)

    def as_dict(self) -> dict[str, Any]:
        """Return the contents for run.json: the bounds that can be compared with the actual use, and all parts."""
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
        run: the arguments of the run.
        args: the settings of the run.
        env: the environment for training.
        held_out: the environment for evaluation; None without evaluation.
        tasks: the number of training tasks; None if it is not known.
        tokenizer: the model's tokenizer; without it four bytes count as one token.
        shape: the model's shape; without it memory is not estimated.
        layout: how the processes share the model; by default as the launcher's environment variables say.
        on_cpu: whether the run trains on the CPU.
        notes: what has been left out already.

    Raises:
        ValueError: the settings cannot make a run; see `step_schedule`.
    """
    layout = layout or ProcessLayout.of(args.world_size)
    plan, episode = step_schedule(args, tasks), episode_limits(env, args)
    group, prompts = group_tokens(episode, args), prompt_tokens(env, args, tokenizer)
    dtype = str((args.model_init_kwargs or {}).get("dtype", run.dtype)).removeprefix("torch.")
    dtype = shape.dtype if shape and dtype == "auto" else dtype
    needs = memory(shape, args, layout, prompts.longest, episode.room, dtype, on_cpu) if shape else None
    # traces also hold what tools wrote: the part of the room that the model leaves
    traced = group.most + args.num_generations * (episode.room - episode.sampled)
    traces = 0 if not args.trace_every else -(-plan.rollouts // args.trace_every) * plan.prompts * traced * TRACE_BYTES
    return Costs(
        schedule=plan,
        episode=episode,
        group=group,
        services=service_use(env, episode, run.search_price),
        prompts=prompts,
        prompts_computed=prompts_computed(args, will_pack(args, shape)),
        passes=_passes(args),
        evaluations=_evaluations(run, args, held_out, plan),
        demonstrations=run.cold_start_examples,
        shape=shape,
        memory=needs,
        layout=layout,
        checkpoints=checkpoint_count(args, plan),
        checkpoint_bytes=checkpoint_bytes(shape, args, dtype) if shape else 0,
        trace_bytes=traces,
        notes=notes,
    )


def prompt_tokens(env: ToolEnv, args: ARPOConfig, tokenizer: Any = None) -> PromptLengths:
    """Return the lengths of the prompts of the first tasks."""
    size = env.tasks.size
    tasks = [env.tasks.task(number) for number in range(PROMPTS_READ if size is None else min(size, PROMPTS_READ))]
    # without tasks the system prompt alone is counted, which is less than with a question
    opened = [env.messages(task) for task in tasks] or [[{"role": "system", "content": env.system_prompt}]]
    if tokenizer is None:
        lengths = [sum(len(part["content"].encode()) for part in parts) // BYTES_A_TOKEN for parts in opened]
    else:
        renderer = Renderer(tokenizer, env.protocol, args.chat_template_kwargs)
        lengths = [len(renderer.prompt_ids(parts, env.schemas)) for parts in opened]
    return PromptLengths(sum(lengths) / len(lengths), max(lengths), tokenizer is not None)


def _passes(args: ARPOConfig) -> int:
    """Return the number of passes that TRL makes over a rollout's rows before the updates."""
    used = (args.steps_per_generation or 1) * args.num_iterations
    corrected = args.use_vllm and args.vllm_importance_sampling_correction
    # TRL's condition: where one update uses up whole rollouts, old log-probabilities are the current ones
    return int(bool(args.gradient_accumulation_steps % used or corrected)) + int(args.beta != 0)


def _evaluations(
    run: CostSettings, args: ARPOConfig, held_out: ToolEnv | None, plan: StepSchedule
) -> EvaluationCosts | None:
    if held_out is None or not run.eval_tasks:
        return None
    episode = episode_limits(held_out, args)
    tasks = min(run.eval_tasks, held_out.tasks.size or run.eval_tasks)  # endless or unavailable sources have no size
    during = occasions(str(getattr(args.eval_strategy, "value", args.eval_strategy)), args.eval_steps, args, plan)
    every = step_interval(args.eval_steps or args.logging_steps, plan)
    repeated = during and str(getattr(args.eval_strategy, "value", args.eval_strategy)) == "steps"
    # then the last one is also the one after training
    known = bool(repeated and plan.steps % every == 0 and not args.load_best_model_at_end)
    return EvaluationCosts(2 + during - known, tasks, episode, service_use(held_out, episode, run.search_price))
