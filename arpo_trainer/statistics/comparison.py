"""A paired comparison of two evaluations of the same tasks: the difference, its interval, and a test.

Pairing removes how hard the tasks are: only differences within tasks count (Miller 2024, arXiv 2411.00640, section 4).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from arpo_trainer.statistics.intervals import clustered_interval

PERMUTATIONS = 10_000
_SIGNS_AT_A_TIME = 1_000_000


@dataclass(frozen=True)
class PairedComparison:
    """How the second evaluation differs from the first.

    Attributes:
        first: mean over tasks of the first.
        second: mean over tasks of the second.
        difference: second - first.
        low: lower bound of the 95 % interval of the difference.
        high: upper bound.
        p_value: of the two-sided sign-flip test: the probability of a difference at least as large if the two did not
            differ.
        gained: tasks on which the second is better, by their ids.
        lost: tasks on which the second is worse.
        tasks: number of tasks compared.
    """

    first: float
    second: float
    difference: float
    low: float
    high: float
    p_value: float
    gained: list[str]
    lost: list[str]
    tasks: int


def compare_paired(
    first: Mapping[str, Sequence[float]], second: Mapping[str, Sequence[float]], seed: int = 0
) -> PairedComparison:
    """Compare two evaluations by the means of their tasks.

    Args:
        first: id of each task -> the values of its samples (those that could be scored).
        second: the same for the other evaluation.
        seed: of the random flips where there are too many to try all.

    Raises:
        ValueError: the evaluations have different tasks, or a value is not a finite number; the message names some.
    """
    unscored = [key for each in (first, second) for key, values in each.items() if not all(map(math.isfinite, values))]
    if unscored:
        raise ValueError(f"samples without a finite value cannot be compared, leave them out: task {unscored[0]!r}")
    scored = [{key: statistics.fmean(values) for key, values in each.items() if values} for each in (first, second)]
    missing = first.keys() ^ second.keys()
    if missing:
        some = ", ".join(sorted(map(str, missing))[:5])
        raise ValueError(
            f"the two evaluations have different tasks: {len(missing)} are in one only ({some}). Evaluate both on the "
            "same tasks, or compare those that they share"
        )
    names = [key for key in first if key in scored[0] and key in scored[1]]
    if not names:
        raise ValueError("no task was scored in both evaluations")
    differences = [scored[1][name] - scored[0][name] for name in names]
    interval = clustered_interval([[value] for value in differences])
    return PairedComparison(
        statistics.fmean(scored[0][name] for name in names),
        statistics.fmean(scored[1][name] for name in names),
        interval.mean,
        interval.low,
        interval.high,
        sign_flip_p_value(differences, seed),
        [name for name, value in zip(names, differences, strict=True) if value > 0],
        [name for name, value in zip(names, differences, strict=True) if value < 0],
        len(names),
    )


def sign_flip_p_value(differences: Sequence[float], seed: int = 0) -> float:
    """Return the two-sided p-value of the sign-flip test of a mean of 0: exact up to 12 differences that are not 0."""
    moved = [value for value in differences if value != 0]
    # equal sums count as reached, whatever the rounding, which is relative to the summands
    found = abs(math.fsum(moved)) - 1e-9 * math.fsum(map(abs, moved))
    if len(moved) <= 12:
        sums = [0.0]
        for value in moved:
            sums = [total + sign * value for total in sums for sign in (1, -1)]
        return sum(abs(total) >= found for total in sums) / len(sums)
    import numpy

    rng, reached, left = numpy.random.default_rng(seed), 0, PERMUTATIONS
    while left:  # in parts, since all signs of thousands of tasks would fill the memory
        rows = min(left, max(1, _SIGNS_AT_A_TIME // len(moved)))
        signs = rng.integers(0, 2, (rows, len(moved)), dtype=numpy.int8) * 2 - 1
        reached += int((abs(signs @ numpy.array(moved)) >= found).sum())
        left -= rows
    # the observed signs are one of the permutations, so that the value is never 0
    return (reached + 1) / (PERMUTATIONS + 1)
