"""A comparison in words: the rows of its tables, for the terminal and for the page, and what went wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.laboratory.grid_run import AXIS_LABELS

Row = tuple[str, ...]
FEW_SEEDS = 5
OVERALL = "all"
HEADER = (
    "ENVIRONMENT",
    "ALGORITHM",
    "RUNS",
    "SUCCESS, 95 %",
    "ON THE WAY",
    "AGAINST {}, 95 %",
    "P(BETTER), 95 %",
    "COLLAPSED",
)


def axis_rows(data: dict[str, Any], axis: str) -> tuple[str, list[Row]]:
    """Return the title and the rows of the table of one axis, the header first; cells are text."""
    part = data["axes"][axis]
    rows = [tuple(name.format(data["baseline"].upper()) for name in HEADER)]
    for env, table in part["environments"].items():
        place = f"{env} ({count(part['budgets'][env])})"
        rows += [
            (place if not number else "", *cells(data, label, row, env))
            for number, (label, row) in enumerate(table.items())
        ]
    if len(part["environments"]) > 1:
        whole = part["overall"].items()
        rows += [(OVERALL if not number else "", *cells(data, label, row)) for number, (label, row) in enumerate(whole)]
    return f"at equal {AXIS_LABELS[axis]}", rows


def cells(data: dict[str, Any], label: str, row: dict[str, Any], env: str | None = None) -> Row:
    """Return the cells of an algorithm's row, from its label on.

    Args:
        data: the comparison.
        label: of the algorithm.
        row: its row, of one environment or of all.
        env: the environment, whose collapses are counted; None for all.
    """
    difference, better = row.get("difference"), row.get("improvement")
    return (
        label,
        str(row["runs"]),
        interval(row["score"]),
        f"{row['average']['value']:.3f}",
        interval(difference, sign=True) + ("" if row["paired"] else " unpaired") if difference else "",
        interval(better, digits=2) if better else "",
        str(collapses(data, label, env) or ""),
    )


def interval(estimate: dict[str, float | None], *, sign: bool = False, digits: int = 3) -> str:
    """Return an estimate with its interval, such as "+0.096 [+0.052, +0.139]"."""
    form = f"{'+' if sign else ''}.{digits}f"
    low, high = estimate["low"], estimate["high"]
    bounds = "" if low is None or high is None else f" [{low:{form}}, {high:{form}}]"
    return f"{estimate['value']:{form}}{bounds}"


def verdict(row: dict[str, Any]) -> str:
    """Return "more", "less", "" (the interval contains 0) or "base" for an algorithm's row."""
    difference = row.get("difference")
    if difference is None:
        return "base"
    low, high = difference["low"], difference["high"]
    if low is None or high is None:
        return ""
    return "more" if low > 0 else "less" if high < 0 else ""


def collapses(data: dict[str, Any], label: str, env: str | None) -> int:
    """Return how many runs of an algorithm have collapsed, in one environment or in all."""
    return sum(bool(run["collapse"]) for run in data["runs"] if run["label"] == label and env in (None, run["env"]))


def trouble_lines(data: dict[str, Any]) -> Iterator[str]:
    """Yield lines about runs that collapsed, failed or are missing, and about few seeds."""
    for run in data["runs"]:
        where = f"{run['label']}, {run['env']}, seed {run['seed']}"
        if run["collapse"]:
            yield f"collapsed: {where}: {run['collapse']}"
        if run["status"] == "failed":
            yield f"failed, in no table: {where}: {run['error']}"
    yield from _short_budgets(data)
    yield from _missing_environments(data)
    if data["missing"]:
        yield f"missing: {data['missing']} of {planned(data)} runs; the same command makes them"
    seeds = len(data["plan"]["seeds"])
    if seeds < FEW_SEEDS:
        yield f"only {seeds} seed{'s' * (seeds > 1)}: few seeds mislead; give at least {FEW_SEEDS}, better 10"


def _short_budgets(data: dict[str, Any]) -> Iterator[str]:
    for axis, most in data["plan"]["budget"].items():
        for env, budget in data["axes"].get(axis, {"budgets": {}})["budgets"].items():
            if budget < most:
                yield f"{env} is compared at {count(budget)} {AXIS_LABELS[axis]} of {count(most)}: a run ended there"


def _missing_environments(data: dict[str, Any]) -> Iterator[str]:
    """Yield the algorithms whose row over all environments is of fewer environments than others have."""
    part: dict[str, Any] = next(iter(data["axes"].values()), {"overall": {}, "environments": {}})
    for label, row in part["overall"].items():
        if absent := [env for env, table in part["environments"].items() if label not in table]:
            yield f"{label} has no run in {', '.join(absent)}: its row over all of them is of {row['environments']}"


def planned(data: dict[str, Any]) -> int:
    """Return the number of runs that the plan has."""
    plan = data["plan"]
    return len(plan["algorithms"]) * len(plan["envs"]) * len(plan["seeds"])


def count(number: float) -> str:
    """Return a cost in words, such as "20,000"."""
    return f"{number:,.0f}"
