"""Attention of one new token per row without copies of keys and values, for models whose heads share them.

Several query heads attend to the same keys and values (grouped-query attention). Where there is a mask, transformers
repeats keys and values for each query head, and copies the whole cache at every token to do so. With one query per row,
the heads of a group can be taken for several queries of one head instead: the numbers are the same up to rounding, and
nothing is copied.

`accept_single_queries` lets transformers' "sdpa" attention do so for masks from `single_query_mask`, and passes all
other calls on as before. PyTorch's attention takes the form on any device.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

Attention = Callable[..., tuple[torch.Tensor, torch.Tensor | None]]
# what transformers' function reads of a layer: without a number of groups it repeats nothing
_UNGROUPED = SimpleNamespace(is_causal=False)


def single_query_mask(mask: torch.Tensor) -> torch.Tensor:
    """Mark a mask, shape (rows, 1, 1, tokens): it is the same for all heads, and each row has one query."""
    mask.single_query = True  # type: ignore[attr-defined]
    return mask


def accept_single_queries() -> None:
    """Let transformers' "sdpa" attention recognise `single_query_mask` in this process, once."""
    current: Attention = ALL_ATTENTION_FUNCTIONS["sdpa"]
    if not getattr(current, "takes_single_queries", False):
        ALL_ATTENTION_FUNCTIONS["sdpa"] = _taking_single_queries(current)


def _taking_single_queries(current: Attention) -> Attention:
    """Return an attention function that handles marked masks and leaves others to `current`."""

    @functools.wraps(current)
    def attention(
        module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attention_mask: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        marked = getattr(attention_mask, "single_query", False)
        if not marked or query.shape[1] == key.shape[1] or kwargs.get("position_bias") is not None:
            return current(module, query, key, value, attention_mask, **kwargs)
        # (rows, heads, 1, d) to (rows, key heads, heads of a group, d): the heads of a group are neighbours
        queries = query.reshape(len(query), key.shape[1], -1, query.shape[3])
        output, _ = current(_UNGROUPED, queries, key, value, attention_mask, **kwargs)
        return output.transpose(1, 2).reshape(len(query), 1, query.shape[1], -1), None

    attention.takes_single_queries = True  # type: ignore[attr-defined]
    return attention
