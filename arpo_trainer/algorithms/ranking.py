"""Ranking with hindsight: which of the points that wait get branches, once all paths have ended.

A rank function takes all candidates and returns a score for each. The highest gets one branch, and the function is
asked again, with `Candidate.branches` counted up, until the budget is spent. The functions are pure, so that a tree
does not depend on who was faster.

Papers without tools fork at any token. The engine forks live environments, which it can after tool results only, so
that their score of a token becomes a score of the turn that follows the result: a branch writes that turn anew.

No row looks at rewards: a path stays in the group, so that a choice by its own result would bias the gradient. Rows
that look at the turn after the point (`surprise`, `turn_entropy`) do the same through the action, where it tells the
outcome.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from arpo_trainer.algorithms.branch_points import BranchSettings, Candidate

RankFunction = Callable[[Sequence[Candidate], BranchSettings], list[float]]


def evenly(candidates: Sequence[Candidate], settings: BranchSettings) -> list[float]:
    """Spread branches over the points: those with the fewest branches first, among equals by lot.

    The score is u - b, with u the point's random number in [0, 1) and b its branches. It looks at nothing that the path
    did but how many points it has: a path that went on shares its branches among more of them (see `fork_credit`).
    """
    return [candidate.point.uniform - candidate.branches for candidate in candidates]


def surprise(candidates: Sequence[Candidate], settings: BranchSettings) -> list[float]:
    """Rank by the least likely token of the next turn.

    TreeRL (2506.11902, EPTree): of all tokens of a tree the N with the highest H(y_t) = -log pi(y_t | y_<t) are forked,
    T times each. A point's score is the maximum of that over the turn that follows it; T is `branch_width` - 1, and the
    quota of a root stands for N per tree. Left out: forks inside a turn, the masks for tokens near the end, and the
    several iterations.
    """
    return [max((-value for value in _next(candidate.logprobs)), default=0.0) for candidate in candidates]


def turn_entropy(candidates: Sequence[Candidate], settings: BranchSettings) -> list[float]:
    """Rank by the entropy of the next turn, less a deduction for each branch that is there.

    AT2PO (2601.04767, entropy-guided tree expansion): H(n) = 1/|y| sum_t -log pi(y_t) of a turn's node n; in each round
    the K nodes with the highest H(n) - alpha b, b the branches that are there, get a sister each. In the published code
    alpha is 0.05 (`branch_penalty`) and there are two rounds. Left out: sisters of the first turn, which would be fresh
    roots, and more branches in the second round where the first has made some.
    """
    penalty = settings.branch_penalty
    return [
        _mean([-value for value in _next(candidate.logprobs)]) - penalty * candidate.branches
        for candidate in candidates
    ]


def _next(turns: tuple[tuple[float, ...], ...]) -> tuple[float, ...]:
    """Return the turn that follows the point."""
    return turns[0] if turns else ()


def _mean(values: Sequence[float]) -> float:
    return statistics.fmean(values) if values else 0.0
