"""From an advantage a trajectory to one a token."""

from __future__ import annotations

import math

import pytest

from arpo_trainer import RolloutTree, token_advantages
from arpo_trainer.algorithms.advantages import group_advantages
from arpo_trainer.algorithms.credit import CREDITS, Credit, span_advantages, turn_values, weight_scale
from arpo_trainer.tree import Trajectory
from tests.arpo_trainer.algorithms.credit_trees import measure
from tests.arpo_trainer.test_tree import small_tree as unmeasured_tree

OWN = [1.0, -0.5, 9.0]


def small_tree() -> RolloutTree:
    tree = unmeasured_tree()
    measure(tree, 0.1, 0.4, 0.2)
    return tree


def turns(tree: RolloutTree, parent: int | None, *surprises: float) -> int:
    """A turn whose tokens had these values of minus log pi."""
    logprobs = [-value for value in surprises]
    ids = [7] * len(surprises)
    return tree.add_span(parent, "model", ids, logprobs=logprobs, entropies=[0.0] * len(ids)).index


def lopsided() -> RolloutTree:
    """turn 0 - result 1 -+- turn 2 - result 3 -+- turn 4
    |                     +- turn 5
    +- turn 6
    """
    tree = RolloutTree([1])
    result = tree.add_span(turns(tree, None, 1.0), "environment", [20]).index
    again = tree.add_span(turns(tree, result, 3.0, 1.0), "environment", [21]).index
    leaves = [turns(tree, again, 0.5), turns(tree, again, 1.5), turns(tree, result, 1.0)]
    tree.trajectories = [Trajectory(leaf, reward=0.0) for leaf in leaves]
    return tree


def test_hard_attribution_is_equal_on_shared_spans_and_own_elsewhere() -> None:
    rows = token_advantages(small_tree(), OWN, "hard")
    assert rows[0][:5] == rows[1][:5] == [0.25] * 5
    assert rows[0][5:] == [1.0] * 4
    assert rows[1][5:] == [-0.5]
    assert rows[2] == [0.0, 0.0]  # invalid: no gradient, whatever its number


def test_soft_attribution_keeps_each_trajectory_s_own() -> None:
    assert token_advantages(small_tree(), OWN, "soft") == [[1.0] * 9, [-0.5] * 6, [0.0] * 2]


def test_a_shared_token_weighs_once() -> None:
    """Summed over the copies it has the mean advantage, and not as many times that as there are copies."""
    rows = token_advantages(small_tree(), OWN, "dedup")
    assert [a + b for a, b in zip(rows[0][:5], rows[1][:5], strict=True)] == [0.25] * 5
    assert rows[0][5:] == [1.0] * 4


def test_copied_over_unique_tokens_counts_the_model_s_valid_ones() -> None:
    assert weight_scale([small_tree()], "dedup") == (5 + 3) / (2 + 1 + 2 + 1)
    assert weight_scale([], "dedup") == 1.0


def test_rows_whose_copies_count_alike_are_not_scaled() -> None:
    """What a row does not learn from at all, as VinePPO's branches, is no copy: it leaves the batch."""
    assert [name for name in CREDITS if weight_scale([small_tree()], name) != 1.0] == ["dedup", "fork", "spo"]


def test_values_are_backed_up_turn_by_turn() -> None:
    tree, own = lopsided(), [1.0, 0.0, -1.0]
    assert turn_values(tree, own) == pytest.approx([-0.25, -0.25, 0.5, 0.5, 1.0, 0.0, -1.0])
    assert span_advantages(tree, own)[0] == 0.0  # over leaves, where the branch with two of them outweighs


def test_uncertain_turns_weigh_more_in_at2po() -> None:
    values = turn_values(lopsided(), [1.0, 0.0, -1.0], by_entropy=True)
    second = 1.0 / (1.0 + math.e)  # entropies 0.5 and 1.5, values 1 and 0
    first = (math.e * second - 1.0) / (math.e + 1.0)  # entropies 2 and 1, values `second` and -1
    assert values == pytest.approx([first, first, second, second, 1.0, 0.0, -1.0])


def test_a_trajectory_that_ends_where_others_go_on_counts_as_one_of_them() -> None:
    tree = lopsided()
    tree.trajectories.append(Trajectory(1, reward=0.0))
    for by_entropy, second in ((False, 0.5), (True, 1.0 / (1.0 + math.e))):
        values = turn_values(tree, [1.0, 0.0, -1.0, 2.0], by_entropy)
        weights = (math.e**2, math.e, math.e**1.5) if by_entropy else (1.0, 1.0, 1.0)
        assert values[1] == pytest.approx((weights[0] * second - weights[1] + weights[2] * 2.0) / sum(weights))


OTHERS = [value - (sum(OWN) - value) / 2 for value in OWN]  # minus the mean of the others
CENTRED = [value - sum(OWN) / 3 for value in OWN]
FLAT = {
    "fork": OTHERS,
    "vineppo": OTHERS,
    "treerl": [2 * value for value in CENTRED],
    **dict.fromkeys(("treepo", "spo", "rtmc"), CENTRED),
    "igpo": group_advantages(OWN, "population"),  # it normalises the rewards itself, and no turn has a gain
}


@pytest.mark.parametrize("attribution", CREDITS)
def test_without_branches_each_is_what_the_method_says_of_a_flat_group(attribution: str) -> None:
    tree = RolloutTree([1])
    tree.trajectories = [Trajectory(turns(tree, None, 1.0, 2.0), reward=reward) for reward in OWN]
    measure(tree, 0.5)
    rows = token_advantages(tree, OWN, attribution)
    assert rows == [pytest.approx([value] * 2) for value in FLAT.get(attribution, OWN)]
    assert weight_scale([tree], attribution) == 1.0


@pytest.mark.parametrize("attribution", CREDITS)
def test_an_invalid_trajectory_has_no_part(attribution: str) -> None:
    rows = [token_advantages(small_tree(), [1.0, -0.5, other], attribution) for other in (9.0, -3.0)]
    assert rows[0] == rows[1]
    assert rows[0][2] == [0.0, 0.0]


def test_a_user_s_row_is_used_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice the trajectory's own on its last span, and a weight of a half everywhere."""
    monkeypatch.setitem(
        CREDITS,
        "own-last",
        Credit(
            lambda tree, own: [[0.0] * (len(tree.path(n)) - 1) + [2 * a] for n, a in enumerate(own)],
            lambda tree: [[0.5] * len(tree.path(n)) for n in range(len(tree.trajectories))],
        ),
    )
    assert "own-last" in CREDITS
    assert token_advantages(small_tree(), OWN, "own-last") == [[0.0] * 7 + [1.0] * 2, [0.0] * 5 + [-0.5], [0.0] * 2]
    assert weight_scale([small_tree()], "own-last") == 2.0


def test_a_function_of_spans_that_was_not_lifted_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CREDITS, "unlifted", Credit(lambda tree, own: [[0.0]] * 3))
    with pytest.raises(ValueError, match=r"'unlifted' returned \[1, 1, 1\].*\[5, 3, 1\] spans.*needs `shared`"):
        token_advantages(small_tree(), OWN, "unlifted")


def test_bad_attribution_or_count_is_refused() -> None:
    with pytest.raises(ValueError, match="not 'hrad'; did you mean 'hard'"):
        token_advantages(small_tree(), [0.0] * 3, "hrad")
    with pytest.raises(ValueError, match="2 advantages for 3"):
        token_advantages(small_tree(), [0.0] * 2, "soft")
