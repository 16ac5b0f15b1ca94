"""Lays out a prefix tree in one row: each shared span once, its tokens before those of all its branches.

The order is a depth-first walk, so the descendants of a token follow it without a gap. One number per token then
determines the attention mask: token j is visible to token i exactly when j <= i < ends[j].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from arpo_trainer.packing.prefix_tree import Leaves


@dataclass(frozen=True)
class Layout:
    """Some leaves of a tree (or of several trees) in one row of N positions.

    Attributes:
        ids: the token read at each position, (N,).
        depths: its position in its own row, from 0, (N,): the position id.
        labels: the token to predict there, (N,); -100 where no completion needs it.
        ends: one past the last of its descendants, (N,).
        nodes: for each leaf, in order, the positions that predict its completion.
    """

    ids: np.ndarray
    depths: np.ndarray
    labels: np.ndarray
    ends: np.ndarray
    nodes: list[np.ndarray]

    def __len__(self) -> int:
        return len(self.ids)

    def padded(self, multiple: int) -> Layout:
        """Return the layout, padded to a multiple with tokens that see only themselves and predict nothing."""
        n = -len(self) % multiple
        zeros, place = np.zeros(n, dtype=np.int64), np.arange(len(self), len(self) + n)
        ids, depths, labels, ends = (
            np.concatenate(pair)
            for pair in ((self.ids, zeros), (self.depths, zeros), (self.labels, zeros - 100), (self.ends, place + 1))
        )
        return Layout(ids, depths, labels, ends, self.nodes)


def idle_layout() -> Layout:
    """Return one token that predicts nothing: it keeps a process in step with the others."""
    return Layout(np.array([0]), np.array([0]), np.array([-100]), np.array([1]), [])


def lay_out(leaves: Leaves, first: int, last: int) -> Layout:
    """Lay out the leaves `first` to `last` - 1; time and memory are linear in the number of their tokens."""
    shared = [0, *leaves.shared[first + 1 : last]]
    lengths = leaves.lengths[first:last]
    size = sum(lengths) - sum(shared)
    ids, depths, labels, ends = (np.full(size, fill, dtype=np.int64) for fill in (0, 0, -100, size))
    path, nodes, start = np.empty(0, dtype=np.int64), [], 0
    for leaf, common, length in zip(range(first, last), shared, lengths, strict=True):
        tokens, own = leaves.tokens[leaf], np.arange(start, start + length - common)
        ends[path[common:]] = start  # spans of the last leaf that this one does not share end here
        path = np.concatenate([path[:common], own])
        # the last token of a row is only predicted, never read
        ids[own], depths[own] = tokens[common:-1], np.arange(common, length)
        asked = path[leaves.prompts[leaf] - 1 :]  # from the last prompt token on, which predicts the first one
        labels[asked] = tokens[leaves.prompts[leaf] :]
        nodes.append(asked)
        start += len(own)
    return Layout(ids, depths, labels, ends, nodes)


def gather_index(leaves: Leaves, layouts: list[Layout], shape: tuple[int, int]) -> np.ndarray:
    """Return for each completion token its position in the layouts put end to end.

    Args:
        leaves: all leaves.
        layouts: layouts that contain them all, in order.
        shape: (B, T).

    Returns:
        (B, T); padding holds the sum of the layouts' sizes, one past the last position.
    """
    index = np.full(shape, sum(len(layout) for layout in layouts), dtype=np.int64)
    leaf = offset = 0
    for layout in layouts:
        for nodes in layout.nodes:
            index[leaves.rows[leaf], leaves.columns[leaf]] = nodes + offset
            leaf += 1
        offset += len(layout)
    return index
