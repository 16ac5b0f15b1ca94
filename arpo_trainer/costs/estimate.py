"""What a run will cost, before it starts: `estimate` returns one plain object, `cost_rows` its table.

What is not available is left out, and `notes` says so. The time of a reinforcement run is not estimated: settings do
not determine it, and a number without a measurement would be made up.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from arpo_env import ToolEnv
from arpo_env.episode import BYTES_A_TOKEN
from arpo_env.search.backends import VARIABLE, backend_names
from arpo_env.search.search_backend import search_price
from arpo_trainer.algorithms.registry import generated_tokens
from arpo_trainer.costs.compute_speed import Line
from arpo_trainer.costs.memory import (
    MemoryNeeds,
    ModelShape,
    ProcessLayout,
    checkpoint_bytes,
    format_bytes,
    memory,
    prompts_computed,
    will_pack,
)
from arpo_trainer.rollout.rendering import Renderer
from arpo_trainer.training.config import ARPOConfig

ROOM_USED = 0.5  # assumed share of the token limit that a trajectory fills
SHARED = 0.5  # assumed share of a branch that it has in common with its parent
PAGES_READ = 5  # per search, if pages are read
PROMPTS_READ = 16  # tasks whose prompts are measured
TRACE_BYTES = 75  # per token in traces.jsonl: id, log-probability, entropy, text; small runs wrote 48 to 55


@dataclass(frozen=True)
class StepSchedule:
    """Steps, rollouts, prompts and trajectories from the first step to the last.

    They follow TRL's sampler (a rollout's prompts are repeated until its rows have been used `num_iterations` times;
    tasks that do not fill a rollout are left out) and transformers' loop (an epoch's last step may have fewer
    micro-batches).
    """

    steps: int
    rollouts: int
    prompts: int  # of one rollout, over all processes
    trajectories: int  # of one rollout: the rows to train on
    updates: float  # optimizer steps per rollout; not always a whole number
    uses: int  # how often a trajectory is trained on
    micro_batches: int  # of one process in the whole run
    rows: int  # of one micro-batch of one process
    tasks: int | None  # None if not known
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

    def interval(self, steps: float) -> int:
        """Return a number of steps; one below 1 is a share of all steps."""
        return max(1, round(steps * self.steps) if steps < 1 else int(steps))

    def occasions(self, strategy: str, every: float | None, args: ARPOConfig) -> int:
        """Return how often something happens that transformers does every few steps, or once per epoch."""
        if strategy == "steps":
            return self.steps // self.interval(every or args.logging_steps)
        if strategy != "epoch" or self.tasks is None:
            return int(strategy == "epoch")
        a_pass: int = self.tasks // self.prompts * args.steps_per_generation * args.num_iterations
        return -(-self.micro_batches // a_pass)


def step_schedule(args: ARPOConfig, tasks: int | None) -> StepSchedule:
    """Return the schedule; ValueError if a rollout plays more than all tasks, or nothing sets the end of the run."""
    rows, accumulation = args.generation_batch_size, args.gradient_accumulation_steps
    prompts = rows // args.num_generations
    rollout = args.steps_per_generation * args.num_iterations  # micro-batches per rollout
    if tasks is not None and tasks < prompts:
        raise ValueError(
            f"a rollout plays {prompts} prompts, but there are only {tasks} tasks: nothing would be trained. Lower "
            "gradient_accumulation_steps or per_device_train_batch_size, or give more tasks"
        )
    if tasks is None:
        if args.max_steps <= 0:
            raise ValueError("the number of tasks is not known: set max_steps, or give a local file as `data`")
        steps, micro_batches = args.max_steps, args.max_steps * accumulation
    else:
        epoch = tasks // prompts * rollout
        a_pass = math.ceil(epoch / accumulation)  # the last step of an epoch may have fewer micro-batches
        steps = args.max_steps if args.max_steps > 0 else math.ceil(args.num_train_epochs * a_pass)
        whole, rest = divmod(steps, a_pass)
        micro_batches = whole * epoch + min(rest * accumulation, epoch)
    return StepSchedule(
        steps=steps,
        rollouts=-(-micro_batches // rollout),  # rounded up: training may end before the last one is used up
        prompts=prompts,
        trajectories=rows,
        updates=rollout / accumulation,
        uses=args.num_iterations,
        micro_batches=micro_batches,
        rows=args.per_device_train_batch_size,
        tasks=tasks,
        processes=args.world_size,
    )


def _checkpoint_count(args: ARPOConfig, plan: StepSchedule) -> int:
    """Return the number of checkpoints that stay on disk."""
    made = 1 if args.save_strategy == "best" else plan.occasions(args.save_strategy, args.save_steps, args)
    if args.save_strategy == "steps" and plan.steps % plan.interval(args.save_steps):
        made += 1  # the last step always has one
    return min(made, int(args.save_total_limit or made))


@dataclass(frozen=True)
class EpisodeLimits:
    """What one trajectory may use at most; replays after a failure (`retries`) are not counted."""

    turns: int
    room: int  # tokens of model and environment after the prompt, in one context
    sampled: int  # tokens that the model writes, in all contexts if it may fold
    calls: int  # tool calls that are executed
    calls_of: dict[str, int]  # of each tool


def episode_limits(env: ToolEnv, args: ARPOConfig) -> EpisodeLimits:
    """Return what one trajectory may use at most."""
    budget = env.budget
    room = min(limit for limit in (args.max_completion_length, budget.tokens) if limit is not None)
    # a call in the last turn is not executed, since no turn may follow; a native turn may hold several calls
    calls = budget.calls if env.protocol.native else min(budget.calls, budget.turns - 1)
    limits = {name: min(calls, budget.calls_of.get(name, calls)) for name in env.tools}
    sampled = min(room * (budget.folds + 1), budget.turns * (args.max_turn_length or room))
    # all tools together may allow fewer calls than the episode does
    return EpisodeLimits(budget.turns, room, sampled, min(calls, sum(limits.values())), limits)


def assumed_tokens(episode: EpisodeLimits, args: ARPOConfig) -> tuple[int, int]:
    """Return the tokens that a group samples with all branches and without any, as `ROOM_USED` and `SHARED` assume.

    AEPO, which decides during play, counts as at equal entropies.
    """
    total, budget = args.num_generations, args.rollout_settings().parts.budget_rule
    roots = budget.expected_roots(total, args.initial_rollouts or total, args.budget_beta)
    length = episode.sampled * ROOM_USED
    return round(generated_tokens(total, roots, length, SHARED)), round(total * length)


@dataclass(frozen=True)
class ServiceUse:
    """What one trajectory may request from external services at most."""

    backend: str = ""  # a search provider, "local", "world" (part of the tasks), "recorded", or "" for no search
    searches: int = 0
    usd: float | None = 0.0  # of 1,000 searches; None if not known
    price: str = ""  # its source
    pages: int = 0
    page_model: str = ""  # reads pages, once per search
    judge_model: str = ""  # judges answers, once per trajectory (again if its reply is unreadable)


def service_use(env: ToolEnv, episode: EpisodeLimits, usd: float | None = None) -> ServiceUse:
    """Return what one trajectory may request; `usd` is the price of 1,000 searches, if it is not the list price."""
    services, searches = env.services, episode.calls_of.get("search", 0)
    if "search" not in env.tools:
        return ServiceUse(judge_model=services.judge_model)
    backend = search_backend(env)
    known = search_price(backend)
    price = "search_price" if usd is not None else f"{known.source} {known.read}".strip() if known else ""
    usd = usd if usd is not None else known.usd if known else None
    pages = 0 if services.pages == "snippets" else min(PAGES_READ, services.search_results)
    return ServiceUse(backend, searches, usd, price, searches * pages, services.page_model, services.judge_model)


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


@dataclass(frozen=True)
class PromptLengths:
    """Tokens of the prompts of the first tasks; `measured` by the model's tokenizer, else four bytes are a token."""

    mean: float
    longest: int
    measured: bool


def _prompt_tokens(env: ToolEnv, args: ARPOConfig, tokenizer: Any) -> PromptLengths:
    size = env.tasks.size
    tasks = [env.tasks.task(number) for number in range(PROMPTS_READ if size is None else min(size, PROMPTS_READ))]
    # without tasks nearly the system prompt alone is counted; some templates raise an error where no question follows
    alone = [{"role": "system", "content": env.system_prompt}, {"role": "user", "content": "?"}]
    opened = [env.messages(task) for task in tasks] or [alone]
    if tokenizer is None:
        lengths = [sum(len(part["content"].encode()) for part in parts) // BYTES_A_TOKEN for parts in opened]
    else:
        renderer = Renderer(tokenizer, env.protocol, args.chat_template_kwargs)
        lengths = [len(renderer.prompt_ids(parts, env.schemas)) for parts in opened]
    return PromptLengths(sum(lengths) / len(lengths), max(lengths), tokenizer is not None)


@dataclass(frozen=True)
class EvaluationCosts:
    """Greedy answers to held-out tasks: how many evaluations, and what one answer may use."""

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
    """The whole estimate; numbers of tokens, calls and searches are the most that there can be."""

    schedule: StepSchedule
    episode: EpisodeLimits
    trajectories: int  # of the whole training
    groups: int  # prompts that are played, counted each time
    sampled: int  # tokens sampled for training
    learned: int  # tokens in the loss, counted each time they are used
    computed: int  # tokens computed with a gradient; packed rows compute a group's prompt once
    calls: int  # tool calls of training
    searches: int  # of training and evaluation
    search_usd: float | None  # their price; None if it is not known
    assumed: tuple[int, int]  # see `assumed_tokens`
    services: ServiceUse
    prompts: PromptLengths
    prompts_computed: int  # the most that one micro-batch computes: one per row, or per group if rows are packed
    passes: int  # over a rollout's rows without a gradient: old and reference log-probabilities
    evaluations: EvaluationCosts | None
    demonstrations: int  # of the cold start
    shape: ModelShape | None  # None, as `memory`, if the model's configuration is not available
    memory: MemoryNeeds | None  # of one process
    layout: ProcessLayout
    checkpoints: int  # that stay on disk
    checkpoint_bytes: int  # of one
    trace_bytes: int  # the largest size of traces.jsonl
    notes: tuple[str, ...] = ()  # what is left out, and why

    def as_dict(self) -> dict[str, Any]:
        """Return the contents for run.json."""
        return {**dataclasses.asdict(self), "memory_peak": self.memory.peak if self.memory else None}


def estimate(
    run: Any,  # the `RunArguments`
    args: ARPOConfig,
    env: ToolEnv,
    held_out: ToolEnv | None,  # for evaluation
    tasks: int | None,  # for training; None if their number is not known
    *,
    tokenizer: Any = None,  # without it four bytes count as one token
    shape: ModelShape | None = None,  # of the model; without it memory is not estimated
    layout: ProcessLayout | None = None,  # by default as the launcher's environment variables say
    on_cpu: bool = False,  # whether the run trains there
    notes: tuple[str, ...] = (),  # what has been left out already
) -> Costs:
    """Return what a run will cost; ValueError if it cannot be, see `step_schedule`."""
    layout = layout or ProcessLayout.of(args.world_size)
    plan, episode = step_schedule(args, tasks), episode_limits(env, args)
    prompts, prompts_each = _prompt_tokens(env, args, tokenizer), prompts_computed(args, will_pack(args, shape))
    dtype = str((args.model_init_kwargs or {}).get("dtype", run.dtype)).removeprefix("torch.")
    dtype = shape.dtype if shape and dtype == "auto" else dtype
    needs = memory(shape, args, layout, prompts.longest, episode.room, dtype, on_cpu) if shape else None
    # traces also hold what tools wrote, so the whole room; folds sample more than one
    traced = max(episode.room, episode.sampled) * plan.trajectories
    traced *= -(-plan.rollouts // args.trace_every) if args.trace_every else 0
    trajectories = plan.rollouts * plan.trajectories
    services, evaluations = service_use(env, episode, run.search_price), _evaluations(run, args, held_out, plan)
    uses = [(trajectories, services), *([(evaluations.answers, evaluations.services)] if evaluations else [])]
    # an unknown price matters only where something is searched
    searches = [(number * use.searches, use.usd) for number, use in uses if number * use.searches]
    prices = [number * usd / 1000 for number, usd in searches if usd is not None]
    return Costs(
        schedule=plan,
        episode=episode,
        trajectories=trajectories,
        groups=plan.rollouts * plan.prompts,
        sampled=trajectories * episode.sampled,
        learned=plan.trained_rows * episode.sampled,
        computed=round(plan.trained_rows * (prompts_each / plan.rows * prompts.mean + episode.room)),
        calls=trajectories * episode.calls,
        searches=sum(number for number, _ in searches),
        search_usd=sum(prices) if len(prices) == len(searches) else None,
        assumed=assumed_tokens(episode, args),
        services=services,
        prompts=prompts,
        prompts_computed=prompts_each,
        passes=_passes(args),
        evaluations=evaluations,
        demonstrations=run.cold_start_examples,
        shape=shape,
        memory=needs,
        layout=layout,
        checkpoints=_checkpoint_count(args, plan),
        checkpoint_bytes=checkpoint_bytes(shape, args, dtype) if shape else 0,
        trace_bytes=traced * TRACE_BYTES,
        notes=notes,
    )


def _passes(args: ARPOConfig) -> int:
    """Return the number of passes that TRL makes over a rollout's rows before the updates."""
    used = args.steps_per_generation * args.num_iterations
    corrected = args.use_vllm and args.vllm_importance_sampling_correction
    # TRL's condition: where one update uses up whole rollouts, old log-probabilities are the current ones
    return int(bool(args.gradient_accumulation_steps % used or corrected)) + int(args.beta != 0)


def _evaluations(run: Any, args: ARPOConfig, held_out: ToolEnv | None, plan: StepSchedule) -> EvaluationCosts | None:
    if held_out is None or not run.eval_tasks:
        return None
    episode = episode_limits(held_out, args)
    tasks = min(run.eval_tasks, held_out.tasks.size or run.eval_tasks)  # endless or unavailable sources have no size
    during = plan.occasions(args.eval_strategy, args.eval_steps, args)
    last = plan.steps % plan.interval(args.eval_steps or args.logging_steps) == 0
    # then the last one is also the one after training
    known = bool(during and args.eval_strategy == "steps" and last and not args.load_best_model_at_end)
    return EvaluationCosts(2 + during - known, tasks, episode, service_use(held_out, episode, run.search_price))


def cost_summary(costs: Costs) -> str:
    """Return the estimate in two lines, for a log."""
    plan = costs.schedule
    first = (
        f"{plan.steps} steps, {plan.rollouts} rollouts of {plan.prompts} prompts x "
        f"{plan.trajectories // plan.prompts} trajectories = {costs.trajectories:,} trajectories; at most "
        f"{costs.sampled:,} tokens sampled, {costs.calls:,} tool calls"
    )
    more = [f"{costs.searches:,} searches ({_usd(costs.search_usd)})"] if costs.searches else []
    if costs.memory:
        more.append(f"about {format_bytes(costs.memory.peak)} of memory per process")
    return first + (f"\n{', '.join(more)}" if more else "")


def cost_rows(costs: Costs) -> list[Line]:
    """Return the table of an estimate."""
    plan, episode, prompts, count = costs.schedule, costs.episode, costs.prompts, costs.layout.processes
    processes = f"{count} process{'es' * (count > 1)}"
    uses = {1: "once", 2: "twice"}.get(plan.uses, f"{plan.uses} times")
    of = "an unknown number of" if plan.tasks is None else f"{plan.tasks:,}"
    low, high = (costs.groups * number for number in costs.assumed)
    branches = "" if low == high else f"; branches that share {SHARED:.0%}, or no branches"
    packed = costs.prompts_computed < plan.rows
    how = "packed: one prompt for its rows in a micro-batch" if packed else "rows of prompt, model and environment"
    counted = "counted by the tokenizer" if prompts.measured else "four bytes count as one token"
    lines: list[Line] = [
        ("SCHEDULE", "", ""),
        ("optimizer steps", f"{plan.steps:,}", f"{plan.updates:g} per rollout; each trajectory is used {uses}"),
        ("rollouts", f"{plan.rollouts:,}", processes),
        ("prompts", f"{costs.groups:,}", f"{plan.prompts} per rollout; {plan.tasks_played:,} different of {of} tasks"),
        ("trajectories", f"{costs.trajectories:,}", f"{plan.trajectories:,} per rollout"),
        ("TOKENS", "", ""),
        ("of a prompt, mean", f"{prompts.mean:,.0f}", f"at most {prompts.longest:,} in the first tasks; {counted}"),
        ("sampled, at most", f"{costs.sampled:,}", f"{episode.sampled:,} per trajectory, in {episode.turns} turns"),
        (
            "sampled, assumed",
            f"{low:,}" if low == high else f"{low:,} .. {high:,}",
            f"assumption: trajectories of {ROOM_USED:.0%} of that{branches}",
        ),
        ("in the loss, at most", f"{costs.learned:,}", "tokens of the model, counted each time they are used"),
        ("computed with gradient, at most", f"{costs.computed:,}", how),
    ]
    if costs.passes:
        what = "over each rollout's rows: old or reference log-probabilities"
        lines.append(("passes without gradient", f"{costs.passes}", what))
    per = f"{episode.calls} per trajectory; replays after a failure are not counted"
    lines += [("TOOLS, at most", "", ""), ("calls", f"{costs.calls:,}", per)]
    if len(episode.calls_of) > 1:
        each = episode.calls_of.items()
        lines += [(f"  {name}", f"{costs.trajectories * n:,}", f"{n} per trajectory") for name, n in each]
    lines += [*_service_rows(costs.services, costs.trajectories), ("BESIDE TRAINING", "", "")]
    if (held_out := costs.evaluations) is None:
        lines.append(("evaluations", "none", ""))
    else:
        lines += [
            ("evaluations", f"{held_out.times}", f"{held_out.tasks:,} tasks each, one greedy answer"),
            ("  tokens sampled, at most", f"{held_out.answers * held_out.episode.sampled:,}", ""),
            ("  calls, at most", f"{held_out.answers * held_out.episode.calls:,}", ""),
        ]
        services = _service_rows(held_out.services, held_out.answers)
        lines += [(f"  {name}", much, remark) for name, much, remark in services]
    if costs.demonstrations:
        remark = "scripted demonstrations; the model is cached for later runs"
        lines.append(("cold start", f"{costs.demonstrations:,}", remark))
    lines.append(("MEMORY per process (an estimate)", "", ""))
    if (shape := costs.shape) is None or (needs := costs.memory) is None:
        lines.append(("not estimated", "", "the model's configuration is not available"))
    else:
        used = f"a token uses {shape.active:,}; " if shape.idle else ""
        trained = "all trained" if shape.trained == shape.parameters else f"{shape.trained:,} trained (adapters)"
        lines.append(("parameters", f"{shape.parameters:,}", f"{used}{trained}; {costs.layout.sharding}, {processes}"))
        parts = ((needs.kept, "all the time"), (needs.training, "in an update"), (needs.rollout, "in a rollout"))
        lines += [(name, format_bytes(size), when) for sizes, when in parts for name, size in sizes.items()]
        without = "without the memory of PyTorch, CUDA and Python themselves"
        lines.append(("largest sum", format_bytes(needs.peak), without))
        lines += [("not included", "", words) for words in needs.elsewhere]
    size = format_bytes(costs.checkpoint_bytes) if shape else "not known"
    lines += [
        ("DISK", "", ""),
        ("checkpoints", f"{costs.checkpoints}", f"{size} each" if costs.checkpoints else ""),
        ("traces.jsonl, at most", format_bytes(costs.trace_bytes), ""),
    ]
    return lines


def _service_rows(use: ServiceUse, trajectories: int) -> Iterator[Line]:
    if searches := trajectories * use.searches:
        usd = None if use.usd is None else searches * use.usd / 1000
        each = "set search_price (USD for 1,000)" if usd is None else f"{use.usd:g} USD for 1,000: {use.price}"
        yield f"searches ({use.backend})", f"{searches:,}", "recorded searches are not repeated"
        yield "  their price", _usd(usd), each
    if use.pages:
        yield "pages fetched", f"{trajectories * use.pages:,}", ""
    if use.page_model:
        yield f"summaries ({use.page_model})", f"{trajectories * use.searches:,}", "price not known"
    if use.judge_model:
        yield f"verdicts ({use.judge_model})", f"{trajectories:,}", "price not known"


def _usd(amount: float | None) -> str:
    return "not known" if amount is None else f"{amount:,.2f} USD"
