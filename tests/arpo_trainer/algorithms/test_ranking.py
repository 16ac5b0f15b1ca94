"""Ranking with hindsight: the score of each row, worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from arpo_trainer import RolloutSettings
from arpo_trainer.algorithms.branching import BRANCHES, RANKED, BranchMethod, evenly
from arpo_trainer.tree import Decision

SETTINGS = RolloutSettings(branch_penalty=0.05, branch_beta=0.2)


def rank(name: str, *candidates: Decision) -> list[float]:
    function = BRANCHES[name].rank
    assert function is not None
    return function(candidates, SETTINGS)


def at(entropy: float = 1.0, uniform: float = 0.5, **known: Any) -> Decision:
    return Decision(entropy, entropy, uniform=uniform, **known)


def test_points_with_the_fewest_branches_come_first() -> None:
    scores = rank("spread", at(uniform=0.9, branches=1), at(uniform=0.2), at(uniform=0.5))
    assert scores == pytest.approx([-0.1, 0.2, 0.5])


def test_treerl_looks_for_the_least_likely_token_of_the_next_turn() -> None:
    assert rank("treerl", at(later=((-0.1, -2.3), (-9.0,))), at()) == [2.3, 0.0]


def test_at2po_takes_the_mean_of_the_next_turn_less_its_branches() -> None:
    scores = rank("at2po", at(later=((-1.0, -3.0), (-9.0,)), branches=2), at(later=((-1.95,),)))
    assert scores == pytest.approx([1.9, 1.95])


@pytest.mark.parametrize("name", [name for name, row in BRANCHES.items() if row.rank])
def test_no_ranking_fails_without_candidates_or_hindsight(name: str) -> None:
    assert rank(name) == []
    assert len(rank(name, at(), at(uniform=0.0))) == 2


def test_the_rank_of_arpo_ranked_decides_and_not_the_threshold() -> None:
    score = BRANCHES["arpo-ranked"].score(Decision(0.5, -0.5), SETTINGS)
    assert (score.branch, score.reason, score.score) == (True, RANKED, 0.4)


def test_only_points_that_wait_can_be_ranked() -> None:
    with pytest.raises(ValueError, match="rank and rounds need best=True"):
        BranchMethod(BRANCHES["arpo"].score, rank=evenly)
