"""The statistics against brute force, against scipy, and against the truth of simulated evaluations."""

import itertools
import math
import random
from collections.abc import Callable

import pytest

from arpo_trainer.statistics import (
    MeanInterval,
    agreement,
    clustered_interval,
    clustered_share_interval,
    compare_paired,
    mean_over_tasks,
    pass_at_k,
    pass_hat_k,
    sign_flip_p_value,
    t975,
)

RUNS = 1500


@pytest.mark.parametrize("n", range(1, 8))
def test_pass_at_k_counts_subsets(n: int) -> None:
    for right, k in itertools.product(range(n + 1), range(1, n + 1)):
        subsets = list(itertools.combinations([True] * right + [False] * (n - right), k))
        assert pass_at_k(n, right, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))
        assert pass_hat_k(n, right, k) == pytest.approx(sum(map(all, subsets)) / len(subsets))


def test_tasks_with_too_few_samples_are_left_out() -> None:
    assert mean_over_tasks("pass@", [(4, 1), (4, 0), (1, 1)], 2) == (0.25, 2)
    assert mean_over_tasks("pass^", [(4, 4), (4, 2)], 2) == ((1 + 1 / 6) / 2, 2)


def coverage(
    interval: Callable[[list[list[float]]], MeanInterval], tasks: int, samples: int, spread: float, share: float
) -> float:
    """The share of simulated runs whose interval holds the truth; each task has a chance of its own.

    The truth varies a little from run to run: for a fixed one, coverage depends on which counts are possible.
    """
    rng, held = random.Random(f"{tasks} {samples} {spread} {share}"), 0
    for _ in range(RUNS):
        truth = share + rng.uniform(-0.04, 0.04)
        chances = [truth + rng.choice((-spread, spread)) for _ in range(tasks)]
        values = [[float(rng.random() < chance) for _ in range(samples)] for chance in chances]
        found = interval(values)
        held += found.low <= truth <= found.high
    return held / RUNS


@pytest.mark.parametrize(
    ("tasks", "samples", "spread", "share"),
    [(100, 1, 0.0, 0.3), (300, 1, 0.0, 0.1), (100, 4, 0.0, 0.5), (100, 4, 0.3, 0.4), (60, 8, 0.2, 0.75)],
)
def test_intervals_hold_the_truth_in_95_of_100_runs(tasks: int, samples: int, spread: float, share: float) -> None:
    assert 0.935 <= coverage(clustered_share_interval, tasks, samples, spread, share) <= 0.97
    assert 0.93 <= coverage(clustered_interval, tasks, samples, spread, share) <= 0.97


def test_shares_stay_between_0_and_1_and_nothing_is_certain() -> None:
    for value in (0.0, 1.0):
        found = clustered_share_interval([[value] * 4] * 20)
        assert found.low >= 0.0
        assert found.high <= 1.0
        assert found.high - found.low > 0.1
    assert clustered_interval([[1.0, 0.0]]).high == math.inf


def test_quantiles_are_those_of_student() -> None:
    table = {1: 12.7062, 2: 4.3027, 3: 3.1824, 5: 2.5706, 10: 2.2281, 29: 2.0452, 1000: 1.9623}
    for degrees, quantile in table.items():
        assert t975(degrees) == pytest.approx(quantile, rel=2e-3)


def paired(difference: float, seed: int) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Two simulated evaluations of 400 tasks, four samples each, that share how hard the tasks are."""
    rng = random.Random(seed)
    chances = {str(task): rng.uniform(0.1, 0.8) for task in range(400)}
    first, second = (
        {task: [float(rng.random() < chance + more) for _ in range(4)] for task, chance in chances.items()}
        for more in (0.0, difference)
    )
    return first, second


def test_equal_differences_have_no_interval_and_a_p_value() -> None:
    found = compare_paired({str(n): [n / 10] for n in range(5)}, {str(n): [n / 10 + 0.3] for n in range(5)})
    assert (found.low, found.high, found.p_value) == (-math.inf, math.inf, 0.0625)


def test_a_true_difference_is_found_and_none_is_not() -> None:
    nothing = [compare_paired(*paired(0.0, seed)) for seed in range(60)]
    assert sum(each.p_value < 0.05 for each in nothing) <= 8
    found = [compare_paired(*paired(0.05, seed)) for seed in range(20)]
    assert sum(each.p_value < 0.05 for each in found) >= 16
    assert sum(each.low <= 0.05 <= each.high for each in found) >= 17
    assert found[0].difference == pytest.approx(found[0].second - found[0].first)


def test_the_sign_flip_test_counts_all_signs() -> None:  # exactly up to 12 differences
    assert sign_flip_p_value([1.0] * 5) == pytest.approx(2 / 2**5)
    assert sign_flip_p_value([1.0, -1.0, 1.0]) == 1.0
    exact, drawn = sign_flip_p_value([0.5, 1.0] * 6), sign_flip_p_value([0.5, 1.0] * 7)
    assert exact == pytest.approx(2 / 2**12)
    assert drawn < 0.001
    assert sign_flip_p_value([0.1, 0.2, -0.3]) == sign_flip_p_value([0.1, 0.2, -0.3] * 5) == 1.0  # they cancel


def test_kappa() -> None:
    first = {str(number): number < 25 for number in range(50)}
    second = {str(number): number < 20 or 25 <= number < 35 for number in range(50)}
    found = agreement(first, second)  # 20 both yes, 5 and 10 differ, 15 both no
    assert found.share == pytest.approx(0.7)
    assert found.kappa == pytest.approx(0.4)
    assert len(found.disagreements) == 15
    assert agreement({"a": 1}, {"a": 1, "b": 0}).kappa == 1.0


def test_values_that_are_no_numbers_are_refused() -> None:
    for compute in (clustered_interval, lambda values: compare_paired(dict(enumerate(values)), {0: [0.0], 1: [1.0]})):
        with pytest.raises(ValueError, match="not a finite number"):
            compute([[math.nan], [1.0]])
