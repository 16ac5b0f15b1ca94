"""Losses that TRL does not have, computed by TRL's own loss code with a shifted log pi_old.

TRL's loss of a token is -min(r A, clip(r, 1 - l, 1 + h) A) with r = exp(log pi - log pi_old), and log pi_old is an
input. Where AEPO keeps a gradient that the clip would drop, log pi_old is set to log pi - log(1 + h). The ratio then
has the value of the bound, and its gradient is (1 + h) grad log pi. This is exactly F of `losses`, however TRL adds the
tokens up. GPPO does the same at the lower bound, CISPO for both signs, and the ratio of a sequence or turn (GSPO, ATPO)
is log pi_old = log pi - mean. Log pi itself is not changed: KL and entropies are TRL's.

Exact for loss_type grpo, bnpo, dr_grpo and dapo with importance_sampling_level "token" and the bounds of
`trl_settings`, with or without KL, entropy bonus, entropy quantile, off-policy mask and vLLM's importance correction.
In value and gradient the bound is missed by a few units of rounding, on the side on which TRL does not clip.

Not exact, and refused by `check_loss_settings`: sapo, vespo and TRL's cispo, whose losses are not the minimum of two
terms; sequence-level ratios of TRL, which average log pi_old; and the KL correction `use_bias_correction_kl`, which
multiplies by the ratio. TRL's `clip_ratio/*` does not count shifted tokens: log the mask that `shift_old_logps`
returns.

    settings = trl_settings(LOSSES["aepo"])                            # for GRPOConfig
    kept = shift_old_logps(inputs, logps, LOSSES["aepo"], mask)        # after the forward pass, before TRL's loss
"""

from __future__ import annotations

from typing import Any

import torch

from arpo_trainer.algorithms.losses import Loss, bounded_ratio, kept, level_log_ratio, per_token_advantages

LOSS_TYPES = ("grpo", "bnpo", "dr_grpo", "dapo")
_OLD, _SAMPLING = "old_per_token_logps", "sampling_per_token_logps"


def shifted_old_logps(
    loss: Loss, logps: torch.Tensor, old_logps: torch.Tensor, advantages: torch.Tensor, mask: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return log pi_old such that TRL's loss has the value and gradient of another loss.

    Args:
        loss: the wanted loss.
        logps: log pi of the policy under training, shape (B, T).
        old_logps: log pi_old, shape (B, T).
        advantages: shape (B, T), or (B,) for one per row.
        mask: 1 for tokens that count, shape (B, T).

    Returns:
        The shifted log pi_old, shape (B, T), in float32 or better, without gradient; and where a gradient is kept that
        TRL's clip would have dropped or left larger, shape (B, T), bool.

    Raises:
        ValueError: the shapes do not fit.
    """
    # log pi_old must carry no gradient: the loss is differentiated through log pi alone
    here = logps.detach().to(torch.promote_types(logps.dtype, torch.float32))
    old = old_logps.to(here.dtype)
    advantages = per_token_advantages(advantages, here)
    log_ratio = level_log_ratio(here - old, mask, loss.level)
    above, below = kept(loss, bounded_ratio(log_ratio), advantages)
    above, below = above & mask.bool(), below & mask.bool()
    # TRL computes log pi - log pi_old with rounding; the margin keeps the ratio on the side that is not clipped
    margin = 4 * torch.finfo(here.dtype).eps * (1 + here.abs())
    target = torch.where(above, torch.log1p(torch.full_like(here, loss.high)) - margin, log_ratio)
    # low = 1 is no lower bound: no ratio is below 0, and log1p(-1) is minus infinity
    if loss.low < 1:
        target = torch.where(below, torch.log1p(torch.full_like(here, -loss.low)) + margin, target)
    # ratios of sequences and turns are means, and TRL computes those of tokens: log pi_old moves at all that count
    moved = above | below if loss.level == "token" else mask.bool()
    return torch.where(moved, here - target, old), above | below


def shift_old_logps(inputs: dict[str, Any], logps: torch.Tensor, loss: Loss, mask: torch.Tensor) -> torch.Tensor:
    """Shift log pi_old of a micro-batch, in place.

    Without log pi_old in it the ratio is 1 for every token, and nothing has to be shifted.

    Args:
        inputs: of TRL; "old_per_token_logps" is replaced. "sampling_per_token_logps" is added if it is missing, so that
            TRL's off-policy mask still compares with the policy that was sampled from.
        logps: log pi of the policy under training, shape (B, T).
        loss: the wanted loss.
        mask: 1 for tokens that count, shape (B, T).

    Returns:
        Where a gradient is kept that the clip would have dropped, shape (B, T), bool.
    """
    old = inputs.get(_OLD)
    if old is None or not has_own_clip(loss):
        return torch.zeros_like(mask, dtype=torch.bool)
    if inputs.get(_SAMPLING) is None:
        inputs[_SAMPLING] = old
    inputs[_OLD], moved = shifted_old_logps(loss, logps, old, inputs["advantages"], mask)
    return moved


def has_own_clip(loss: Loss) -> bool:
    """Return whether a loss differs from TRL's own clipped loss, so that log pi_old has to be shifted."""
    return loss.clip != "ppo" or loss.level != "token"


def trl_settings(loss: Loss) -> dict[str, Any]:
    """Return the settings of `GRPOConfig` that a loss needs; `loss_type` may be any of `LOSS_TYPES`."""
    return {
        "epsilon": loss.low,
        "epsilon_high": loss.high,
        "delta": loss.dual,
        "importance_sampling_level": "token",
    }


def check_loss_settings(loss: Loss, args: Any) -> None:
    """Refuse settings with which TRL's loss would not be the wanted one.

    Args:
        loss: the wanted loss.
        args: a `GRPOConfig`.

    Raises:
        ValueError: names the setting and what to set it to.
    """
    if args.loss_type not in LOSS_TYPES:
        raise ValueError(
            f"loss_type={args.loss_type!r} does not go with a clip of its own (clip={loss.clip!r}, "
            f"level={loss.level!r}): use one of {', '.join(map(repr, LOSS_TYPES))}, which only add the tokens up"
        )
    for name, wanted in trl_settings(loss).items():
        given = getattr(args, name)
        given = args.epsilon if name == "epsilon_high" and given is None else given
        if given != wanted:
            raise ValueError(f"{name}={given!r} contradicts the loss {loss}: set {name}={wanted!r}")
    if has_own_clip(loss) and args.beta and args.use_bias_correction_kl:
        raise ValueError(
            "use_bias_correction_kl=True multiplies the KL term by the ratio, which this loss shifts: set it to "
            "False, or beta to 0"
        )


def ratio_moves(args: Any) -> bool:
    """Return whether any ratio can differ from 1, because a rollout is used for more than one update.

    Otherwise all losses of `losses` are the same, and AEPO's clip does nothing. The runs of the papers have
    mini-batches: 128 prompts per rollout and 16 per update.

    Args:
        args: a `GRPOConfig`.
    """
    # without a remainder all uses of a rollout fall into one update, before which the policy does not change
    return bool(args.gradient_accumulation_steps % (args.steps_per_generation * args.num_iterations))


def no_op(loss: Loss, args: Any) -> str | None:
    """Return why a loss with its own clip would change nothing, and the cure; None if it changes something.

    Args:
        loss: the wanted loss.
        args: a `GRPOConfig`.
    """
    if not has_own_clip(loss) or ratio_moves(args):
        return None
    steps = args.gradient_accumulation_steps
    return (
        f"clip={loss.clip!r}, level={loss.level!r} changes nothing here: each rollout is used for one update only, so "
        "every probability ratio is 1. Set num_iterations=2, or make mini-batches, such as "
        f"steps_per_generation={8 * steps} with gradient_accumulation_steps={steps} (8 updates per rollout, as in the "
        "papers)"
    )
