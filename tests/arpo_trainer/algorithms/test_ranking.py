"""Ranking with hindsight: the score of each row, worked out by hand."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import pytest

from arpo_trainer import RolloutSettings
from arpo_trainer.algorithms.branch_points import Candidate, Point
from arpo_trainer.algorithms.branching import BRANCHES, RANKED, BranchMethod
from arpo_trainer.algorithms.ranking import LEFT_OUT, evenly, recoverability

SETTINGS = RolloutSettings(branch_penalty=0.05, branch_beta=0.2)


def rank(name: str, *candidates: Candidate) -> list[float]:
    function = BRANCHES[name].rank
    assert function is not None
    return function(candidates, SETTINGS)


def at(entropy: float = 1.0, uniform: float = 0.5, **known: Any) -> Candidate:
    return Candidate(Point(entropy, 0.0, uniform=uniform), **known)


def test_points_with_the_fewest_branches_come_first() -> None:
    scores = rank("spread", at(uniform=0.9, branches=1), at(uniform=0.2), at(uniform=0.5))
    assert scores == pytest.approx([-0.1, 0.2, 0.5])


def test_treerl_looks_for_the_least_likely_token_of_the_next_turn() -> None:
    assert rank("treerl", at(logprobs=((-0.1, -2.3), (-9.0,))), at()) == [2.3, 0.0]


def test_at2po_takes_the_mean_of_the_next_turn_less_its_branches() -> None:
    scores = rank("at2po", at(logprobs=((-1.0, -3.0), (-9.0,)), branches=2), at(logprobs=((-1.95,),)))
    assert scores == pytest.approx([1.9, 1.95])


def test_recoverability_counts_the_valid_paths_that_came_as_far() -> None:
    known = [(1, 1.0), (1, 0.0), (1, None), (2, -1.0)]
    found = recoverability([at(depth=depth, reward=reward) for depth, reward in known])
    assert found == pytest.approx([2 / 4, 2 / 4, 2 / 4, 1 / 3])


def test_deep_grpo_weighs_recoverability_and_depth_of_failed_paths() -> None:
    half = at(uniform=math.exp(-1), tokens=10, length=20, reward=0.0)  # -log(-log u) = 0
    scores = rank("deep-grpo", half, replace(half, reward=1.0), replace(half, reward=None))
    assert scores[0] == pytest.approx(math.log(2 / 4 * 0.5**0.1))
    assert scores[1:] == [LEFT_OUT, LEFT_OUT]


def test_deep_grpo_draws_in_proportion_to_the_weights() -> None:
    rng, first, draws = random.Random(0), 0, 2000
    for _ in range(draws):
        shallow = at(uniform=rng.random(), tokens=1, length=1024, reward=0.0)
        deep = at(uniform=rng.random(), tokens=1024, length=1024, reward=0.0)
        scores = rank("deep-grpo", shallow, deep)
        first += scores[0] > scores[1]
    assert first / draws == pytest.approx(0.5 / 1.5, abs=0.04)  # (1/1024)**0.1 = 1/2


def test_appo_wants_doubt_and_a_future_that_is_likelier_than_expected() -> None:
    # log pi + H of the tokens after the point: 0; 0.05 and 0.1; -0.07
    paths = [((-1.0,), (1.0,)), ((-0.95, -0.9), (1.0, 1.0)), ((-1.07,), (1.0,))]
    levels = [1.0, 4.0, 4.0]
    candidates = [at(h, logprobs=(p,), entropies=(e,)) for h, (p, e) in zip(levels, paths, strict=True)]
    futures = [1.0, math.exp(0.05 + 0.9 * 0.1), math.exp(-0.07)]
    mean = sum(futures) / 3
    deviation = math.sqrt(sum((future - mean) ** 2 for future in futures) / 3)
    z = [(future - mean) / deviation for future in futures]
    doubt = [-math.sqrt(2), math.sqrt(0.5), math.sqrt(0.5)]
    assert rank("appo", *candidates) == pytest.approx([min(doubt[0], z[0]), doubt[1] * z[1], z[2]])


def test_appo_clips_the_future() -> None:
    wild, mild = at(2.0, logprobs=((-1.0,),), entropies=((9.0,),)), at(0.0, logprobs=((0.0,),), entropies=((0.2,),))
    # both futures are 1.2, so their z is 0
    assert rank("appo", wild, mild) == pytest.approx([0.0, -1.0])


def test_infotree_s_gains_shrink_with_every_branch() -> None:
    known = {"reward": 1.0, "depth": 1}
    other = {"reward": 0.0, "depth": 1}
    assert rank("infotree", at(2.0, **known), at(**other)) == pytest.approx([1.4, 1.2])
    after = rank("infotree", at(2.0, **known, branches=1), at(**other))
    assert after == pytest.approx([0.5 + math.sqrt(math.log(2) / 2) + 0.4, 1 + math.sqrt(math.log(2)) + 0.2])


@pytest.mark.parametrize("name", [name for name, row in BRANCHES.items() if row.rank])
def test_no_ranking_fails_without_candidates_or_hindsight(name: str) -> None:
    assert rank(name) == []
    assert len(rank(name, at(), at(uniform=0.0))) == 2


def test_the_rank_of_arpo_ranked_decides_and_not_the_threshold() -> None:
    score = BRANCHES["arpo-ranked"].score(Point(0.5, 1.0), SETTINGS)
    assert (score.branch, score.reason, score.value) == (True, RANKED, 0.4)


def test_only_points_that_wait_can_be_ranked() -> None:
    with pytest.raises(ValueError, match="rank and rounds need best=True"):
        BranchMethod(BRANCHES["arpo"].score, rank=evenly)
