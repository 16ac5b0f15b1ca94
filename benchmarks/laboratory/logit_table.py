"""Policy gradients in a table of logits: the exact one, and what a way of giving credit makes of a few groups.

The table adds theta[o, p, t] to the logit of token t, where o is what was seen last (the prompt or the last result) and
p the part of the turn that is already written. It is 0 for the policy itself. Its rows are the rooms as the policy sees
them, so that tasks share what can be learned from one for another. With d(h) the probability of reaching history h,

    exact      g[o, p, t] = sum_h d(h) pi(p | h) pi(t | h p) A(h p, t)          over histories h that end with o
    estimated  g[o, p, .] = sum over sampled tokens of push * (e_t - pi(. | h p))

The first is the gradient of the expected reward. The second is that of the loss at ratio 1 up to a factor. Their cosine
says how much of a step goes where it should; it is 1 for an unbiased method and infinitely many groups.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy

from arpo_trainer.tree import RolloutTree
from benchmarks.laboratory.credit_errors import Floats
from benchmarks.laboratory.exact_values import ExactValues
from benchmarks.laboratory.true_credit import TrueCredit, next_tokens
from benchmarks.laboratory.turn_policy import Ids

Entry = tuple[Ids, Ids, int]


@dataclass
class LogitTable:
    """Numbers the entries of the table as they occur.

    Attributes:
        entries: number of each (seen last, turn so far, token).
    """

    entries: dict[Entry, int] = field(default_factory=dict)
    _choices: dict[tuple[int, Ids, Ids], dict[int, float]] = field(default_factory=dict)

    def exact(self, values: ExactValues, seen: dict[Ids, Ids]) -> dict[int, float]:
        """Return the gradient of a task's expected reward.

        Args:
            values: of the task.
            seen: for each history what was seen last.
        """
        gradient: dict[int, float] = {}
        for history, state in values.states.items():
            reached = _prefixes(values, history)
            for prefix, share in reached.items():
                for token, (chance, advantage) in next_tokens(values, history, prefix).items():
                    number = self._number((seen[history], prefix, token))
                    gradient[number] = gradient.get(number, 0.0) + state.reach * share * chance * advantage
        return gradient

    def estimated(
        self, tree: RolloutTree, true: TrueCredit, pushes: Floats, values: ExactValues, task: int
    ) -> dict[int, float]:
        """Return the gradient that the pushes on the tokens of `true` make."""
        gradient: dict[int, float] = {}
        seen = {
            span.index: tuple(tree.prompt_ids if span.parent is None else tree.spans[span.parent].ids)
            for span in tree.spans
        }
        for span, push, (history, prefix, token) in zip(true.spans, pushes, true.cells, strict=True):
            if not push:
                continue
            for other, chance in self._likely(values, task, history, prefix).items():
                number = self._number((seen[span], prefix, other))
                gradient[number] = gradient.get(number, 0.0) + float(push) * ((other == token) - chance)
        return gradient

    def dense(self, gradients: Sequence[dict[int, float]]) -> Floats:
        """Return gradients as rows, shape (gradients, entries)."""
        rows = numpy.zeros((len(gradients), len(self.entries)))
        for row, gradient in zip(rows, gradients, strict=True):
            row[list(gradient)] = list(gradient.values())
        return rows

    def _number(self, entry: Entry) -> int:
        return self.entries.setdefault(entry, len(self.entries))

    def _likely(self, values: ExactValues, task: int, history: Ids, prefix: Ids) -> dict[int, float]:
        key = (task, history, prefix)
        if key not in self._choices:
            choices = next_tokens(values, history, prefix)
            self._choices[key] = {token: chance for token, (chance, _) in choices.items()}
        return self._choices[key]


def last_seen(values: ExactValues) -> dict[Ids, Ids]:
    """Return for each history the ids of the last result, or the prompt."""
    found = {values.prompt: values.prompt}
    for history, state in values.states.items():
        for turn, outcome in zip(values.turns, state.outcomes, strict=True):
            for _, after in outcome.following if outcome else ():
                found[after] = after[len(history) + len(turn.ids) :]
    return found


def _prefixes(values: ExactValues, history: Ids) -> dict[Ids, float]:
    """Return the probabilities of the beginnings of turns whose next token is a choice."""
    found: dict[Ids, float] = {}
    for turn, shares in zip(values.turns, values.states[history].probabilities, strict=True):
        for length in range(len(turn.ids)):
            found[turn.ids[:length]] = float(shares[:length].prod())
    return {prefix: share for prefix, share in found.items() if prefix in values.prefix_values(history)}


def cosine(first: Floats, second: Floats) -> float:
    """Return the cosine of two vectors; 0 if one of them is 0, since such a step goes nowhere."""
    lengths = float(numpy.linalg.norm(first) * numpy.linalg.norm(second))
    return float(first @ second) / lengths if lengths else 0.0


def squared_mean(rows: Floats) -> float:
    """Return an estimate without bias of the squared length of the mean of independent rows; it may be below 0."""
    count = len(rows)
    return float((rows.sum(axis=0) ** 2).sum() - (rows**2).sum()) / (count * (count - 1)) if count > 1 else math.nan


def batch_cosines(rows: Floats, exact: Floats, groups: float) -> tuple[float, float]:
    """Return the mean cosine of batches with the exact gradient, and its standard error.

    Args:
        rows: gradients of groups, shape (groups, entries).
        exact: shape (entries,).
        groups: of a batch, on average; batches of a cost need not be whole numbers of groups.
    """
    cuts = [round(number * groups) for number in range(int(len(rows) / groups) + 1)]
    found = [cosine(rows[a:b].sum(axis=0), exact) for a, b in itertools.pairwise(cuts) if b > a]
    if not found:
        return math.nan, math.nan
    error = float(numpy.std(found, ddof=1)) / math.sqrt(len(found)) if len(found) > 1 else math.nan
    return float(numpy.mean(found)), error
