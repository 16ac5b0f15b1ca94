"""Every row of `CREDITS` on one tree with a nested fork, worked out by hand, and properties on random trees."""

from __future__ import annotations

import copy
import math
import random

import pytest

from arpo_trainer import RolloutTree, token_advantages
from arpo_trainer.algorithms.credit_assignment import CREDITS, weight_scale
from arpo_trainer.tree import Trajectory
from tests.arpo_trainer.algorithms.credit_trees import NESTED, nested, random_tree, result, turn

# Leaves 8 (m4), 4 (m5), 0 (m6), 2 (m8). Means over leaves: m2 6, m0 4, all 3.5. Backed up: m2 6, m0 (6 + 0) / 2 = 3,
# prompt (3 + 2) / 2 = 2.5. The rows are those of m0, m2, m4, m5, m6, m8; r1 is as m0, r3 as m2.
SHARED = {
    "hard": [4, 6, 8, 4, 0, 2],
    "dedup": [4, 6, 8, 4, 0, 2],
    "turn": [3, 6, 8, 4, 0, 2],
    "at2po": [3, 6, 8, 4, 0, 2],  # all entropies are 0: equal weights
    "treeadv": [4, 6, 8, 4, 0, 2],
    # m0: 3 - 2 (the other root). m2: (0 + 2) / 2 = 1, the sister m6 and the pseudo-sister; m6: (6 + 2) / 2 = 4.
    # m4: (4 + 1) / 2 = 2.5, the sister m5 and the baseline of m2; m5: (8 + 1) / 2 = 4.5. m8: 2 - 3.
    "fork": [1, 5, 5.5, -0.5, -4, -1],
    # (V - 3.5 + V - V before) / sqrt(leaves): m0 (0.5 + 0.5) / sqrt 3, m2 (2.5 + 2) / sqrt 2, m4 4.5 + 2, m5 0.5 - 2,
    # m6 -3.5 - 4, m8 -1.5 - 1.5
    "treerl": [1 / math.sqrt(3), 4.5 / math.sqrt(2), 6.5, -1.5, -7.5, -3],
    # backed-up V minus that before: 3 - 2.5, 6 - 3, 8 - 6, 4 - 6, 0 - 3, 2 - 2.5
    "spo": [0.5, 3, 2, -2, -3, -0.5],
    # Q of the step minus (N V + 2 * 3.5) / (N + 2) of the state. Nothing done: calling 12 / 3 = 4, answering 2, V 3.5,
    # V' 3.5. After r1: calling 6, answering 0, V 12 / 3 = 4, V' (12 + 7) / 5 = 3.8. After r3: 8 and 4, V' 19 / 4.
    "rtmc": [0.5, 2.2, 3.25, -0.75, -3.8, -1.5],
}
# per trajectory, on the spans of its path
OWN = {
    "soft": [[8] * 5, [2], [0] * 3, [4] * 5],
    # means of all 3.5, through m0 4, through m2 6: 8 - 4.5, 2 - 3.5, 0 - 3.75, 4 - 4.5
    "treepo": [[3.5] * 5, [-1.5], [-3.75] * 3, [-0.5] * 5],
    # value of the other root 2, after r1 of m6 alone 0, after r3 of m5 alone 4, at the end 8; the other root: 2 - 3
    "vineppo": [[-2, -2, 4, 4, 4], [-1], [0] * 3, [0] * 5],
    # initial ones have mean 5, branches mean 2: 3 and -3, -2 and 2. Through m0 both branches, through m2 that with 2.
    "appo": [[3, 3, 5, 5, 3], [-3], [0] * 3, [0] * 5],
}


def by_path(spans: list[float]) -> list[list[float]]:
    m0, m2, m4, m5, m6, m8 = spans
    return [[m0, m0, m2, m2, m4], [m8], [m0, m0, m6], [m0, m0, m2, m2, m5]]


@pytest.mark.parametrize("name", CREDITS)
def test_a_nested_fork_worked_out_by_hand(name: str) -> None:
    expected = OWN[name] if name in OWN else by_path(SHARED[name])
    found = CREDITS[name].values(nested(), NESTED)
    assert found[:4] == [pytest.approx(row) for row in expected]


# the weight of each copy on m0 (3 copies), m2 (2 copies), m4, m5, m6, m8, and the sum over the 12 copied tokens
WEIGHTS = {
    "dedup": ([1 / 3, 1 / 2, 1, 1, 1, 1], 7.0),
    "spo": ([1 / 3, 1 / 2, 1, 1, 1, 1], 7.0),
    "fork": ([1 / 3, 1 / 4, 1 / 4, 1 / 4, 1 / 2, 1], 2 + 1 / 2 + 1 / 4 + 1 / 4 + 1 / 2 + 1),
}


@pytest.mark.parametrize("name", CREDITS)
def test_weights_of_a_nested_fork(name: str) -> None:
    weights = CREDITS[name].weights
    if name in ("vineppo", "appo"):
        assert weights
        assert weights(nested())[:4] == [[1.0] * 5, [1.0], [0.0] * 3, [0.0] * 5]
        total = 2 + 1 + 1 + 1
    elif name in WEIGHTS:
        copies, total = WEIGHTS[name]
        assert weights
        assert weights(nested())[:4] == [pytest.approx(row) for row in by_path(copies)]
    else:
        assert weights is None
        total = 12.0
    assert weight_scale([nested()], name) == pytest.approx(12.0 / total)


def test_equal_states_of_independent_trajectories_are_matched() -> None:
    """Two roots make the same calls in another order: the last choices of both are in one state."""
    tree = RolloutTree([1])
    for results, answer in (((20, 21), "a"), ((21, 20), "b")):
        state = None
        for token in results:
            call = turn(tree, state)
            tree.spans[call].text = f"<search>{token}</search>"
            state = result(tree, call, token)
        tree.trajectories.append(Trajectory(turn(tree, state), reward=0.0, answer=answer))
    # the last state is visited by both: V' = (2 * 2 + 2 * 2) / 4; the middle ones by one: (3 + 2 * 2) / 3
    first, second = CREDITS["rtmc"].values(tree, [3.0, 1.0])
    assert first == pytest.approx([1, 1, 2 / 3, 2 / 3, 1])
    assert second == pytest.approx([-1, -1, -2 / 3, -2 / 3, -1])


def test_calls_with_equal_results_are_told_apart_by_what_they_ask_for() -> None:
    """Two doors look alike from behind; thoughts do not count."""
    tree = RolloutTree([1])
    for text in ("<think>One.</think><go>a</go>", "<go>a</go>", "<think>Two.</think> <go>b</go>"):
        first = turn(tree, None)
        tree.spans[first].text = text
        tree.trajectories.append(Trajectory(turn(tree, result(tree, first, 20)), reward=0.0, answer="x"))
    # a is worth (6 + 3) / 2 and b 0; V' = (9 + 2 * 3) / 5 = 3; then both a are in one state: V' (9 + 6) / 4, answer 4.5
    found = CREDITS["rtmc"].values(tree, [6.0, 3.0, 0.0])
    assert found == [pytest.approx(row) for row in ([1.5, 1.5, 0.75], [1.5, 1.5, 0.75], [-3.0, -3.0, -2.0])]


def test_a_root_alone_is_compared_with_nothing() -> None:
    tree = nested()
    tree.trajectories[1].reward = None
    # m0 has no other root; below it the sisters have no pseudo-sister: m2 6 - 0, m6 0 - 6, m4 8 - (4 + 0) / 2
    assert CREDITS["fork"].values(tree, NESTED)[0] == pytest.approx([0, 0, 6, 6, 6])
    assert CREDITS["vineppo"].values(tree, NESTED)[0] == pytest.approx([0, 0, 4, 4, 4])


DIFFERENCES = ("fork", "treerl", "treepo", "spo", "vineppo", "appo", "rtmc")


@pytest.mark.parametrize("name", CREDITS)
def test_on_random_trees(name: str) -> None:
    """Finite, of the right shape, 0 for invalid ones, and the same in any order and with any constant."""
    for seed in range(40):
        tree, own = random_tree(seed)
        rows = token_advantages(tree, own, name)
        for number, (row, trajectory) in enumerate(zip(rows, tree.trajectories, strict=True)):
            assert len(row) == len(tree.row(number).ids)
            assert all(math.isfinite(value) for value in row)
            assert trajectory.valid or not any(row)
        assert weight_scale([tree], name) > 0.0
        if name in DIFFERENCES:
            shifted = token_advantages(tree, [value + 5.0 for value in own], name)
            assert shifted == [pytest.approx(row, abs=1e-9) for row in rows]
        order = random.Random(seed).sample(range(len(own)), len(own))
        other = copy.deepcopy(tree)
        other.reorder(order)
        reordered = token_advantages(other, [own[number] for number in order], name)
        assert reordered == [pytest.approx(rows[number], abs=1e-9) for number in order]


@pytest.mark.parametrize("seed", range(20))
def test_visits_of_a_fork_add_up_to_that_of_the_path_to_it(seed: int) -> None:
    """Over all copies and sisters, trajectories that end at a state among them; a root counts 1."""
    tree, _ = random_tree(seed)
    weights = CREDITS["fork"].weights
    assert weights
    totals = [0.0] * len(tree.spans)
    sums: dict[int | None, float] = {}
    rows = [(n, row) for n, row in enumerate(weights(tree)) if tree.trajectories[n].valid]
    for number, row in rows:
        path = tree.path(number)
        for span, weight in zip(path, row, strict=True):
            totals[span.index] += weight
            sums[span.parent] = sums.get(span.parent, 0.0) + weight
    ends = [tree.trajectories[number].leaf for number, _ in rows]
    for state, total in sums.items():
        if state is None:
            assert total == pytest.approx(len({tree.path(number)[0].index for number, _ in rows}))
        elif state not in ends:
            assert total == pytest.approx(totals[state])
