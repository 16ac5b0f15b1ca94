"""The fourth decision: the loss of a token from its probability ratio and its advantage.

A `Loss` is a row: how the ratio is bounded (`clip`), over which tokens it is taken (`level`), and the bounds. The
gradient is always F * A * grad log pi; with the ratio r, bounds 1 - l and 1 + h:

| clip | F where A > 0, r > 1 + h | F where A < 0, r < 1 - l | F elsewhere | source |
|---|---|---|---|---|
| ppo | 0 | 0 | r | PPO (arXiv 1707.06347), GRPO; DAPO with h > l |
| aepo | 1 + h | 0 | r | AEPO (arXiv 2510.14545), gradient-preserving clip |
| gppo | 1 + h | 1 - l | r | GPPO (Klear-Reasoner, arXiv 2508.07629) |
| cispo | 1 + h | r | min(r, 1 + h) | CISPO (MiniMax-M1, arXiv 2506.13585), upper bound only |

`dual` adds a bound c for A < 0: above it F = 0 (dual-clip PPO, arXiv 1912.09729). The published AEPO keeps it at 3,
its paper has none. At a bound itself, r = 1 + h, r = 1 - l or r = c, the gradient is kept.

Training runs through TRL's own loss, whose log pi_old is shifted by what is here (`trl_losses`); tests compare its
gradient with each loss written out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch

from arpo_trainer.validation import check_name

Clip = Literal["ppo", "aepo", "gppo", "cispo"]
Level = Literal["token", "sequence", "turn"]
# as in verl, where they keep exp finite
LARGEST_LOG_RATIO = 20.0
LARGEST_MEAN_LOG_RATIO = 10.0


@dataclass(frozen=True)
class Loss:
    """A token objective.

    Attributes:
        clip: how the ratio is bounded.
        level: "token": each token's own ratio; "sequence" or "turn": the geometric mean over its trajectory or turn,
            with the gradient of its own (GSPO, arXiv 2507.18071, eq. 14; per turn ATPO, arXiv 2601.04767, eq. 5).
        low: l.
        high: h.
        dual: c, or None.

    Raises:
        ValueError: a name is unknown, or the bounds are impossible.
    """

    clip: Clip = "ppo"
    level: Level = "token"
    low: float = 0.2
    high: float = 0.2
    dual: float | None = None

    def __post_init__(self) -> None:
        check_name("clip", self.clip, get_args(Clip))
        check_name("level", self.level, get_args(Level))
        if not (0 < self.low <= 1 and self.high > 0):
            raise ValueError(f"clip bounds must be 0 < low <= 1 and high > 0, got low={self.low}, high={self.high}")
        if self.clip == "cispo" and (self.low != 1 or self.dual is not None):
            raise ValueError("clip='cispo' has an upper bound only: use low=1.0 (none) and dual=None")
        if self.dual is not None and self.dual <= 1 + self.high:
            raise ValueError(f"dual={self.dual} must be above 1 + high = {1 + self.high}: it is the outer bound")

    @property
    def loss_type(self) -> str:
        """How tokens are added up, as TRL calls it: GSPO and ATPO take the mean of trajectories."""
        return "dapo" if self.level == "token" else "grpo"


LOSSES: dict[str, Loss] = {
    "clipped": Loss(),
    "clipped-reference": Loss(dual=3.0),
    "dapo": Loss(high=0.28),
    "aepo": Loss("aepo"),
    "aepo-reference": Loss("aepo", dual=3.0),
    "gppo": Loss("gppo"),
    "cispo": Loss("cispo", low=1.0, high=4.0),  # r at most 5, as ScaleRL (arXiv 2510.13786) recommends
    "gspo": Loss(level="sequence", low=3e-4, high=4e-4),  # GSPO, sec. 5
    "gspo-turn": Loss(level="turn", low=3e-3, high=4e-3),  # ATPO, sec. 5.1
}


def get_loss(name: str) -> Loss:
    """Return a row of `LOSSES`.

    Raises:
        ValueError: the name is unknown; suggests the nearest.
    """
    check_name("loss", name, LOSSES)
    return LOSSES[name]


def kept(loss: Loss, ratio: torch.Tensor, advantages: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return where a ratio is out of bounds and its gradient is kept, scaled to the bound.

    Args:
        loss: a row.
        ratio: at the row's level, shape (B, T).
        advantages: shape (B, T).

    Returns:
        Two masks of shape (B, T): above the upper bound, and below the lower one.
    """
    above = (ratio > 1 + loss.high) & ((advantages > 0) | (loss.clip == "cispo")) & (loss.clip != "ppo")
    below = (ratio < 1 - loss.low) & (advantages < 0) & (loss.clip == "gppo")
    return above, below


def bounded_ratio(log_ratio: torch.Tensor) -> torch.Tensor:
    """Return r = exp(log ratio), clamped so that it is finite for very different policies."""
    return log_ratio.clamp(max=LARGEST_LOG_RATIO).exp()


def level_log_ratio(log_ratio: torch.Tensor, mask: torch.Tensor, level: Level) -> torch.Tensor:
    """Return the log-ratio of each token at a level: the mean of its segment in value, its own in gradient.

    Args:
        log_ratio: shape (B, T).
        mask: 1 for tokens that count, shape (B, T); turns are its runs of ones.
        level: "token" returns the log-ratio as it is.

    Returns:
        Shape (B, T); values at masked tokens are meaningless.

    Raises:
        ValueError: the shapes do not fit.
    """
    if log_ratio.shape != mask.shape:
        raise ValueError(f"log-ratios of shape {tuple(log_ratio.shape)} with a mask of shape {tuple(mask.shape)}")
    if level == "token":
        return log_ratio
    segments = turn_numbers(mask) if level == "turn" else torch.zeros_like(mask, dtype=torch.long)
    return segment_log_ratio(log_ratio, mask, segments)


def segment_log_ratio(log_ratio: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
    """Return log r - sg(log r) + sg(mean over the segment), at most 10 (GSPO, arXiv 2507.18071, eq. 14).

    Args:
        log_ratio: shape (B, T).
        mask: 1 for tokens that count in the mean, shape (B, T).
        segments: number of each token's segment within its row, from 0, shape (B, T), integer.

    Returns:
        Shape (B, T).
    """
    # one scatter for all segments of all rows; masked tokens add 0 to sum and count
    values, counted = log_ratio.detach() * mask, mask.to(log_ratio.dtype)
    empty = values.new_zeros(len(values), int(segments.max()) + 1 if segments.numel() else 1)
    sums, counts = empty.scatter_add(1, segments, values), empty.scatter_add(1, segments, counted)
    mean = (sums / counts.clamp(min=1)).gather(1, segments)
    # the value is the mean, the gradient that of the own log-ratio
    return (log_ratio - log_ratio.detach() + mean).clamp(max=LARGEST_MEAN_LOG_RATIO)


def turn_numbers(mask: torch.Tensor) -> torch.Tensor:
    """Number the runs of ones in each row, from 1; zeros belong to the run before them.

    Args:
        mask: 1 for the model's tokens, shape (B, T).

    Returns:
        Shape (B, T), integer.
    """
    ones = mask.bool()
    starts = ones.clone()
    starts[:, 1:] &= ~ones[:, :-1]
    return starts.long().cumsum(1)


def per_token_advantages(advantages: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return advantages of shape (B, T).

    Raises:
        ValueError: their shape is neither (B,) nor (B, T).
    """
    if advantages.shape == like.shape[:1]:
        advantages = advantages.unsqueeze(1).expand_as(like)
    if advantages.shape != like.shape:
        raise ValueError(
            f"advantages of shape {tuple(advantages.shape)} for log-ratios of shape {tuple(like.shape)}: give one "
            "per row or one per token"
        )
    return advantages
