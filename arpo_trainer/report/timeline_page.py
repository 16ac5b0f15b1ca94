"""The timeline of a rollout as one self-contained HTML page: what every trajectory did, and what it waited for.

There is one lane per trajectory, with branches below the trajectory they were forked from. Intervals are coloured by
kind, and waiting is hatched. `rollout.time_use` sums the times, and `html_page` builds the page.

    arpo view timeline runs/arithmetic-cpu --step 3
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from arpo_trainer.report.html_page import make_page, write_page
from arpo_trainer.report.step_data import StepData, load_step
from arpo_trainer.rollout.time_use import (
    TimeUse,
    busy_seconds,
    by_trajectory,
    concurrency,
    generating,
    time_use,
    waiting_seconds,
    wall_seconds,
)
from arpo_trainer.timeline import Event
from arpo_trainer.tree import RolloutTree, Span

_TEXT = 240  # shown characters of a turn
_DIGITS = 4  # decimals of seconds


def write_timeline(
    path: str | Path, *, step: int | None = None, group: int | None = None, output: str | Path | None = None
) -> tuple[Path, list[RolloutTree]]:
    """Write the timeline of one step.

    Args:
        path: the folder of a run, or a traces.jsonl.
        step: the step; by default the last one.
        group: show only this tree; by default all of the step.
        output: path of the page; by default timeline.html beside the traces.

    Returns:
        The path of the page and the trees that it shows.

    Raises:
        FileNotFoundError: there is no such path, it has no traces, or the folder of `output` does not exist.
        ValueError: there is no such step or group, a line cannot be read, or the trees have no timeline.
    """
    data = load_step(path, step)
    shown = _chosen(data, group)
    target = Path(output) if output else data.path.with_name("timeline.html")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"no folder {str(target.parent)!r} to write {target.name} to; make it first")
    # resolved, because the parent of a relative `traces.jsonl` has no name
    name = str(data.facts.get("name") or data.path.resolve().parent.name)
    styles, scripts = ["style.css", "timeline.css"], ["tools.js", "timeline.js", "lanes.js", "pointing.js"]
    page = make_page("timeline.html", f"Timeline of {name}", styles, scripts, payload(data, shown))
    return write_page(target, page), shown


def _chosen(data: StepData, group: int | None) -> list[RolloutTree]:
    if not any(tree.timeline for tree in data.trees):
        raise ValueError(
            f"the trees of step {data.step} in {data.path} have no timeline: an older version wrote them; roll out "
            "again with this one (arpo rollout, or arpo train)"
        )
    trees = [tree for tree in data.trees if group is None or tree.meta.get("group") == group]
    if not trees:
        groups = ", ".join(sorted({str(tree.meta.get("group")) for tree in data.trees}))
        raise ValueError(f"no group {group} in step {data.step} of {data.path}; it has {groups}")
    return trees


def payload(data: StepData, shown: Sequence[RolloutTree]) -> dict[str, Any]:
    """Return the data that the page draws; the load on the model is that of all trees of the step."""
    wall = wall_seconds(data.trees)
    return {
        "facts": {name: data.facts[name] for name in ("name", "env", "model", "algorithm") if name in data.facts},
        "step": data.step,
        "steps": len(data.steps),
        "left_out": len(data.trees) - len(shown),
        "wall": wall,
        "busy": busy_seconds(generating(data.trees)),
        "load": _load(data.trees),
        "use": summary(time_use(shown)),
        "trees": [_tree(tree) for tree in shown],
    }


def summary(use: TimeUse) -> dict[str, Any]:
    """Return a `TimeUse` as plain data, with its shares."""
    return {**vars(use), "waited": use.waited, "shares": use.shares()}


def _load(trees: Sequence[RolloutTree]) -> dict[str, list[tuple[float, int]]]:
    """Return how many requests were being generated, waited for the model, and ran in tools, over time."""
    events = [event for tree in trees for event in tree.timeline]
    queued = [(e.start, e.start + waiting_seconds(e)) for e in events if e.kind == "generate"]
    tools = [(e.start + waiting_seconds(e), e.end) for e in events if e.kind == "tool"]
    found = {"generate": generating(trees), "queue": queued, "tool": tools}
    return {
        name: [(round(moment, _DIGITS), level) for moment, level in concurrency(intervals)]
        for name, intervals in found.items()
    }


def _tree(tree: RolloutTree) -> dict[str, Any]:
    events = by_trajectory(tree)
    return {
        "group": tree.meta.get("group"),
        "question": _short(str(tree.task.get("question") or tree.task.get("id") or "")),
        "use": summary(time_use([tree])),
        "texts": [_short(span.text) for span in tree.spans],
        "lanes": [_lane(tree, number, depth, events.get(number, [])) for number, depth in lane_order(tree, events)],
    }


def lane_order(tree: RolloutTree, events: dict[int, list[Event]]) -> list[tuple[int, int]]:
    """Return (trajectory, depth) from top to bottom: below each trajectory its branches, in the order of forks."""
    children: dict[int | None, list[int]] = {}
    for number, trajectory in enumerate(tree.trajectories):
        children.setdefault(trajectory.parent, []).append(number)

    def below(parent: int | None, depth: int) -> Iterator[tuple[int, int]]:
        for number in sorted(children.get(parent, []), key=lambda number: (_born(events.get(number, [])), number)):
            yield number, depth
            yield from below(number, depth + 1)

    return list(below(None, 0))


def _born(events: Sequence[Event]) -> float:
    return min((event.start for event in events), default=0.0)


def _lane(tree: RolloutTree, number: int, depth: int, events: Sequence[Event]) -> dict[str, Any]:
    trajectory = tree.trajectories[number]
    names = ("origin", "parent", "reward", "outcome", "error", "answer")
    shown = {name: getattr(trajectory, name) for name in names}
    spans = spans_of(tree, number, events)
    return {
        "number": number,
        "depth": depth,
        **shown,
        "accuracy": trajectory.components.get("accuracy"),
        "events": [_event(event, span) for event, span in zip(events, spans, strict=True)],
    }


def spans_of(tree: RolloutTree, number: int, events: Sequence[Event]) -> list[Span | None]:
    """Return for each event of a trajectory the span that it made: a turn or the result of a tool; None for others.

    Events do not name their spans, so the own turns of the trajectory are taken in order, after the fork of a branch.
    """
    fork = len(tree.path_to(tree.trajectories[number].fork_span))
    # without a leaf there is no path: index -1 would be that of the last span
    path = tree.path(number) if tree.trajectories[number].leaf >= 0 else []
    own = iter([span for span in path[fork:] if span.kind == "model"])
    results = {span.parent: span for span in path if span.kind != "model"}
    turn: Span | None = None
    made: list[Span | None] = []
    for event in events:
        turn = next(own, None) if event.kind == "generate" else turn
        result = results.get(turn.index) if turn and event.kind in ("tool", "answer") else None
        made.append(turn if event.kind == "generate" else result)
    return made


def _event(event: Event, span: Span | None) -> list[Any]:
    """Return an event as a row: kind, start, seconds, seconds waited, name, status, tokens, cached, context, span."""
    times = (event.start, event.end - event.start, waiting_seconds(event))
    # a list without names keeps the page small: a step may have thousands of events
    row = [event.kind, *(round(value, _DIGITS) for value in times), event.name, event.status]
    return [*row, event.tokens, event.cached, event.context, None if span is None else span.index]


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _TEXT else f"{text[: _TEXT - 1]}…"
