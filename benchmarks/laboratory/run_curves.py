"""Success against cost in the record of a run: at a budget, on average up to it, and whether the run collapsed.

A step's success is measured on its own rollout, before its update, so the policy that is measured has cost what the
steps before have spent. The last policy is measured apart ("final") and has cost the whole run. A run that collapsed
and was stopped early stays at its last value for the rest of the budget.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy
from numpy.typing import NDArray

from arpo_trainer.statistics import wilson_interval
from benchmarks.laboratory.grid_run import AXES

WINDOW = 0.2  # of the budget
_SURE_OF = 128  # episodes of a window in which a collapse is looked for
_HALF, _QUARTER = 0.5, 0.25
Floats = NDArray[numpy.float64]


@dataclass(frozen=True)
class RunCurve:
    """A run's success against one axis of cost.

    Attributes:
        cost: what the policies have cost, ascending; shape (points,).
        success: their mean success; shape (points,).
        episodes: on how many episodes it was measured; shape (points,).
        total: cost of the whole run.
        final: success of the last policy, None if it was not measured.
    """

    cost: Floats
    success: Floats
    episodes: Floats
    total: float
    final: float | None

    def score(self, budget: float, window: float) -> float:
        """Return the mean success of the policies that cost more than `budget - window` and at most `budget`.

        Points count by their episodes. Where no point is in the window, the last one before it counts.
        """
        last = int(numpy.searchsorted(self.cost, budget, side="right"))
        first = min(int(numpy.searchsorted(self.cost, budget - window, side="right")), last - 1)
        if budget <= window:
            first = 0
        return float(numpy.average(self.success[first:last], weights=self.episodes[first:last]))

    def mean_up_to(self, budget: float) -> float:
        """Return the area under the curve from 0 to the budget over the budget: the mean success on the way.

        For a budget of 0, where some run has spent nothing, it is the first point.
        """
        if budget <= 0:
            return float(self.success[0])
        cost, success = self.cost, self.success
        if self.final is not None and self.total > cost[-1]:
            cost, success = numpy.append(cost, self.total), numpy.append(success, self.final)
        within = cost[cost < budget]
        points = numpy.append(within, budget)
        values = numpy.interp(points, cost, success)  # beyond the last point its value
        return float(numpy.trapezoid(values, points) / budget)


def run_curve(record: Mapping[str, Any], axis: str) -> RunCurve:
    """Return the curve of a run on an axis of cost; the record has at least one point."""
    points = record["curve"]
    totals = numpy.array([0.0, *(float(point[AXES[axis]]) for point in points)])
    final = record["final"].get("success")
    return RunCurve(
        totals[:-1],
        numpy.array([float(point["success"]) for point in points]),
        numpy.array([float(point["episodes"]) for point in points]),
        float(totals[-1]),
        None if final is None else float(final),
    )


def collapse_of(record: Mapping[str, Any]) -> str:
    """Return why a run counts as collapsed, "" if it does not.

    It does if its record says so; if its success in some window of at least 128 episodes is below half of that in the
    first one (the upper bound of Wilson's 95 % interval is, so that chance alone seldom does it); or if the last policy
    has less than a quarter of the best window's success.
    """
    windows = _windows(record["curve"])
    final = record["final"].get("success")
    if windows:
        start, best = windows[0][0], max(success for success, _ in windows)
        for success, episodes in windows[1:]:
            if wilson_interval(success * episodes, episodes)[1] < _HALF * start:
                return f"success fell from {start:.2f} to {success:.2f}"
        if final is not None and final < _QUARTER * best:
            return f"the last policy has {final:.2f}, the best had {best:.2f}"
    return "the run was stopped as collapsed" if record["status"] == "collapsed" else ""


def _windows(points: Sequence[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """Return (mean success, episodes) of windows of at least 128 episodes, one from each point on."""
    found = []
    for first in range(len(points)):
        total = successes = 0.0
        for point in points[first:]:
            total += point["episodes"]
            successes += point["success"] * point["episodes"]
            if total >= _SURE_OF:
                found.append((successes / total, total))
                break
    return found
