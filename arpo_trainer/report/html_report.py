"""Pages about a run, each one self-contained HTML file that opens without a network, and small pictures of trees.

`make_page` is the kit of all pages: it puts them together from the parts in `page/`. `write_report` reads a run
directory and writes `report.html` into it: results, learning curves, rollout trees, evaluation samples and settings.
`write_timeline` shows what the trajectories of a step did and waited for, and `tree_svg` draws one tree.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import html
import json
import math
import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from arpo_trainer.report import run_data
from arpo_trainer.rollout import metrics
from arpo_trainer.tree import ABANDONED, Event, RolloutTree, Span

_DIGITS = 6  # of numbers in a page
_PER_NAT = 1000  # whole numbers keep the page small: each token of the model has two of them
_SCRIPTS = ["tools", "header", "results", "curves", "layout", "trees", "panel", "tables"]
_LONGEST_TEXT = 240  # shown characters of a turn, in a timeline
_TIMELINE_DIGITS = 4  # decimals of seconds
_KIT = resources.files("arpo_trainer.report").joinpath("page")


def make_page(
    body: str,
    title: str,
    styles: Sequence[str],
    scripts: Sequence[str],
    data: Any,
    *,
    policy: str = "",
    folder: Path | None = None,
    **extra: str,
) -> str:
    """Return a page as HTML; `page.html` is the frame of all.

    The data is embedded as JSON, and a content security policy allows only the script and style of the page itself, so
    text that a model generated stays text.

    Args:
        body: the HTML part, in which `{{title}}` and the names of `extra` are filled in.
        title: plain text.
        styles: the CSS parts, in order.
        scripts: the JavaScript parts, in order; they share one scope.
        data: what the scripts draw, as plain data.
        policy: more directives of the content security policy, such as "connect-src 'self'".
        folder: where parts are looked for first.
        extra: HTML by the names of further placeholders.
    """

    def part(name: str) -> str:
        own = folder / name if folder else None
        return (own if own and own.is_file() else _KIT.joinpath(name)).read_text(encoding="utf-8")

    style = "".join(part(f"{name}.css") for name in styles)
    # one function around all parts: they share a scope, and nothing is global
    script = '"use strict";\n(() => {\n' + "\n".join(part(f"{name}.js") for name in scripts) + "})();\n"
    allowed = (
        f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)}; "
        "base-uri 'none'; form-action 'none'"
    )
    parts = {
        "title": html.escape(title),
        "policy": f"{allowed}; {policy}".rstrip("; "),
        "style": style,
        "script": script,
        "data": _embed(data),
        "pieces": "",
        **extra,
    }
    # one pass over the frame: braces in the data, which a model may have written, are left alone
    frame = part("page.html").replace("{{body}}", part(f"{body}.html"))
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], frame)


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def write_page(path: str | Path, page: str) -> Path:
    """Write a page so that a reader sees the old one or the new one; return its path."""
    run_data.write_whole(Path(path), page)
    return Path(path)


def _embed(value: Any) -> str:
    """Return JSON that is safe inside a script element: without `<` and NaN."""
    text = json.dumps(clean_data(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=str)
    return text.replace("<", "\\u003c")  # `</script>` in a text would end the element


def clean_data(value: Any) -> Any:
    """Return plain data with rounded floats, and None where a number is not finite, which JSON cannot hold."""
    if isinstance(value, float):
        # drawings need no more digits, and the page stays small
        return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): clean_data(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean_data(entry) for entry in value]
    return value


def tree_data(tree: RolloutTree, offset: int = 0) -> dict[str, Any]:
    """Return what a page draws of a tree, without token ids; `offset` is added to its step."""
    step = tree.meta.get("step")
    return {
        "step": step + offset if isinstance(step, int) else step,
        "group": tree.meta.get("group"),
        "seed": tree.meta.get("seed"),
        "task": tree.task,
        "prompt": tree.prompt,
        "prompt_tokens": len(tree.prompt_ids),
        "unique": tree.unique_tokens(),
        "copied": tree.copied_tokens(),
        "entropy_unit": tree.meta.get("entropy_unit"),
        "contrasts": [contrast for contrast in metrics.fork_contrasts(tree) if contrast is not None],
        "spans": [span_data(span) for span in tree.spans],
        "trajectories": [asdict(trajectory) for trajectory in tree.trajectories],
    }


def span_data(span: Span) -> dict[str, Any]:
    """Return a span without its ids; entropies and log-probabilities, where measured, as whole thousandths of a nat."""
    entry: dict[str, Any] = {"parent": span.parent, "kind": span.kind, "n": len(span.ids), "text": span.text}
    if span.kind == "model":
        entry["finish"] = span.finish
        if span.measured:
            entry |= {"entropies": _thousandths(span.entropies), "logprobs": _thousandths(span.logprobs)}
    if span.tool:
        entry["tool"] = span.tool
    if span.decision:
        entry["decision"] = span.decision.as_dict()
    if span.interventions:
        entry["interventions"] = span.interventions
    return entry


def _thousandths(values: Sequence[float]) -> list[int | None]:
    return [round(value * _PER_NAT) if math.isfinite(value) else None for value in values]


def write_report(run_dir: str | Path) -> Path:
    """Write `run_dir/report.html`, also for a run that is still running or lacks files, and return its path.

    Raises:
        FileNotFoundError: there is no such directory.
        ValueError: a line of a file cannot be read; names file and line.
    """
    run_dir = Path(run_dir)
    return write_page(run_dir / "report.html", render(run_data.load_run(run_dir)))


def render(data: run_data.RunData) -> str:
    """Return the page."""
    title = str(data.facts.get("name") or data.folder.resolve().name)
    return make_page("report", title, ["style"], _SCRIPTS, payload(data))


def payload(data: run_data.RunData) -> dict[str, Any]:
    """Return the data that the page draws, with the samples of the first and the last evaluation only."""
    last = len(data.evaluations) - 1
    evaluations = [row if index in (0, last) else {**row, "samples": []} for index, row in enumerate(data.evaluations)]
    offset = _step_offset(data)
    return {
        "facts": {"name": data.folder.resolve().name, **data.facts},
        "metrics": data.metrics,
        "evaluations": evaluations,
        "trees": [tree_data(tree, offset) for tree in data.trees],
        "tree_total": data.tree_total,
        "tree_steps": data.tree_steps,
        "trace_bytes": data.trace_bytes,
        "notes": data.notes,
        "written": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def _step_offset(data: run_data.RunData) -> int:
    """Return what to add to the steps of trees so that they match those of the metrics.

    A rollout may count the updates before it (from 0), while the log counts the updates made (from 1).
    """
    logged = [row["step"] for row in data.metrics if isinstance(row.get("step"), int)]
    rolled = [tree.meta["step"] for tree in data.trees if isinstance(tree.meta.get("step"), int)]
    return int(bool(logged and rolled) and min(logged) == 1 and min(rolled) == 0)


@dataclass
class StepData:
    """The trees of one step of a traces.jsonl, whose `steps` are all; the last ones if the step was repeated."""

    path: Path
    step: int
    steps: list[int]
    trees: list[RolloutTree]
    facts: dict[str, Any] = field(default_factory=dict)


def load_step(path: str | Path, step: int | None = None) -> StepData:
    """Read the trees of one step, by default the last one, of the folder of a run or a traces.jsonl."""
    traces = _traces(Path(path))
    facts_path = traces.with_name("run.json")
    facts = run_data.read_facts(facts_path) if facts_path.is_file() else {}
    running = facts.get("status") == "running"
    steps = [run_data.step_of(row) for _, row in run_data.rows_of(traces, running)]
    if not steps:
        raise ValueError(f"{traces} holds no tree yet: wait for the first step, or roll one out with `arpo rollout`")
    wanted = max(steps) if step is None else step
    if wanted not in steps:
        kept = f"{len(set(steps))} steps from {min(steps)} to {max(steps)}"
        raise ValueError(f"no trees of step {wanted} in {traces}; it has those of {kept}")
    trees: dict[Any, RolloutTree] = {}
    # not strict: a run that goes on may have added lines since the steps were read
    for (number, line), of in zip(run_data.lines_of(traces, running), steps, strict=False):
        if of == wanted:
            tree = run_data.parse_tree(traces, number, line)
            # a later line replaces an earlier one of its group: the step was repeated after a resume
            trees[tree.meta.get("group", f"line {number}")] = tree
    return StepData(traces, wanted, sorted(set(steps)), list(trees.values()), facts)


def _traces(path: Path) -> Path:
    if path.is_file():
        return path
    if not path.is_dir():
        raise FileNotFoundError(
            f"no run folder and no traces file {str(path)!r}; give the output_dir of a run or its traces.jsonl, or "
            "make one: arpo rollout arpo/Arithmetic-v0 --model smollm2-135m --output DIR"
        )
    if not (path / "traces.jsonl").is_file():
        raise FileNotFoundError(
            f"no traces.jsonl in {str(path)!r}: the run wrote none; run it with trace_every: 1 (0 writes none)"
        )
    return path / "traces.jsonl"


def write_timeline(
    path: str | Path, *, step: int | None = None, output: str | Path | None = None
) -> tuple[Path, list[RolloutTree]]:
    """Write the timeline of one step as a page, as `arpo view timeline`; return its path and the trees that it shows.

    It has a lane for each trajectory, with branches below what they were forked from.
    """
    data = load_step(path, step)
    target = Path(output) if output else data.path.with_name("timeline.html")
    # resolved, because the parent of a relative `traces.jsonl` has no name
    name = str(data.facts.get("name") or data.path.resolve().parent.name)
    styles, scripts = ["style", "timeline"], ["tools", "timeline", "lanes", "pointing"]
    page = make_page("timeline", f"Timeline of {name}", styles, scripts, timeline_payload(data))
    return write_page(target, page), data.trees


def timeline_payload(data: StepData) -> dict[str, Any]:
    """Return the data that the page draws."""
    wall = metrics.wall_seconds(data.trees)
    return {
        "facts": {name: data.facts[name] for name in ("name", "env", "model", "algorithm") if name in data.facts},
        "step": data.step,
        "steps": len(data.steps),
        "wall": wall,
        "busy": metrics.busy_seconds(metrics.generating(data.trees)),
        "load": _load(data.trees),
        "use": _summary(metrics.time_use(data.trees)),
        "trees": [_tree(tree) for tree in data.trees],
    }


def _summary(use: metrics.TimeUse) -> dict[str, Any]:
    return {**vars(use), "waited": use.waited, "shares": use.shares()}


def _load(trees: Sequence[RolloutTree]) -> dict[str, list[tuple[float, int]]]:
    """Return how many requests were being generated, waited for the model, and ran in tools, over time."""
    events = [event for tree in trees for event in tree.timeline]
    queued = [(e.start, e.start + metrics.waiting_seconds(e)) for e in events if e.kind == "generate"]
    tools = [(e.start + metrics.waiting_seconds(e), e.end) for e in events if e.kind == "tool"]
    found = {"generate": metrics.generating(trees), "queue": queued, "tool": tools}
    return {
        name: [(round(moment, _TIMELINE_DIGITS), level) for moment, level in metrics.concurrency(intervals)]
        for name, intervals in found.items()
    }


def _tree(tree: RolloutTree) -> dict[str, Any]:
    events = metrics.by_trajectory(tree)
    return {
        "group": tree.meta.get("group"),
        "question": _short(str(tree.task.get("question") or tree.task.get("id") or "")),
        "use": _summary(metrics.time_use([tree])),
        "texts": [_short(span.text) for span in tree.spans],
        "lanes": [_lane(tree, number, depth, events.get(number, [])) for number, depth in lane_order(tree, events)],
    }


def lane_order(tree: RolloutTree, events: dict[int, list[Event]]) -> list[tuple[int, int]]:
    """Return (trajectory, depth) from top to bottom: below each trajectory its branches, in the order of forks."""
    children: dict[int | None, list[int]] = {}
    for number, trajectory in enumerate(tree.trajectories):
        children.setdefault(trajectory.parent, []).append(number)

    def born(number: int) -> float:
        return min((event.start for event in events.get(number, [])), default=0.0)

    def below(parent: int | None, depth: int) -> Iterator[tuple[int, int]]:
        for number in sorted(children.get(parent, []), key=lambda number: (born(number), number)):
            yield number, depth
            yield from below(number, depth + 1)

    return list(below(None, 0))


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
    times = (event.start, event.end - event.start, metrics.waiting_seconds(event))
    # a list without names keeps the page small: a step may have thousands of events
    row = [event.kind, *(round(value, _TIMELINE_DIGITS) for value in times), event.name, event.status]
    return [*row, event.tokens, event.cached, event.context, None if span is None else span.index]


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 1]}…"


ROW, BOX, TOP, LEFT, RIGHT = 34, 22, 44, 34, 150
CHARACTER = 6.2  # mean width of a character of 11 px text, in pixels
HIGH_ENTROPY = 0.6  # nats per token, shown in the darkest colour
_CALM, _UNSURE = (232, 240, 254), (255, 153, 51)
_RESULT, _FOLD = "#d9dee4", "#cfe9d4"
_TAG = re.compile(r"</?[A-Za-z_]+>")
_TEXT = 'font-family="system-ui, sans-serif" font-size="11"'


def tree_svg(tree: RolloutTree, width: int = 800) -> str:
    """Return a small picture of a rollout tree as SVG text: `IPython.display.SVG(tree_svg(tree))`.

    Tokens run to the right, one row per trajectory. A box is a span: a turn of the model, the darker the higher its
    mean entropy, the result of a tool, or a fold, which begins a new prompt. A span that several trajectories share is
    drawn once; curves lead to its branches.

    Args:
        tree: any one with at least one trajectory.
        width: of the picture, in pixels.
    """
    rows = _rows(tree)
    ends = {span.index: sum(len(one.ids) for one in tree.path_to(span.index)) for span in tree.spans}
    scale = (width - LEFT - RIGHT) / max(ends.values(), default=1)
    height = TOP + ROW * (max(rows.values(), default=0) + 1) + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
        f'<rect width="{width}" height="{height}" rx="6" fill="#ffffff"/>',
        _text(12, 24, str(tree.task.get("question", ""))[: int((width - 24) / CHARACTER)], weight="600"),
    ]
    for span in tree.spans:
        x, y = LEFT + scale * (ends[span.index] - len(span.ids)), TOP + ROW * rows[span.index]
        if span.parent is not None and rows[span.parent] != rows[span.index]:
            parts.append(_curve(x, TOP + ROW * rows[span.parent] + BOX / 2, y + BOX / 2))
        parts.append(_box(span, x, y, scale * len(span.ids)))
    parts += [_label(tree, number, TOP + ROW * number, width - RIGHT + 10) for number in range(len(tree.trajectories))]
    folds = any(span.kind == "fold" for span in tree.spans)
    return "\n".join([*parts, *_key(height - 20, folds), "</svg>"])


def _rows(tree: RolloutTree) -> dict[int, int]:
    """Return the row of each span: that of the first trajectory which goes through it, then those of what was left."""
    rows: dict[int, int] = {}
    for number in range(len(tree.trajectories)):
        for span in tree.path(number):
            rows.setdefault(span.index, number)
    last = len(tree.trajectories) - 1
    for span in tree.spans:
        if span.index not in rows:
            begins = span.parent is None or rows[span.parent] < len(tree.trajectories)
            last += begins
            rows[span.index] = last if begins else rows[span.parent or 0]
    return rows


def _box(span: Span, x: float, y: float, wide: float) -> str:
    shown, room = _shown(span), int((wide - 8) / CHARACTER)
    # where at most two characters fit, a cut text would tell nothing
    label = shown if len(shown) <= room else f"{shown[: room - 1]}…" if room > 2 else ""
    plain = _FOLD if span.kind == "fold" else _RESULT
    # without entropies a turn has the colour of a calm one
    fill = _colour(statistics.fmean(span.entropies)) if span.kind == "model" else plain
    helped = "".join(f", {mark['tool']} {mark['outcome']}" for mark in span.interventions or ())
    title = f"{span.kind}, {len(span.ids)} tokens{helped}\n{span.text.strip()}"
    # at least 2 pixels, so that a span of few tokens stays visible
    box = f'x="{x:.1f}" y="{y}" width="{max(2, wide - 2):.1f}" height="{BOX}" rx="3" fill="{fill}"'
    if span.has_outcome(ABANDONED):
        box += ' stroke="#66707a" stroke-dasharray="2 3" fill-opacity="0.4"'
    return f'<g><title>{escape(title)}</title><rect class="{span.kind}" {box}/>{_text(x + 4, y + 15, label)}</g>'


def _shown(span: Span) -> str:
    """Return what a box says: the call or the answer of a turn, or a result, without tags; of a fold, the progress."""
    if span.kind == "fold" and span.tool:
        return f"fold: {span.tool['memory']['episodic']['current_progress']}"
    text = span.text.rpartition("</think>")[2] if span.kind == "model" else span.text
    # a turn that ends with its thought has nothing after it: the thought is shown then
    words = " ".join(_TAG.sub(" ", text or span.text).split())
    return f"{span.tool['name']}: {words}" if span.tool else words


def _colour(entropy: float) -> str:
    share = min(1.0, max(0.0, entropy / HIGH_ENTROPY))
    mixed = (round(calm + share * (unsure - calm)) for calm, unsure in zip(_CALM, _UNSURE, strict=True))
    return "#" + "".join(f"{value:02x}" for value in mixed)


def _curve(x: float, above: float, below: float) -> str:
    path = f"M {x - 2:.1f} {above} C {x - 12:.1f} {above}, {x - 12:.1f} {below}, {x:.1f} {below}"
    return f'<path class="branch" d="{path}" fill="none" stroke="#7b3fe4" stroke-width="1.5"/>'


def _label(tree: RolloutTree, number: int, y: float, x: float) -> str:
    one = tree.trajectories[number]
    earned = "no reward" if one.reward is None else f"reward {one.reward:g}"
    return _text(10, y + 15, str(number + 1), "#66707a") + _text(x, y + 15, f"{earned}, {one.origin}")


def _key(y: float, folds: bool) -> list[str]:
    colours = [(_colour(0.0), "turn, sure"), (_colour(HIGH_ENTROPY), "turn, unsure"), (_RESULT, "result of a tool")]
    colours += [(_FOLD, "fold")] if folds else []
    parts = []
    for number, (fill, name) in enumerate(colours):
        x = LEFT + 120 * number
        parts += [f'<rect x="{x}" y="{y}" width="16" height="11" rx="2" fill="{fill}"/>', _text(x + 22, y + 10, name)]
    return parts


def _text(x: float, y: float, words: str, fill: str = "#1f2328", weight: str = "400") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {_TEXT} fill="{fill}" font-weight="{weight}">{escape(words)}</text>'
