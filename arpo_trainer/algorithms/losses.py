"""The fourth decision: the loss of a token from its probability ratio and its advantage, computed by TRL's own code.

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

TRL's loss of a token is -min(r A, clip(r, 1 - l, 1 + h) A) with r = exp(log pi - log pi_old), and log pi_old is an
input. Where AEPO keeps a gradient that the clip would drop, log pi_old is set to log pi - log(1 + h). The ratio then
has the value of the bound, and its gradient is (1 + h) grad log pi. This is exactly F, however TRL adds the tokens up.
GPPO does the same at the lower bound, CISPO for both signs, and the ratio of a sequence or turn (GSPO, ATPO) is
log pi_old = log pi - mean. Log pi itself is not changed: KL and entropies are TRL's.

Exact for loss_type grpo, bnpo, dr_grpo and dapo with importance_sampling_level "token" and the bounds of
`trl_settings`, with or without KL, entropy bonus, entropy quantile, off-policy mask and vLLM's importance correction.
In value and gradient the bound is missed by a few units of rounding, on the side on which TRL does not clip. What is
not exact is refused by `check_loss_settings`. TRL's `clip_ratio/*` does not count shifted tokens: log the mask that
`shift_old_logps` returns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch

from arpo_trainer.validation import check_name, look_up

Clip = Literal["ppo", "aepo", "gppo", "cispo"]
Level = Literal["token", "sequence", "turn"]
# as in verl, where they keep exp finite
LARGEST_LOG_RATIO = 20.0
LARGEST_MEAN_LOG_RATIO = 10.0
LOSS_TYPES = ("grpo", "bnpo", "dr_grpo", "dapo")
_OLD, _SAMPLING = "old_per_token_logps", "sampling_per_token_logps"


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

    @property
    def is_own(self) -> bool:
        """Whether it differs from TRL's clipped loss, so that log pi_old has to be shifted."""
        return self.clip != "ppo" or self.level != "token"


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
    return look_up("loss", name, LOSSES)


# ratios


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
    """
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
    """Number the runs of ones in each row of a mask (B, T), from 1; zeros belong to the run before them."""
    ones = mask.bool()
    starts = ones.clone()
    starts[:, 1:] &= ~ones[:, :-1]
    return starts.long().cumsum(1)


# how TRL is made to compute them


def shifted_old_logps(
    loss: Loss, logps: torch.Tensor, old_logps: torch.Tensor, advantages: torch.Tensor, mask: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return log pi_old such that TRL's loss has the value and gradient of another loss.

    Args:
        loss: the wanted loss.
        logps: log pi of the policy under training, shape (B, T).
        old_logps: log pi_old, shape (B, T).
        advantages: shape (B, T).
        mask: 1 for tokens that count, shape (B, T).

    Returns:
        The shifted log pi_old, shape (B, T), in float32 or better, without gradient; and where a gradient is kept that
        TRL's clip would have dropped or left larger, shape (B, T), bool.
    """
    # log pi_old must carry no gradient: the loss is differentiated through log pi alone
    here = logps.detach().to(torch.promote_types(logps.dtype, torch.float32))
    old = old_logps.to(here.dtype)
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
    if old is None or not loss.is_own:
        return torch.zeros_like(mask, dtype=torch.bool)
    if inputs.get(_SAMPLING) is None:
        inputs[_SAMPLING] = old
    inputs[_OLD], moved = shifted_old_logps(loss, logps, old, inputs["advantages"], mask)
    return moved


def trl_settings(loss: Loss) -> dict[str, Any]:
    """Return the settings of `GRPOConfig` that a loss needs; `loss_type` may be any of `LOSS_TYPES`."""
    bounds = {"epsilon": loss.low, "epsilon_high": loss.high, "delta": loss.dual}
    return {**bounds, "importance_sampling_level": "token"}


def check_loss_settings(loss: Loss, args: Any) -> None:
    """Refuse settings of a `GRPOConfig` with which TRL's loss would not be the wanted one.

    Raises:
        ValueError: names the setting and what to set it to.
    """
    # sapo, vespo and TRL's cispo are not the minimum of two terms
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
    if loss.is_own and args.beta and args.use_bias_correction_kl:
        raise ValueError(
            "use_bias_correction_kl=True multiplies the KL term by the ratio, which this loss shifts: set it to "
            "False, or beta to 0"
        )


def ratio_moves(args: Any) -> bool:
    """Return whether any ratio can differ from 1, because a rollout is used for more than one update.

    Otherwise all losses of `LOSSES` are the same. The runs of the papers have mini-batches: 128 prompts per rollout and
    16 per update.
    """
    # without a remainder all uses of a rollout fall into one update, before which the policy does not change
    return bool(args.gradient_accumulation_steps % (args.steps_per_generation * args.num_iterations))


def no_op(loss: Loss, args: Any) -> str | None:
    """Return why a loss with its own clip would change nothing, and the cure; None if it changes something."""
    if not loss.is_own or ratio_moves(args):
        return None
    steps = args.gradient_accumulation_steps
    return (
        f"clip={loss.clip!r}, level={loss.level!r} changes nothing here: each rollout is used for one update only, so "
        "every probability ratio is 1. Set num_iterations=2, or make mini-batches, such as "
        f"steps_per_generation={8 * steps} with gradient_accumulation_steps={steps} (8 updates per rollout, as in the "
        "papers)"
    )
