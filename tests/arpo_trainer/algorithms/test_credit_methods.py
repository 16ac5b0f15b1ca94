"""Every row of `CREDITS` on one tree with a nested fork, worked out by hand, and properties on random trees."""

from __future__ import annotations

import copy
import math
import random

import pytest

from arpo_trainer import RolloutTree, token_advantages
from arpo_trainer.algorithms.credit import CREDITS, learned_trajectories, weight_scale
from arpo_trainer.tree import Trajectory
from tests.arpo_trainer.algorithms.credit_trees import NESTED, measure, nested, random_tree, result, turn

# Leaves 8 (m4), 4 (m5), 0 (m6), 2 (m8). Means over leaves: m2 6, m0 4, all 3.5. Backed up: m2 6, m0 (6 + 0) / 2 = 3,
# prompt (3 + 2) / 2 = 2.5. The rows are those of m0, m2, m4, m5, m6, m8; r1 is as m0, r3 as m2.
SHARED = {
    "hard": [4, 6, 8, 4, 0, 2],
    "dedup": [4, 6, 8, 4, 0, 2],
    "turn": [3, 6, 8, 4, 0, 2],
    "at2po": [3, 6, 8, 4, 0, 2],  # all entropies are 0: equal weights
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
MEAN = 0.5 / 9
A, B, C = ((gain - MEAN) / math.sqrt(0.35 / 9 - MEAN**2) for gain in (0.3, -0.2, 0.0))
# per trajectory, on the spans of its path
OWN = {
    "soft": [[8] * 5, [2], [0] * 3, [4] * 5],
    # means of all 3.5, through m0 4, through m2 6: 8 - 4.5, 2 - 3.5, 0 - 3.75, 4 - 4.5
    "treepo": [[3.5] * 5, [-1.5], [-3.75] * 3, [-0.5] * 5],
    # value of the other root 2, after r1 of m6 alone 0, after r3 of m5 alone 4, at the end 8; the other root: 2 - 3
    "vineppo": [[-2, -2, 4, 4, 4], [-1], [0] * 3, [0] * 5],
    # Gains 0.4 - 0.1 up to r1, 0.2 - 0.4 up to r3. Rewards of the tree are 0, so 0.3 three times, -0.2 twice and 0 four
    # times: mean 0.5 / 9, variance (3 * 0.09 + 2 * 0.04) / 9 - (0.5 / 9) ** 2. Sums of what is still to come.
    "igpo": [[A + B + C, A + B + C, B + C, B + C, C], [C], [A + C, A + C, C], [A + B + C, A + B + C, B + C, B + C, C]],
    # of the first turn all three gains are equal, of the second both: nothing is left but the advantages
    "a2tgpo": [[8] * 5, [2], [0] * 3, [4] * 5],
}


def by_path(spans: list[float]) -> list[list[float]]:
    m0, m2, m4, m5, m6, m8 = spans
    return [[m0, m0, m2, m2, m4], [m8], [m0, m0, m6], [m0, m0, m2, m2, m5]]


@pytest.mark.parametrize("name", CREDITS)
def test_a_nested_fork_worked_out_by_hand(name: str) -> None:
    expected = OWN[name] if name in OWN else by_path(SHARED[name])
    found = CREDITS[name].values(nested(), NESTED)
    assert found[:4] == [pytest.approx(row, rel=1e-4) for row in expected]


# the weight of each copy on m0 (3 copies), m2 (2 copies), m4, m5, m6, m8, and the sum over the 12 copied tokens
WEIGHTS = {
    "dedup": ([1 / 3, 1 / 2, 1, 1, 1, 1], 7.0),
    "spo": ([1 / 3, 1 / 2, 1, 1, 1, 1], 7.0),
    "fork": ([1 / 3, 1 / 4, 1 / 4, 1 / 4, 1 / 2, 1], 2 + 1 / 2 + 1 / 4 + 1 / 4 + 1 / 2 + 1),
}


@pytest.mark.parametrize("name", CREDITS)
def test_weights_of_a_nested_fork(name: str) -> None:
    weights = CREDITS[name].weights
    if name == "vineppo":
        assert weights
        assert weights(nested())[:4] == [[1.0] * 5, [1.0], [0.0] * 3, [0.0] * 5]
        assert learned_trajectories(nested(), name) == [True, True, False, False, False]
        total = 12.0
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


def unlike() -> RolloutTree:
    """Three roots with 2, 1 and 0 calls: gains 0.2 and 0.3, then 0.4, and none."""
    tree = RolloutTree([1])
    for calls, reward in ((2, 1.0), (1, 0.0), (0, 0.5)):
        state: int | None = None
        for _ in range(calls):
            state = result(tree, turn(tree, state), 20)
        tree.trajectories.append(Trajectory(turn(tree, state), reward=reward))
    measure(tree, 0.1, 0.3, 0.6, 0.5)
    return tree


def test_gains_and_rewards_are_normalised_together_in_igpo() -> None:
    mean = (0.2 + 0.3 + 1.0 + 0.4 + 0.0 + 0.5) / 6
    deviation = math.sqrt((0.04 + 0.09 + 1.0 + 0.16 + 0.0 + 0.25) / 6 - mean**2)
    z = [(value - mean) / deviation for value in (0.2, 0.3, 1.0, 0.4, 0.0, 0.5)]
    expected = [[z[0] + z[1] + z[2]] * 2 + [z[1] + z[2]] * 2 + [z[2]], [z[3] + z[4]] * 2 + [z[4]], [z[5]]]
    for unused in ([0.0] * 3, [5.0, 1.0, 2.0]):
        assert CREDITS["igpo"].values(unlike(), unused) == [pytest.approx(row, rel=1e-4) for row in expected]


def test_gains_of_equal_turns_are_compared_and_rescaled_in_a2tgpo() -> None:
    # first gains 0.2 and 0.4: z = -1 and 1; the second turn of the first root is compared with nothing: 0
    first = 0.3 * (-1 + 0) / math.sqrt(2)
    expected = [[7 + first] * 2 + [7, 7, 7], [3 + 0.3] * 2 + [3], [4]]
    found = CREDITS["a2tgpo"].values(unlike(), [7.0, 3.0, 4.0])
    assert found == [pytest.approx(row, rel=1e-4) for row in expected]


def test_gains_that_differ_by_rounding_are_no_signal() -> None:
    tree = unlike()
    measure(tree, 0.1, 0.1 + 1e-9, 0.1, 0.1 - 1e-9)
    rows = CREDITS["a2tgpo"].values(tree, [0.0] * 3)
    assert max(abs(value) for row in rows for value in row) < 1e-4


@pytest.mark.parametrize("name", ["igpo", "a2tgpo"])
def test_a_tree_that_was_not_measured_is_refused(name: str) -> None:
    tree = unlike()
    tree.spans[1].answer_logprob = None
    with pytest.raises(ValueError, match=f"'{name}' needs the probability of the gold answer.*span 1.*ARPOTrainer"):
        token_advantages(tree, [0.0] * 3, name)


def test_a_root_alone_is_compared_with_nothing() -> None:
    tree = nested()
    tree.trajectories[1].reward = None
    # m0 has no other root; below it the sisters have no pseudo-sister: m2 6 - 0, m6 0 - 6, m4 8 - (4 + 0) / 2
    assert CREDITS["fork"].values(tree, NESTED)[0] == pytest.approx([0, 0, 6, 6, 6])
    assert CREDITS["vineppo"].values(tree, NESTED)[0] == pytest.approx([0, 0, 4, 4, 4])


DIFFERENCES = ("fork", "treerl", "treepo", "spo", "vineppo", "rtmc")


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
