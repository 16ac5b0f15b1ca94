"""`Leaves`: the rows of a micro-batch as the leaves of a prefix tree, in depth-first order.

The tree is derived from the token ids alone: two rows share their common prefix, whether it is the trunk of a branch,
the prompt of a group, or the system prompt of two groups. So it works for plain GRPO as well as for trees, and needs
nothing from the rollout. Rows without a common prefix are separate trees.

A row of n tokens makes n - 1 predictions, and predictions are what is shared: prediction t reads token t and predicts
token t + 1, and two rows share it if they agree up to and including token t + 1. Where rows diverge, the last common
token is thus read once per continuation, and the last token of a row is never read. The numbers cancel out (one
position for each token but the first of a tree), and each position has exactly one label.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True)
class Leaves:
    """Rows in depth-first order: rows with a common prefix are neighbours.

    Attributes:
        tokens: token ids of each leaf without padding, shape (n,).
        prompts: how many of them belong to the prompt, for each leaf.
        rows: the row of the batch, for each leaf. Rows without completion tokens are left out.
        columns: the columns of (B, T) that hold the completion tokens, for each leaf.
        shared: number of predictions that each leaf shares with the one before it; 0 for the first.
    """

    tokens: list[np.ndarray]
    prompts: list[int]
    rows: list[int]
    columns: list[np.ndarray]
    shared: list[int]

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def lengths(self) -> list[int]:
        """Number of predictions of each leaf, shared ones included."""
        return [len(tokens) - 1 for tokens in self.tokens]


def read_leaves(input_ids: torch.Tensor, attention_mask: torch.Tensor, completion_width: int) -> Leaves:
    """Find the prefix tree in a batch as TRL pads it.

    Args:
        input_ids: prompts and completions side by side, (B, P + T).
        attention_mask: 1 for tokens, 0 for padding, (B, P + T).
        completion_width: T.

    Raises:
        ValueError: a row has completion tokens but no prompt that predicts the first of them.
    """
    ids, mask = input_ids.cpu().numpy(), attention_mask.cpu().numpy().astype(bool)
    width = ids.shape[1] - completion_width
    completions = mask[:, width:].sum(axis=1)
    prompts = mask[:, :width].sum(axis=1)
    empty = np.flatnonzero((prompts == 0) & (completions > 0))
    if len(empty):
        raise ValueError(
            f"row {empty[0]} has completion tokens but no prompt token to predict the first of them from; "
            "give every prompt at least one token, a BOS for instance"
        )
    rows = np.flatnonzero(completions).tolist()
    tokens = {row: ids[row, mask[row]] for row in rows}
    rows = depth_first([tokens[row] for row in rows], rows)
    ordered = [tokens[row] for row in rows]
    return Leaves(
        ordered,
        [int(prompts[row]) for row in rows],
        rows,
        [np.flatnonzero(mask[row, width:]) for row in rows],
        shared_predictions(ordered),
    )


def depth_first(tokens: Sequence[np.ndarray], names: Sequence[int]) -> list[int]:
    """Return names in the lexicographic order of their rows: a depth-first walk over the leaves of the tree."""
    keys = [row.astype(">u4").tobytes() for row in tokens]  # big-endian bytes sort like the numbers
    return [names[i] for i in sorted(range(len(keys)), key=keys.__getitem__)]


def shared_predictions(ordered: Sequence[np.ndarray]) -> list[int]:
    """Return the number of predictions that each row shares with the one before it."""
    pairs = itertools.pairwise(ordered)
    # n common tokens are n - 1 common predictions: the last common token has different next tokens
    return [0, *(max(0, common_prefix(a, b) - 1) for a, b in pairs)][: len(ordered)]


def common_prefix(a: np.ndarray, b: np.ndarray) -> int:
    """Return the length of the common prefix of two arrays."""
    n = min(len(a), len(b))
    differs = a[:n] != b[:n]
    # argmax finds the first difference, and also says 0 if there is none
    first = int(differs.argmax()) if n else 0
    return first if n and differs[first] else n
