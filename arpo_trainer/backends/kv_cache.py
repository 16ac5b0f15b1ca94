"""Keys and values of the continuous backend: a batch whose rows come and go, and a store of prefixes.

`SlotCache` is a transformers `Cache` whose rows have different lengths. A new row joins at the end, and a row that
leaves is replaced by the last one. `PrefixStore` keeps the keys and values of finished sequences, so that the next turn
and every branch start where the sequences agree instead of at the beginning.

Only models with full attention in every layer are supported.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from transformers.cache_utils import Cache, DynamicLayer
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

# Attention of one new token per row without copies of keys and values, for models whose heads share them.
#
# Several query heads attend to the same keys and values (grouped-query attention). Where there is a mask, transformers
# repeats keys and values for each query head, and copies the whole cache at every token to do so. With one query per
# row, the heads of a group can be taken for several queries of one head instead: the numbers are the same up to
# rounding, and nothing is copied.
#
# `accept_single_queries` lets transformers' "sdpa" attention do so for masks from `single_query_mask`, and passes all
# other calls on as before. PyTorch's attention takes the form on any device.

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


LayerStates = list[tuple[torch.Tensor, torch.Tensor]]  # a layer: keys and values, each (kv heads, tokens, head dim)
BLOCK = 64  # capacities are multiples of this


class _SlotLayer(DynamicLayer):  # type: ignore[misc]  # transformers is untyped
    """One layer of a `SlotCache`: keys and values (slots, kv heads, capacity, head dim)."""

    def __init__(self, owner: SlotCache) -> None:
        super().__init__()
        self.owner = owner

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write each row's new tokens at the row's own length; return its keys and values so far as views."""
        # rotary embeddings leave keys in float32 under autocast, which attention would cast again for each token
        kind = key_states.device.type
        if torch.is_autocast_enabled(kind):
            key_states = key_states.to(torch.get_autocast_dtype(kind))
        self.fit("keys", key_states[0])
        self.fit("values", value_states[0])
        owner = self.owner
        self.keys[owner.index, :, owner.position] = key_states.transpose(1, 2)
        self.values[owner.index, :, owner.position] = value_states.transpose(1, 2)
        return self.keys[owner.first : owner.rows, :, : owner.longest], self.values[
            owner.first : owner.rows, :, : owner.longest
        ]

    def fit(self, name: str, like: torch.Tensor) -> None:
        """Make room for all rows and tokens, with the type of `like`, shape (kv heads, tokens, head dim)."""
        self.is_initialized = True
        rows, tokens = self.owner.slots, self.owner.capacity
        old = getattr(self, name)
        if old is None:
            # zeros, not what the memory held: a masked value has weight 0, and 0 times NaN would still be NaN
            setattr(self, name, like.new_zeros(rows, like.shape[0], tokens, like.shape[2]))
            return
        if old.shape[0] < rows or old.shape[2] < tokens or old.dtype != like.dtype:  # autocast changes the dtype
            new = like.new_zeros(rows, old.shape[1], tokens, old.shape[3])
            new[: old.shape[0], :, : old.shape[2]] = old
            setattr(self, name, new)


class SlotCache(Cache):  # type: ignore[misc]
    """Keys and values of the rows that are being decoded.

    A pass of the model over some rows is framed by `prepare` and `advance`.
    """

    def __init__(self) -> None:
        super().__init__(layer_class_to_replicate=functools.partial(_SlotLayer, self))
        self.lengths: list[int] = []
        self.first = self.longest = self.slots = self.capacity = self.most = 0
        self.index = self.position = torch.empty(0, dtype=torch.long)

    @property
    def rows(self) -> int:
        """How many rows are being decoded."""
        return len(self.lengths)

    def join(self, states: LayerStates | None, most: int) -> None:
        """Add a row that starts from `states`, or empty, and will have `most` tokens at most."""
        row, length = self.rows, states[0][0].shape[1] if states else 0
        self.lengths.append(length)
        self.most = max(self.most, most)
        self._reserve(length)
        for number, (keys, values) in enumerate(states or []):
            if number == len(self.layers):
                self.layers.append(_SlotLayer(self))
            layer = self.layers[number]
            layer.fit("keys", keys)
            layer.fit("values", values)
            layer.keys[row, :, :length] = keys
            layer.values[row, :, :length] = values

    def copy(self, row: int) -> LayerStates:
        """Return a copy of a row's keys and values."""
        length = self.lengths[row]
        return [(layer.keys[row, :, :length].clone(), layer.values[row, :, :length].clone()) for layer in self.layers]

    def leave(self, row: int) -> None:
        """Remove a row; the last row moves to its place."""
        end = self.lengths[-1]
        if row != self.rows - 1:
            for layer in self.layers:
                layer.keys[row, :, :end] = layer.keys[self.rows - 1, :, :end]
                layer.values[row, :, :end] = layer.values[self.rows - 1, :, :end]
            self.lengths[row] = end
        self.lengths.pop()

    def prepare(self, first: int, new: Sequence[int], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """Prepare a pass over the rows from `first` on, with the given numbers of `new` tokens, padded on the right.

        Values computed at padding are never read: they lie beyond the length of their row until they are overwritten.

        Returns:
            Position ids, shape (rows, width), and the mask, shape (rows, 1, width, longest), True where to attend.
        """
        width = max(new)
        self.first, self.longest = first, max(self.lengths[first:]) + width
        self._reserve(self.longest)
        lengths, ends = torch.tensor([self.lengths[first:], new], device=device)
        self.position = lengths[:, None] + torch.arange(width, device=device)
        self.index = torch.arange(first, self.rows, device=device)[:, None]
        mask = torch.arange(self.longest, device=device) <= self.position[..., None]
        # padding gets the last valid position: some models have no later one
        ids = torch.minimum(self.position, (lengths + ends - 1)[:, None])
        return ids, single_query_mask(mask[:, None]) if width == 1 else mask[:, None]

    def advance(self, first: int, new: Sequence[int]) -> None:
        """Count the tokens that the rows from `first` on have received."""
        for row, tokens in enumerate(new, start=first):
            self.lengths[row] += tokens

    def _reserve(self, tokens: int) -> None:
        if self.rows > self.slots:
            # doubled, so that rows that join one by one do not copy the whole cache each time
            self.slots = max(self.rows, 2 * self.slots)
        if tokens > self.capacity:
            # By half, up to the most that a row can have: each growth copies the cache, and what it frees is too small
            # for the next one, so that with small steps CUDA's allocator would hold it all.
            grown = max(tokens, min(self.capacity * 3 // 2, self.most))
            self.capacity = -(-grown // BLOCK) * BLOCK


class PrefixStore:
    """Keys and values of token sequences; the least recently used are dropped first, beyond `capacity` tokens.

    No kept sequence is a prefix of another.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        # keyed by the ids as bytes, which compare fastest
        self._entries: OrderedDict[bytes, LayerStates] = OrderedDict()
        self._tokens = 0

    def put(self, ids: Sequence[int], states: LayerStates) -> None:
        """Keep the states of `ids`; states may cover fewer tokens than there are ids."""
        tokens = states[0][0].shape[1]
        key = _key(ids[:tokens])
        longer = next((known for known in self._entries if known.startswith(key)), None)
        if longer is not None:
            self._entries.move_to_end(longer)
            return
        for shorter in [known for known in self._entries if key.startswith(known)]:
            self._drop(shorter)
        self._entries[key] = states
        self._tokens += tokens
        while self._tokens > self.capacity and len(self._entries) > 1:
            self._drop(next(iter(self._entries)))

    def longest(self, ids: Sequence[int]) -> LayerStates | None:
        """Return the states of the longest kept prefix of `ids`, or None."""
        wanted = _key(ids)
        best, best_key, better = 0, b"", wanted[:_SIZE]
        for key in self._entries:
            if better and key.startswith(better):  # agrees with one token more than the best so far
                best, best_key = _agreement(key, wanted), key
                better = wanted[: (best + 1) * _SIZE] if best * _SIZE < len(wanted) else b""
        if best == 0:
            return None
        self._entries.move_to_end(best_key)
        return [(keys[:, :best], values[:, :best]) for keys, values in self._entries[best_key]]

    def _drop(self, key: bytes) -> None:
        del self._entries[key]
        self._tokens -= len(key) // _SIZE


_SIZE = np.dtype(np.int32).itemsize


def agreement(one: Sequence[int], other: Sequence[int]) -> int:
    """Return the length of the common prefix of two sequences."""
    return _agreement(_key(one), _key(other))


def _key(ids: Sequence[int]) -> bytes:
    return np.asarray(ids, dtype=np.int32).tobytes()


def _agreement(one: bytes, other: bytes) -> int:
    n = min(len(one), len(other)) // _SIZE
    differs = np.frombuffer(one, np.int32, n) != np.frombuffer(other, np.int32, n)
    return int(differs.argmax()) if differs.any() else n
