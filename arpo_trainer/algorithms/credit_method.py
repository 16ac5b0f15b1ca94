"""What a way of giving credit is: a function of the tree, and how much each copy of a token weighs.

A row of `credit_assignment.CREDITS` is a `Credit`. Most functions give a span one number for all trajectories through
it: write them as a function that returns one number per span, and lift it with `shared`.

    def halved(tree, advantages):
        return [value / 2 for value in span_advantages(tree, advantages)]

    CREDITS["halved"] = Credit(shared(halved))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from arpo_trainer.algorithms.tree_values import valid_leaves
from arpo_trainer.tree import RolloutTree

PathValues = list[list[float]]
"""For each trajectory one number per span of its path, from the prompt to its leaf."""
SpanFunction = Callable[[RolloutTree, Sequence[float]], list[float]]
CreditFunction = Callable[[RolloutTree, Sequence[float]], PathValues]
Weights = Callable[[RolloutTree], PathValues]


@dataclass(frozen=True)
class Credit:
    """One row of `CREDITS`.

    The advantage of a token is its value times its weight. What is returned for invalid trajectories is ignored.

    Attributes:
        values: from a tree and the advantage of each of its G trajectories, the advantage of each span in each
            trajectory.
        weights: how much each copy of a span counts in the sum over all rows; None where every copy counts 1. Losses
            that divide by the number of copied tokens are scaled by `weight_scale`.
        needs_answers: whether `values` reads the probability of the gold answer (`answer_credit.answer_gains`), which
            takes forward passes of the policy before credit is given.
    """

    values: CreditFunction
    weights: Weights | None = None
    needs_answers: bool = False


def on_paths(tree: RolloutTree, by_span: Sequence[float]) -> PathValues:
    """Give each trajectory the numbers of the spans on its path."""
    return [[by_span[span.index] for span in tree.path(number)] for number in range(len(tree.trajectories))]


def shared(function: SpanFunction) -> CreditFunction:
    """Lift a function that returns one number per span: all copies of the span get it."""

    def values(tree: RolloutTree, advantages: Sequence[float]) -> PathValues:
        return on_paths(tree, function(tree, advantages))

    return values


def once(tree: RolloutTree) -> PathValues:
    """Return weights with which a token counts once, however many valid trajectories share it."""
    return on_paths(tree, [1.0 / max(1, len(through)) for through in valid_leaves(tree)])
