"""What the tokens of rollout trees were really worth, and what a way of giving credit says they were.

`true_credit` looks up the true advantage of every token that was sampled (see `exact_values`). `given_credit` computes
what the trainer would give: batch advantages, credit over the tree, weights of copies and the factor of the entropy. A
token that several trajectories share is one token here. Its copies are pooled as the loss pools them: their advantages
times their weights add up to its *push*, their weights to its *weight*, and push / weight is the advantage that the
method gives it. So "soft" and "hard", which have the same gradient, are the same here, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy
import torch

from arpo_trainer.algorithms.advantages import batch_advantages
from arpo_trainer.algorithms.credit import CREDITS, token_advantages
from arpo_trainer.training.rollout_batch import entropy_factor, tree_moments
from arpo_trainer.tree import RolloutTree
from benchmarks.laboratory.exact_values import ExactValues
from benchmarks.laboratory.turn_policy import Floats, Ids

NOTHING = 0.005  # a choice is worth nothing if none of its likely tokens is worth more
_LIKELY = 0.01


@dataclass
class TrueCredit:
    """The sampled tokens of one tree whose worth is known, one entry each; calls and answers are turns.

    Attributes:
        spans: span of each token.
        places: its place in the span.
        advantages: its true advantage.
        worthless: whether it was a choice between several likely tokens of which none is worth anything.
        cells: history, turn so far, and token: what it was that was sampled.
        unknown: number of tokens of the model whose worth is not known.
    """

    spans: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    advantages: list[float] = field(default_factory=list)
    worthless: list[bool] = field(default_factory=list)
    cells: list[tuple[Ids, Ids, int]] = field(default_factory=list)
    unknown: int = 0


def true_credit(tree: RolloutTree, values: ExactValues) -> TrueCredit:
    """Return the true advantages of the tokens of a tree."""
    found = TrueCredit()
    histories: list[Ids] = []
    for span in tree.spans:  # parents come first
        before = tuple(tree.prompt_ids) if span.parent is None else histories[span.parent]
        histories.append(before + tuple(span.ids))
        if span.kind != "model":
            continue
        advantages = values.advantages(before, span.ids)
        if advantages is None:
            found.unknown += len(span.ids)
            continue
        found.spans += [span.index] * len(span.ids)
        found.places += range(len(span.ids))
        found.advantages += advantages
        for place, token in enumerate(span.ids):
            prefix = tuple(span.ids[:place])
            found.worthless.append(_worthless(values, before, prefix))
            found.cells.append((before, prefix, token))
    return found


def _worthless(values: ExactValues, history: Ids, prefix: Ids) -> bool:
    choices = next_tokens(values, history, prefix)
    likely = [advantage for share, advantage in choices.values() if share > _LIKELY]
    return len(likely) > 1 and max(map(abs, likely)) < NOTHING


def next_tokens(values: ExactValues, history: Ids, prefix: Ids) -> dict[int, tuple[float, float]]:
    """Return the tokens that may follow within a turn: token -> (probability, true advantage)."""
    state, known = values.states[history], values.prefix_values(history)
    found: dict[int, tuple[float, float]] = {}
    for turn, shares in zip(values.turns, state.probabilities, strict=True):
        after = turn.ids[: len(prefix) + 1]
        if turn.ids[: len(prefix)] == prefix and after in known:
            found[after[-1]] = (float(shares[len(prefix)]), known[after] - known[prefix])
    return found


@dataclass
class GivenCredit:
    """What a method gives to each span of a tree, or to each token of it.

    Attributes:
        pushes: for each span and each of its tokens, the sum over copies of weight times advantage.
        weights: for each span, the sum over copies of their weights.
    """

    pushes: list[Floats]
    weights: list[float]

    def of(self, true: TrueCredit) -> tuple[Floats, Floats]:
        """Return pushes and weights of the tokens of `true`."""
        pairs = zip(true.spans, true.places, strict=True)
        pushes = numpy.array([self.pushes[span][place] for span, place in pairs])
        return pushes, numpy.array([self.weights[span] for span in true.spans])


def given_credit(trees: Sequence[RolloutTree], advantage: str, attribution: str, args: Any) -> list[GivenCredit]:
    """Return what the trainer would give to the tokens of each tree of a batch.

    Args:
        trees: the batch.
        advantage: one of `advantages.ADVANTAGES`.
        attribution: one of `credit.CREDITS`.
        args: `entropy_weight` and `entropy_limit` of an `ARPOConfig`; None for no factor of the entropy.
    """
    lengths = [[sum(tree.row(number).mask) for number in range(len(tree.trajectories))] for tree in trees]
    groups = batch_advantages(advantage, [tree.rewards for tree in trees], lengths, [tree.starts() for tree in trees])
    moments = tree_moments(trees) if args is not None and args.entropy_weight else None
    found = []
    for tree, group in zip(trees, groups, strict=True):
        given = _pooled(tree, token_advantages(tree, group, attribution), attribution)
        if moments:
            for span, pushes in zip(tree.spans, given.pushes, strict=True):
                if span.kind == "model":
                    entropies = torch.tensor(span.entropies)
                    factor = entropy_factor(entropies, moments, args.entropy_weight, args.entropy_limit)
                    pushes *= factor.numpy()
        found.append(given)
    return found


def _pooled(tree: RolloutTree, rows: Sequence[Sequence[float]], attribution: str) -> GivenCredit:
    weigh = CREDITS[attribution].weights
    weights = weigh(tree) if weigh else None
    given = GivenCredit([numpy.zeros(len(span.ids)) for span in tree.spans], [0.0] * len(tree.spans))
    for number, row in enumerate(rows):
        first = 0
        for place, span in enumerate(tree.path(number) if tree.trajectories[number].valid else ()):
            given.pushes[span.index] += row[first : first + len(span.ids)]
            given.weights[span.index] += weights[number][place] if weights else 1.0
            first += len(span.ids)
    return given
