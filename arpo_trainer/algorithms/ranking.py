"""Ranking with hindsight: which of the points that wait get branches, once all paths have ended.

A rank function takes all candidates and returns a score for each. The highest gets one branch, and the function is
asked again, with `Candidate.branches` counted up, until the budget is spent. `LEFT_OUT` is the score of a point that
must not get a branch. The functions are pure, so that a tree does not depend on who was faster.

Papers without tools fork at any token. The engine forks live environments, which it can after tool results only, so
that their score of a token becomes a score of the turn that follows the result: a branch writes that turn anew.

Rows that look at rewards (`pivots`, `uncertain_outcomes`) choose by a path's own result. The path stays in the group,
so the choice biases the gradient: paths that failed by chance get more sisters than paths that won by chance. Rows that
look at the turn after the point (`surprise`, `turn_entropy`, `promise`) do the same through the action, where it tells
the outcome.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Sequence

from arpo_trainer.algorithms.branch_points import BranchSettings, Candidate

RankFunction = Callable[[Sequence[Candidate], BranchSettings], list[float]]
LEFT_OUT = -math.inf
FAILED = 0.0  # a path with a reward above this one has succeeded
DEPTH_POWER = 0.1  # DEEP-GRPO's `position_bias`
DISCOUNT = 0.9  # per token, of the future that APPO looks at
CLIP = 0.2  # the future value is kept in [1 - CLIP, 1 + CLIP]
_LEAST = 1e-12


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


def pivots(candidates: Sequence[Candidate], settings: BranchSettings) -> list[float]:
    """Draw points of failed paths, with probabilities proportional to recoverability x depth.

    DEEP-GRPO (2602.14169; `UtilitySamplingStrategy` of its code): Q(t) ~ P_phi(success | t/T) (t/T)^gamma, gamma = 0.1,
    over the states of failed trajectories, drawn without replacement, and several branches at each. t/T is the share of
    the path's tokens before the point. P_phi is a logistic regression over the last 10,000 branches there; here it is
    the share of the group's paths that came as far (`recoverability`), since a group must not depend on those before
    it. The draw is by Gumbel's trick: log Q - log(-log u). The branches of a pivot are `branch_width` - 1.

    It chooses by the path's own reward, which biases the gradient. The paper trains the branches in a stream of their
    own with a local baseline, which is a matter of credit and is left out here.
    """
    recoverable = recoverability(candidates)
    scores = []
    for candidate, chance in zip(candidates, recoverable, strict=True):
        failed = candidate.reward is not None and candidate.reward <= FAILED
        share = max(_LEAST, candidate.tokens / max(1, candidate.length))
        weight = chance * share**DEPTH_POWER
        noise = -math.log(-math.log(min(1.0 - _LEAST, max(_LEAST, candidate.point.uniform))))
        scores.append(math.log(weight) + noise if failed else LEFT_OUT)
    return scores


def promise(candidates: Sequence[Candidate], settings: BranchSettings) -> list[float]:
    """Rank by z(entropy) x z(future value).

    APPO (2606.12384): BS_t = Z(H_t) Z(Omega_t), Omega_t = exp(sum_{k >= t} gamma^(k-t) (log pi_current(a_k) - log
    pi_rollout(a_k))), over the positions where both factors are positive. Trees are sampled by the current policy,
    where that ratio is 1 and Omega says nothing (the published code leaves it out for this reason while it branches).
    Here log pi(a_k) + H_k takes its place: how much likelier than expected the path went on, 0 on average. Omega is
    clipped to 1 +- 0.2; gamma = 0.9. Points where a factor is not positive follow, the smaller factor deciding. z is
    taken over all candidates of the group, since a path has few points. That branches are not trained on is left out.
    """
    doubts = _standard([candidate.point.entropy for candidate in candidates])
    futures = _standard([_future_value(candidate) for candidate in candidates])
    return [
        doubt * future if min(doubt, future) > 0 else min(doubt, future)
        for doubt, future in zip(doubts, futures, strict=True)
    ]


def uncertain_outcomes(candidates: Sequence[Candidate], settings: BranchSettings) -> list[float]:
    """Rank by an upper confidence bound with an entropy bonus; gains shrink with every branch.

    InfoTree (2605.05262) selects the next state by its uncertainty-aware bound UUCB, the marginal gain of a monotone
    submodular objective, in three terms: the outcome's uncertainty, visits and entropy. This row follows its abstract
    alone; form and constants are ours: 4 r (1 - r) / (1 + b) + sqrt(ln(1 + n) / (1 + b)) + beta H, with r the
    `recoverability`, b the point's branches, n those of all candidates, beta = `branch_beta`. Left out: the learned
    budget allocator and speculative expansion.

    It chooses by rewards, which biases the gradient.
    """
    given = sum(candidate.branches for candidate in candidates)
    return [
        4 * chance * (1 - chance) / (1 + candidate.branches)
        + math.sqrt(math.log1p(given) / (1 + candidate.branches))
        + settings.branch_beta * candidate.point.entropy
        for candidate, chance in zip(candidates, recoverability(candidates), strict=True)
    ]


def recoverability(candidates: Sequence[Candidate]) -> list[float]:
    """Return for each candidate (1 + s) / (2 + n): of n valid paths with a point at its depth, s succeeded."""
    paths: Counter[int] = Counter()
    succeeded: Counter[int] = Counter()
    for candidate in candidates:
        if candidate.reward is not None:
            paths[candidate.depth] += 1
            succeeded[candidate.depth] += candidate.reward > FAILED
    return [(1 + succeeded[candidate.depth]) / (2 + paths[candidate.depth]) for candidate in candidates]


def _future_value(candidate: Candidate) -> float:
    total, weight = 0.0, 1.0
    for logprobs, entropies in zip(candidate.logprobs, candidate.entropies, strict=True):
        for logprob, entropy in zip(logprobs, entropies, strict=True):
            total += weight * (logprob + entropy)
            weight *= DISCOUNT
    return min(1.0 + CLIP, max(1.0 - CLIP, math.exp(min(1.0, total))))


def _next(turns: tuple[tuple[float, ...], ...]) -> tuple[float, ...]:
    """Return the turn that follows the point."""
    return turns[0] if turns else ()


def _mean(values: Sequence[float]) -> float:
    return statistics.fmean(values) if values else 0.0


def _standard(values: Sequence[float]) -> list[float]:
    """Return z-scores, with 1 for a deviation of 0."""
    if not values:
        return []
    mean, deviation = statistics.fmean(values), statistics.pstdev(values)
    return [(value - mean) / (deviation if deviation > _LEAST else 1.0) for value in values]
