"""Token entropy and what is made of it. The one place where entropies are estimated, windowed and normalised."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

import torch

REFERENCE_WINDOW = 20
REFERENCE_TOP = 10
REFERENCE_VOCABULARY = 151_665  # entries of the tokenizer of Qwen2.5, which the published runs used
ENTROPY_UNIT = math.log(REFERENCE_VOCABULARY) / REFERENCE_WINDOW  # 0.596 nats a token
Estimator = Literal["exact", "renormalised", "tail", "nll", "raw10"]
ESTIMATORS: tuple[str, ...] = get_args(Estimator)


def token_entropy(logits: torch.Tensor, temperature: float = 1.0) -> torch.Tensor:
    """Return the entropy of softmax(logits / temperature) over the whole vocabulary (ARPO, eq. 3).

    Args:
        logits: shape (..., vocabulary); minus infinity for a token that cannot be.
        temperature: above 0.

    Returns:
        Nats, shape (...).
    """
    logprobs = torch.log_softmax(logits.float() / temperature, dim=-1)
    entropies: torch.Tensor = torch.special.entr(logprobs.exp()).sum(-1)
    return entropies


def estimated_entropy(top: Sequence[float], sampled: float, estimator: str = "renormalised") -> float:
    """Return an estimate of a token's entropy from the log-probabilities that an engine hands out.

    Args:
        top: of the most likely tokens, in descending order, shape (k,); 20 are customary.
        sampled: of the token that was drawn, whether or not it is among them.
        estimator: "renormalised" (entropy of the top k alone, ours), "tail" (all other tokens as one), "nll" (minus
            the drawn token's log-probability: right on average, needs no `top`), "raw10" (the published code: top 10
            and the drawn token, not renormalised).

    Returns:
        Nats.

    Raises:
        ValueError: "exact", or an unknown name; or no `top` where it is needed.
    """
    if estimator == "nll":
        return -sampled
    if estimator not in ESTIMATORS or estimator == "exact" or not top:
        raise ValueError(f"estimator {estimator!r} with {len(top)} log-probabilities: take one of {ESTIMATORS[1:]}, "
                         "with at least one")  # fmt: skip
    if estimator == "raw10":
        first = list(top[:REFERENCE_TOP])
        return _plain([*first, sampled] if sampled not in first else first)
    mass = math.fsum(map(math.exp, top))
    inside = _plain(top)
    if estimator == "renormalised":
        return inside / mass + math.log(mass)
    rest = max(0.0, 1.0 - mass)
    return inside - (rest * math.log(rest) if rest else 0.0)


def _plain(logprobs: Sequence[float]) -> float:
    """Return the sum of -p log p, to which a token that cannot be adds nothing."""
    return -math.fsum(math.exp(value) * value for value in logprobs if value != -math.inf)


def segment_entropy(
    entropies: Sequence[float],
    vocabulary: int,
    window: int = REFERENCE_WINDOW,
    reduction: Literal["mean", "sum"] = "mean",
) -> float:
    """Return the entropy of the first tokens of a segment as the published code measures it, in units of ln V.

    Its value depends on the window and on the vocabulary; `entropy_level` is ours.

    Args:
        entropies: of each token, in nats, shape (n,), n >= 1.
        vocabulary: V.
        window: k, how many tokens count.
        reduction: "sum" (the published code, in which a segment shorter than the window looks certain) or "mean" (which
            does not depend on the segment's length).

    Raises:
        ValueError: an empty segment, or a window below 1.
    """
    first = entropies[:window] if window >= 1 else ()
    if not first:
        raise ValueError(f"need at least one entropy and a window >= 1, got {len(entropies)} and {window}")
    total = math.fsum(first) / math.log(vocabulary)
    return total / len(first) if reduction == "mean" else total


def entropy_level(entropies: Sequence[float], window: int = REFERENCE_WINDOW) -> float:
    """Return H of a segment on the scale of alpha, beta, tau, the penalty and the budget; 0 for an empty one.

    H = (mean nats of the first k tokens) / `ENTROPY_UNIT`, with `ENTROPY_UNIT` = ln(151,665) / 20 = 0.596 nats a token.
    The published code sums 20 tokens and divides by ln V of Qwen2.5's tokenizer. In that setting both give the same
    number; ours gives it for any window, any length of the segment and any tokenizer too. The unit is fixed because the
    entropy of a sharp distribution does not grow with the vocabulary.

    Args:
        entropies: of each token, in nats, shape (n,).
        window: k, how many tokens count.
    """
    first = entropies[:window]
    return math.fsum(first) / len(first) / ENTROPY_UNIT if first else 0.0
