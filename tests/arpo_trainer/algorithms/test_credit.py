"""Every row of credit: on a nested fork worked out by hand, on random trees, and against what the documents say."""

import copy
import math
import random
from dataclasses import replace
from functools import cache

import pytest

from arpo_trainer import RolloutTree, token_advantages
from arpo_trainer.algorithms.credit import CREDITS, Credit, span_advantages, turn_values, weight_scale
from arpo_trainer.algorithms.registry import ALGORITHMS
from arpo_trainer.tree import Trajectory
from benchmarks.laboratory.paper_rows import PAPER_CREDITS
from benchmarks.push import grow, mean_and_error, pushes
from tests.arpo_trainer.test_tree import small_tree

ROWS = [name for name in CREDITS if name not in PAPER_CREDITS]
OWN = [1.0, -0.5, 9.0]
"""The advantages that go with `small_tree`."""
NESTED = [8.0, 2.0, 0.0, 4.0, 99.0]
"""The advantages that go with `nested`."""


def turn(tree: RolloutTree, parent: int | None, length: int = 1) -> int:
    zeros = [0.0] * length
    return tree.add_span(parent, "model", [7] * length, logprobs=zeros, entropies=zeros).index


def result(tree: RolloutTree, parent: int, token: int) -> int:
    return tree.add_span(parent, "environment", [token], tool={"name": "python"}).index


def nested() -> RolloutTree:
    """Turns m (m0 of two tokens, the others of one), results r, and the advantage of each leaf.

    prompt -+- m0 - r1 -+- m2 - r3 -+- m4    trajectory 0, root      8
            |           |           +- m5    trajectory 3, branch    4
            |           +- m6                trajectory 2, branch    0
            |           +- m7                trajectory 4, branch    invalid
            +- m8                            trajectory 1, root      2
    """
    tree = RolloutTree([1])
    first = result(tree, turn(tree, None, 2), 20)
    second = result(tree, turn(tree, first), 21)
    m4, m5, m6, m7 = turn(tree, second), turn(tree, second), turn(tree, first), turn(tree, first)
    tree.trajectories = [
        Trajectory(m4, reward=0.0),
        Trajectory(turn(tree, None), reward=0.0),
        Trajectory(m6, "branch", 0, first, reward=0.0),
        Trajectory(m5, "branch", 0, second, reward=0.0),
        Trajectory(m7, "branch", 0, first, reward=None),
    ]
    return tree


def random_tree(seed: int) -> tuple[RolloutTree, list[float]]:
    """A tree of roots and branches, and advantages; some are invalid, some end where others go on."""
    rng = random.Random(seed)
    tree = RolloutTree([1])
    for _ in range(rng.randint(1, 9)):
        forked = [span.index for span in tree.spans if span.kind == "environment"]
        fork = rng.choice(forked) if forked and rng.random() < 0.7 else None
        reward = float(rng.randint(0, 3)) if rng.random() < 0.8 else None
        begun = ("root", None) if fork is None else ("branch", 0)
        tree.trajectories.append(Trajectory(_continued(tree, fork, rng), *begun, fork, reward=reward))  # type: ignore[arg-type]
    return tree, [rng.gauss(0.0, 1.0) for _ in tree.trajectories]


def _continued(tree: RolloutTree, state: int | None, rng: random.Random) -> int:
    while True:
        last = turn(tree, state, rng.randint(1, 3))
        if rng.random() < 0.4:
            return last
        state = result(tree, last, rng.randrange(2))
        if rng.random() < 0.1:  # out of tokens after a result, behind which branches may leave
            return state


# Leaves 8 (m4), 4 (m5), 0 (m6), 2 (m8). Means over leaves: m2 6, m0 4. Backed up: m2 6, m0 (6 + 0) / 2 = 3. The rows
# are those of m0, m2, m4, m5, m6, m8; r1 is as m0, r3 as m2.
SHARED = {
    "hard": [4, 6, 8, 4, 0, 2],
    "dedup": [4, 6, 8, 4, 0, 2],
    "turn": [3, 6, 8, 4, 0, 2],
    # m0: 3 - 2 (the other root). m2: (0 + 2) / 2 = 1, the sister m6 and the pseudo-sister; m6: (6 + 2) / 2 = 4.
    # m4: (4 + 1) / 2 = 2.5, the sister m5 and the baseline of m2; m5: (8 + 1) / 2 = 4.5. m8: 2 - 3.
    "fork": [1, 5, 5.5, -0.5, -4, -1],
}
# the weight of each copy on m0 (3 copies), m2 (2 copies), m4, m5, m6, m8, and the sum over the 12 copied tokens
WEIGHTS = {
    "dedup": ([1 / 3, 1 / 2, 1, 1, 1, 1], 7.0),
    "fork": ([1 / 3, 1 / 4, 1 / 4, 1 / 4, 1 / 2, 1], 2 + 1 / 2 + 1 / 4 + 1 / 4 + 1 / 2 + 1),
}


def by_path(spans: list[float]) -> list[list[float]]:
    m0, m2, m4, m5, m6, m8 = spans
    return [[m0, m0, m2, m2, m4], [m8], [m0, m0, m6], [m0, m0, m2, m2, m5]]


@pytest.mark.parametrize("name", ROWS)
def test_a_nested_fork_worked_out_by_hand(name: str) -> None:
    expected = [[8] * 5, [2], [0] * 3, [4] * 5] if name == "soft" else by_path(SHARED[name])
    assert CREDITS[name].values(nested(), NESTED)[:4] == [pytest.approx(row) for row in expected]
    weights, total = CREDITS[name].weights, 12.0
    assert (weights is not None) == (name in WEIGHTS)
    if weights:
        copies, total = WEIGHTS[name]
        assert weights(nested())[:4] == [pytest.approx(row) for row in by_path(copies)]
    assert weight_scale([nested()], name) == pytest.approx(12.0 / total)


def test_a_root_alone_is_compared_with_nothing() -> None:
    tree = nested()
    tree.trajectories[1].reward = None
    # m0 has no other root; below it the sisters have no pseudo-sister: m2 6 - 0, m6 0 - 6, m4 8 - (4 + 0) / 2
    assert CREDITS["fork"].values(tree, NESTED)[0] == pytest.approx([0, 0, 6, 6, 6])


def test_a_trajectory_that_ends_where_others_go_on_counts_as_one_of_them() -> None:
    tree = nested()
    tree.trajectories.append(Trajectory(1, reward=0.0))
    values = turn_values(tree, [*NESTED, 12.0])
    assert values[1] == pytest.approx((6.0 + 0.0 + 12.0) / 3)
    assert span_advantages(tree, [*NESTED, 12.0])[1] == pytest.approx((8.0 + 4.0 + 0.0 + 12.0) / 4)


@pytest.mark.parametrize("name", ROWS)
def test_on_random_trees(name: str) -> None:
    """Finite, of the right shape, 0 for invalid ones, and the same in any order and, for `fork`, with any constant."""
    for seed in range(40):
        tree, own = random_tree(seed)
        rows = token_advantages(tree, own, name)
        for number, (row, trajectory) in enumerate(zip(rows, tree.trajectories, strict=True)):
            assert len(row) == len(tree.row(number).ids)
            assert all(math.isfinite(value) for value in row)
            assert trajectory.valid or not any(row)
        assert weight_scale([tree], name) > 0.0
        if name == "fork":
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
        for span, weight in zip(tree.path(number), row, strict=True):
            totals[span.index] += weight
            sums[span.parent] = sums.get(span.parent, 0.0) + weight
    ends = [tree.trajectories[number].leaf for number, _ in rows]
    for state, total in sums.items():
        if state is None:
            assert total == pytest.approx(len({tree.path(number)[0].index for number, _ in rows}))
        elif state not in ends:
            assert total == pytest.approx(totals[state])


@pytest.mark.parametrize("name", ROWS)
def test_of_a_flat_group_and_of_an_invalid_trajectory(name: str) -> None:
    """Without branches `fork` is RLOO, and all others the trajectory's own; an invalid one has no part."""
    tree = RolloutTree([1])
    tree.trajectories = [Trajectory(turn(tree, None, 2), reward=reward) for reward in OWN]
    flat = [value - (sum(OWN) - value) / 2 for value in OWN] if name == "fork" else OWN
    assert token_advantages(tree, OWN, name) == [pytest.approx([value] * 2) for value in flat]
    assert weight_scale([tree], name) == weight_scale([], name) == 1.0
    rows = [token_advantages(small_tree(), [1.0, -0.5, other], name) for other in (9.0, -3.0)]
    assert rows[0] == rows[1]


def test_what_is_no_row_or_not_lifted_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CREDITS, "unlifted", Credit(lambda tree, own: [[0.0]] * 3))
    with pytest.raises(ValueError, match=r"'unlifted' returned \[1, 1, 1\].*\[5, 3, 1\] spans.*needs `shared`"):
        token_advantages(small_tree(), OWN, "unlifted")
    with pytest.raises(ValueError, match="not 'hrad'; did you mean 'hard'"):
        token_advantages(small_tree(), [0.0] * 3, "hrad")


# On a choice that is worth nothing, rows push all the same: trees of the engine in the world of `benchmarks/push.py`.
# Here success is certain after a good first call and impossible after a bad one, and at most one more call follows, so
# that little but the placement of forks and the weights of copies is noise.


@cache
def trees(row: str, total: int) -> list[RolloutTree]:
    return grow(100, row, {"good": 1.0, "bad": 0.0}, calls=2, total=total)


def deviations(placement: str, total: int) -> float:
    """Return the mean push of `fork` in standard errors: that after a good first call, minus that after a bad one."""
    row = replace(ALGORITHMS["fork"], branch=ALGORITHMS[placement].branch)
    found = pushes(trees(placement, total), row)
    mean, error = mean_and_error([good - bad for good, bad in zip(found["good"], found["bad"], strict=True)])
    return mean / error


def test_a_choice_that_is_worth_nothing_gets_no_push() -> None:
    """In the row as it stands; with a placement that knows how a path went on, the same credit pushes."""
    for total in (7, 8):
        assert abs(deviations("fork", total)) < 3
    # of 7 trajectories with 4 roots, one root gets no branch, the least uncertain one
    assert abs(deviations("arpo-ranked", 7)) > 4
    assert ALGORITHMS["fork"].advantage == "grpo-no-std"  # a deviation is a random factor that a group shares
