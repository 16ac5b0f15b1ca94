"""The attention mask of a packed tree: every token sees its ancestors and itself.

Both forms come from one number a token (see `layout`): token j is visible to i exactly when j <= i < ends[j].
`dense_mask` writes that out as booleans for SDPA. `block_mask` is for FlexAttention: blocks of 128 x 128 that are
hidden altogether are never computed. The blocks are found from the numbers, without writing the mask out.

`accept_block_masks` lets a model that was loaded with `attn_implementation="sdpa"` take a block mask too: transformers'
"sdpa" then hands such a call to its own FlexAttention, and everything else on as before. Switching the model's
implementation for the forward alone would not do: gradient checkpointing runs the layers again during backward.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.attention.flex_attention import BlockMask
from transformers.integrations.flex_attention import flex_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

BLOCK = 128


def dense_mask(ends: torch.Tensor) -> torch.Tensor:
    """Return the mask as booleans (True: visible), (N,) to (1, 1, N, N)."""
    place = torch.arange(len(ends), device=ends.device)
    return ((place <= place[:, None]) & (place[:, None] < ends))[None, None]


def block_mask(ends: torch.Tensor) -> BlockMask:
    """Return the mask for FlexAttention.

    Args:
        ends: (N,), N a multiple of `BLOCK`, on the device where the attention runs.
    """
    count = len(ends) // BLOCK
    blocks = ends.view(count, BLOCK)
    starts = torch.arange(count, device=ends.device) * BLOCK
    query, key = starts[:, None], starts[None, :]
    before = key < query
    full = before & (blocks.amin(dim=1)[None, :] >= query + BLOCK)
    some = (before & (blocks.amax(dim=1)[None, :] > query) & ~full) | (key == query)

    def visible(batch: torch.Tensor, head: torch.Tensor, q: torch.Tensor, kv: torch.Tensor) -> torch.Tensor:
        return (kv <= q) & (q < ends[kv])

    return BlockMask.from_kv_blocks(*_listed(some), *_listed(full), BLOCK_SIZE=BLOCK, mask_mod=visible)


def _listed(wanted: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return how many blocks each row has, and their columns first in each row: (1, 1, n) and (1, 1, n, n)."""
    order = torch.argsort(wanted.int(), dim=1, descending=True, stable=True)
    return wanted.sum(dim=1).int()[None, None], order.int()[None, None]


def accept_block_masks() -> None:
    """Let transformers' "sdpa" attention take block masks, in this process, once."""
    current = ALL_ATTENTION_FUNCTIONS["sdpa"]
    if getattr(current, "takes_block_masks", False):
        return

    def attention(
        module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        if not isinstance(attention_mask, BlockMask):
            return current(module, query, key, value, attention_mask, **kwargs)  # type: ignore[no-any-return]
        kwargs.pop("is_causal", None)
        return flex_attention_forward(module, query, key, value, attention_mask, **kwargs)  # type: ignore[no-any-return]

    attention.takes_block_masks = True  # type: ignore[attr-defined]
    ALL_ATTENTION_FUNCTIONS["sdpa"] = attention
