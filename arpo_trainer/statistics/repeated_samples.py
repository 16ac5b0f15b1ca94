"""Measures of tasks that were answered several times: pass@k and pass^k, without bias.

With n samples of a task, c of them right, pass@k is the probability that at least one of k samples is right (Chen et
al. 2021, arXiv 2107.03374, eq. 1), and pass^k that all k are (Yao et al. 2024, arXiv 2406.12045). Both count over the
subsets of size k, which is an unbiased estimate; (1 - c/n)^k would not be.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence


def pass_at_k(n: int, right: int, k: int) -> float:
    """Return the estimate of pass@k for one task.

    Args:
        n: samples of the task.
        right: how many of them are right.
        k: samples that are drawn without replacement.

    Raises:
        ValueError: k is below 1 or above n, or `right` is not between 0 and n.
    """
    _check(n, right, k)
    return 1.0 - math.comb(n - right, k) / math.comb(n, k)


def pass_hat_k(n: int, right: int, k: int) -> float:
    """Return the estimate of pass^k for one task; arguments and errors as of `pass_at_k`."""
    _check(n, right, k)
    return math.comb(right, k) / math.comb(n, k)


def mean_over_tasks(measure: str, counts: Sequence[tuple[int, int]], k: int) -> tuple[float, int]:
    """Return the mean of a measure over tasks, and over how many tasks it was taken.

    Tasks with fewer than k samples (others failed) are left out, since they have no unbiased estimate.

    Args:
        measure: "pass@" or "pass^".
        counts: samples and right samples of each task.
        k: as above.

    Raises:
        ValueError: no task has k samples, or the measure is unknown.
    """
    measures = {"pass@": pass_at_k, "pass^": pass_hat_k}
    if measure not in measures:
        raise ValueError(f"the measure is {' or '.join(map(repr, measures))}, not {measure!r}")
    values = [measures[measure](n, right, k) for n, right in counts if n >= k]
    if not values:
        most = max((n for n, _ in counts), default=0)
        if not most:
            raise ValueError("there is no sample to take a mean of")
        raise ValueError(f"{measure}{k} needs {k} samples of a task; there are at most {most}: take k <= {most}")
    return statistics.fmean(values), len(values)


def _check(n: int, right: int, k: int) -> None:
    if not 1 <= k <= n:
        raise ValueError(f"k must be between 1 and the number of samples, {n}; it is {k}")
    if not 0 <= right <= n:
        raise ValueError(f"{right} right samples of {n} are not possible")
