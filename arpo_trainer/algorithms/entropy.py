"""Token entropies: the one place where they are estimated, windowed and normalised."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

REFERENCE_WINDOW = 20
REFERENCE_TOP = 10
REFERENCE_VOCABULARY = 151_665  # entries of the tokenizer of Qwen2.5, which the published runs used
ENTROPY_UNIT = math.log(REFERENCE_VOCABULARY) / REFERENCE_WINDOW  # 0.596 nats per token
Estimator = Literal["exact", "renormalised", "tail", "nll", "raw10"]
ESTIMATORS: tuple[str, ...] = get_args(Estimator)


def estimated_entropy(top: Sequence[float], sampled: float, estimator: str = "renormalised") -> float:
    """Estimate the entropy of a token from the log-probabilities that an engine returns.

    Args:
        top: log-probabilities of the most likely tokens, in descending order, shape (k,); usually 20.
        sampled: log-probability of the drawn token, which may or may not be among them.
        estimator: "renormalised" (entropy of the top k alone), "tail" (all other tokens as one), "nll" (minus the
            log-probability of the drawn token: right on average, needs no `top`), "raw10" (the published code: top 10
            and the drawn token, not renormalised).

    Returns:
        Nats.

    Raises:
        ValueError: the estimator is "exact" or unknown, or `top` is empty where it is needed.
    """
    if estimator == "nll":
        return -sampled
    if estimator not in ESTIMATORS or estimator == "exact" or not top:
        raise ValueError(
            f"estimator {estimator!r} with {len(top)} log-probabilities: use one of {ESTIMATORS[1:]} with at least one"
        )
    if estimator == "raw10":
        first = list(top[:REFERENCE_TOP])
        # tokens are not known here: an equal log-probability is taken for the same token
        return _plain([*first, sampled] if sampled not in first else first)
    mass = math.fsum(map(math.exp, top))
    inside = _plain(top)
    if estimator == "renormalised":
        # entropy of p / mass: -sum (p / mass) log(p / mass) = inside / mass + log(mass)
        return inside / mass + math.log(mass)
    rest = max(0.0, 1.0 - mass)  # rounding may put the mass slightly above 1
    return inside - (rest * math.log(rest) if rest else 0.0)


def _plain(logprobs: Sequence[float]) -> float:
    """Return the sum of -p log p; impossible tokens add nothing."""
    return -math.fsum(math.exp(value) * value for value in logprobs if value != -math.inf)


def segment_entropy(
    entropies: Sequence[float],
    vocabulary: int,
    window: int = REFERENCE_WINDOW,
    reduction: Literal["mean", "sum"] = "mean",
) -> float:
    """Return the entropy of the first tokens of a segment as the published code measures it, in units of ln V.

    The value depends on the window and the vocabulary; that of `entropy_level` does not.

    Args:
        entropies: of each token, in nats, shape (n,), n >= 1.
        vocabulary: V.
        window: k, the number of tokens that count.
        reduction: "sum" (the published code, in which a segment shorter than the window looks certain) or "mean" (which
            does not depend on the segment's length).

    Raises:
        ValueError: the segment is empty, or the window is below 1.
    """
    first = entropies[:window] if window >= 1 else ()
    if not first:
        raise ValueError(f"need at least one entropy and a window >= 1, got {len(entropies)} and {window}")
    total = math.fsum(first) / math.log(vocabulary)
    return total / len(first) if reduction == "mean" else total


def entropy_level(entropies: Sequence[float], window: int = REFERENCE_WINDOW) -> float:
    """Return H of a segment on the scale of alpha, beta, tau, the penalty and the budget; 0 for an empty segment.

    H = (mean nats of the first k tokens) / `ENTROPY_UNIT`, where `ENTROPY_UNIT` = ln(151,665) / 20 = 0.596 nats per
    token. The published code sums 20 tokens and divides by ln V of Qwen2.5's tokenizer. In that setting both give the
    same number; this one also holds for other windows, segment lengths and tokenizers. The unit is fixed because the
    entropy of a sharp distribution does not grow with the vocabulary.

    Args:
        entropies: of each token, in nats, shape (n,).
        window: k, the number of tokens that count.
    """
    first = entropies[:window]
    return math.fsum(first) / len(first) / ENTROPY_UNIT if first else 0.0
