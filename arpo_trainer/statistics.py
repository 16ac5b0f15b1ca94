"""Statistics of scores: 95 % intervals, comparisons of runs, agreement of graders, pass@k.

Several samples of one task are not independent, so an interval from all of them would be too narrow. The clustered
intervals take the tasks as the units (Miller 2024, "Adding error bars to evals", arXiv 2411.00640, eq. 4).
"""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy

Z95 = 1.959964  # the 97.5 % quantile of the normal distribution
RESAMPLES = 2000
PERMUTATIONS = 10_000


@dataclass(frozen=True)
class MeanInterval:
    """The mean of all samples with its 95 % interval, and the numbers of tasks and samples."""

    mean: float
    low: float
    high: float
    tasks: int
    samples: int

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


def wilson_interval(successes: float, n: float) -> tuple[float, float]:
    """Return the 95 % Wilson score interval of a proportion (Wilson 1927); `n` may be an effective sample size."""
    return _wilson(successes / n, n, Z95)


def bootstrap_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % percentile bootstrap interval of a mean (2000 resamples)."""
    rng = random.Random(0)  # the same rewards always have the same interval, on every process
    means = sorted(statistics.fmean(rng.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return means[int(0.025 * RESAMPLES)], means[int(0.975 * RESAMPLES) - 1]


def clustered_interval(values: Sequence[Sequence[float]]) -> MeanInterval:
    """Return the mean of all samples and its interval from the spread between tasks, with Student's t.

    Args:
        values: the values of each task's samples; tasks may have different numbers of them.

    Raises:
        ValueError: a value is not a finite number.
    """
    mean, error, tasks, samples = _clustered(values)
    half = math.inf if tasks < 2 else t975(tasks - 1) * error
    return MeanInterval(mean, mean - half, mean + half, tasks, samples)


def clustered_share_interval(values: Sequence[Sequence[float]]) -> MeanInterval:
    """Return the mean of values from 0 to 1 and its interval, which stays between 0 and 1.

    Wilson's interval at the effective sample size: the number of independent samples whose share would have the same
    standard error as these clustered ones (Korn and Graubard 1998, Dean and Pagano 2015).
    """
    mean, error, tasks, samples = _clustered(values)
    single = samples == tasks
    # Without spread between tasks the error says nothing; then the tasks are what is independent.
    effective = mean * (1 - mean) / error**2 if error > 0 and not single else float(tasks)
    quantile = Z95 if single or tasks < 2 else t975(tasks - 1)
    low, high = _wilson(mean, min(max(effective, 1.0), float(samples)), quantile)
    return MeanInterval(mean, low, high, tasks, samples)


def _clustered(values: Sequence[Sequence[float]]) -> tuple[float, float, int, int]:
    """Return the mean, its clustered standard error, and the numbers of tasks and samples."""
    groups = [each for each in values if each]
    samples = sum(map(len, groups))
    if not all(math.isfinite(value) for each in groups for value in each):
        raise ValueError("a value is not a finite number; leave out samples that could not be scored")
    mean = math.fsum(value for each in groups for value in each) / samples
    # the sums of a task's deviations; the factor corrects for few tasks, as n / (n - 1) does for single values
    squares = math.fsum(math.fsum(value - mean for value in each) ** 2 for each in groups)
    few = len(groups) / (len(groups) - 1) if len(groups) > 1 else 0.0
    return mean, math.sqrt(few * squares) / samples, len(groups), samples


def _wilson(share: float, n: float, quantile: float) -> tuple[float, float]:
    z2 = quantile**2
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = quantile * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    # for none or all of n a bound is 0 or 1, and rounding may put it outside
    return max(0.0, centre - half), min(1.0, centre + half)


def t975(degrees: int) -> float:
    """Return the 97.5 % quantile of Student's t (Cornish-Fisher expansion; exact for 1 and 2 degrees)."""
    if degrees <= 2:
        return 12.706205 if degrees == 1 else 4.302653
    z, v = Z95, float(degrees)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / v ** (power + 1) for power, term in enumerate(terms))


@dataclass(frozen=True)
class Agreement:
    """How far two graders agree on the answers that both graded."""

    share: float  # of answers with the same verdict
    kappa: float  # agreement beyond chance (Cohen 1960): 1 is perfect, 0 is what chance gives
    disagreements: list[str]  # ids of the answers with different verdicts, in the order of the first grader
    answers: int


def agreement(first: Mapping[str, Hashable], second: Mapping[str, Hashable]) -> Agreement:
    """Compare the verdicts of two graders, by the id of the answer; there is one that both graded."""
    names = [name for name in first if name in second]
    differing = [name for name in names if first[name] != second[name]]
    share = 1.0 - len(differing) / len(names)
    ones, others = Counter(first[name] for name in names), Counter(second[name] for name in names)
    chance = sum(count * others[verdict] for verdict, count in ones.items()) / len(names) ** 2
    kappa = 1.0 if chance == 1.0 else (share - chance) / (1.0 - chance)  # 1 if both always give the same verdict
    return Agreement(share, kappa, differing, len(names))


@dataclass(frozen=True)
class PairedComparison:
    """How the second evaluation differs from the first on the same tasks."""

    first: float  # mean over tasks
    second: float
    difference: float
    low: float  # of the 95 % interval of the difference; infinite where all tasks differ equally: without a spread
    high: float
    p_value: float  # of the two-sided sign-flip test
    gained: list[str]  # ids of the tasks on which the second is better
    lost: list[str]
    tasks: int


def compare_paired(first: Mapping[str, Sequence[float]], second: Mapping[str, Sequence[float]]) -> PairedComparison:
    """Compare two evaluations by the means of their tasks, which removes how hard the tasks are (Miller 2024, sec. 4).

    Args:
        first: id of each task -> the values of its samples (those that could be scored).
        second: the same for the other evaluation.

    Raises:
        ValueError: the evaluations have different tasks, or a value is not a finite number.
    """
    if missing := sorted(first.keys() ^ second.keys(), key=str):
        raise ValueError(
            f"the two evaluations have different tasks: {len(missing)} are in one only "
            f"({', '.join(map(str, missing[:5]))}). Evaluate both on the same tasks, or compare those that they share"
        )
    means = [{key: statistics.fmean(values) for key, values in each.items() if values} for each in (first, second)]
    names = [key for key in first if key in means[0] and key in means[1]]
    if not names:
        raise ValueError("no task was scored in both evaluations")
    differences = {name: means[1][name] - means[0][name] for name in names}
    interval = clustered_interval([[value] for value in differences.values()])
    equal = max(differences.values()) - min(differences.values()) < 1e-9
    return PairedComparison(
        statistics.fmean(means[0][name] for name in names),
        statistics.fmean(means[1][name] for name in names),
        interval.mean,
        -math.inf if equal else interval.low,
        math.inf if equal else interval.high,
        sign_flip_p_value(list(differences.values())),
        [name for name, value in differences.items() if value > 0],
        [name for name, value in differences.items() if value < 0],
        len(names),
    )


def sign_flip_p_value(differences: Sequence[float]) -> float:
    """Return the two-sided p-value of the sign-flip test of a mean of 0: exact up to 12 differences that are not 0.

    It is the probability of a sum at least as large if the sign of each difference were drawn by lot.
    """
    moved = [value for value in differences if value != 0]
    # equal sums count as reached, whatever the rounding, which is relative to the summands
    found = abs(math.fsum(moved)) - 1e-9 * math.fsum(map(abs, moved))
    if len(moved) <= 12:
        sums = [0.0]
        for value in moved:
            sums = [total + sign * value for total in sums for sign in (1, -1)]
        return sum(abs(total) >= found for total in sums) / len(sums)
    rng, reached = numpy.random.default_rng(0), 0
    for _ in range(PERMUTATIONS // 100):  # in parts: all signs of thousands of tasks would fill the memory
        signs = rng.integers(0, 2, (100, len(moved)), dtype=numpy.int8) * 2 - 1
        reached += int((abs(signs @ numpy.array(moved)) >= found).sum())
    # the observed signs are one of the permutations, so that the value is never 0
    return (reached + 1) / (PERMUTATIONS + 1)


# Both measures of several samples count over the subsets of size k, which is an unbiased estimate from n samples of
# which c are right; (1 - c/n)^k would not be.


def pass_at_k(n: int, right: int, k: int) -> float:
    """Return the probability that one of k of n samples is right (Chen et al. 2021, arXiv 2107.03374, eq. 1)."""
    return 1.0 - math.comb(n - right, k) / math.comb(n, k)


def pass_hat_k(n: int, right: int, k: int) -> float:
    """Return pass^k, the probability that all k are right (Yao et al. 2024, arXiv 2406.12045); as `pass_at_k`."""
    return math.comb(right, k) / math.comb(n, k)


def mean_over_tasks(measure: str, counts: Sequence[tuple[int, int]], k: int) -> tuple[float, int]:
    """Return the mean of a measure over tasks, and over how many tasks it was taken.

    Args:
        measure: "pass@" or "pass^".
        counts: samples and right samples of each task; tasks with fewer than k samples have no unbiased estimate, and
            are left out.
        k: number of samples, which a task has at least.
    """
    estimate = {"pass@": pass_at_k, "pass^": pass_hat_k}[measure]
    values = [estimate(n, right, k) for n, right in counts if n >= k]
    return statistics.fmean(values), len(values)
