"""95 % intervals of means: Wilson's of a share, the bootstrap's of any mean, and intervals of clustered samples.

Several samples of one task are not independent, so that an interval from all of them is too narrow. The clustered ones
take the tasks as the units (Miller 2024, "Adding error bars to evals", arXiv 2411.00640, eq. 4).
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

# the 97.5 % quantile of the normal distribution
Z95 = 1.959964
RESAMPLES = 2000


@dataclass(frozen=True)
class MeanInterval:
    """A mean with its 95 % interval.

    Attributes:
        mean: of all samples.
        low: lower bound.
        high: upper bound.
        tasks: number of tasks.
        samples: number of samples.
    """

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


def bootstrap_interval(values: Sequence[float], seed: int = 0) -> tuple[float, float]:
    """Return the 95 % percentile bootstrap interval of a mean (2000 resamples, seeded)."""
    # the same rewards always have the same interval, on every process, too
    rng = random.Random(seed)
    means = sorted(statistics.fmean(rng.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return means[int(0.025 * RESAMPLES)], means[int(0.975 * RESAMPLES) - 1]


def clustered_interval(values: Sequence[Sequence[float]]) -> MeanInterval:
    """Return the mean of all samples and its interval from the spread between tasks, with Student's t.

    Args:
        values: the values of each task's samples; tasks may have different numbers of them.

    Raises:
        ValueError: there is no sample, or a value is not a finite number.
    """
    mean, error, tasks, samples = _clustered(values)
    half = math.inf if tasks < 2 else t975(tasks - 1) * error
    return MeanInterval(mean, mean - half, mean + half, tasks, samples)


def clustered_share_interval(values: Sequence[Sequence[float]]) -> MeanInterval:
    """Return a share (values of 0 and 1, or between) and its interval, which stays between 0 and 1.

    Wilson's interval at the effective sample size: the number of independent samples whose share would have the same
    standard error as these clustered ones (Korn and Graubard 1998, Dean and Pagano 2015).

    Raises:
        ValueError: there is no sample, or a value is not between 0 and 1.
    """
    if any(not 0.0 <= value <= 1.0 for each in values for value in each):
        raise ValueError("a share is a mean of values between 0 and 1")
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
    if not samples:
        raise ValueError("there is no sample to take a mean of")
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
    if degrees == 1:
        return 12.706205
    if degrees == 2:
        return 4.302653
    z, v = Z95, float(degrees)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / v ** (power + 1) for power, term in enumerate(terms))
