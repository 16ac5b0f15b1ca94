"""The second decision: whether an episode branches after a tool's result.

These are pure functions of what is known at such a point. A method is a row of `BRANCHES`; a new one needs a function
and a row, and nothing in the engine.

| name | branches where | source |
|---|---|---|
| arpo | alpha + beta dH > tau | ARPO eq. 4-5 |
| aepo | (alpha + beta dH)(1 - penalty l) > tau, l high-entropy steps of the chain in a row | AEPO, branch penalty |
| arpo-ranked | the highest dH, once all roots have ended; points with next to no entropy left are skipped | ours |
| arpo-turn-end | as arpo, dH measured at the turn before the result | ablation |
| treepo | at every point of every path, in rounds, while the budget lasts | TreePO (2508.17445) |
| random | a coin says so, with probability alpha | ablation |
| arpo-reference | clip(U - beta dH, 0, 1) <= alpha | the published code of ARPO |
| aepo-reference | clip((U + beta dH) max(0, 1 - penalty c), 0, 1) >= alpha, c of the prompt | that of AEPO |
| tree-grpo | at points drawn at random once all planned trajectories have ended | Tree-GRPO (2509.21240) |
| spread | the same, evenly: few branches at a point, and a quota of every root | ours |
| vine | as random, at points of roots alone | VinePPO (2410.01679), SPO (2505.23564) |
| treerl, at2po | where a function of `ranking` says so, with hindsight | see there |

Entropies are on the scale of `entropy.entropy_level`, in the reference rows on that of `entropy.segment_entropy`.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

# What is known where an episode may branch: at once (`Point`), and once all paths have ended (`Candidate`).


@dataclass(frozen=True)
class Point:
    """What is known where an episode may branch.

    Attributes:
        entropy: H of the measured segment.
        baseline: H of the segment it is compared with, on the same scale.
        consecutive: l, the number of consecutive high-entropy steps just before.
        uniform: a random number in [0, 1) that belongs to this point.
    """

    entropy: float
    baseline: float
    consecutive: int = 0
    uniform: float = 0.0

    @property
    def delta(self) -> float:
        """The rise of entropy, dH."""
        return self.entropy - self.baseline


@dataclass(frozen=True)
class Candidate:
    """A point that waits for branches, with what is known once all paths have ended.

    Attributes:
        point: as it was scored.
        logprobs: of what the model wrote on the path after the point, when it was sampled: one tuple per turn.
        branches: number of branches that the present ranking has given to the point so far.
    """

    point: Point
    logprobs: tuple[tuple[float, ...], ...] = ()
    branches: int = 0


class BranchSettings(Protocol):
    """The settings that branch functions read; the names are those of `ARPOConfig`."""

    @property
    def branch_alpha(self) -> float:
        """alpha: base of the score, or probability."""

    @property
    def branch_beta(self) -> float:
        """beta: weight of the rise of entropy."""

    @property
    def branch_threshold(self) -> float:
        """tau: threshold of the score."""

    @property
    def branch_penalty(self) -> float:
        """Slope of AEPO's penalty, and AT2PO's deduction per branch."""


# Ranking with hindsight: which of the points that wait get branches, once all paths have ended.
#
# A rank function takes all candidates and returns a score for each. The highest gets one branch, and the function is
# asked again, with `Candidate.branches` counted up, until the budget is spent. The functions are pure, so that a tree
# does not depend on who was faster.
#
# Papers without tools fork at any token. The engine forks live environments, which it can after tool results only, so
# that their score of a token becomes a score of the turn that follows the result: a branch writes that turn anew.
#
# No row looks at rewards: a path stays in the group, so that a choice by its own result would bias the gradient. Rows
# that look at the turn after the point (`surprise`, `turn_entropy`) do the same through the action, where it tells the
# outcome.

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


ROSE = "entropy rose"
ABOVE, NOT_ABOVE = "score above threshold", "score not above threshold"
DRAWN, NOT_DRAWN = "drawn", "not drawn"
RANKED, EVERY_POINT = "chosen by rank", "every point branches"
NO_DOUBT = "next to no entropy left"
NO_DOUBT_LEVEL = 0.02  # 0.012 nats per token: two samples of 20 tokens are equal with a probability of about 0.8


@dataclass(frozen=True)
class Score:
    """The result of a branch function.

    Attributes:
        value: the score.
        threshold: the value it is compared with.
        branch: whether to branch.
        why: the reason, in a few words; it is recorded in the tree.
    """

    value: float
    threshold: float
    branch: bool
    why: str = ""

    @property
    def reason(self) -> str:
        """`why`, or the side of the threshold that the score is on."""
        return self.why or (ABOVE if self.branch else NOT_ABOVE)


BranchFunction = Callable[[Point, BranchSettings], Score]


@dataclass(frozen=True)
class BranchMethod:
    """One row of `BRANCHES`.

    Attributes:
        score: the function.
        published: whether measure, order and top-up are those of the published engine: a turn is measured by the sum of
            its entropies, against the first turn of the same path; points are decided in the order of rounds and
            trajectory numbers; missing trajectories are added one per round, and may branch.
        best: whether points wait until all paths have ended, and those with the highest scores get the budget.
        penalised: whether c counts the rounds in which the prompt got a new trajectory.
        quota: whether, without a `branch_quota`, a root and its descendants get at most ceil((M - N) / N) branches.
        rank: with `best`, scores the points that wait, in place of `score`, which only says whether a point waits.
        rounds: with `best`, in how many rounds the budget is spent; the points of a round's branches wait for the next.
        roots_only: whether branches never branch again.
        turn_end: whether the turn *before* the result is measured; otherwise it is the one after it.

    Raises:
        ValueError: `rank` or `rounds` without `best`.
    """

    score: BranchFunction
    published: bool = False
    best: bool = False
    penalised: bool = False
    quota: bool = True
    rank: RankFunction | None = None
    rounds: int = 1
    roots_only: bool = False
    turn_end: bool = False

    def __post_init__(self) -> None:
        if not self.best and (self.rank is not None or self.rounds != 1):
            raise ValueError("rank and rounds need best=True: only points that wait can be ranked")


def branch_score(delta_entropy: float, alpha: float, beta: float, consecutive: int = 0, penalty: float = 0.0) -> float:
    """Return P = (alpha + beta * dH) * (1 - penalty * l): branch iff P > tau.

    ARPO, eq. 4-5 is the case without penalty; AEPO multiplies by a factor that falls linearly in l.

    Args:
        delta_entropy: dH, the rise of entropy after the tool result (`entropy.entropy_level`).
        alpha: base.
        beta: weight of the rise.
        consecutive: l, the number of consecutive high-entropy steps at the end of the chain.
        penalty: slope of the factor; 0 is ARPO.
    """
    return (alpha + beta * delta_entropy) * max(0.0, 1.0 - penalty * consecutive)


def _arpo(point: Point, settings: BranchSettings) -> Score:
    return _by_entropy(point, settings, 0.0)


def _aepo(point: Point, settings: BranchSettings) -> Score:
    return _by_entropy(point, settings, settings.branch_penalty)


def _by_entropy(point: Point, settings: BranchSettings, penalty: float) -> Score:
    alpha, beta, tau = settings.branch_alpha, settings.branch_beta, settings.branch_threshold
    # `flat` is the score without a rise: it tells whether the rise was the reason
    value, flat = (branch_score(delta, alpha, beta, point.consecutive, penalty) for delta in (point.delta, 0.0))
    rose = point.delta > 0 and value > tau >= flat  # otherwise alpha alone is above tau, and the rise explains nothing
    return Score(value, tau, value > tau, ROSE if rose else "")


def _arpo_ranked(point: Point, settings: BranchSettings) -> Score:
    # the rank of the score decides, not the threshold: a fresh root is not better than a point where dH is negative
    score = _arpo(point, settings)
    # a branch from a nearly deterministic point repeats the original and only costs budget
    if point.entropy < NO_DOUBT_LEVEL:
        return replace(score, branch=False, why=NO_DOUBT)
    return score if score.branch else replace(score, branch=True, why=RANKED)


def _ranked(point: Point, settings: BranchSettings) -> Score:
    return Score(0.0, 0.0, True, RANKED)  # every point is a candidate of the row's `rank`


def _every_point(point: Point, settings: BranchSettings) -> Score:
    """Branch everywhere.

    TreePO (2508.17445; `generate_sequences_tree_deepth_first_vanilla_mode` of its code): after each segment every path
    that goes on continues in d = 2 copies (`branch_width`), as far as the width allows. Left out: segments of a fixed
    number of tokens (a segment is a turn), the random width of the first split, early stops, and the fallback, which
    continues finished paths from a random segment where nothing can branch any more; here these places become fresh
    roots, as everywhere. The published code also lets the paths that go on inherit d copies of each path that has just
    ended, and where the width is short it gives each the same number and the last one the remainder. Here no point has
    more than d - 1 branches, and where the budget is short the points of a round are served in the drawn order.
    """
    return Score(1.0, 0.0, True, EVERY_POINT)


def _random(point: Point, settings: BranchSettings) -> Score:
    # true with probability alpha, and written so that high scores branch, as with the rules that use entropy
    return _drawn(point.uniform, 1.0 - settings.branch_alpha, point.uniform >= 1.0 - settings.branch_alpha)


def _vine(point: Point, settings: BranchSettings) -> Score:
    """Toss a coin, at points of roots alone.

    VinePPO (2410.01679, sec. 4) takes K extra rollouts at every intermediate state s_t of a trajectory, V(s_t) = 1/K
    sum_k R(tau_k), and SPO-chain (2505.23564) at the ends of its segments. Here K is at most `branch_width` - 1, and
    the coin and the group's budget decide which states get any. A choice of states once the paths have ended would
    bias V: paths that went on have more of them.
    """
    return _random(point, settings)


def _arpo_reference(point: Point, settings: BranchSettings) -> Score:
    # as published: a rise lowers the drawn number, and low numbers branch
    value = _clip(point.uniform - settings.branch_beta * point.delta)
    return _drawn(value, settings.branch_alpha, value <= settings.branch_alpha)


def _aepo_reference(point: Point, settings: BranchSettings) -> Score:
    penalty = max(0.0, 1.0 - settings.branch_penalty * point.consecutive)
    # as published, the other way round: high numbers branch, so a larger alpha makes branches rarer
    value = _clip((point.uniform + settings.branch_beta * point.delta) * penalty)
    return _drawn(value, settings.branch_alpha, value >= settings.branch_alpha)


def _tree_grpo(point: Point, settings: BranchSettings) -> Score:
    # every point is a candidate, and the highest drawn numbers win (`best`): a uniform choice among all points
    return _drawn(point.uniform, 0.0, True)


def _drawn(value: float, threshold: float, branch: bool) -> Score:
    return Score(value, threshold, branch, DRAWN if branch else NOT_DRAWN)


def _clip(value: float) -> float:
    return min(1.0, max(0.0, value))


BRANCHES: dict[str, BranchMethod] = {
    "arpo": BranchMethod(_arpo),
    "aepo": BranchMethod(_aepo, quota=False),  # its penalty is its quota, and one of its own would leave it nothing
    "arpo-ranked": BranchMethod(_arpo_ranked, best=True),
    "random": BranchMethod(_random),
    "arpo-reference": BranchMethod(_arpo_reference, published=True, quota=False, turn_end=True),
    "aepo-reference": BranchMethod(_aepo_reference, published=True, penalised=True, quota=False, turn_end=True),
    "tree-grpo": BranchMethod(_tree_grpo, best=True, quota=False),
    "spread": BranchMethod(_tree_grpo, best=True, rank=evenly),
    "vine": BranchMethod(_vine, roots_only=True),
    "treerl": BranchMethod(_ranked, best=True, rank=surprise),
    "at2po": BranchMethod(_ranked, best=True, quota=False, rank=turn_entropy, rounds=2),
    "treepo": BranchMethod(_every_point, quota=False),
    "arpo-turn-end": BranchMethod(_arpo, turn_end=True),
}


def chain_length(steps: list[bool]) -> int:
    """Return l of a chain: the number of consecutive high-entropy tool steps at its end (AEPO)."""
    length = 0
    while length < len(steps) and steps[-1 - length]:
        length += 1
    return length
