"""Takes a micro-batch's own padding off.

TRL pads a whole generation batch to its longest prompt and completion, and splits it afterwards: a micro-batch of short
trajectories would be computed at the length of the longest one of all. Cutting that off changes no number.
"""

from __future__ import annotations

from typing import Any

import torch

_PROMPT = ("prompt_ids", "prompt_mask")
_COMPLETION = (
    "completion_ids",
    "completion_mask",
    "tool_mask",
    "advantages",
    "old_per_token_logps",
    "ref_per_token_logps",
    "sampling_per_token_logps",
    "importance_sampling_ratio",
)


def trim_padding(inputs: dict[str, Any]) -> dict[str, Any]:
    """Return a micro-batch without columns that are padding in every row.

    Args:
        inputs: TRL's: prompts (B, P) padded on the left, completions and what goes with them (B, T) on the right;
            tensors of another shape are left alone.
    """
    prompts, completions = inputs["prompt_mask"], inputs["completion_mask"]
    first = _leading_padding(prompts)
    width = completions.shape[1]
    last = width - _leading_padding(completions.flip(1))
    trimmed = dict(inputs)
    trimmed.update({name: inputs[name][:, first:] for name in _PROMPT})
    for name in _COMPLETION:
        value = inputs.get(name)
        if isinstance(value, torch.Tensor) and value.dim() == 2 and value.shape[1] == width:
            trimmed[name] = value[:, :last]
    return trimmed


def _leading_padding(mask: torch.Tensor) -> int:
    """Return how many first columns are 0 in every row, but never all of them."""
    used = mask.bool().any(dim=0).nonzero()
    return int(used[0]) if len(used) else mask.shape[1] - 1
