"""Drawing tokens: from logits to ids, log-probabilities and entropies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch

from arpo_trainer.backends.rows import Row
from arpo_trainer.entropy import ESTIMATORS, estimated_entropy


class Drawn(NamedTuple):
    """A token, its log-probability, and its distribution's entropy in nats."""

    token: int
    logprob: float
    entropy: float


class Sampler:
    """Draws a token for each row by inverting its distribution function at the row's own random number.

    Args:
        estimator: of the entropy: "exact" over the whole vocabulary, or what an engine would make of its top tokens.
        topk: how many of the most likely tokens an estimator looks at.

    Raises:
        ValueError: an estimator that does not exist, or a `topk` below 1.
    """

    def __init__(self, estimator: str = "exact", topk: int = 20) -> None:
        if estimator not in ESTIMATORS or topk < 1:
            raise ValueError(f"estimator must be one of {ESTIMATORS} and topk >= 1, got {estimator!r} and {topk}")
        self.estimator, self.topk = estimator, topk

    def controls(self, rows: Iterable[Row], device: torch.device) -> torch.Tensor:
        """Return temperatures and fresh random numbers, shape (2, rows); make it before the model runs."""
        return torch.tensor([[row.request.temperature, row.rng.random()] for row in rows], device=device).T

    def draw(self, logits: torch.Tensor, controls: torch.Tensor) -> list[Drawn]:
        """Draw a token for each row, and bring everything to the host in one go.

        Args:
            logits: shape (rows, vocabulary).
            controls: temperatures and random numbers, shape (2, rows); at temperature 0 the most likely token is
                taken, and the numbers are those of temperature 1.
        """
        temperature, random = controls[0], controls[1]
        greedy = temperature == 0
        logprobs = torch.log_softmax(logits.float() / temperature.masked_fill(greedy, 1)[:, None], dim=-1)
        probabilities = logprobs.exp()
        tokens = torch.where(greedy, logprobs.argmax(-1), _invert(probabilities, random))
        columns = [tokens[:, None].float(), logprobs.gather(-1, tokens[:, None])]  # floats are exact to 2**24
        if self.estimator == "exact":
            columns.append(torch.special.entr(probabilities).sum(-1, keepdim=True))
        elif self.estimator != "nll":
            columns.append(logprobs.topk(min(self.topk, logprobs.shape[-1]), dim=-1).values)
        return [self._drawn(*numbers) for numbers in torch.cat(columns, dim=-1).tolist()]

    def _drawn(self, token: float, logprob: float, *rest: float) -> Drawn:
        if self.estimator == "exact":
            return Drawn(int(token), logprob, rest[0])
        return Drawn(int(token), logprob, estimated_entropy(rest, logprob, self.estimator))


def _invert(probabilities: torch.Tensor, random: torch.Tensor) -> torch.Tensor:
    """Return where the distribution function passes the random number, shape (rows,)."""
    cumulative = probabilities.cumsum(-1)
    total = cumulative[:, -1:]
    below = torch.minimum(random[:, None] * total, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(cumulative, below, right=True).squeeze(-1)
