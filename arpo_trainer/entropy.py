"""Token entropy and what is made of it. The one place where entropies are windowed and normalised."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch

REFERENCE_WINDOW = 20


def token_entropy(logits: torch.Tensor, temperature: float = 1.0) -> torch.Tensor:
    """Return the entropy of softmax(logits / temperature) over the whole vocabulary (ARPO, eq. 1).

    Args:
        logits: shape (..., vocabulary).
        temperature: above 0.

    Returns:
        Nats, shape (...).
    """
    logprobs = torch.log_softmax(logits.float() / temperature, dim=-1)
    return -(logprobs.exp() * logprobs).sum(-1)


def segment_entropy(
    entropies: Sequence[float],
    vocabulary: int,
    window: int = REFERENCE_WINDOW,
    reduction: Literal["mean", "sum"] = "mean",
) -> float:
    """Return the entropy of the first tokens of a segment, in units of ln V.

    Args:
        entropies: of each token, in nats, shape (n,), n >= 1.
        vocabulary: V.
        window: k, how many tokens count.
        reduction: "mean" (ours: does not depend on the segment's length) or "sum" (the published code, in which a
            segment shorter than the window looks certain).

    Raises:
        ValueError: an empty segment, or a window below 1.
    """
    first = entropies[:window] if window >= 1 else ()
    if not first:
        raise ValueError(f"need at least one entropy and a window >= 1, got {len(entropies)} and {window}")
    total = math.fsum(first) / math.log(vocabulary)
    return total / len(first) if reduction == "mean" else total
