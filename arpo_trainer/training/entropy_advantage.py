"""AEPO's entropy-aware advantage: the advantage of a token times 1 + a z, z its entropy in standard deviations.

Mean and deviation are those of the whole global batch, so the factor depends neither on the split into micro-batches
nor on the number of processes: every process has all trees, so that nothing is communicated. z is clamped, so the
factor never changes the sign of an advantage. (The published code has statistics of the micro-batch and no clamp. The
published runs never used it: their actor computes entropies only for an entropy bonus, which is switched off.)

    moments = tree_moments(trees)
    factor = entropy_factor(rollout_entropies, moments)     # (B, T); advantages * factor
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from arpo_trainer.tree import RolloutTree

WEIGHT = 0.2
LIMIT = 3.0
# a share of the mean square: a variance below it is the rounding error of a difference of large sums
_NO_VARIANCE = 1e-10


@dataclass(frozen=True)
class Moments:
    """Sums from which mean and deviation are computed.

    Attributes:
        count: number of tokens.
        total: sum of their entropies, in nats.
        squares: sum of the squared entropies.
    """

    count: int = 0
    total: float = 0.0
    squares: float = 0.0

    @property
    def mean(self) -> float:
        """Mean entropy in nats; 0 without tokens."""
        return self.total / self.count if self.count else 0.0

    @property
    def deviation(self) -> float:
        """Unbiased standard deviation in nats; 1 if it is 0 or there are fewer than two tokens, so that z is 0."""
        if self.count < 2:
            return 1.0
        # the difference of two large numbers: a variance within the rounding error counts as none
        variance = (self.squares - self.count * self.mean**2) / (self.count - 1)
        return math.sqrt(variance) if variance > _NO_VARIANCE * self.squares / self.count else 1.0


def tree_moments(trees: Sequence[RolloutTree]) -> Moments:
    """Sum the entropies of sampling over tokens of the model in valid trajectories; copies of a token count each."""
    counted: list[float] = []
    for tree in trees:
        for span, through in zip(tree.spans, tree.leaves_below(), strict=True):
            counted += span.entropies * sum(tree.trajectories[number].valid for number in through)
    return Moments(len(counted), math.fsum(counted), math.fsum(value * value for value in counted))


def entropy_factor(
    entropies: torch.Tensor, moments: Moments, weight: float = WEIGHT, limit: float = LIMIT
) -> torch.Tensor:
    """Return 1 + a clamp(z, -limit, limit), z = (H - mean) / std (AEPO, arXiv 2510.14545, entropy-aware advantage).

    Without the clamp, the factor changes the sign of advantages below z = -1 / a, which is -5, and has no upper bound.
    Entropies are mostly near 0 with a long tail: a limit of three deviations affects few tokens, and keeps those of the
    tail from dominating the update. With the defaults the factor lies in [0.4, 1.6].

    Args:
        entropies: in nats, shape (B, T).
        moments: of the global batch.
        weight: a.
        limit: largest |z|.

    Returns:
        Shape (B, T), without gradient, above 0; 1 everywhere if the moments are of a single token
        or have no variance.

    Raises:
        ValueError: the weight or limit is below 0, or so large that the factor could reach 0.
    """
    if weight < 0 or limit < 0 or weight * limit >= 1:
        raise ValueError(
            f"weight {weight} and limit {limit}: both must be at least 0 and their product below 1, or the factor "
            "1 - weight * limit changes the sign of advantages; use weight=0.2, limit=3"
        )
    # in 16 bits the factor would have only two or three digits
    here = entropies.detach().to(torch.promote_types(entropies.dtype, torch.float32))
    z = (here - moments.mean) / moments.deviation
    return 1 + weight * z.clamp(-limit, limit)
