"""Values of spans from the advantages of trajectories, and where the valid trajectories of a tree part.

A credit method needs three things of a tree: the mean over the leaves below a span (`span_advantages`), the value
backed up turn by turn (`turn_values`), and the forks (`Forks`). Invalid trajectories are part of none of them.

Both kinds of value are means with weights that add up to 1, so a constant that is added to all advantages is added to
all values: differences of values are the same for rewards and for advantages, up to the scale of the advantages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from arpo_trainer.tree import RolloutTree, Span

State = int | None
"""What has happened up to the end of a span; None is the prompt."""


def valid_leaves(tree: RolloutTree) -> list[list[int]]:
    """Return for each span the valid trajectories through it."""
    return [[number for number in through if tree.trajectories[number].valid] for through in tree.leaves_below()]


def span_advantages(tree: RolloutTree, advantages: Sequence[float]) -> list[float]:
    """Return for each span the mean advantage of the valid trajectories through it (hard attribution).

    Args:
        tree: with G trajectories.
        advantages: of each trajectory, shape (G,).

    Returns:
        Shape (spans,); 0 where no valid trajectory passes.
    """
    return [mean([advantages[number] for number in through]) for through in valid_leaves(tree)]


def turn_values(tree: RolloutTree, advantages: Sequence[float], by_entropy: bool = False) -> list[float]:
    """Return V of each span: the advantage of its trajectory at a leaf, elsewhere the mean over what comes next.

    Args:
        tree: with G trajectories.
        advantages: of each trajectory, shape (G,).
        by_entropy: weigh the next turns by exp(H) / sum exp(H), with their entropy H estimated as the mean of minus
            log pi over their tokens (AT2PO; the form is that of its published code, `child_softmax`), instead of
            equally. A trajectory that ends where others go on has no next turn; its H is the mean of theirs.

    Returns:
        Shape (spans,); 0 where no valid trajectory passes.
    """
    values = [0.0] * len(tree.spans)
    following: list[list[tuple[float | None, float]]] = [[] for _ in tree.spans]
    for trajectory, advantage in zip(tree.trajectories, advantages, strict=True):
        if trajectory.valid:
            following[trajectory.leaf].append((None, advantage))  # no next turn, so no entropy
    for span in reversed(tree.spans):  # children come after their parents
        if following[span.index]:
            values[span.index] = _weighted_mean(following[span.index])
            if span.parent is not None:
                # results have no log-probabilities, and so no entropy
                entropy = _entropy(span) if by_entropy else None
                following[span.parent].append((entropy, values[span.index]))
    return values


@dataclass
class Forks:
    """Where the valid trajectories of a tree part.

    What follows a state are *sisters*: the spans below it through which a valid trajectory passes, and the valid
    trajectories that end there. A trajectory that goes on past a fork is a sister of the branches that leave there.

    Attributes:
        spans: the spans that follow a state.
        ends: the valid trajectories that end at a state.
    """

    spans: dict[State, list[int]] = field(default_factory=dict)
    ends: dict[State, list[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, tree: RolloutTree) -> Forks:
        """Return the forks of a tree."""
        forks = cls()
        for span, through in zip(tree.spans, valid_leaves(tree), strict=True):
            if through:
                forks.spans.setdefault(span.parent, []).append(span.index)
        for number, trajectory in enumerate(tree.trajectories):
            if trajectory.valid:
                forks.ends.setdefault(trajectory.leaf, []).append(number)
        return forks

    def count(self, state: State) -> int:
        """Return the number of sisters that follow a state."""
        return len(self.spans.get(state, ())) + len(self.ends.get(state, ()))

    def following(
        self, state: State, values: Sequence[float], advantages: Sequence[float], apart: int | None = None
    ) -> list[float]:
        """Return the values of the sisters that follow a state.

        Args:
            state: the state.
            values: of each span.
            advantages: of each trajectory.
            apart: a span that is left out.
        """
        below = [values[index] for index in self.spans.get(state, ()) if index != apart]
        return below + [advantages[number] for number in self.ends.get(state, ())]

    def segment_starts(self, tree: RolloutTree) -> list[int]:
        """Return for each span the first span of its segment: the spans in a row between two forks."""
        starts: list[int] = []
        for span in tree.spans:  # parents come first
            continues = span.parent is not None and self.count(span.parent) == 1
            starts.append(starts[span.parent] if continues and span.parent is not None else span.index)
        return starts


def mean(values: Sequence[float]) -> float:
    """Return the mean; 0 without values."""
    return math.fsum(values) / len(values) if values else 0.0


def _entropy(span: Span) -> float | None:
    """Return the mean of minus log pi, in nats per token; None for spans of the environment."""
    return -math.fsum(span.logprobs) / len(span.logprobs) if span.logprobs else None


def _weighted_mean(pairs: Sequence[tuple[float | None, float]]) -> float:
    """Return the mean of values, weighted by the softmax of their entropies."""
    known = [entropy for entropy, _ in pairs if entropy is not None]
    usual = mean(known)
    weights = [math.exp((usual if entropy is None else entropy) - max(known, default=0.0)) for entropy, _ in pairs]
    return math.fsum(w * value for w, (_, value) in zip(weights, pairs, strict=True)) / math.fsum(weights)
