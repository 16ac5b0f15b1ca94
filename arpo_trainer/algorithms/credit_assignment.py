"""The third decision, second half: from one advantage per trajectory to one per token, over the tree.

| name | advantage of a token that several trajectories share, in each copy |
|---|---|
| soft | that of the copy's own trajectory: plain GRPO (ARPO, sec. 3.2; the default there) |
| hard | the mean over the trajectories through it (ARPO, sec. 3.2) |
| dedup | that mean over the number of copies: a shared token weighs once (see `deduplication_scale`) |
| turn | the value backed up turn by turn, each next turn counting the same |
| at2po | the same, with the next turns weighted by their entropy (AT2PO, arXiv 2601.04767, eq. 3, with A_n = V_n) |

Summed over copies, soft and hard give the same gradient as long as nothing is clipped. "hard" counts leaves and "turn"
counts next turns, so that a branch with many leaves does not outweigh its siblings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, get_args

from arpo_trainer.tree import RolloutTree, Span
from arpo_trainer.validation import check_name

Attribution = Literal["soft", "hard", "dedup", "turn", "at2po"]
ATTRIBUTIONS: tuple[str, ...] = get_args(Attribution)


def span_advantages(tree: RolloutTree, advantages: Sequence[float]) -> list[float]:
    """Return for each span the mean advantage of the valid trajectories through it (hard attribution).

    Args:
        tree: with G trajectories.
        advantages: of each trajectory, shape (G,).

    Returns:
        Shape (spans,); 0 where no valid trajectory passes.
    """
    return [
        math.fsum(advantages[number] for number in through) / len(through) if through else 0.0
        for through in _valid_below(tree)
    ]


def shared_once(tree: RolloutTree, advantages: Sequence[float]) -> list[float]:
    """Return the hard advantage divided by the number of valid copies, so that a token counts once in the sum.

    Args:
        tree: with G trajectories.
        advantages: of each trajectory, shape (G,).

    Returns:
        Shape (spans,); 0 where no valid trajectory passes.
    """
    means = span_advantages(tree, advantages)
    return [mean / max(1, len(through)) for mean, through in zip(means, _valid_below(tree), strict=True)]


def turn_values(tree: RolloutTree, advantages: Sequence[float], by_entropy: bool = False) -> list[float]:
    """Return V of each span: the advantage of its trajectory at a leaf, elsewhere the mean over what comes next.

    Args:
        tree: with G trajectories.
        advantages: of each trajectory, shape (G,).
        by_entropy: weigh the next turns by their entropy, estimated as the mean of minus log pi over their tokens
            (AT2PO, eq. 2 and 3), instead of equally. A trajectory that ends where others go on has no next turn; its
            weight is the average of theirs.

    Returns:
        Shape (spans,); 0 where no valid trajectory passes.
    """
    values = [0.0] * len(tree.spans)
    following: list[list[tuple[float | None, float]]] = [[] for _ in tree.spans]
    for trajectory, advantage in zip(tree.trajectories, advantages, strict=True):
        if trajectory.valid:
            following[trajectory.leaf].append((None, advantage))  # no next turn, so no weight of its own
    for span in reversed(tree.spans):  # children come after their parents
        if following[span.index]:
            values[span.index] = _weighted_mean(following[span.index])
            if span.parent is not None:
                # results have no log-probabilities, and so no weight of their own
                weight = _entropy(span) if by_entropy else None
                following[span.parent].append((weight, values[span.index]))
    return values


def token_advantages(tree: RolloutTree, advantages: Sequence[float], attribution: Attribution) -> list[list[float]]:
    """Return an advantage for every token of every trajectory; those of environment tokens are masked later.

    Args:
        tree: with G trajectories.
        advantages: of each trajectory, shape (G,).
        attribution: one of `ATTRIBUTIONS`.

    Returns:
        G lists, each as long as its trajectory's row; 0 in the rows of invalid trajectories.

    Raises:
        ValueError: the attribution is unknown (suggests the nearest), or there is not one advantage per trajectory.
    """
    check_name("attribution", attribution, ATTRIBUTIONS)
    if len(advantages) != len(tree.trajectories):
        raise ValueError(f"got {len(advantages)} advantages for {len(tree.trajectories)} trajectories")
    # "soft" has no entry: each copy of a token has the advantage of its own trajectory
    spans = _SPANS[attribution](tree, advantages) if attribution in _SPANS else None
    rows = []
    for number, own in enumerate(advantages):
        valid = tree.trajectories[number].valid
        rows.append([(own if spans is None else spans[i]) if valid else 0.0 for i in tree.row(number).span])
    return rows


def deduplication_scale(trees: Sequence[RolloutTree]) -> float:
    """Return copied / unique tokens of the model, over the valid trajectories of the global batch.

    A token mean divides by the copied tokens; "dedup" advantages times this factor make it a mean over unique tokens.
    It is needed where the loss divides by all tokens of the batch (TRL's "dapo", "cispo"), and not where it divides by
    the tokens of a row ("grpo") or a constant ("dr_grpo"). In "bnpo", which divides by the tokens of a micro-batch, it
    is right on average.
    """
    copied = unique = 0
    for tree in trees:
        for span, through in zip(tree.spans, _valid_below(tree), strict=True):
            if span.kind == "model" and through:
                copied += len(span.ids) * len(through)
                unique += len(span.ids)
    return copied / unique if unique else 1.0


_SPANS: dict[str, Callable[[RolloutTree, Sequence[float]], list[float]]] = {
    "hard": span_advantages,
    "dedup": shared_once,
    "turn": turn_values,
    "at2po": lambda tree, advantages: turn_values(tree, advantages, by_entropy=True),
}


def _valid_below(tree: RolloutTree) -> list[list[int]]:
    return [[number for number in through if tree.trajectories[number].valid] for through in tree.leaves_below()]


def _entropy(span: Span) -> float | None:
    """Return the mean of minus log pi, in nats per token; None for spans of the environment."""
    return -math.fsum(span.logprobs) / len(span.logprobs) if span.logprobs else None


def _weighted_mean(pairs: Sequence[tuple[float | None, float]]) -> float:
    known = [weight for weight, _ in pairs if weight is not None]
    usual = math.fsum(known) / len(known) if known else 1.0
    weights = [usual if weight is None else weight for weight, _ in pairs]
    if math.fsum(weights) <= 0.0:  # all turns are certain: no weights to prefer one
        weights = [1.0] * len(pairs)
    return math.fsum(w * value for w, (_, value) in zip(weights, pairs, strict=True)) / math.fsum(weights)
