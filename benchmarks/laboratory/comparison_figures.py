"""Figures of a comparison: success against cost, and the differences to the baseline as a forest plot.

Both are drawn from comparison.json alone; the same file gives the same bytes of SVG.

    write_comparison_figures(data, "lab/first")        # curves.svg and differences.svg
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy

from arpo_trainer.optional_dependencies import require
from benchmarks.laboratory.comparison_words import OVERALL
from benchmarks.laboratory.grid_run import AXIS_LABELS

# Okabe and Ito's without yellow and black, which vanish on a white or a dark ground; line styles and markers differ too
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8D6E63", "#7C7CCF")
DASHES = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (6, 2, 1, 2)), "-", (0, (5, 2)), (0, (1, 1.2)), (0, (6, 2, 1, 2)))
MARKERS = "osD^vPX*"
BASE_COLOUR = "#7d8590"  # of the baseline
INK, RULE, GROUND = "#24292f", "#dfe3e8", "#ffffff"  # a page replaces them by its own colours
_AXES = ("tokens", "calls", "trajectories")  # update tokens: in the tables
_STYLE = {
    "svg.hashsalt": "arpo lab",
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.size": 9,
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "figure.facecolor": GROUND,
    "axes.facecolor": GROUND,
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
}


def write_comparison_figures(data: dict[str, Any], folder: str | Path, prefix: str = "") -> list[Path]:
    """Write curves.svg and differences.svg, with a prefix of their names, and return their paths.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
    """
    paths = []
    for name, svg in (("curves.svg", curves_svg(data)), ("differences.svg", differences_svg(data))):
        path = Path(folder) / f"{prefix}{name}"
        path.write_text(svg, encoding="utf-8")
        paths.append(path)
    return paths


def curves_svg(data: dict[str, Any], axes: Sequence[str] = _AXES) -> str:
    """Return success against cost as SVG: a row for each environment, a column for each axis of cost."""
    envs = list(data["axes"][axes[0]]["curves"])
    size = (3.5 * len(axes), 2.5 * len(envs) + 0.3)

    def draw(figure: Any) -> None:
        panels = figure.subplots(len(envs), len(axes), squeeze=False, sharey="row")
        for row, env in enumerate(envs):
            for column, axis in enumerate(axes):
                panel = panels[row][column]
                _curves(panel, data, env, axis)
                panel.set_title(env if not column else "", loc="left", fontsize=9, fontweight="bold")
                panel.set_xlabel(AXIS_LABELS[axis])
                panel.set_ylabel("success" if not column else "")
        _legend(figure, panels[0][0])

    return _svg(size, draw)


def curve_svg(data: dict[str, Any], env: str, axis: str) -> str:
    """Return success against cost of one environment on one axis as SVG, without a title and a legend."""

    def draw(figure: Any) -> None:
        panel = figure.subplots()
        _curves(panel, data, env, axis)
        panel.set_xlabel(AXIS_LABELS[axis])

    return _svg((4.6, 2.7), draw)


def differences_svg(data: dict[str, Any], axes: Sequence[str] = _AXES) -> str:
    """Return the differences to the baseline as SVG: a column for each axis of cost, a block for each environment."""
    first = data["axes"][axes[0]]
    places = [*first["environments"], *([OVERALL] if len(first["environments"]) > 1 else [])]
    others = [label for label in labels(data) if label != data["baseline"]]
    size = (1.0 + 2.9 * len(axes), 1.0 + len(places) * (0.2 + 0.17 * max(1, len(others))))

    def draw(figure: Any) -> None:
        panels = figure.subplots(1, len(axes), squeeze=False, sharey=True, sharex=True)[0]
        for panel, axis in zip(panels, axes, strict=True):
            _forest(panel, data, axis, places, others)
            panel.set_title(f"at equal {AXIS_LABELS[axis]}", loc="left", fontsize=9)
        panels[0].set_yticks(range(len(places)), places)
        panels[0].set_ylim(len(places) - 0.45, -0.55)
        _legend(figure, panels[0])

    return _svg(size, draw)


def labels(data: dict[str, Any]) -> list[str]:
    """Return the labels of the algorithms in the plan's order."""
    return [one["label"] for one in data["plan"]["algorithms"]]


def look_of(data: dict[str, Any], label: str) -> tuple[str, Any, str]:
    """Return an algorithm's colour, line style and marker, the same in every figure."""
    if label == data["baseline"]:
        return BASE_COLOUR, "-", "o"
    number = [one for one in labels(data) if one != data["baseline"]].index(label)
    return COLOURS[number % len(COLOURS)], DASHES[number % len(DASHES)], MARKERS[number % len(MARKERS)]


def _curves(panel: Any, data: dict[str, Any], env: str, axis: str) -> None:
    for label, curve in data["axes"][axis]["curves"].get(env, {}).items():
        colour, dash, _ = look_of(data, label)
        panel.plot(curve["cost"], curve["success"], color=colour, linestyle=dash, linewidth=1.6, label=label)
        if None not in curve["low"]:
            panel.fill_between(curve["cost"], curve["low"], curve["high"], color=colour, alpha=0.14, linewidth=0)
    panel.set_xlim(left=0)
    panel.set_ylim(bottom=0)
    panel.xaxis.set_major_locator(_few_ticks())
    panel.xaxis.set_major_formatter(lambda value, _: _short(value))


def _forest(panel: Any, data: dict[str, Any], axis: str, places: Sequence[str], others: Sequence[str]) -> None:
    part, gap = data["axes"][axis], 0.8 / max(1, len(others))
    for number, label in enumerate(others):
        colour, _, marker = look_of(data, label)
        heights, found = [], []
        for place, name in enumerate(places):
            row = (part["overall"] if name == OVERALL else part["environments"][name]).get(label, {})
            if "difference" in row:
                heights.append(place + (number - (len(others) - 1) / 2) * gap)
                found.append(row["difference"])
        values = [each["value"] for each in found]
        lows = [each["value"] if each["low"] is None else each["low"] for each in found]
        highs = [each["value"] if each["high"] is None else each["high"] for each in found]
        panel.hlines(heights, lows, highs, color=colour, linewidth=1.3)
        panel.plot(values, heights, color=colour, marker=marker, linestyle="none", markersize=4.5, label=label)
    panel.axvline(0.0, color=BASE_COLOUR, linewidth=1.0)
    for edge in range(1, len(places)):
        panel.axhline(edge - 0.5, color=RULE, linewidth=0.6)
    panel.grid(axis="y", visible=False)
    panel.tick_params(axis="y", length=0)
    panel.set_xlabel(f"success minus that of {data['baseline']}")


def _legend(figure: Any, panel: Any) -> None:
    handles, names = panel.get_legend_handles_labels()
    if names:
        ncols = _columns(names, figure.get_figwidth())
        figure.legend(handles, names, loc="outside upper left", ncols=ncols, fontsize=8)


def _columns(names: Sequence[str], width: float) -> int:
    """Return how many columns of a legend in small type fit into a width in inches."""
    for columns in range(min(8, len(names)), 1, -1):
        parts = numpy.array_split([len(name) for name in names], columns)  # as matplotlib fills them
        if sum(0.062 * int(max(part)) + 0.53 for part in parts) <= width:
            return columns
    return 1


def _svg(size: tuple[float, float], draw: Callable[[Any], None]) -> str:
    require("plot")
    # without pyplot, which would look for a display
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(_STYLE):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()


def _few_ticks() -> Any:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(4)


def _short(value: float) -> str:
    return f"{value / 1000:g}k" if value >= 1000 else f"{value:g}"
