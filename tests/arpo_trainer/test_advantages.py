"""From rewards to an advantage for every token."""

from __future__ import annotations

import statistics

import pytest

from arpo_trainer import group_advantages, token_advantages
from arpo_trainer.branching import branch_score
from arpo_trainer.budgets import split_budget
from tests.arpo_trainer.test_tree import small_tree


def test_advantages_have_mean_zero_and_unit_deviation() -> None:
    values = group_advantages([1.0, 0.0, -1.0, 1.0])
    assert statistics.fmean(values) == pytest.approx(0, abs=1e-12)
    assert statistics.stdev(values) == pytest.approx(1, abs=1e-5)


def test_equal_rewards_teach_nothing() -> None:
    assert group_advantages([0.5] * 4) == [0.0] * 4


def test_an_invalid_sample_is_left_out_not_scored_zero() -> None:
    with_it, without = group_advantages([1.0, None, 0.0, 0.0]), group_advantages([1.0, 0.0, 0.0])
    assert [with_it[0], *with_it[2:]] == without
    assert with_it[1] == 0.0


def test_scale_none_leaves_the_deviation_in() -> None:
    assert group_advantages([1.0, 0.0], "none") == [0.5, -0.5]


def test_hard_attribution_is_equal_on_shared_spans_and_own_elsewhere() -> None:
    tree = small_tree()
    rows = token_advantages(tree, [1.0, -0.5, 9.0], "hard")
    assert rows[0][:5] == rows[1][:5] == [0.25] * 5
    assert rows[0][5:] == [1.0] * 4
    assert rows[1][5:] == [-0.5]
    assert rows[2] == [0.0, 0.0]  # invalid: no gradient, whatever its number


def test_soft_attribution_keeps_each_trajectory_s_own() -> None:
    rows = token_advantages(small_tree(), [1.0, -0.5, 9.0], "soft")
    assert rows == [[1.0] * 9, [-0.5] * 6, [0.0] * 2]


def test_bad_attribution_or_count_is_refused() -> None:
    with pytest.raises(ValueError, match="'soft' or 'hard', not 'firm'"):
        token_advantages(small_tree(), [0.0] * 3, "firm")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="2 advantages for 3"):
        token_advantages(small_tree(), [0.0] * 2, "soft")


@pytest.mark.parametrize(("algorithm", "split"), [("grpo", (16, 0)), ("arpo", (8, 8))])
def test_budgets(algorithm: str, split: tuple[int, int]) -> None:
    assert split_budget(algorithm, 16, 8) == split


def test_budgets_that_cannot_work_are_refused() -> None:
    with pytest.raises(ValueError, match="between 1 and num_generations"):
        split_budget("arpo", 4, 5)
    with pytest.raises(ValueError, match="must be one of 'grpo', 'arpo'"):
        split_budget("ppo", 4, 2)


def test_the_score_rises_with_entropy_and_falls_with_consecutive_branches() -> None:
    assert branch_score(0.1, 0.5, 0.2) > branch_score(0.0, 0.5, 0.2) == 0.5
    assert branch_score(0.1, 0.5, 0.2, 2, 0.05) == pytest.approx(0.52 * 0.9)
    assert branch_score(0.1, 0.5, 0.2, 99, 0.05) == 0.0
