"""The second decision: whether an episode branches after a tool's result.

These are pure functions of what is known at such a point. A method is a row of `BRANCHES`; a new one needs a function
and a row, and nothing in the engine.

| name | branches where | source |
|---|---|---|
| arpo | alpha + beta dH > tau | ARPO eq. 4-5 |
| aepo | (alpha + beta dH)(1 - penalty l) > tau, l high-entropy steps of the chain in a row | AEPO, branch penalty |
| arpo-ranked | the same as arpo, but the points wait until all roots have ended, and the highest scores get the \
budget; points with next to no entropy left are skipped | ours |
| random | a coin says so, with probability alpha | ablation |
| arpo-reference | clip(U - beta dH, 0, 1) <= alpha | the published code of ARPO |
| aepo-reference | clip((U + beta dH) max(0, 1 - penalty c), 0, 1) >= alpha, c of the prompt | that of AEPO |
| tree-grpo | at points drawn at random once all planned trajectories have ended | Tree-GRPO (2509.21240) |

Entropies are on the scale of `entropy.entropy_level`, in the reference rows on that of `entropy.segment_entropy`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

ROSE = "entropy rose"
ABOVE, NOT_ABOVE = "score above threshold", "score not above threshold"
DRAWN, NOT_DRAWN = "drawn", "not drawn"
NO_DOUBT = "next to no entropy left"
NO_DOUBT_LEVEL = 0.02  # 0.012 nats per token: two samples of 20 tokens are equal with a probability of about 0.8


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
        """Slope of AEPO's penalty."""


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
        published: whether measure, order and top-up are those of the published engine: the turn *before* the result is
            measured, by the sum of its entropies, against the first turn of the same path; points are decided in the
            order of rounds and trajectory numbers; missing trajectories are added one per round, and may branch.
        best: whether points wait until all paths have ended, and those with the highest scores get the budget.
        penalised: whether c counts the rounds in which the prompt got a new trajectory.
        quota: whether, without a `branch_quota`, a root and its descendants get at most ceil((M - N) / N) branches.
    """

    score: BranchFunction
    published: bool = False
    best: bool = False
    penalised: bool = False
    quota: bool = True


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
    score = _arpo(point, settings)
    # a branch from a nearly deterministic point repeats the original and only costs budget
    settled = score.branch and point.entropy < NO_DOUBT_LEVEL
    return replace(score, branch=False, why=NO_DOUBT) if settled else score


def _random(point: Point, settings: BranchSettings) -> Score:
    # true with probability alpha, and written so that high scores branch, as with the rules that use entropy
    return _drawn(point.uniform, 1.0 - settings.branch_alpha, point.uniform >= 1.0 - settings.branch_alpha)


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
    "aepo": BranchMethod(_aepo),
    "arpo-ranked": BranchMethod(_arpo_ranked, best=True),
    "random": BranchMethod(_random),
    "arpo-reference": BranchMethod(_arpo_reference, published=True, quota=False),
    "aepo-reference": BranchMethod(_aepo_reference, published=True, penalised=True, quota=False),
    "tree-grpo": BranchMethod(_tree_grpo, best=True, quota=False),
}


def chain_length(steps: list[bool]) -> int:
    """Return l of a chain: the number of consecutive high-entropy tool steps at its end (AEPO)."""
    length = 0
    while length < len(steps) and steps[-1 - length]:
        length += 1
    return length
