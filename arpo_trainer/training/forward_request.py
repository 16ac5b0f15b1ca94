"""`Forward`: what the trainer is asked for when TRL wants log-probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Forward:
    """A request for log-probabilities.

    Attributes:
        model: as accelerate has wrapped it.
        input_ids: prompts and completions, (B, P + T).
        attention_mask: 1 for tokens, 0 for padding, (B, P + T).
        logits_to_keep: T.
        batch_size: rows that may go through the model together.
        entropy: whether entropies are asked for.
        aux_loss: whether the load-balancing loss of the routers is asked for.
    """

    model: Any
    input_ids: torch.Tensor
    attention_mask: torch.Tensor
    logits_to_keep: int
    batch_size: int
    entropy: bool
    aux_loss: bool
