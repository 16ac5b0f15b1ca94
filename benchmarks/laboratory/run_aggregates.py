"""Aggregates of training runs over seeds and environments: interquartile mean, bootstrap intervals, improvement.

The methods are those of Agarwal et al. 2021 ("Deep RL at the edge of the statistical precipice", arXiv 2108.13264; the
package rliable): strata are environments, and seeds are resampled within each of them. Two things are changed.

Environments count the same: the interquartile mean is taken within each, and then their mean. rliable takes it over the
runs of all environments together. With environments of different difficulty that leaves out all runs of the easiest
and of the hardest one, so that what an algorithm gains there would count for nothing.

A percentile interval from few seeds is too narrow: its quantiles lie as much further out as Student's t with as many
seeds asks for ("expanded percentile", Hesterberg 2014, arXiv 1411.5279). Resamples cannot leave the range of the runs,
which matters below five seeds; there the interval is at least that of Student's t with the bootstrap's standard error.

    scores = {"grpo": [array(seeds of env 1), array(seeds of env 2)], "arpo": [...]}
    aggregate(scores["arpo"])                         # the interquartile mean with its 95 % interval
    difference(scores["arpo"], scores["grpo"], paired=True)
    improvement(scores["arpo"], scores["grpo"])       # P(a run of ARPO scores more than one of GRPO), ties half
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy
from numpy.typing import ArrayLike, NDArray

from arpo_trainer.statistics import RESAMPLES, t975, wilson_interval

Floats = NDArray[numpy.float64]
Rows = NDArray[numpy.intp]
_FEW = 5  # seeds of an environment


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % interval.

    Attributes:
        value: the estimate.
        low: lower bound; NaN if no stratum has two seeds.
        high: upper bound.
    """

    value: float
    low: float
    high: float

    def within(self, least: float, most: float) -> Estimate:
        """Return it with an interval that does not leave the range of what is estimated; NaN stays."""
        if math.isnan(self.low):
            return self
        return Estimate(self.value, max(least, self.low), min(most, self.high))

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


def interquartile_mean(values: ArrayLike) -> Floats:
    """Return the mean without the lowest and the highest quarter, along the last axis.

    A quarter is rounded down, as in rliable: of 10 values the middle 6 count, of 3 all.
    """
    ordered = numpy.sort(numpy.asarray(values, dtype=numpy.float64), axis=-1)
    cut = ordered.shape[-1] // 4
    middle: Floats = ordered[..., cut : ordered.shape[-1] - cut].mean(axis=-1)
    return middle


def resampled_rows(sizes: Sequence[int], seed: int = 0, resamples: int = RESAMPLES) -> list[Rows]:
    """Draw seeds with replacement within each stratum.

    Args:
        sizes: number of seeds of each stratum.
        seed: of the draws: the same sizes and seed give the same rows.
        resamples: number of resamples.

    Returns:
        For each stratum an array (resamples, size) of positions.
    """
    rng = numpy.random.default_rng(seed)
    return [rng.integers(0, size, (resamples, size)) for size in sizes]


def aggregate(strata: Sequence[ArrayLike], seed: int = 0) -> Estimate:
    """Return the mean over environments of the interquartile mean, with its stratified bootstrap interval.

    Args:
        strata: the scores of each environment's runs.
        seed: of the resamples.

    Raises:
        ValueError: there is no run, or a score is not a finite number.
    """
    runs = _checked(strata)
    sizes = [len(each) for each in runs]
    return estimate(_middle(runs), _middles(runs, resampled_rows(sizes, seed)), sizes)


def difference(
    first: Sequence[ArrayLike], second: Sequence[ArrayLike], paired: bool = False, seed: int = 0
) -> Estimate:
    """Return how much `aggregate` of `first` exceeds that of `second`, with its bootstrap interval.

    Args:
        first: scores by environment.
        second: scores of the other algorithm, for the same environments in the same order.
        paired: run i of both has the same seed, so that runs are resampled in pairs.
        seed: of the resamples.

    Raises:
        ValueError: the environments differ in number, runs are to be paired and differ in number, there is no run, or
            a score is not a finite number.
    """
    ours, theirs = _both(first, second)
    sizes = [len(each) for each in ours]
    others = [len(each) for each in theirs]
    if paired and sizes != others:
        raise ValueError(f"paired runs come in equal numbers for each environment; got {sizes} and {others}")
    rows = resampled_rows(sizes, seed)
    drawn = _middles(ours, rows) - _middles(theirs, rows if paired else resampled_rows(others, seed + 1))
    return estimate(_middle(ours) - _middle(theirs), drawn, sizes if paired else sizes + others)


def improvement(first: Sequence[ArrayLike], second: Sequence[ArrayLike], seed: int = 0) -> Estimate:
    """Return the probability that a run of `first` scores more than one of `second`; ties count half.

    It is the mean over environments of the Mann-Whitney statistic (arXiv 2108.13264).

    Args:
        first: scores by environment.
        second: scores of the other algorithm, for the same environments in the same order.
        seed: of the resamples.

    Raises:
        ValueError: the environments differ in number, there is no run, or a score is not a finite number.
    """
    ours, theirs = _both(first, second)
    wins = [(numpy.sign(x[:, None] - y[None, :]) + 1.0) / 2.0 for x, y in zip(ours, theirs, strict=True)]
    sizes, others = [len(each) for each in ours], [len(each) for each in theirs]
    rows, columns = resampled_rows(sizes, seed), resampled_rows(others, seed + 1)
    drawn = [
        won[row[:, :, None], column[:, None, :]].mean(axis=(1, 2))
        for won, row, column in zip(wins, rows, columns, strict=True)
    ]
    value = float(numpy.mean([won.mean() for won in wins]))
    return _as_share(estimate(value, numpy.mean(drawn, axis=0), sizes + others), min(sum(sizes), sum(others)))


def estimate(value: float, drawn: Floats, sizes: Sequence[int]) -> Estimate:
    """Return a value with the interval of its resamples.

    Args:
        value: of the runs as they are.
        drawn: the value of each resample.
        sizes: number of seeds of each stratum that was resampled.
    """
    total, degrees = _freedom(sizes)
    if not degrees:
        return Estimate(value, math.nan, math.nan)
    level = tail_level(sizes)
    low, high = map(float, numpy.quantile(drawn, [level, 1.0 - level]))
    if min(size for size in sizes if size > 1) < _FEW:
        half = t975(degrees) * math.sqrt(total / degrees) * float(numpy.std(drawn))
        low, high = min(low, value - half), max(high, value + half)
    return Estimate(value, low, high)


def _as_share(found: Estimate, runs: int) -> Estimate:
    """Return an estimate between 0 and 1; where all resamples agree, with Wilson's interval of so many runs."""
    low, high = found.low, found.high
    if low == high:
        low, high = wilson_interval(found.value * runs, runs)
    return Estimate(found.value, low, high).within(0.0, 1.0)


def tail_level(sizes: Sequence[int]) -> float:
    """Return the share of resamples below a 95 % interval: 0.025 for many seeds, less for few, NaN where none varies.

    The spread of resamples of n values is too small by sqrt((n - 1) / n), and the quantile of few values is that of
    Student's t with n - 1 degrees of freedom (arXiv 1411.5279).
    """
    total, degrees = _freedom(sizes)
    return NormalDist().cdf(-t975(degrees) * math.sqrt(total / degrees)) if degrees else math.nan


def interval_band(
    strata: Sequence[ArrayLike], seed: int = 0, statistic: Callable[[Floats], Floats] = interquartile_mean
) -> list[Estimate]:
    """Return a curve over seeds with its pointwise interval; all points use the same resamples.

    Args:
        strata: for each environment an array (seeds, points).
        seed: of the resamples.
        statistic: takes an array whose last axis are the runs.
    """
    curves = [numpy.asarray(each, dtype=numpy.float64) for each in strata]
    sizes = [len(each) for each in curves]
    rows = resampled_rows(sizes, seed)
    drawn = numpy.concatenate([each[row] for each, row in zip(curves, rows, strict=True)], axis=1)
    values = statistic(numpy.concatenate(curves).T)
    points = zip(values, statistic(numpy.swapaxes(drawn, 1, 2)).T, strict=True)
    return [estimate(float(value), of_point, sizes) for value, of_point in points]


def _freedom(sizes: Sequence[int]) -> tuple[int, int]:
    """Return the number of runs in strata with several, and the degrees of freedom between them."""
    several = [size for size in sizes if size > 1]
    return sum(several), sum(several) - len(several)


def _middle(runs: Sequence[Floats]) -> float:
    return float(numpy.mean([interquartile_mean(each) for each in runs]))


def _middles(runs: Sequence[Floats], rows: Sequence[Rows]) -> Floats:
    """Return `_middle` of each resample, shape (resamples,)."""
    drawn = [interquartile_mean(each[row]) for each, row in zip(runs, rows, strict=True)]
    found: Floats = numpy.mean(drawn, axis=0)
    return found


def _both(first: Sequence[ArrayLike], second: Sequence[ArrayLike]) -> tuple[list[Floats], list[Floats]]:
    if len(first) != len(second):
        raise ValueError(f"both algorithms need the same environments; got {len(first)} and {len(second)}")
    return _checked(first), _checked(second)


def _checked(strata: Sequence[ArrayLike]) -> list[Floats]:
    runs = [numpy.asarray(each, dtype=numpy.float64) for each in strata]
    if not runs or any(not each.size for each in runs):
        raise ValueError("there is no run to aggregate; leave out environments without runs")
    if not all(numpy.isfinite(each).all() for each in runs):
        raise ValueError("a score is not a finite number; leave out runs without a score")
    return runs
