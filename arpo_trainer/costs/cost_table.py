"""The estimate as a table, and as two lines for a log."""

from __future__ import annotations

from collections.abc import Iterator

from arpo_trainer.costs.estimate import ROOM_USED, SHARED, Costs, ServiceUse
from arpo_trainer.costs.memory import format_bytes

Line = tuple[str, str, str]  # name, amount, remark


def cost_rows(costs: Costs) -> list[Line]:
    """Return the rows of the table: name, amount, remark. Headings have a name only."""
    parts = (_schedule, _tokens, _tools, _evaluation, _memory, _disk)
    return [line for part in parts for line in part(costs)]


def cost_summary(costs: Costs) -> str:
    """Return the estimate in two lines."""
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


def _schedule(costs: Costs) -> Iterator[Line]:
    plan = costs.schedule
    yield "SCHEDULE", "", ""
    yield (
        "optimizer steps",
        f"{plan.steps:,}",
        f"{plan.updates:g} per rollout; each trajectory is used {_times(plan.uses)}",
    )
    yield "rollouts", f"{plan.rollouts:,}", _processes(costs)
    of = "an unknown number of" if plan.tasks is None else f"{plan.tasks:,}"
    yield (
        "prompts",
        f"{costs.groups:,}",
        f"{plan.prompts} per rollout; {plan.tasks_played:,} different ones of {of} tasks",
    )
    yield "trajectories", f"{costs.trajectories:,}", f"{plan.trajectories:,} per rollout"


def _tokens(costs: Costs) -> Iterator[Line]:
    low, high = (costs.groups * number for number in costs.group.assumed)
    yield "TOKENS", "", ""
    how = "counted by the tokenizer" if costs.prompts.measured else "four bytes count as one token"
    yield (
        "of a prompt, mean",
        f"{costs.prompts.mean:,.0f}",
        f"at most {costs.prompts.longest:,} in the first tasks; {how}",
    )
    yield (
        "sampled, at most",
        f"{costs.sampled:,}",
        f"{costs.episode.sampled:,} per trajectory, in {costs.episode.turns} turns",
    )
    guess = f"{low:,}" if low == high else f"{low:,} .. {high:,}"
    shared = "" if low == high else f"; branches that share {SHARED:.0%}, or no branches"
    yield "sampled, assumed", guess, f"assumption: trajectories of {ROOM_USED:.0%} of that{shared}"
    yield "in the loss, at most", f"{costs.learned:,}", "tokens of the model, counted each time they are used"
    packed = costs.prompts_computed < costs.schedule.rows
    what = "packed: one prompt for its rows in a micro-batch" if packed else "rows of prompt, model and environment"
    yield "computed with gradient, at most", f"{costs.computed:,}", what
    if costs.passes:
        yield (
            "passes without gradient",
            f"{costs.passes}",
            "over each rollout's rows: old or reference log-probabilities",
        )


def _tools(costs: Costs) -> Iterator[Line]:
    yield "TOOLS, at most", "", ""
    yield (
        "calls",
        f"{costs.calls:,}",
        f"{costs.episode.calls} per trajectory; replays after a failure are not counted",
    )
    for name, calls in costs.episode.calls_of.items() if len(costs.episode.calls_of) > 1 else ():
        yield f"  {name}", f"{costs.trajectories * calls:,}", f"{calls} per trajectory"
    yield from _service_rows(costs.services, costs.trajectories)


def _service_rows(use: ServiceUse, trajectories: int) -> Iterator[Line]:
    if searches := trajectories * use.searches:
        usd = None if use.usd is None else searches * use.usd / 1000
        each = "" if use.usd is None else f"{use.usd:g} USD for 1,000: {use.price}"
        yield f"searches ({use.backend})", f"{searches:,}", "recorded searches are not repeated"
        yield "  their price", _usd(usd), each or "set search_price (USD for 1,000)"
    if use.pages:
        yield "pages fetched", f"{trajectories * use.pages:,}", ""
    if use.page_model:
        yield f"summaries ({use.page_model})", f"{trajectories * use.searches:,}", "price not known"
    if use.judge_model:
        yield f"verdicts ({use.judge_model})", f"{trajectories:,}", "price not known"


def _evaluation(costs: Costs) -> Iterator[Line]:
    held_out = costs.evaluations
    yield "BESIDE TRAINING", "", ""
    if held_out is None:
        yield "evaluations", "none", ""
    else:
        yield "evaluations", f"{held_out.times}", f"{held_out.tasks:,} tasks each, one greedy answer"
        yield "  tokens sampled, at most", f"{held_out.answers * held_out.episode.sampled:,}", ""
        yield "  calls, at most", f"{held_out.answers * held_out.episode.calls:,}", ""
        yield from (
            (f"  {what}", much, remark) for what, much, remark in _service_rows(held_out.services, held_out.answers)
        )
    if costs.demonstrations:
        yield "cold start", f"{costs.demonstrations:,}", "scripted demonstrations; the model is cached for later runs"


def _memory(costs: Costs) -> Iterator[Line]:
    yield "MEMORY per process (an estimate)", "", ""
    shape, needs = costs.shape, costs.memory
    if shape is None or needs is None:
        yield "not estimated", "", "the model's configuration is not available"
        return
    trained = "all trained" if shape.trained == shape.parameters else f"{shape.trained:,} trained (adapters)"
    yield "parameters", f"{shape.parameters:,}", f"{trained}; {costs.layout.sharding}, {_processes(costs)}"
    yield from ((name, format_bytes(size), "all the time") for name, size in needs.kept.items())
    yield from ((name, format_bytes(size), "in an update") for name, size in needs.training.items())
    yield from ((name, format_bytes(size), "in a rollout") for name, size in needs.rollout.items())
    yield "largest sum", format_bytes(needs.peak), "without the memory of PyTorch, CUDA and Python themselves"
    yield from (("not included", "", words) for words in needs.elsewhere)


def _disk(costs: Costs) -> Iterator[Line]:
    yield "DISK", "", ""
    size = format_bytes(costs.checkpoint_bytes) if costs.shape else "not known"
    yield "checkpoints", f"{costs.checkpoints}", f"{size} each" if costs.checkpoints else ""
    yield "traces.jsonl, at most", format_bytes(costs.trace_bytes), ""


def _processes(costs: Costs) -> str:
    count = costs.layout.processes
    return f"{count} process{'es' * (count > 1)}"


def _usd(amount: float | None) -> str:
    return "not known" if amount is None else f"{amount:,.2f} USD"


def _times(number: int) -> str:
    return "once" if number == 1 else "twice" if number == 2 else f"{number} times"
