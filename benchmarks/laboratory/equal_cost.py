"""Compares algorithms at equal cost: from the records of runs to one plain dictionary, which is all that is drawn.

For each axis of cost and each environment there is a budget. A run's score is the mean success of the policies in the
last fifth of the budget, its average the area under its curve. Algorithms are compared by the interquartile mean over
seeds with bootstrap intervals, and to a baseline by the difference, paired by seed, and the probability of improvement.
Over all environments each of them counts the same.

    plan, records = load_comparison("lab/first")
    data = compare_records(plan, records, budgets={"tokens": 20000})
    data["axes"]["tokens"]["overall"]["arpo"]["difference"]      # {"value": ..., "low": ..., "high": ...}
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy

from arpo_trainer.statistics import RESAMPLES
from arpo_trainer.validation import check_name
from benchmarks.laboratory.grid_run import AXES
from benchmarks.laboratory.run_aggregates import Estimate, aggregate, difference, improvement, interval_band
from benchmarks.laboratory.run_curves import WINDOW, RunCurve, collapse_of, run_curve
from benchmarks.laboratory.run_store import GridPlan, Key, Record, key_of

POINTS = 41  # of a drawn curve
BASELINE = "grpo"
_DIGITS = 5
_BAND = {"success": "value", "low": "low", "high": "high"}

# label -> seed -> run
Runs = dict[str, dict[int, RunCurve]]


def compare_records(
    plan: GridPlan,
    records: Sequence[Record],
    budgets: Mapping[str, int] | None = None,
    baseline: str | None = None,
    axes: Sequence[str] = tuple(AXES),
) -> dict[str, Any]:
    """Compare the algorithms of a grid; the same records give the same result.

    Args:
        plan: of the grid.
        records: the last record of each run, also of runs that failed.
        budgets: cost by axis at which all environments are compared. Where there is none it is that of the plan, else
            the largest that all runs of an environment have spent.
        baseline: label of the algorithm that others are compared to: by default "grpo", else the first of the plan.
        axes: the axes of cost.

    Raises:
        ValueError: no run has been finished, the baseline is unknown, or a budget is larger than what a run has spent
            or smaller than the cost of its first point, before which there is only the starting policy.
    """
    played = [record for record in records if record["status"] != "failed"]
    if not played:
        raise ValueError("no run of this comparison has been finished yet")
    labels = [one.label for one in plan.algorithms]
    baseline = baseline or (BASELINE if BASELINE in labels else labels[0])
    check_name("baseline", baseline, labels)
    collapses = {key_of(record): collapse_of(record) for record in played}
    data = {
        "kind": "lab comparison",
        "plan": plan.as_dict(),
        "baseline": baseline,
        "window": WINDOW,
        "resamples": RESAMPLES,
        "axes": {axis: _axis(axis, plan, played, collapses, (budgets or {}).get(axis), baseline) for axis in axes},
        "runs": [_run_row(record, collapses.get(key_of(record), "")) for record in records],
        "missing": len(plan.specs()) - len(played),
        "versions": played[0].get("versions", {}),
    }
    return json.loads(json.dumps(_plain(data)))  # type: ignore[no-any-return]


def _axis(
    axis: str,
    plan: GridPlan,
    played: Sequence[Record],
    collapses: Mapping[Key, str],
    asked: int | None,
    baseline: str,
) -> dict[str, Any]:
    by_env: dict[str, Runs] = {}
    budgets: dict[str, float] = {}
    for env in plan.envs:
        own = [record for record in played if record["env"] == env]
        if own:
            by_env[env] = _curves_of(own, axis, plan)
            # one that collapsed may have been stopped, or do nothing any more: it sets no budget, and keeps its value
            lasting = [record for record in own if not collapses[key_of(record)]] or own
            budgets[env] = _budget(axis, asked, plan.budget.get(axis), lasting)
    return {
        "budgets": budgets,
        "environments": {env: _table([runs], [budgets[env]], baseline, plan) for env, runs in by_env.items()},
        "overall": _table(list(by_env.values()), list(budgets.values()), baseline, plan),
        "curves": {env: _drawn_curves(runs, budgets[env]) for env, runs in by_env.items()},
    }


def _curves_of(records: Sequence[Record], axis: str, plan: GridPlan) -> Runs:
    found: Runs = {one.label: {} for one in plan.algorithms}
    for record in sorted(records, key=lambda record: int(record["seed"])):
        found[record["label"]][record["seed"]] = run_curve(record, axis)
    return {label: runs for label, runs in found.items() if runs}


def _budget(axis: str, asked: int | None, planned: int | None, records: Sequence[Record]) -> float:
    """Return the budget of an environment: what was asked for, else what was planned or all runs have spent."""
    least, run = _extreme(min, axis, records, -1)
    if asked is None:
        return min(least, planned or least)
    if asked > least:
        raise ValueError(
            f"budget {axis}={asked} is more than what {run} has spent ({least:.0f}); "
            f"compare at {axis}={least:.0f} or less"
        )
    first, run = _extreme(max, axis, records, 0)
    if asked < first:
        raise ValueError(
            f"budget {axis}={asked} is less than what {run} has spent at the first point of its curve ({first:.0f}), "
            f"so no trained policy would count; compare at {axis}={first:.0f} or more"
        )
    return float(asked)


def _extreme(choose: Callable[..., Any], axis: str, records: Sequence[Record], point: int) -> tuple[float, str]:
    """Return the least or the highest cost at a point of the curves, and the run that has it, for messages."""
    record = choose(records, key=lambda record: float(record["curve"][point][AXES[axis]]))
    run = f"{record['label']}, {record['env']}, seed {record['seed']}"
    return float(record["curve"][point][AXES[axis]]), run


def _table(envs: Sequence[Runs], budgets: Sequence[float], baseline: str, plan: GridPlan) -> dict[str, Any]:
    """Return the row of each algorithm, over one environment or several."""
    rows = {}
    for one in plan.algorithms:
        present = [(runs, budget) for runs, budget in zip(envs, budgets, strict=True) if one.label in runs]
        if present:
            rows[one.label] = _row(one.label, present, baseline)
    return rows


def _row(label: str, present: Sequence[tuple[Runs, float]], baseline: str) -> dict[str, Any]:
    row: dict[str, Any] = {
        "runs": sum(len(runs[label]) for runs, _ in present),
        "environments": len(present),
        "score": aggregate(_values(label, present, _score)).within(0.0, 1.0),
        "average": aggregate(_values(label, present, RunCurve.mean_up_to)).within(0.0, 1.0),
        "mean": float(numpy.mean([score for scores in _values(label, present, _score) for score in scores])),
    }
    both = [(runs, budget) for runs, budget in present if baseline in runs]
    if label == baseline or not both:
        return row
    paired = all(len(runs[label].keys() & runs[baseline].keys()) > 1 for runs, _ in both)
    if paired:
        both = [(_common(runs, label, baseline), budget) for runs, budget in both]
    for name, measure in (("difference", _score), ("average_difference", RunCurve.mean_up_to)):
        found = difference(_values(label, both, measure), _values(baseline, both, measure), paired)
        row[name] = found.within(-1.0, 1.0)
    row["improvement"] = improvement(_values(label, both, _score), _values(baseline, both, _score))
    return row | {"paired": paired, "pairs": sum(len(runs[label]) for runs, _ in both) if paired else 0}


def _common(runs: Runs, label: str, baseline: str) -> Runs:
    """Return the runs of two algorithms whose seeds both have, in the same order."""
    seeds = [seed for seed in runs[label] if seed in runs[baseline]]
    return {name: {seed: runs[name][seed] for seed in seeds} for name in (label, baseline)}


def _values(
    label: str, present: Sequence[tuple[Runs, float]], measure: Callable[[RunCurve, float], float]
) -> list[list[float]]:
    return [[measure(run, budget) for run in runs[label].values()] for runs, budget in present]


def _score(run: RunCurve, budget: float) -> float:
    return run.score(budget, WINDOW * budget)


def _drawn_curves(runs: Runs, budget: float) -> dict[str, Any]:
    """Return success against cost of each algorithm: at each cost the mean of the window that ends there."""
    costs = numpy.linspace(0.0, budget, POINTS)
    found: dict[str, Any] = {}
    for label, own in runs.items():
        values = [[run.score(cost, WINDOW * budget) for cost in costs] for run in own.values()]
        band = [each.within(0.0, 1.0) for each in interval_band([values])]
        found[label] = {
            "cost": [round(float(cost), 1) for cost in costs],
            **{name: [round(getattr(each, of), 4) for each in band] for name, of in _BAND.items()},
        }
    return found


def _run_row(record: Record, collapse: str) -> dict[str, Any]:
    points = record["curve"]
    return {
        **{name: record[name] for name in ("label", "env", "seed", "status")},
        "error": record.get("error", ""),
        "collapse": collapse,
        "start": points[0]["success"] if points else None,
        "final": record["final"].get("success"),
        "totals": {axis: points[-1][name] if points else 0 for axis, name in AXES.items()},
        "seconds": record.get("seconds"),
    }


def _plain(value: Any) -> Any:
    """Return plain data with rounded numbers, and None for a bound that is not known."""
    if isinstance(value, Estimate):
        return _plain(asdict(value))
    if isinstance(value, float):
        return round(value, _DIGITS) if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    return [_plain(entry) for entry in value] if isinstance(value, list | tuple) else value
