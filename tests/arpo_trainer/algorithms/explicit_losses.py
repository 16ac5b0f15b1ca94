"""The losses of `LOSSES` as their papers write them, for autograd: what TRL's loss with shifted anchors has to be."""

from typing import Literal

import torch

from arpo_trainer.algorithms.losses import Loss, bounded_ratio, level_log_ratio

Aggregation = Literal["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]


def per_token(loss: Loss, log_ratio: torch.Tensor, advantages: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the loss of each token, (B, T): minus min(r A, clip(r) A) for advantages (B, T) or (B,)."""
    advantages = (advantages if advantages.dim() == 2 else advantages[:, None].expand_as(log_ratio)).detach()
    log_ratio = level_log_ratio(log_ratio, mask, loss.level)
    ratio = bounded_ratio(log_ratio)
    same = torch.exp(log_ratio - log_ratio.detach())  # 1, with the gradient of log pi
    if loss.clip == "cispo":  # sg(min(r, 1 + h)) A log pi, with the value of TRL's
        return -ratio.detach().clamp(max=1 + loss.high) * same * advantages
    # AEPO's upper bound is (1 + h) / sg(r) r, and so is GPPO's lower one
    high = (1 + loss.high) * (same if loss.clip in ("aepo", "gppo") else torch.ones_like(same))
    low = (1 - loss.low) * (same if loss.clip == "gppo" else torch.ones_like(same))
    gain = torch.minimum(ratio * advantages, torch.maximum(torch.minimum(ratio, high), low) * advantages)
    if loss.dual is not None:
        gain = torch.where(advantages < 0, torch.maximum(gain, loss.dual * advantages), gain)
    return -gain


def aggregate(losses: torch.Tensor, mask: torch.Tensor, how: Aggregation, length: int | None = None) -> torch.Tensor:
    """Reduce the losses of the tokens, (B, T), to one number; `length` is the constant of Dr. GRPO, by default T."""
    counted = torch.where(mask.bool(), losses, 0.0)  # not losses * mask: masked values may be NaN
    rows, sizes = counted.sum(-1), mask.sum(-1)
    if how == "token-mean":
        return rows.sum() / sizes.sum().clamp(min=1)
    if how == "seq-mean-token-sum":
        return rows.mean()
    if how == "seq-mean-token-mean":
        return (rows / sizes.clamp(min=1)).mean()
    return rows.sum() / (length or losses.shape[-1])


def k3(logps: torch.Tensor, ref_logps: torch.Tensor) -> torch.Tensor:
    """Return exp(d) - d - 1, d = log pi_ref - log pi (GRPO, eq. 4)."""
    difference = ref_logps - logps
    return difference.exp() - difference - 1
