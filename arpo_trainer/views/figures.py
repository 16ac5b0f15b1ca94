"""`arpo plot`: figures for papers with matplotlib: scores, pass@k, accuracy by tool calls, learning curves.

The same run gives the same bytes of SVG and PDF: no date, fixed ids. Colours are those of Okabe and Ito, which stay
apart for most forms of colour blindness; markers differ, too.

    write_figure(["evals/before", "evals/after"], "scores.svg")
    write_figure(["runs/arithmetic-cpu"], "learning.pdf")
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arpo_trainer.evaluation.episode_store import EvalRun, load_eval_run
from arpo_trainer.evaluation.eval_metrics import episode_value, interval_of
from arpo_trainer.optional_dependencies import require
from arpo_trainer.report.run_data import RunData, load_run, read_facts
from arpo_trainer.views.run_page import metric_of, score_lines, unique_names

FORMATS = (".svg", ".pdf", ".png")
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = "osD^vPX*"  # one more than colours, so that both together repeat late
_WIDTH = 6.0  # inches
_MOST_CALLS = 8  # episodes with more calls share a point
_STYLE = {
    "svg.hashsalt": "arpo",
    "svg.fonttype": "none",
    "pdf.fonttype": 42,  # TrueType, which publishers ask for
    "text.parse_math": False,  # a label may hold dollars
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e3e6ea",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
}


@dataclass
class Series:
    """Points of one model or run, with the bounds of their intervals, if there are any."""

    name: str
    x: list[float] = field(default_factory=list)
    y: list[float] = field(default_factory=list)
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)

    def add(self, x: float, y: float, mean: float, low: float | None, high: float | None) -> None:
        """Add a point; a bound that is not known, which is None or infinite, is the mean."""
        bounds = [bound if bound is not None and math.isfinite(bound) else mean for bound in (low, high)]
        for values, value in zip((self.x, self.y, self.low, self.high), (x, y, *bounds), strict=True):
            values.append(value)


def write_figure(folders: Sequence[str | Path], output: str | Path, *, kind: str | None = None) -> Path:
    """Draw a figure as `arpo plot` with these options, and return its path.

    `kind` is "scores", "pass", "calls" or "learning"; by default "learning" for training runs and else "scores".
    """
    require("plot")
    output = Path(output)
    if output.suffix not in FORMATS:
        raise ValueError(f"{output}: a figure is written as {', '.join(FORMATS)}")
    kind = kind or ("learning" if all(_is_training(Path(folder)) for folder in folders) else "scores")
    if kind == "learning":
        series = learning_series([load_run(folder) for folder in folders])
        return _drawn(output, lambda axes: _curves(axes, series, "training step", "score"))
    runs = [load_eval_run(folder) for folder in folders]
    return _EVALUATIONS[kind](list(zip(unique_names(runs), runs, strict=True)), output)


def _is_training(folder: Path) -> bool:
    facts = folder / "run.json"
    return (folder / "metrics.jsonl").is_file() or (facts.is_file() and read_facts(facts).get("kind") != "eval")


_Named = Sequence[tuple[str, EvalRun]]


def _label(runs: _Named, name: str, *parts: str) -> str:
    return " · ".join(filter(None, (name if len(runs) > 1 else "", *parts)))


def _scores(runs: _Named, output: Path) -> Path:
    lines = [(_label(runs, name, line["model"]), line) for name, run in runs for line in score_lines(run)]
    lines = [(side, line) for side, line in lines if line["score"]]
    envs = list(dict.fromkeys(line["env"] for _, line in lines))
    sides = {side: Series(side) for side, _ in lines}
    gap = 0.8 / max(1, len(sides))
    for side, line in lines:
        shift, score = (list(sides).index(side) - (len(sides) - 1) / 2) * gap, line["score"]
        sides[side].add(score["mean"], envs.index(line["env"]) + shift, score["mean"], score["low"], score["high"])

    def draw(axes: Any) -> None:
        for number, series in enumerate(sides.values()):
            left = [x - low for x, low in zip(series.x, series.low, strict=True)]
            right = [high - x for x, high in zip(series.x, series.high, strict=True)]
            look = {"color": _COLOURS[number % len(_COLOURS)], "marker": _MARKERS[number % len(_MARKERS)]}
            axes.errorbar(
                series.x,
                series.y,
                xerr=[left, right],
                linestyle="none",
                markersize=4.5,
                capsize=2,
                label=series.name,
                **look,
            )
        # published numbers of the same base model only: the others' say little about this one
        known = [
            (line["env"], line["published"]["rows"]) for _, line in lines if (line["published"] or {}).get("same_model")
        ]
        for number, (env, rows) in enumerate(dict(known).items()):
            place, value = envs.index(env), max(row["value"] for row in rows)
            label = None if number else "published (best, same base model)"
            axes.plot([value, value], [place - 0.45, place + 0.45], color="#57606c", linestyle=":", label=label)
        axes.set_yticks(range(len(envs)), envs)
        axes.set_ylim(len(envs) - 0.4, -0.6)
        axes.set_xlabel(", ".join(dict.fromkeys(line["metric"] for _, line in lines)) + " (95 % interval)")
        axes.grid(axis="y", visible=False)

    return _drawn(output, draw, 0.9 + len(envs) * max(0.45, 0.2 * len(sides)), legend=len(sides) > 1)


def _passes(runs: _Named, output: Path) -> Path:
    series = []
    for name, run in runs:
        for line in score_lines(run):
            curve = {float(key[5:]): value for key, value in line["pass"].items() if key.startswith("pass@")}
            if curve:
                series.append(Series(_label(runs, name, line["model"], line["env"]), list(curve), list(curve.values())))
    if not series:
        raise ValueError("pass@k needs several samples of each task: evaluate with -n 4 or more")

    def draw(axes: Any) -> None:
        _curves(axes, series, "k", "pass@k")
        ticks = sorted({k for one in series for k in one.x})
        axes.set_xscale("log", base=2)
        axes.set_xticks(ticks, [f"{k:g}" for k in ticks])
        axes.minorticks_off()

    return _drawn(output, draw)


def _calls(runs: _Named, output: Path) -> Path:
    # label -> number of calls -> task -> scores
    found: dict[str, dict[int, dict[str, list[float]]]] = {}
    for name, run in runs:
        for row in run.rows:
            by_calls = found.setdefault(_label(runs, name, row.model, row.env), {})
            for entry in row.scored:
                score = episode_value(entry, metric_of(run.facts, row.env))
                if score is not None:
                    calls = min(_MOST_CALLS, sum(entry.calls.values()))
                    by_calls.setdefault(calls, {}).setdefault(row.task, []).append(score)
    series = [Series(label) for label in found]
    for line, by_calls in zip(series, found.values(), strict=True):
        for calls, by_task in sorted(by_calls.items()):
            if interval := interval_of(by_task):
                line.add(calls, interval.mean, interval.mean, interval.low, interval.high)
    label = f"tool calls of an episode ({_MOST_CALLS}: {_MOST_CALLS} or more)"
    return _drawn(output, lambda axes: _curves(axes, series, label, "accuracy"))


def learning_series(runs: Sequence[RunData]) -> list[Series]:
    """Return the curves of training runs: the reward of each step, and held-out accuracy with its interval."""
    series = []
    for run in runs:
        prefix = f"{run.facts.get('name') or run.folder.resolve().name} · " if len(runs) > 1 else ""
        steps = [(row["step"], row["reward"]) for row in run.metrics if row.get("reward") is not None]
        if steps:
            series.append(Series(f"{prefix}reward", *map(list, zip(*steps, strict=True))))
        held = [row for row in run.evaluations if row.get("accuracy") is not None]
        line = Series(f"{prefix}held-out accuracy")
        for row in held:
            bounds = row.get("accuracy_low"), row.get("accuracy_high")
            line.add(row["step"], row["accuracy"], row["accuracy"], *bounds)
        series += [line] if held else []
    if not series:
        raise ValueError("no training step of these runs has been logged yet (metrics.jsonl, eval.jsonl)")
    return series


def _curves(axes: Any, series: Sequence[Series], x: str, y: str) -> None:
    for number, line in enumerate(series):
        colour = _COLOURS[number % len(_COLOURS)]
        marker = _MARKERS[number % len(_MARKERS)] if len(line.x) <= 20 else None
        axes.plot(line.x, line.y, color=colour, marker=marker, markersize=4, linewidth=1.4, label=line.name)
        if line.low:
            axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.15, linewidth=0)
    axes.set_xlabel(x)
    axes.set_ylabel(y)


def _drawn(output: Path, draw: Callable[[Any], None], height: float = 0.62 * _WIDTH, *, legend: bool = True) -> Path:
    # without pyplot, which would look for a display
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        axes = figure.add_subplot()
        draw(axes)
        labels = axes.get_legend_handles_labels()[1]
        if not labels:
            raise ValueError("no episode of these runs has a score yet")
        if legend or len(labels) > 1:
            figure.legend(loc="outside upper left", ncols=min(2, len(labels)), fontsize=8)
        undated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}, ".png": {"Software": None}}
        figure.savefig(output, dpi=200, metadata=undated[output.suffix])
    return output


_EVALUATIONS = {"scores": _scores, "pass": _passes, "calls": _calls}
