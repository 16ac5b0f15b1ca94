"""The estimate of a run's costs: `estimate` combines the parts into one plain object.

What is not available is left out, and `notes` says so. Time is not estimated: settings do not determine it, and a
number without a measurement would be made up.
"""

from __future__ import annotations

import dataclasses
import math
import os
from dataclasses import dataclass, field
from typing import Any, Protocol

from arpo_env import ToolEnv
from arpo_env.episode import BYTES_A_TOKEN
from arpo_env.search.backends import VARIABLE, backend_names
from arpo_env.search.search_backend import search_price
from arpo_trainer.algorithms.registry import generated_tokens
from arpo_trainer.costs.memory import (
    MemoryNeeds,
    ModelShape,
    ProcessLayout,
    checkpoint_bytes,
    memory,
    prompts_computed,
    will_pack,
)
from arpo_trainer.rollout.rendering import Renderer
from arpo_trainer.training.config import ARPOConfig

# The numbers of optimizer steps, rollouts, prompts and trajectories of a run, from its settings alone.
#
# They follow TRL's sampler (a rollout's prompts are repeated until its rows have been used `num_iterations` times;
# tasks that do not fill a rollout are left out) and transformers' loop (an epoch's last step may have fewer micro-
# batches).


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


# What episodes may use at most: tokens, tool calls, searches, verdicts. The environment's limits set the bounds.
#
# A bound holds for every model, except that replays after a failure (`retries`) are not counted. A guess with a stated
# assumption is given in addition: the lengths of trajectories are not known before a run.

ROOM_USED = 0.5  # assumed share of the token limit that a trajectory fills
SHARED = 0.5  # assumed share of a branch that it has in common with its parent
PAGES_READ = 5  # per search, if pages are read


@dataclass(frozen=True)
class EpisodeLimits:
    """The limits of one trajectory.

    Attributes:
        turns: model turns.
        room: tokens of model and environment after the prompt, in one context.
        sampled: tokens that the model writes, in all contexts if it may fold.
        calls: tool calls that are executed.
        calls_of: the same for each tool.
    """

    turns: int
    room: int
    sampled: int
    calls: int
    calls_of: dict[str, int] = field(default_factory=dict)


def episode_limits(env: ToolEnv, args: ARPOConfig) -> EpisodeLimits:
    """Return what one trajectory may use at most."""
    budget, tools = env.budget, list(env.tools)
    room = min(limit for limit in (args.max_completion_length, budget.tokens) if limit is not None)
    # a call in the last turn is not executed, since no turn may follow; a native turn may hold several calls
    calls = budget.calls if env.protocol.native else min(budget.calls, budget.turns - 1)
    limits = {name: min(calls, budget.calls_of.get(name, calls)) for name in tools}
    return EpisodeLimits(
        turns=budget.turns,
        room=room,
        sampled=min(room * (budget.folds + 1), budget.turns * (args.max_turn_length or room)),
        # all tools together may allow fewer calls than the episode does
        calls=min(calls, sum(limits.values())),
        calls_of=limits,
    )


@dataclass(frozen=True)
class GroupTokens:
    """Tokens that are sampled for a group; tokens that trajectories share count once.

    Attributes:
        most: if every trajectory has its full length and shares nothing.
        assumed: with all branches and without any, if a trajectory fills half of its limit and a branch shares half.
    """

    most: int
    assumed: tuple[int, int]


def group_tokens(episode: EpisodeLimits, args: ARPOConfig) -> GroupTokens:
    """Return the tokens that are sampled for the trajectories of one prompt."""
    total = args.num_generations or 1
    length = episode.sampled * ROOM_USED
    low = generated_tokens(total, expected_roots(args), length, SHARED)
    return GroupTokens(total * episode.sampled, (round(low), round(total * length)))


def expected_roots(args: ARPOConfig) -> int:
    """Return how many trajectories start at the prompt; AEPO, which decides during play, counts at equal entropies."""
    total, budget = args.num_generations or 1, args.rollout_settings().parts.budget_rule
    return budget.expected_roots(total, args.initial_rollouts or total, args.budget_beta)


@dataclass(frozen=True)
class ServiceUse:
    """What one trajectory may request from external services at most.

    Attributes:
        backend: the search backend: a provider, "local", "world" (part of the tasks), "recorded", or "" for no search.
        searches: the number of searches.
        usd: the price of 1,000 searches; None if it is not known.
        price: the source of the price.
        pages: the number of fetched pages.
        page_model: the model that reads pages, once per search; "" if there is none.
        judge_model: the model that judges answers, once per trajectory (again if its reply is unreadable); "" if none.
    """

    backend: str = ""
    searches: int = 0
    usd: float | None = 0.0
    price: str = ""
    pages: int = 0
    page_model: str = ""
    judge_model: str = ""


def service_use(env: ToolEnv, episode: EpisodeLimits, usd: float | None = None) -> ServiceUse:
    """Return what one trajectory may request from external services.

    Args:
        env: the environment.
        episode: the limits of a trajectory.
        usd: the price of 1,000 searches, if it is not the list price.
    """
    services, searches = env.services, episode.calls_of.get("search", 0)
    if "search" not in env.tools:
        return ServiceUse(judge_model=services.judge_model)
    backend = search_backend(env)
    known = search_price(backend)
    price = "search_price" if usd is not None else f"{known.source} {known.read}".strip() if known else ""
    pages = 0 if services.pages == "snippets" else min(PAGES_READ, services.search_results)
    return ServiceUse(
        backend=backend,
        searches=searches,
        usd=usd if usd is not None else known.usd if known else None,
        price=price,
        pages=searches * pages,
        page_model=services.page_model,
        judge_model=services.judge_model,
    )


def search_backend(env: ToolEnv) -> str:
    """Return the name of an environment's search backend, without opening it."""
    services = env.services
    if services.record is not None and services.record.mode == "replay":
        return "recorded"
    where: Any = services.search
    if where is None:
        # tasks that bring their passages are their own search; a limited source holds them in `tasks`
        if hasattr(getattr(env.tasks, "tasks", env.tasks), "passages"):
            return "world"
        where = os.environ.get(VARIABLE, "")
    name = str(getattr(where, "name", where)).partition(":")[0]
    return name if name in backend_names() else "local" if where else "not configured"


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
