"""From rewards to an advantage for every token."""

import statistics

import pytest

from arpo_trainer import group_advantages
from arpo_trainer.algorithms.advantages import (
    ADVANTAGES,
    batch_advantages,
    leave_one_out,
    reinforce_plus_plus,
    silent_groups,
    tree_group_advantages,
)


def test_an_invalid_sample_is_left_out_and_a_lone_valid_one_is_compared_with_nothing() -> None:
    assert group_advantages([1.0, 0.0], "none") == [0.5, -0.5]  # the others are vectors
    with_it, without = group_advantages([1.0, None, 0.0, 0.0]), group_advantages([1.0, 0.0, 0.0])
    assert [with_it[0], *with_it[2:]] == without
    assert with_it[1] == 0.0
    for estimate in (group_advantages, leave_one_out):
        assert estimate([0.7, None, None]) == [0.0] * 3


def test_leave_one_out_compares_with_the_mean_of_the_others() -> None:
    rewards = [1.0, 0.25, None, -0.5]
    valid = [reward for reward in rewards if reward is not None]
    wanted = [0.0 if r is None else r - (sum(valid) - r) / (len(valid) - 1) for r in rewards]
    assert leave_one_out(rewards) == pytest.approx(wanted)


def test_tree_grpo_compares_with_the_group_and_with_the_tree() -> None:
    """Two trees of two, one of one. By hand: mean 0.5 and deviation 0.5 of all, 1 / sqrt(2) within a pair."""
    got = tree_group_advantages([1.0, 0.0, 0.5, 0.0, 1.0], [0, 0, 1, 1, 2])
    half = 0.5**0.5
    assert got == pytest.approx([1 + half, -1 - half, 0 + half, -1 - half, 1], abs=1e-4)
    rewards = [1.0, None, 0.25, -1.0]  # without branches it is GRPO
    assert tree_group_advantages(rewards, [5, 6, 7, 8]) == group_advantages(rewards)
    assert batch_advantages("tree-grpo", [rewards], [[1] * 4]) == [group_advantages(rewards)]
    # invalid ones are left out of both
    with_it = tree_group_advantages([1.0, None, 0.0, 0.5, None], [0, 0, 0, 1, 1])
    without = tree_group_advantages([1.0, 0.0, 0.5], [0, 0, 1])
    assert with_it == pytest.approx([without[0], 0.0, without[1], without[2], 0.0])


def test_whitening_is_over_the_tokens_of_the_whole_batch() -> None:
    groups, lengths = [[1.0, 0.0], [0.0, None, 0.5]], [[4, 1], [2, 100, 3]]
    got = reinforce_plus_plus(groups, lengths)
    assert got[1][1] == 0.0
    pairs = [pair for group, sizes in zip(got, lengths, strict=True) for pair in zip(group, sizes, strict=True)]
    tokens = [advantage for advantage, n in pairs if n != 100 for _ in range(n)]
    assert statistics.fmean(tokens) == pytest.approx(0, abs=1e-9)
    assert statistics.stdev(tokens) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("name", ADVANTAGES)
def test_where_all_score_the_same_nothing_is_learned(name: str) -> None:
    groups = [[0.1] * 3, [0.1, None, 0.1]]
    assert batch_advantages(name, groups, [[3, 4, 5]] * 2) == [[0.0] * 3] * 2
    for reward in (0.1, 0.2, 0.7):  # whose mean over these tokens is another number, by rounding
        assert batch_advantages(name, [[reward] * 3] * 2, [[3, 4, 5]] * 2) == [[0.0] * 3] * 2
    assert silent_groups(groups) == 2
    assert silent_groups([*groups, [0.0, 1.0, None], [None] * 3, [1.0, None]]) == 4


@pytest.mark.parametrize("name", ADVANTAGES)
@pytest.mark.parametrize("reward", [float("nan"), float("inf")])
def test_a_reward_that_is_no_number_is_named(name: str, reward: float) -> None:  # verl's may be
    with pytest.raises(ValueError, match=f"reward of trajectory \\d is {reward}: .* or None"):
        batch_advantages(name, [[0.0, 1.0, 0.0], [0.0, 1.0, reward]], [[1] * 3] * 2)
