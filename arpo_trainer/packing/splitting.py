"""Splits trees that are too large, and deals rows to micro-batches so that siblings meet.

There are two kinds of splits. Under a token budget, `split_leaves` finds the intervals of leaves that compute the
fewest tokens in all. It is exact among intervals of the given order (dynamic programming: a cut before a leaf costs
what that leaf shares with the one before it). For micro-batches with equal numbers of rows, as TRL's accumulation needs
them, `deal_rows` keeps each group together and puts siblings side by side, larger families first, so that cuts fall
between families.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from arpo_trainer.packing.prefix_tree import depth_first, shared_predictions


def split_leaves(lengths: Sequence[int], shared: Sequence[int], budget: int) -> list[range]:
    """Return intervals of leaves with at most `budget` positions each that compute as few positions as possible.

    Among equally cheap solutions it returns one with the fewest intervals. A leaf longer than the budget is alone.

    Args:
        lengths: number of positions of each leaf, in depth-first order.
        shared: how many of them each leaf shares with the one before it.
        budget: most positions in an interval.

    Raises:
        ValueError: the budget is not positive.
    """
    if budget < 1:
        raise ValueError(f"the token budget must be at least 1, got {budget}")
    # best[n] is for the first n leaves: positions computed again, number of intervals, start of the last interval
    best = [(0, 0, 0)]
    for last in range(len(lengths)):
        size, options = lengths[last], []
        for first in range(last, -1, -1):  # the last interval is first..last; grow it until the budget is full
            if first < last:
                size += lengths[first] - shared[first + 1]
                if size > budget:
                    break
            recomputed, intervals, _ = best[first]
            options.append((recomputed + shared[first], intervals + 1, first))
        best.append(min(options))
    cuts, end = [], len(lengths)
    while end:
        cuts.append(range(best[end][2], end))
        end = best[end][2]
    return cuts[::-1]


def deal_rows(batch: dict[str, Any], generator: torch.Generator) -> torch.Tensor:
    """Return the order in which rows are cut into micro-batches: groups shuffled whole, siblings side by side.

    Args:
        batch: TRL's generation batch: prompt_ids, prompt_mask (B, P), completion_ids, completion_mask (B, T).
        generator: source of the shuffle; equal seeds give equal orders.

    Returns:
        A permutation of the rows, (B,), on the CPU.
    """
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1).cpu().numpy()
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1).cpu().numpy().astype(bool)
    width = batch["prompt_ids"].shape[1]
    # rows do not say which group they are of; those of one group have the same prompt
    groups: dict[bytes, list[int]] = {}
    for row in range(len(ids)):
        groups.setdefault(ids[row, :width][mask[row, :width]].tobytes(), []).append(row)
    members = [groups[prompt] for prompt in sorted(groups)]  # TRL's own shuffle before this decides nothing
    shuffled = [members[i] for i in torch.randperm(len(members), generator=generator).tolist()]
    return torch.tensor([row for group in shuffled for row in _family_order(group, ids, mask)])


def regroup(micro_batches: Sequence[dict[str, Any]], generator: torch.Generator) -> list[dict[str, Any]]:
    """Deal the rows of one rollout to the same number of micro-batches of equal size.

    Args:
        micro_batches: as TRL splits them: tensors and lists with the rows as first dimension, and numbers (0-d).
        generator: as in `deal_rows`.
    """
    joined = {name: _join([part[name] for part in micro_batches]) for name in micro_batches[0]}
    order = deal_rows(joined, generator)
    there = order.to(joined["prompt_ids"].device)  # once: on a GPU the host waits for each copy
    chunks = zip(order.chunk(len(micro_batches)), there.chunk(len(micro_batches)), strict=True)
    return [{name: _pick(value, *rows) for name, value in joined.items()} for rows in chunks]


def _join(parts: list[Any]) -> Any:
    if isinstance(parts[0], torch.Tensor) and parts[0].dim():
        return torch.cat(parts)
    return [entry for part in parts for entry in part] if isinstance(parts[0], list) else parts[0]


def _pick(value: Any, rows: torch.Tensor, there: torch.Tensor) -> Any:
    if isinstance(value, torch.Tensor) and value.dim():
        return value[there]
    return [value[i] for i in rows.tolist()] if isinstance(value, list) else value


def _family_order(rows: list[int], ids: np.ndarray, mask: np.ndarray) -> list[int]:
    """Return rows in a depth-first order that visits the child with the most leaves first."""
    tokens = {row: ids[row, mask[row]] for row in rows}
    ordered = depth_first([tokens[row] for row in rows], rows)
    return [ordered[i] for i in _larger_first(shared_predictions([tokens[row] for row in ordered]), 0, len(ordered))]


def _larger_first(shared: Sequence[int], first: int, last: int) -> list[int]:
    if last - first < 2:
        return list(range(first, last))
    # leaves that share more than the least are of one child; cut where only the trunk is shared
    least = min(shared[first + 1 : last])
    cuts = [first, *(leaf for leaf in range(first + 1, last) if shared[leaf] == least), last]
    families = sorted(itertools.pairwise(cuts), key=lambda family: (family[0] - family[1], family[0]))
    return [leaf for start, end in families for leaf in _larger_first(shared, start, end)]
