"""The second decision: whether an episode branches after a tool's result; and the entropies that it is taken by.

A method is a row of `BRANCHES`; a new one needs a function and a row, and nothing in the engine.

| name | branches where | source |
|---|---|---|
| arpo | alpha + beta dH > tau | ARPO eq. 4-5 |
| aepo | (alpha + beta dH)(1 - penalty l) > tau, l high-entropy steps of the chain in a row | AEPO, branch penalty |
| arpo-ranked | the highest dH, once all roots have ended; points with next to no entropy left are skipped | ours |
| random | a coin says so, with probability alpha | ablation |
| arpo-reference | clip(U - beta dH, 0, 1) <= alpha | the published code of ARPO |
| aepo-reference | clip((U + beta dH) max(0, 1 - penalty c), 0, 1) >= alpha, c of the prompt | that of AEPO |
| tree-grpo | at points drawn at random once all planned trajectories have ended | Tree-GRPO (2509.21240) |

Entropies are on the scale of `entropy_level`, in the reference rows on that of `segment_entropy`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from arpo_trainer.tree import Decision

# entropies of tokens and of segments

REFERENCE_WINDOW = 20
REFERENCE_TOP = 10
REFERENCE_VOCABULARY = 151_665  # entries of the tokenizer of Qwen2.5, which the published runs used
ENTROPY_UNIT = math.log(REFERENCE_VOCABULARY) / REFERENCE_WINDOW  # 0.596 nats per token
Estimator = Literal["exact", "renormalised", "tail", "nll", "raw10"]
ESTIMATORS: tuple[str, ...] = get_args(Estimator)


def estimated_entropy(top: Sequence[float], sampled: float, estimator: str = "renormalised") -> float:
    """Estimate the entropy of a token, in nats, from the log-probabilities that an engine returns.

    Args:
        top: log-probabilities of the most likely tokens, in descending order, shape (k,); usually 20.
        sampled: log-probability of the drawn token, which may or may not be among them.
        estimator: "renormalised" (entropy of the top k alone), "tail" (all other tokens as one), "nll" (minus the
            log-probability of the drawn token: right on average, needs no `top`), "raw10" (the published code: top 10
            and the drawn token, not renormalised).

    Raises:
        ValueError: the estimator is "exact" or unknown, or `top` is empty where it is needed.
    """
    if estimator == "nll":
        return -sampled
    if estimator not in ESTIMATORS or estimator == "exact" or not top:
        raise ValueError(
            f"estimator {estimator!r} with {len(top)} log-probabilities: use one of {ESTIMATORS[1:]} with at least one"
        )
    if estimator == "raw10":
        first = list(top[:REFERENCE_TOP])
        # tokens are not known here: an equal log-probability is taken for the same token
        return _plain([*first, sampled] if sampled not in first else first)
    mass = math.fsum(map(math.exp, top))
    inside = _plain(top)
    if estimator == "renormalised":
        # entropy of p / mass: -sum (p / mass) log(p / mass) = inside / mass + log(mass)
        return inside / mass + math.log(mass)
    rest = max(0.0, 1.0 - mass)  # rounding may put the mass slightly above 1
    return inside - (rest * math.log(rest) if rest else 0.0)


def _plain(logprobs: Sequence[float]) -> float:
    # impossible tokens add nothing to the sum of -p log p
    return -math.fsum(math.exp(value) * value for value in logprobs if value != -math.inf)


def entropy_level(entropies: Sequence[float], window: int = REFERENCE_WINDOW) -> float:
    """Return H of a segment on the scale of alpha, beta, tau, the penalty and the budget; 0 for an empty segment.

    H = (mean nats of the first k tokens) / `ENTROPY_UNIT`, where `ENTROPY_UNIT` = ln(151,665) / 20 = 0.596 nats per
    token. The published code sums 20 tokens and divides by ln V of Qwen2.5's tokenizer. In that setting both give the
    same number; this one also holds for other windows, segment lengths and tokenizers.

    Args:
        entropies: of each token, in nats, shape (n,).
        window: k, the number of tokens that count.
    """
    first = entropies[:window]
    return math.fsum(first) / len(first) / ENTROPY_UNIT if first else 0.0


def segment_entropy(entropies: Sequence[float], vocabulary: int, window: int = REFERENCE_WINDOW) -> float:
    """Return the entropy of a segment as the published code measures it: the sum over its first tokens, over ln V.

    A segment shorter than the window looks certain; `entropy_level` has no such bias.
    """
    return math.fsum(entropies[:window]) / math.log(vocabulary)


def chain_length(steps: list[bool]) -> int:
    """Return l of a chain: the number of consecutive high-entropy tool steps at its end (AEPO)."""
    return sum(1 for _ in itertools.takewhile(bool, reversed(steps)))


# settings and rows


@dataclass(kw_only=True)
class BranchSettings:
    """The settings that branch functions read; they are settings of rollouts and of training, too.

    Attributes:
        branch_alpha: alpha: base of the branch score (ARPO eq. 5).
        branch_beta: beta: weight of the entropy rise (ARPO eq. 5).
        branch_threshold: tau: a point with a score above it branches.
        branch_penalty: slope of AEPO's penalty for consecutive high-entropy steps.
    """

    branch_alpha: float = 0.5
    branch_beta: float = 0.2
    branch_threshold: float = 0.5
    branch_penalty: float = 0.05


BranchFunction = Callable[[Decision, BranchSettings], Decision]
RankFunction = Callable[[Sequence[Decision], BranchSettings], list[float]]

ROSE = "entropy rose"
DRAWN, NOT_DRAWN = "drawn", "not drawn"
RANKED = "chosen by rank"
NO_DOUBT = "next to no entropy left"
NO_DOUBT_LEVEL = 0.02  # 0.012 nats per token: two samples of 20 tokens are equal with a probability of about 0.8


@dataclass(frozen=True)
class BranchMethod:
    """One row of `BRANCHES`.

    Attributes:
        score: returns a point with its score (`Decision.scored`).
        published: whether measure, order and top-up are those of the published engine: a turn is measured by the sum of
            its entropies, against the first turn of the same path; points are decided in the order of rounds and
            trajectory numbers; missing trajectories are added one per round, and may branch. The turn *before* the
            result is measured, not the one after it.
        best: whether points wait until all paths have ended, and those with the highest scores get the budget.
        penalised: whether c counts the rounds in which the prompt got a new trajectory.
        quota: whether, without a `branch_quota`, a root and its descendants get at most ceil((M - N) / N) branches.
        rank: with `best`, scores the points that wait, in place of `score`, which only says whether a point waits. The
            highest gets one branch and the function is asked again, until the budget is spent.
        rounds: with `best`, in how many rounds the budget is spent; the points of a round's branches wait for the next.
        roots_only: whether branches never branch again.
    """

    score: BranchFunction
    published: bool = False
    best: bool = False
    penalised: bool = False
    quota: bool = True
    rank: RankFunction | None = None
    rounds: int = 1
    roots_only: bool = False


# Rules that decide at once.


def branch_score(delta_entropy: float, alpha: float, beta: float, consecutive: int = 0, penalty: float = 0.0) -> float:
    """Return P = (alpha + beta * dH) * (1 - penalty * l): branch iff P > tau.

    ARPO, eq. 4-5 is the case without penalty; AEPO multiplies by a factor that falls linearly in l.

    Args:
        delta_entropy: dH, the rise of entropy after the tool result (`entropy_level`).
        alpha: base.
        beta: weight of the rise.
        consecutive: l, the number of consecutive high-entropy steps at the end of the chain.
        penalty: slope of the factor; 0 is ARPO.
    """
    return (alpha + beta * delta_entropy) * max(0.0, 1.0 - penalty * consecutive)


def _aepo(point: Decision, settings: BranchSettings) -> Decision:
    return _arpo(point, settings, settings.branch_penalty)


def _arpo(point: Decision, settings: BranchSettings, penalty: float = 0.0) -> Decision:
    alpha, beta, tau = settings.branch_alpha, settings.branch_beta, settings.branch_threshold
    # `flat` is the score without a rise: it tells whether the rise was the reason
    value, flat = (branch_score(delta, alpha, beta, point.consecutive, penalty) for delta in (point.delta, 0.0))
    rose = point.delta > 0 and value > tau >= flat  # otherwise alpha alone is above tau, and the rise explains nothing
    return point.scored(value, tau, value > tau, ROSE if rose else "")


def _random(point: Decision, settings: BranchSettings) -> Decision:
    # true with probability alpha, and written so that high scores branch, as with the rules that use entropy
    return _drawn(point, point.uniform, 1.0 - settings.branch_alpha, point.uniform >= 1.0 - settings.branch_alpha)


def _arpo_reference(point: Decision, settings: BranchSettings) -> Decision:
    # as published: a rise lowers the drawn number, and low numbers branch
    value = _clip(point.uniform - settings.branch_beta * point.delta)
    return _drawn(point, value, settings.branch_alpha, value <= settings.branch_alpha)


def _aepo_reference(point: Decision, settings: BranchSettings) -> Decision:
    penalty = max(0.0, 1.0 - settings.branch_penalty * point.consecutive)
    # as published, the other way round: high numbers branch, so a larger alpha makes branches rarer
    value = _clip((point.uniform + settings.branch_beta * point.delta) * penalty)
    return _drawn(point, value, settings.branch_alpha, value >= settings.branch_alpha)


def _drawn(point: Decision, value: float, threshold: float, branch: bool) -> Decision:
    return point.scored(value, threshold, branch, DRAWN if branch else NOT_DRAWN)


def _clip(value: float) -> float:
    return min(1.0, max(0.0, value))


# Rules that wait until all paths have ended. None looks at rewards: a path stays in the group, so that a choice by its
# own result would bias the gradient.


def _tree_grpo(point: Decision, settings: BranchSettings) -> Decision:
    # every point is a candidate, and the highest drawn numbers win: a uniform choice among all points
    return _drawn(point, point.uniform, 0.0, True)


def _arpo_ranked(point: Decision, settings: BranchSettings) -> Decision:
    # the rank of the score decides, not the threshold: a fresh root is not better than a point where dH is negative
    scored = _arpo(point, settings)
    # a branch from a nearly deterministic point repeats the original and only costs budget
    if point.entropy < NO_DOUBT_LEVEL:
        return replace(scored, branch=False, reason=NO_DOUBT)
    return scored if scored.branch else replace(scored, branch=True, reason=RANKED)


BRANCHES: dict[str, BranchMethod] = {
    "arpo": BranchMethod(_arpo),
    "aepo": BranchMethod(_aepo, quota=False),  # its penalty is its quota, and one of its own would leave it nothing
    "arpo-ranked": BranchMethod(_arpo_ranked, best=True),
    "random": BranchMethod(_random),
    "arpo-reference": BranchMethod(_arpo_reference, published=True, quota=False),
    "aepo-reference": BranchMethod(_aepo_reference, published=True, penalised=True, quota=False),
    "tree-grpo": BranchMethod(_tree_grpo, best=True, quota=False),
}
