"""On a choice that is worth nothing, rows push all the same: trees of the engine in the world of `benchmarks/push.py`.

Here success is certain after a good first call and impossible after a bad one, and at most one more call follows, so
that little but the placement of forks and the weights of copies is noise.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from arpo_trainer import RolloutTree
from arpo_trainer.algorithms.registry import ALGORITHMS
from benchmarks.push import grow, mean_and_error, pushes

GROUPS = 100
UNBIASED = ("fork", "spo", "vineppo")  # what the documents say of these attributions
# placements that know how a path went on, and budgets at which they tell: of 7 trajectories with 4 roots, one root gets
# no branch, the least uncertain one; with 8 each gets one, at one of its points, be they few or many
KNOWING = {"fork": [(7, "arpo-ranked"), (8, "spread")], "spo": [(8, "spread")], "vineppo": [(8, "spread")]}


@cache
def trees(branch: str, total: int) -> list[RolloutTree]:
    row = next(name for name, row in ALGORITHMS.items() if row.branch == branch)
    return grow(GROUPS, row, {"good": 1.0, "bad": 0.0}, calls=2, total=total)


def deviations(row: str, branch: str, total: int) -> float:
    """Return the mean push in standard errors: that after a good first call, minus that after a bad one."""
    found = pushes(trees(branch, total), replace(ALGORITHMS[row], branch=branch))
    mean, error = mean_and_error([good - bad for good, bad in zip(found["good"], found["bad"], strict=True)])
    return mean / error


@pytest.mark.parametrize("row", [name for name, row in ALGORITHMS.items() if row.attribution in UNBIASED])
def test_a_choice_that_is_worth_nothing_gets_no_push(row: str) -> None:
    """In the rows as they stand; with a placement that knows how a path went on, the same credit pushes."""
    for total, knowing in KNOWING[row]:
        assert abs(deviations(row, str(ALGORITHMS[row].branch), total)) < 3
        assert abs(deviations(row, knowing, total)) > 4
    assert ALGORITHMS[row].advantage == "grpo-no-std"  # a deviation is a random factor that a group shares
