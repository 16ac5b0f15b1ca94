"""Drawing tokens: from logits to ids, log-probabilities and entropies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import LogitsProcessorList, MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from arpo_trainer.algorithms.branching import ESTIMATORS, estimated_entropy
from arpo_trainer.backends.base import Request

# Sampling options that change which tokens may be drawn: top-k, top-p, min-p and the repetition penalty.
#
# The order is that of transformers: penalty, temperature, top-k, top-p, min-p. The filters themselves are
# transformers'. Its penalty takes token ids, which would have to be copied to the device for each token; here each row
# keeps a mask.

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

    The repetition penalty is that of Keskar et al. (2019), eq. 2: logits of tokens of the context or of this turn are
    divided by it if positive, else multiplied. At temperature 0 nothing is truncated, since the most likely token is
    taken.
    """

    truncation: Truncation
    penalty: float
    ids: Sequence[int]  # the context
    drawn: Sequence[int] = ()  # the turn so far, which its owner appends to
    _seen: torch.Tensor | None = field(default=None, repr=False)
    _counted: int = 0

    @classmethod
    def of(cls, request: Request, drawn: Sequence[int] = ()) -> TokenFilters | None:
        """Return the filters of a request, or None if it has none."""
        if request.unfiltered:
            return None
        kept = (request.top_k, request.top_p, request.min_p) if request.temperature else (0, 1.0, 0.0)
        return cls(Truncation(*kept), request.repetition_penalty, request.ids, drawn)

    def seen(self, like: torch.Tensor) -> torch.Tensor:
        """Return which tokens have occurred, shape (vocabulary,), on the device of `like`."""
        if self._seen is None:
            self._seen = torch.zeros(like.shape[-1], dtype=torch.bool, device=like.device)
            self._seen[torch.tensor(self.ids, device=like.device)] = True
        for token in self.drawn[self._counted :]:
            self._seen[token] = True
        self._counted = len(self.drawn)
        return self._seen


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


_TOGETHER = 2**18  # logits
# of a hash of 32 bits with little bias: shifts and odd factors (Wellons, "Prospecting for hash functions", 2018)
_FIRST, _SECOND = (0x7FEB352D, 16), (0x846CA68B - 2**32, 15)


class Drawn(NamedTuple):
    """A token, its log-probability, and its distribution's entropy in nats; both before any filters."""

    token: int
    logprob: float
    entropy: float


class Chances(NamedTuple):
    """What the draw of each row depends on beside its logits, on the device of the model."""

    temperature: torch.Tensor  # shape (rows,); at 0 the most likely token is taken, and the numbers are those of 1
    keys: torch.Tensor | None  # of random numbers, two words each, int32, shape (2, rows, 1); None if no row needs any

    @classmethod
    def of(
        cls,
        temperatures: Sequence[float],
        seeds: Sequence[int],
        positions: Sequence[int],
        device: torch.device | str = "cpu",
    ) -> Chances:
        """Make the keys from the seeds' lowest 64 bits and the positions, and copy all to the device at once."""
        heat = np.array(temperatures, dtype=np.float32)
        first = _mixed(np.array([int(seed) % 2**64 for seed in seeds], dtype=np.uint64))
        keys = _mixed(first + np.array(positions, dtype=np.uint64)).view(np.int32).reshape(-1, 2)
        words = torch.from_numpy(np.stack([heat.view(np.int32), *keys.T])).to(device)
        return cls(words[0].view(torch.float32), words[1:, :, None] if heat.any() else None)


class Sampler:
    """Draws a token for each row with random numbers of the row.

    The random number of a token is a function of the row's seed, its position and the token. So it depends neither on
    the batch nor on the device, and one row costs as many operations as all. The token with the highest ratio of
    probability and random number is taken; with exponential numbers that is a draw from the distribution (Gumbel-max,
    without the logarithm). So rounding in the model changes a token only where two ratios are nearly equal. Inverting
    the distribution function would change one token in 400 (measured: 49152 tokens, rounding of 1e-5).

    The memory it takes is up to 12 bytes for each logit, beside the logits themselves.

    Args:
        estimator: of the entropy: "exact" over the whole vocabulary, or an estimate from the top tokens.
        topk: number of most likely tokens that an estimator uses.

    Raises:
        ValueError: the estimator does not exist, or `topk` is below 1.
    """

    def __init__(self, estimator: str = "exact", topk: int = 20) -> None:
        if estimator not in ESTIMATORS or topk < 1:
            raise ValueError(f"estimator must be one of {ESTIMATORS} and topk >= 1, got {estimator!r} and {topk}")
        self.estimator, self.topk = estimator, topk
        self._tokens = torch.empty(0, dtype=torch.int32)

    def draw(self, logits: torch.Tensor, chances: Chances, filters: Sequence[TokenFilters | None] = ()) -> list[Drawn]:
        """Draw a token for each row, and copy all results to the host at once.

        Args:
            logits: shape (rows, vocabulary).
            chances: of the rows.
            filters: one per row, or none at all. They decide which token is drawn; its log-probability and entropy
                stay those of the whole distribution.
        """
        # on a CPU a few rows at a time, so that what they are computed with stays in its cache
        together = max(1, _TOGETHER // logits.shape[-1])
        if logits.device.type != "cpu" or len(logits) <= together:
            return self._draw(logits, chances, filters)
        drawn: list[Drawn] = []
        for start in range(0, len(logits), together):
            some = slice(start, start + together)
            keys = None if chances.keys is None else chances.keys[:, some]
            drawn += self._draw(logits[some], Chances(chances.temperature[some], keys), filters[some])
        return drawn

    def _draw(self, logits: torch.Tensor, chances: Chances, filters: Sequence[TokenFilters | None]) -> list[Drawn]:
        greedy = chances.temperature == 0
        warmth = chances.temperature.masked_fill(greedy, 1)
        # first, while there is nothing else: it takes most memory
        noise = None if chances.keys is None else self._exponential(logits, chances.keys)
        logprobs = torch.log_softmax(logits / warmth[:, None], dim=-1)  # in float32 at least, like the temperatures
        probabilities = logprobs.exp()
        kept = filtered(logits, warmth, filters)
        ratios = probabilities if kept is None else torch.softmax(kept, -1)
        if noise is not None:
            ratios = torch.div(ratios, noise.masked_fill_(greedy[:, None], 1), out=noise)
        tokens = ratios.argmax(-1, keepdim=True)
        columns = [tokens.float(), logprobs.gather(-1, tokens)]  # floats are exact to 2**24
        if self.estimator == "exact":
            # what is less likely has probability 0 in float32, and 0 times minus infinity is no number
            columns.append(-probabilities.mul_(logprobs.clamp_(min=-1000)).sum(-1, keepdim=True))
        elif self.estimator != "nll":
            columns.append(logprobs.topk(min(self.topk, logprobs.shape[-1]), dim=-1).values)
        return [self._drawn(*numbers) for numbers in torch.cat(columns, dim=-1).tolist()]

    def _drawn(self, token: float, logprob: float, *rest: float) -> Drawn:
        if self.estimator == "exact":
            return Drawn(int(token), logprob, rest[0])
        return Drawn(int(token), logprob, estimated_entropy(rest, logprob, self.estimator))

    def _exponential(self, like: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        """Return exponential random numbers in the shape of `like`, in float32.

        The smallest ones decide. They are made from whole numbers of 31 bits, which float32 resolves near 0, so that
        tokens down to a probability of about 1e-10 are drawn as often as they should.
        """
        size, device = like.shape[-1], like.device
        if len(self._tokens) != size or self._tokens.device != device:
            # scrambled before the keys come in, or keys that are close would give the same numbers to other tokens
            tokens = np.arange(size, dtype=np.int32)
            self._tokens = torch.from_numpy(_scrambled(_scrambled(tokens, *_FIRST), *_SECOND)).to(device)
        bits: torch.Tensor = _scrambled(self._tokens ^ keys[0], *_FIRST)
        bits ^= keys[1]
        bits = _scrambled(bits, *_SECOND)
        bits &= 2**31 - 1
        # u = (bits + 1/2) / 2^31 is uniform between 0 and 1, and -log(1 - u) exponential. It must be finite also where
        # bits are rounded to 2^31: else a token that is the only possible one would have the ratio 0.
        return bits.float().add_(0.5).mul_(-(2.0**-31 - 2.0**-55)).log1p_().neg_()


def _scrambled(words: Any, factor: int, shift: int) -> Any:
    """Change words of 32 bits, a tensor or an array of int32, one to one, in place."""
    words *= factor  # overflows as it should
    high = words >> shift
    high &= 2 ** (32 - shift) - 1  # the shift has filled up with the sign
    words ^= high
    return words


def _mixed(words: Any) -> Any:
    """Return words of 64 bits that look random, of any different ones, shape (n,), uint64 (SplitMix64's finaliser)."""
    words = (words + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
    words = (words ^ (words >> 30)) * 0xBF58476D1CE4E5B9
    words = (words ^ (words >> 27)) * 0x94D049BB133111EB
    return words ^ (words >> 31)
