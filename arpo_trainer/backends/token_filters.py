"""Sampling options that change which tokens may be drawn: top-k, top-p, min-p and the repetition penalty.

    filters = TokenFilters.of(Request((1, 2), 8, top_p=0.95, repetition_penalty=1.1))
    scores = filtered(logits, temperatures, [filters])       # unchanged where the entry is None

The order is that of transformers: penalty, temperature, top-k, top-p, min-p. The filters themselves are transformers'.
Its penalty takes token ids, which would have to be copied to the device for each token; here each row keeps a mask.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from transformers import LogitsProcessorList, MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from arpo_trainer.backends.base import Request

_HEAD = 512  # tokens that are sorted at first


class _TopP:
    """`TopPLogitsWarper`, without sorting the whole vocabulary where its most likely tokens have enough probability."""

    def __init__(self, top_p: float) -> None:
        self.top_p, self.warper = top_p, TopPLogitsWarper(top_p)

    def __call__(self, ids: None, scores: torch.Tensor) -> torch.Tensor:
        first = torch.softmax(scores, -1).topk(min(_HEAD, scores.shape[-1]), dim=-1)
        mass = first.values.cumsum(-1)
        if bool((mass[:, -1] < self.top_p).any()):
            made: torch.Tensor = self.warper(ids, scores)
            return made
        # a token is kept if those before it do not have enough yet; so the first one always is
        before = mass - first.values
        kept = torch.where(before < self.top_p, scores.gather(-1, first.indices), -torch.inf)
        return torch.full_like(scores, -torch.inf).scatter_(-1, first.indices, kept)


class Truncation(NamedTuple):
    """Which part of a distribution is kept; the values of `Request`."""

    top_k: int
    top_p: float
    min_p: float

    def apply(self, scores: torch.Tensor) -> torch.Tensor:
        """Return scores with minus infinity for the tokens that are left out, shape (rows, vocabulary)."""
        kept = LogitsProcessorList()
        if self.top_k:
            kept.append(TopKLogitsWarper(self.top_k))
        if self.top_p < 1:
            kept.append(_TopP(self.top_p))
        if self.min_p:
            kept.append(MinPLogitsWarper(self.min_p))
        made: torch.Tensor = kept(None, scores)
        return made


@dataclass(eq=False)
class TokenFilters:
    """The filters of one request, and the tokens that its penalty is about.

    Attributes:
        truncation: what is kept; at temperature 0 nothing is left out, since the most likely token is taken.
        penalty: the repetition penalty (Keskar et al. 2019, eq. 2): logits of tokens of the context or of this turn
            are divided by it if positive, else multiplied.
        ids: the context; the ids that were drawn since are in `drawn`.
        drawn: ids of the turn so far, which the owner of the turn appends to.
    """

    truncation: Truncation
    penalty: float
    ids: Sequence[int]
    drawn: Sequence[int] = ()
    _seen: torch.Tensor | None = field(default=None, repr=False)
    _counted: int = 0

    @classmethod
    def of(cls, request: Request, drawn: Sequence[int] = ()) -> TokenFilters | None:
        """Return the filters of a request, or None if it has none."""
        return None if request.unfiltered else cls(_truncation(request), request.repetition_penalty, request.ids, drawn)

    def seen(self, like: torch.Tensor) -> torch.Tensor:
        """Return which tokens have occurred, shape (vocabulary,), on the device of `like`."""
        if self._seen is None:
            self._seen = torch.zeros(like.shape[-1], dtype=torch.bool, device=like.device)
            self._seen[torch.tensor(self.ids, device=like.device)] = True
        for token in self.drawn[self._counted :]:
            self._seen[token] = True
        self._counted = len(self.drawn)
        return self._seen


def _truncation(request: Request) -> Truncation:
    given = Truncation(request.top_k, request.top_p, request.min_p)
    return given if request.temperature else Truncation(0, 1.0, 0.0)


def filtered(
    logits: torch.Tensor, temperature: torch.Tensor, filters: Sequence[TokenFilters | None]
) -> torch.Tensor | None:
    """Return the scores to draw from, or None if no row has filters.

    Args:
        logits: of the model, shape (rows, vocabulary).
        temperature: shape (rows,), none of them 0.
        filters: one per row.

    Returns:
        In float32, shape (rows, vocabulary), up to a constant per row; softmax of it is the distribution to draw from.
    """
    if not any(filters):
        return None
    scores = logits.to(torch.float32, copy=True)
    groups: dict[Truncation, list[int]] = defaultdict(list)
    for number, one in enumerate(filters):
        if one is None:
            continue
        if one.penalty != 1:
            row = scores[number]
            scores[number] = torch.where(one.seen(row), torch.where(row < 0, row * one.penalty, row / one.penalty), row)
        groups[one.truncation].append(number)
    scores /= temperature[:, None]
    for truncation, numbers in groups.items():  # rows of one run have the same values: one pass for all of them
        scores[numbers] = truncation.apply(scores[numbers])
    return scores
