"""How far given advantages are from the true ones: bias, variance, sign errors and ranks, on plain numbers.

Each entry is a token, or a turn, with its weight in the loss. Means are weighted. The squared error of an entry has two
parts: the square of the bias of its *cell* (the same token after the same history) and the variance within the cell.
Errors e_i, e_j of two groups are independent, so that e_i e_j has the cell's squared bias as its mean, and

    squared bias = mean over cells of  sum_{i != j} w_i w_j e_i e_j / sum_{i != j} w_i w_j

where i and j are groups that sampled the cell. Standard errors are those of a jackknife that leaves out whole rounds of
groups (one group per task each), because tokens of one tree share their errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy
from numpy.typing import NDArray

Floats = NDArray[numpy.float64]
SMALL = 0.02  # true advantages below it have no sign that matters
_SILENT = 1e-9
_FOLDS = 16


@dataclass
class CreditSample:
    """Entries of many groups, all arrays of shape (n,).

    Attributes:
        group: number of the group.
        cell: number of the cell.
        weight: in the loss, above 0.
        given: the advantage that a method gave.
        true: the true advantage.
        worthless: whether it was a choice of which nothing depends.
    """

    group: NDArray[numpy.int64]
    cell: NDArray[numpy.int64]
    weight: Floats
    given: Floats
    true: Floats
    worthless: NDArray[numpy.bool_]

    def of_groups(self, groups: NDArray[numpy.int64]) -> CreditSample:
        """Return the entries of some groups."""
        return self._where(numpy.isin(self.group, groups))

    def _where(self, kept: NDArray[numpy.bool_]) -> CreditSample:
        return CreditSample(*(getattr(self, each.name)[kept] for each in fields(self)))


def credit_errors(sample: CreditSample) -> dict[str, float]:
    """Return how far the given advantages are from the true ones; NaN where there is nothing to measure.

    Returns:
        | name | meaning |
        |---|---|
        | `bias` | mean of given minus true |
        | `mse` | mean squared error |
        | `squared_bias`, `variance` | its two parts, over cells that several groups sampled |
        | `wrong_sign` | share of entries with the other sign, where the true advantage is above `SMALL` |
        | `silent` | share of those entries that got exactly 0 |
        | `rank` | Spearman's rank correlation, over those entries |
        | `slope` | of the regression of given on true advantages |
        | `worthless_bias` | mean given to choices that are worth nothing |
        | `worthless_rms` | root of the mean square of what they got |
    """
    weight, error = sample.weight, sample.given - sample.true
    matters = numpy.abs(sample.true) > SMALL
    wrong = sample.given * sample.true < 0
    nothing = sample.worthless
    mse, squared_bias = _two_parts(sample)
    return {
        "bias": _mean(error, weight),
        "mse": _mean(error**2, weight),
        "squared_bias": squared_bias,
        "variance": mse - squared_bias,
        "wrong_sign": _mean(wrong[matters], weight[matters]),
        "silent": _mean(numpy.abs(sample.given[matters]) < _SILENT, weight[matters]),
        "rank": _correlation(_ranks(sample.given[matters]), _ranks(sample.true[matters])),
        "slope": _slope(sample.true, sample.given, weight),
        "worthless_bias": _mean(sample.given[nothing], weight[nothing]),
        "worthless_rms": math.sqrt(_mean(sample.given[nothing] ** 2, weight[nothing])),
    }


def jackknife(
    statistic: Callable[[NDArray[numpy.int64]], dict[str, float]], groups: int, tasks: int
) -> dict[str, tuple[float, float]]:
    """Return statistics with their standard errors.

    Args:
        statistic: of the groups with these numbers.
        groups: number of groups; group g plays task g mod `tasks`.
        tasks: number of tasks.

    Returns:
        Name -> (value, standard error); the error is NaN where there is one round.
    """
    numbers = numpy.arange(groups)
    rounds = numbers // tasks
    folds = min(_FOLDS, int(rounds.max()) + 1)
    whole = statistic(numbers)
    if folds < 2:
        return {name: (value, math.nan) for name, value in whole.items()}
    parts = [statistic(numbers[rounds % folds != fold]) for fold in range(folds)]
    found = {}
    for name, value in whole.items():
        left = numpy.array([part[name] for part in parts])
        found[name] = value, float(numpy.sqrt((folds - 1) / folds * ((left - left.mean()) ** 2).sum()))
    return found


def _two_parts(sample: CreditSample) -> tuple[float, float]:
    """Return the mean squared error and the mean squared bias over cells that several groups sampled."""
    pairs, place = numpy.unique(numpy.stack([sample.cell, sample.group]), axis=1, return_inverse=True)
    place = place.reshape(-1)
    error = sample.given - sample.true
    mass = numpy.bincount(place, sample.weight)
    sums = numpy.bincount(place, sample.weight * error)
    squares = numpy.bincount(place, sample.weight * error**2)
    _, cell = numpy.unique(pairs[0], return_inverse=True)
    whole = numpy.bincount(cell, mass)
    several = whole**2 - numpy.bincount(cell, mass**2)
    kept = several > 1e-12 * whole**2
    between = (numpy.bincount(cell, sums) ** 2 - numpy.bincount(cell, sums**2))[kept] / several[kept]
    total = whole[kept].sum()
    if not total:
        return math.nan, math.nan
    return float(numpy.bincount(cell, squares)[kept].sum() / total), float((whole[kept] * between).sum() / total)


def _mean(values: NDArray[numpy.generic], weight: Floats) -> float:
    return float(numpy.average(values.astype(float), weights=weight)) if weight.sum() else math.nan


def _slope(x: Floats, y: Floats, weight: Floats) -> float:
    centred = x - _mean(x, weight)
    spread = float((weight * centred**2).sum())
    return float((weight * centred * y).sum()) / spread if spread else math.nan


def _ranks(values: Floats) -> Floats:
    """Return ranks from 0; equal values share the mean of theirs."""
    _, place, counts = numpy.unique(values, return_inverse=True, return_counts=True)
    ends = numpy.cumsum(counts)
    means: Floats = ((ends - counts + ends - 1) / 2)[place.reshape(-1)]
    return means


def _correlation(x: Floats, y: Floats) -> float:
    if len(x) < 2 or not x.std() or not y.std():
        return math.nan
    return float(numpy.corrcoef(x, y)[0, 1])
