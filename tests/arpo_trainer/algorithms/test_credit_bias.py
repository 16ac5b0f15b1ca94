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


@cache
def trees(branch: str) -> list[RolloutTree]:
    row = next(name for name, row in ALGORITHMS.items() if row.branch == branch)
    return grow(GROUPS, row, {"good": 1.0, "bad": 0.0}, calls=2)


def deviations(row: str, branch: str | None = None) -> float:
    """Return the mean push in standard errors: that after a good first call, minus that after a bad one."""
    algorithm = replace(ALGORITHMS[row], branch=branch or ALGORITHMS[row].branch)
    found = pushes(trees(str(algorithm.branch)), algorithm)
    mean, error = mean_and_error([good - bad for good, bad in zip(found["good"], found["bad"], strict=True)])
    return mean / error


@pytest.mark.parametrize("row", [name for name, row in ALGORITHMS.items() if row.attribution in UNBIASED])
def test_a_choice_that_is_worth_nothing_gets_no_push(row: str) -> None:
    """In the rows as they stand; where the placement knows how a path went on, the same credit pushes."""
    assert abs(deviations(row)) < 3
    assert deviations(row, "spread") > 4
    assert ALGORITHMS[row].advantage == "grpo-no-std"  # a deviation is a random factor that a group shares
