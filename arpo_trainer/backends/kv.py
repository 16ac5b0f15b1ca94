"""Key/value memory for the transformers backend: a batch whose rows come and go, and a store of prefixes.

`SlotCache` is a transformers `Cache` whose rows have lengths of their own: a row joins at the end, a row that
leaves is replaced by the last one. `PrefixStore` keeps the keys and values of finished sequences, so that the next
turn, and every branch, starts where they agree instead of at the beginning.

Only models with full attention in every layer are served.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from transformers.cache_utils import Cache, DynamicLayer

LayerStates = list[tuple[torch.Tensor, torch.Tensor]]  # a layer: keys and values, each (kv heads, tokens, head dim)
BLOCK = 64


class _SlotLayer(DynamicLayer):  # type: ignore[misc]  # transformers is untyped
    """One layer of a `SlotCache`: keys and values (slots, kv heads, capacity, head dim)."""

    def __init__(self, owner: SlotCache, keys: torch.Tensor, values: torch.Tensor) -> None:
        super().__init__()
        self.owner = owner
        self.lazy_initialization(keys, values)
        self.keys = keys.new_zeros(1, keys.shape[0], BLOCK, keys.shape[2])
        self.values = values.new_zeros(1, values.shape[0], BLOCK, values.shape[2])

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write one new token a row at the row's own length; return all keys and values as views."""
        rows, longest = self.owner.rows, self.owner.longest + 1
        if self.values.dtype != value_states.dtype:  # autocast: keep what attention would cast to anyway
            self.keys, self.values = self.keys.to(value_states.dtype), self.values.to(value_states.dtype)
        self.keys[self.owner.index, :, self.owner.position] = key_states[:, :, 0].to(self.keys.dtype)
        self.values[self.owner.index, :, self.owner.position] = value_states[:, :, 0]
        return self.keys[:rows, :, :longest], self.values[:rows, :, :longest]

    def reserve(self, rows: int, tokens: int) -> None:
        """Grow to hold so many rows and tokens."""
        have_rows, _, have_tokens, _ = self.keys.shape
        if rows <= have_rows and tokens <= have_tokens:
            return
        rows, tokens = max(rows, have_rows), max(-(-tokens // BLOCK) * BLOCK, have_tokens)
        for name in ("keys", "values"):
            old = getattr(self, name)
            new = old.new_zeros(rows, old.shape[1], tokens, old.shape[3])
            new[:have_rows, :, :have_tokens] = old
            setattr(self, name, new)


class SlotCache(Cache):  # type: ignore[misc]
    """Keys and values of the rows that are being decoded."""

    def __init__(self, like: LayerStates) -> None:
        super().__init__(layers=[_SlotLayer(self, keys, values) for keys, values in like])
        self.lengths: list[int] = []
        self.longest = 0
        self.index = torch.empty(0, dtype=torch.long)
        self.position = torch.empty(0, dtype=torch.long)

    @property
    def rows(self) -> int:
        """How many rows are being decoded."""
        return len(self.lengths)

    def join(self, states: LayerStates, spare: int) -> None:
        """Add a row that starts from `states`, with room for `spare` more tokens."""
        length, row = states[0][0].shape[1], self.rows
        for layer, (keys, values) in zip(self.layers, states, strict=True):
            layer.reserve(row + 1, length + spare)
            layer.keys[row, :, :length] = keys
            layer.values[row, :, :length] = values
        self.lengths.append(length)

    def leave(self, row: int) -> LayerStates:
        """Take a row out and return a copy of its keys and values; the last row moves to its place."""
        last, length = self.rows - 1, self.lengths[row]
        taken = [(la.keys[row, :, :length].clone(), la.values[row, :, :length].clone()) for la in self.layers]
        if row != last:
            end = self.lengths[last]
            for layer in self.layers:
                layer.keys[row, :, :end] = layer.keys[last, :, :end]
                layer.values[row, :, :end] = layer.values[last, :, :end]
            self.lengths[row] = end
        self.lengths.pop()
        return taken

    def before_step(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """Prepare one token a row; return position ids (rows, 1) and the mask (rows, 1, 1, longest + 1)."""
        self.longest = max(self.lengths)
        self.index = torch.arange(self.rows, device=device)
        self.position = torch.tensor(self.lengths, device=device)
        mask = torch.arange(self.longest + 1, device=device)[None, :] <= self.position[:, None]
        return self.position[:, None], mask[:, None, None, :]

    def after_step(self) -> None:
        """Count the token that every row has received."""
        self.lengths = [length + 1 for length in self.lengths]


@dataclass
class PrefixStore:
    """Keys and values of token sequences, the least recently used dropped first.

    Attributes:
        capacity: tokens kept in all.
    """

    capacity: int

    def __post_init__(self) -> None:
        self._entries: OrderedDict[bytes, tuple[np.ndarray, LayerStates]] = OrderedDict()
        self._tokens = 0

    def put(self, ids: Sequence[int], states: LayerStates) -> None:
        """Keep the states of `ids`; states may cover fewer tokens than there are ids."""
        array = np.asarray(ids[: states[0][0].shape[1]], dtype=np.int64)
        key = array.tobytes()
        if key in self._entries:
            self._entries.move_to_end(key)
            return
        self._entries[key] = (array, states)
        self._tokens += len(array)
        while self._tokens > self.capacity and len(self._entries) > 1:
            _, (dropped, _) = self._entries.popitem(last=False)
            self._tokens -= len(dropped)

    def longest(self, ids: Sequence[int]) -> LayerStates | None:
        """Return the states of the longest kept beginning of `ids`, or None if nothing agrees."""
        wanted = np.asarray(ids, dtype=np.int64)
        best, best_key = 0, b""
        for key, (array, _) in self._entries.items():
            n = min(len(array), len(wanted))
            differs = np.flatnonzero(array[:n] != wanted[:n])
            agree = int(differs[0]) if len(differs) else n
            if agree > best:
                best, best_key = agree, key
        if best == 0:
            return None
        self._entries.move_to_end(best_key)
        return [(keys[:, :best], values[:, :best]) for keys, values in self._entries[best_key][1]]
