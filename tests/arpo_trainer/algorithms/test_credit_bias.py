"""On a choice that is worth nothing, which rows push all the same.

A toy world: a first call has a good or a bad result, which alone decides the chance of success. Then, after every
result, the agent calls again or answers, each with probability 1/2; neither changes anything. A coin decides at every
result whether a branch leaves there. The push is the gradient of the logit of calling again, after the first result,
summed over all copies: its expectation is 0 for an unbiased row.
"""

from __future__ import annotations

import random
import statistics
from functools import cache

import pytest

from arpo_trainer import RolloutTree, token_advantages
from arpo_trainer.algorithms.advantages import group_advantages, tree_group_advantages
from arpo_trainer.tree import Trajectory
from tests.arpo_trainer.algorithms.credit_trees import result

SUCCESS = {5: 0.9, 6: 0.3}  # by the token of the first result
CALL, ANSWER = 1, 0
GROUPS, ROOTS, CALLS = 400, 4, 4


def play(rng: random.Random, tree: RolloutTree, state: int, first: int, calls: int, origin: str) -> None:
    """Continue from a result, once or twice, to the end."""
    for sister in range(1 + (calls < CALLS and rng.random() < 0.5)):
        choice = CALL if calls < CALLS and rng.random() < 0.5 else ANSWER
        turn = tree.add_span(state, "model", [choice], logprobs=[-0.7], entropies=[0.7]).index
        kind = "branch" if sister else origin
        if choice == CALL:
            play(rng, tree, result(tree, turn, 20), first, calls + 1, kind)
        else:
            reward = float(rng.random() < SUCCESS[first])
            tree.trajectories.append(Trajectory(turn, kind, reward=reward))  # type: ignore[arg-type]


@cache
def groups() -> list[RolloutTree]:
    rng, trees = random.Random(0), []
    for _ in range(GROUPS):
        tree = RolloutTree([1])
        for _ in range(ROOTS):
            call = tree.add_span(None, "model", [CALL], logprobs=[-0.7], entropies=[0.7]).index
            first = rng.choice(list(SUCCESS))
            play(rng, tree, result(tree, call, first), first, 1, "root")
        trees.append(tree)
    return trees


def deviations(attribution: str, trees: bool = False) -> float:
    """Return the mean push in standard errors: that after a good result, minus that after a bad one."""
    pushes = []
    for tree in groups():
        own = tree_group_advantages(tree.rewards, tree.starts()) if trees else group_advantages(tree.rewards, "none")
        push = 0.0
        for number, row in enumerate(token_advantages(tree, own, attribution)):
            ids = tree.row(number).ids  # call, first result, choice
            push += (1 if ids[1] == 5 else -1) * row[2] * (ids[2] - 0.5)
        pushes.append(push)
    return statistics.fmean(pushes) / (statistics.stdev(pushes) / len(pushes) ** 0.5)


@pytest.mark.parametrize("attribution", ["fork", "spo", "vineppo"])
def test_a_choice_that_is_worth_nothing_gets_no_push(attribution: str) -> None:
    assert abs(deviations(attribution)) < 3


@pytest.mark.parametrize("attribution", ["soft", "turn"])
def test_leaves_that_depend_on_the_choice_push_it(attribution: str) -> None:
    """The push of "hard" is that of "soft": summed over copies they are the same."""
    assert deviations(attribution) > 4


def test_the_advantage_of_tree_grpo_is_pushed_as_well() -> None:
    assert deviations("soft", trees=True) > 4
