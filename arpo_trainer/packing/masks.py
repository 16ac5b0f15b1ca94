"""The attention of a packed tree: every token sees its ancestors and itself.

Both forms are made from one number per token (see `layout`): token j is visible to i exactly when j <= i < ends[j].
`branch_mask` passes these numbers on, and attention is computed branch by branch: the queries of a branch attend to the
keys of its ancestors and its own. Shared keys and values are computed once, and kept for each row as with flat rows.
`block_mask` is for FlexAttention: blocks of 128 x 128 that are hidden completely are never computed. Neither form holds
the whole mask. Layers that get one are counted (`layers_met`), since a model that makes its own masks would silently
ignore ours.

`accept_tree_masks` lets a model that was loaded with `attn_implementation="sdpa"` take both: transformers' "sdpa" then
gets each branch by itself, or passes a block mask to its own FlexAttention, and all other masks on as before. It would
not be enough to switch the implementation of the model for the forward pass, because gradient checkpointing runs the
layers again during backward.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.nn.attention.flex_attention import BlockMask
from transformers.integrations.flex_attention import flex_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

BLOCK = 128
_met = 0
Attention = Callable[..., tuple[torch.Tensor, torch.Tensor | None]]


class Branch(NamedTuple):
    """Consecutive positions, each the child of the one before, and what they attend to.

    Attributes:
        own: the n positions.
        path: its ancestors, (c,); None if it has none.
        mask: added to the scores of its queries, (n, c + n); None if it has no ancestors (plain causal attention).
    """

    own: slice
    path: torch.Tensor | None
    mask: torch.Tensor | None


def branch_mask(ends: torch.Tensor) -> torch.Tensor:
    """Return the mask for SDPA, (N,) to (1, 1, 1, N): integers, which no other attention takes for a mask.

    The object itself is recognised, not its numbers: SDPA refuses a copy like any mask of integers.
    """
    mask: Any = ends[None, None, None]
    mask.plans = {}  # dtype -> branches; all layers share them, so that the masks exist once
    return mask  # type: ignore[no-any-return]


def layers_met() -> int:
    """Return how often a layer of any model in this process has asked for attention under a tree mask."""
    return _met


def branches(ends: torch.Tensor, dtype: torch.dtype) -> list[Branch]:
    """Return the branches of a layout in order; a new one starts where the token before has no descendants.

    Args:
        ends: (N,).
        dtype: of their masks.
    """
    # a token without descendants ends a branch, and the next token starts one
    place = torch.arange(1, len(ends), device=ends.device)
    starts = (torch.nonzero(ends[:-1] <= place)[:, 0] + 1).tolist()
    found = []
    for start, stop in itertools.pairwise([0, *starts, len(ends)]):
        path = torch.nonzero(ends[:start] > start)[:, 0]  # earlier tokens whose descendants reach this branch
        # nothing is hidden among the ancestors; behind them the mask is that of causal attention
        hidden = torch.full((stop - start, len(path) + stop - start), -torch.inf, dtype=dtype, device=ends.device)
        within = (path, hidden.triu_(len(path) + 1)) if len(path) else (None, None)
        found.append(Branch(slice(start, stop), *within))
    return found


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
    # a key block is visible to a whole query block if the descendants of all its tokens reach the end of that block,
    # and to a part of it if those of any token reach its start
    full = before & (blocks.amin(dim=1)[None, :] >= query + BLOCK)
    some = (before & (blocks.amax(dim=1)[None, :] > query) & ~full) | (key == query)

    def visible(batch: torch.Tensor, head: torch.Tensor, q: torch.Tensor, kv: torch.Tensor) -> torch.Tensor:
        return (kv <= q) & (q < ends[kv])

    return BlockMask.from_kv_blocks(*_listed(some), *_listed(full), BLOCK_SIZE=BLOCK, mask_mod=visible)


def _listed(wanted: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the number of blocks of each row, and their columns first in each row: (1, 1, n) and (1, 1, n, n)."""
    order = torch.argsort(wanted.int(), dim=1, descending=True, stable=True)
    return wanted.sum(dim=1).int()[None, None], order.int()[None, None]


def accept_tree_masks() -> None:
    """Let transformers' "sdpa" attention take tree masks in this process, once, and count the layers that get them."""
    for name in ("sdpa", "flex_attention"):
        current: Attention = ALL_ATTENTION_FUNCTIONS[name]
        if not getattr(current, "takes_tree_masks", False):
            ALL_ATTENTION_FUNCTIONS[name] = _taking_trees(current)


def _taking_trees(current: Attention) -> Attention:
    """Return an attention function that handles tree masks and leaves others to `current`."""

    @functools.wraps(current)  # keeps what others have noted on it, or two of them would wrap each other at each call
    def attention(
        module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attention_mask: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        if isinstance(attention_mask, BlockMask):
            _count()
            kwargs.pop("is_causal", None)
            # Rotary angles and norms are in float32, so under autocast queries and keys are, too, and values are not.
            # PyTorch makes them equal from 2.13 on; the kernel of older ones does not.
            query, key = query.to(value.dtype), key.to(value.dtype)
            return flex_attention_forward(module, query, key, value, attention_mask, **kwargs)  # type: ignore[no-any-return]
        if hasattr(attention_mask, "plans"):
            return _by_branch(current, module, query, key, value, attention_mask, kwargs)  # type: ignore[no-any-return]
        return current(module, query, key, value, attention_mask, **kwargs)

    attention.takes_tree_masks = True  # type: ignore[attr-defined]
    return attention


def _count() -> None:
    global _met
    _met += 1


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _by_branch(
    one: Attention,
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: Any,
    kwargs: dict[str, Any],
) -> tuple[torch.Tensor, None]:
    """Attend branch by branch: query (1, heads, N, d), key and value (1, key heads, N, d) to (1, N, heads, d)."""
    _count()
    if query.dtype not in mask.plans:
        mask.plans[query.dtype] = branches(mask[0, 0, 0], query.dtype)
    outputs = []
    for own, path, hidden in mask.plans[query.dtype]:
        keys, values = key[:, :, own], value[:, :, own]
        if path is not None:
            keys = torch.cat([key[:, :, path], keys], dim=2)
            values = torch.cat([value[:, :, path], values], dim=2)
        added = None if hidden is None else hidden[None, None]
        outputs.append(one(module, query[:, :, own], keys, values, added, **kwargs)[0])
    return torch.cat(outputs, dim=1), None
