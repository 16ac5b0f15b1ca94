"""`arpo plot`: figures for papers with matplotlib: scores, pass@k, accuracy by tool calls, learning curves.

The same run gives the same bytes of SVG and PDF: no date, fixed ids. Colours are those of Okabe and Ito, which stay
apart for most forms of colour blindness; markers differ, too.

    write_figure(["evals/before", "evals/after"], "scores.svg")
    write_figure(["runs/arithmetic-cpu"], "learning.pdf")
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arpo_trainer.evaluation.episode_store import EvalRun, UnitRow, load_eval_run
from arpo_trainer.evaluation.eval_metrics import episode_value, interval_of
from arpo_trainer.optional_dependencies import require
from arpo_trainer.report.run_data import RunData, load_run, read_facts
from arpo_trainer.views.run_page import ScoreLine, metric_of, score_lines, unique_names

FORMATS = (".svg", ".pdf", ".png")
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = "osD^vPX*"  # one more than colours, so that both together repeat late
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

    def add(self, x: float, y: float, low: Any, high: Any, mean: float | None = None) -> None:
        """Add a point; a bound that is not known is its mean."""
        self.x.append(x)
        self.y.append(y)
        self.low.append(_finite(low, x if mean is None else mean))
        self.high.append(_finite(high, x if mean is None else mean))


def write_figure(
    folders: Sequence[str | Path], output: str | Path, *, kind: str | None = None, width: float = 6.0
) -> Path:
    """Draw a figure of evaluations or training runs into a .svg, .pdf or .png, `width` inches wide; return its path.

    Args:
        folders: folders of evaluations, or of training runs for "learning".
        output: the file.
        kind: "scores", "pass", "calls" or "learning"; by default "learning" for training runs and else "scores".
        width: of the figure.

    Raises:
        FileNotFoundError: a folder is not of such a run, or that of `output` is missing.
        ModuleNotFoundError: matplotlib is not installed.
        ValueError: another format or kind, or the runs have nothing to draw.
    """
    require("plot")
    output = Path(output)
    if output.suffix not in FORMATS:
        raise ValueError(f"{output}: a figure is written as {', '.join(FORMATS)}")
    if not output.parent.is_dir():
        raise FileNotFoundError(f"no folder {str(output.parent)!r} to write {output.name} to; make it first")
    kind = kind or ("learning" if all(_is_training(Path(folder)) for folder in folders) else "scores")
    if kind == "learning":
        series = learning_series([load_run(folder) for folder in folders])
        return _drawn(output, (width, 0.62 * width), lambda axes: _curves(axes, series, "training step", "score"))
    if kind not in _EVALUATIONS:
        raise ValueError(f"no figure {kind!r}; there are {', '.join((*_EVALUATIONS, 'learning'))}")
    return _EVALUATIONS[kind]([load_eval_run(folder) for folder in folders], output, width)


def _is_training(folder: Path) -> bool:
    facts = folder / "run.json"
    return (folder / "metrics.jsonl").is_file() or (facts.is_file() and read_facts(facts).get("kind") != "eval")


def _scores(runs: Sequence[EvalRun], output: Path, width: float) -> Path:
    lines = [(name, line) for name, run in _named(runs) for line in score_lines(run) if line["score"]]
    if not lines:
        raise ValueError("no episode of these runs has a score yet")
    envs = list(dict.fromkeys(line["env"] for _, line in lines))
    several = len(runs) > 1
    sides = list(dict.fromkeys((name if several else "", line["model"]) for name, line in lines))

    def draw(axes: Any) -> None:
        gap = 0.8 / len(sides)
        for number, side in enumerate(sides):
            own = [line for name, line in lines if (name if several else "", line["model"]) == side]
            series = _score_series(own, side, envs, (number - (len(sides) - 1) / 2) * gap)
            _points(axes, series, number)
        _published(axes, [line for _, line in lines], envs)
        axes.set_yticks(range(len(envs)), envs)
        axes.set_ylim(len(envs) - 0.4, -0.6)
        axes.set_xlabel(", ".join(dict.fromkeys(line["metric"] for _, line in lines)) + " (95 % interval)")
        axes.grid(axis="y", visible=False)

    return _drawn(output, (width, 0.9 + len(envs) * max(0.45, 0.2 * len(sides))), draw, legend=len(sides) > 1)


def _score_series(lines: Sequence[ScoreLine], side: tuple[str, str], envs: Sequence[str], shift: float) -> Series:
    series = Series(" · ".join(filter(None, side)))
    for line in lines:
        score = line["score"]
        series.add(score["mean"], envs.index(line["env"]) + shift, score["low"], score["high"])
    return series


def _points(axes: Any, series: Series, number: int) -> None:
    errors = [
        [x - low for x, low in zip(series.x, series.low, strict=True)],
        [high - x for x, high in zip(series.x, series.high, strict=True)],
    ]
    look = {"color": _COLOURS[number % len(_COLOURS)], "marker": _MARKERS[number % len(_MARKERS)]}
    axes.errorbar(
        series.x, series.y, xerr=errors, linestyle="none", markersize=4.5, capsize=2, label=series.name, **look
    )


def _published(axes: Any, lines: Sequence[ScoreLine], envs: Sequence[str]) -> None:
    # of the same base model only: the others' numbers say little about this one
    shown = [
        (line["env"], line["published"]["rows"])
        for line in lines
        if line["published"] and line["published"]["same_model"]
    ]
    found = dict.fromkeys((env, max(row["value"] for row in rows)) for env, rows in shown)
    for number, (env, value) in enumerate(found):
        place = envs.index(env)
        label = None if number else "published (best, same base model)"
        axes.plot([value, value], [place - 0.45, place + 0.45], color="#57606c", linestyle=":", label=label)


def _passes(runs: Sequence[EvalRun], output: Path, width: float) -> Path:
    series = []
    for name, run in _named(runs):
        for line in score_lines(run):
            curve = {float(key[5:]): value for key, value in line["pass"].items() if key.startswith("pass@")}
            if curve:
                label = " · ".join(filter(None, (name if len(runs) > 1 else "", line["model"], line["env"])))
                series.append(Series(label, list(curve), list(curve.values())))
    if not series:
        raise ValueError("pass@k needs several samples of each task: evaluate with -n 4 or more")

    def draw(axes: Any) -> None:
        _curves(axes, series, "k", "pass@k")
        ticks = sorted({k for one in series for k in one.x})
        axes.set_xscale("log", base=2)
        axes.set_xticks(ticks, [f"{k:g}" for k in ticks])
        axes.minorticks_off()

    return _drawn(output, (width, 0.62 * width), draw)


def _calls(runs: Sequence[EvalRun], output: Path, width: float) -> Path:
    series = []
    for name, (model, env), rows, metric in _groups(runs):
        line = Series(" · ".join(filter(None, (name, model, env))))
        for calls, by_task in sorted(_scores_by_calls(rows, metric).items()):
            interval = interval_of(by_task)
            if interval:
                line.add(calls, interval.mean, interval.low, interval.high, interval.mean)
        series.append(line)
    if not any(line.x for line in series):
        raise ValueError("no episode of these runs has a score yet")
    label = f"tool calls of an episode ({_MOST_CALLS}: {_MOST_CALLS} or more)"
    return _drawn(output, (width, 0.62 * width), lambda axes: _curves(axes, series, label, "accuracy"))


def _scores_by_calls(rows: Sequence[UnitRow], metric: str) -> dict[int, dict[str, list[float]]]:
    found: dict[int, dict[str, list[float]]] = {}
    for row in rows:
        for entry in row.scored:
            score = episode_value(entry, metric)
            if score is not None:
                calls = min(_MOST_CALLS, sum(entry.calls.values()))
                found.setdefault(calls, {}).setdefault(row.task, []).append(score)
    return found


def learning_series(runs: Sequence[RunData]) -> list[Series]:
    """Return the curves of training runs: the reward of each step, and held-out accuracy with its interval.

    Raises:
        ValueError: no step has been logged yet.
    """
    series = []
    for run in runs:
        name = str(run.facts.get("name") or run.folder.resolve().name)
        prefix = f"{name} · " if len(runs) > 1 else ""
        steps = [row for row in run.metrics if _is_number(row.get("step")) and _is_number(row.get("reward"))]
        if steps:
            series.append(Series(f"{prefix}reward", [row["step"] for row in steps], [row["reward"] for row in steps]))
        held = [row for row in run.evaluations if _is_number(row.get("step")) and _is_number(row.get("accuracy"))]
        if held:
            line = Series(f"{prefix}held-out accuracy")
            for row in held:
                bounds = row.get("accuracy_low"), row.get("accuracy_high")
                line.add(row["step"], row["accuracy"], *bounds, row["accuracy"])
            series.append(line)
    if not series:
        raise ValueError("no training step of these runs has been logged yet (metrics.jsonl, eval.jsonl)")
    return series


def _curves(axes: Any, series: Sequence[Series], x: str, y: str) -> None:
    for number, line in enumerate(series):
        colour = _COLOURS[number % len(_COLOURS)]
        few = len(line.x) <= 20
        marker = _MARKERS[number % len(_MARKERS)] if few else None
        axes.plot(line.x, line.y, color=colour, marker=marker, markersize=4, linewidth=1.4, label=line.name)
        if line.low:
            axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.15, linewidth=0)
    axes.set_xlabel(x)
    axes.set_ylabel(y)


def _drawn(output: Path, size: tuple[float, float], draw: Callable[[Any], None], *, legend: bool = True) -> Path:
    # without pyplot, which would look for a display
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(_STYLE):
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.add_subplot()
        draw(axes)
        labels = axes.get_legend_handles_labels()[1]
        if labels and (legend or len(labels) > 1):
            figure.legend(loc="outside upper left", ncols=min(2, len(labels)), fontsize=8)
        undated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}, ".png": {"Software": None}}
        unfinished = output.with_name(f"{output.name}.unfinished")
        figure.savefig(unfinished, format=output.suffix[1:], dpi=200, metadata=undated[output.suffix])
    unfinished.replace(output)
    return output


def _named(runs: Sequence[EvalRun]) -> list[tuple[str, EvalRun]]:
    return list(zip(unique_names(runs), runs, strict=True))


def _groups(runs: Sequence[EvalRun]) -> Iterator[tuple[str, tuple[str, str], list[UnitRow], str]]:
    """Yield the name (with several runs), model and environment, rows and metric of each group of rows."""
    for name, run in _named(runs):
        groups: dict[tuple[str, str], list[UnitRow]] = {}
        for row in run.rows:
            groups.setdefault((row.model, row.env), []).append(row)
        for key, rows in groups.items():
            yield name if len(runs) > 1 else "", key, rows, metric_of(run.facts, key[1])


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _finite(value: Any, otherwise: float) -> float:
    return float(value) if _is_number(value) else otherwise


_EVALUATIONS = {"scores": _scores, "pass": _passes, "calls": _calls}
