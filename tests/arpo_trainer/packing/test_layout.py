"""The layout holds each shared span once, and its masks let every token see its own row and nothing else."""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask

from arpo_trainer.packing import (
    BLOCK,
    Leaves,
    block_mask,
    branches,
    deal_rows,
    lay_out,
    read_leaves,
    regroup,
    split_leaves,
)
from tests.arpo_trainer.packing.batches import columns, pad, random_batch, random_tree


def dense_mask(ends: torch.Tensor) -> torch.Tensor:
    """The mask written out, from what a layout promises: (N, N), True where visible."""
    place = torch.arange(len(ends))
    return (place <= place[:, None]) & (place[:, None] < ends)


@pytest.mark.parametrize("seed", range(5))
def test_each_prefix_is_computed_once_and_a_token_sees_its_own_row_up_to_itself(seed: int) -> None:
    ids, mask, keep = random_batch(seed)
    leaves = read_leaves(ids, mask, keep)
    layout = lay_out(leaves, 0, len(leaves))
    rows = [row[real.bool()].tolist() for row, real in zip(ids, mask, strict=True)]
    assert len(layout) == len({tuple(row[:n]) for row in rows for n in range(2, len(row) + 1)})
    visible = dense_mask(torch.from_numpy(layout.ends)).numpy()
    for leaf, nodes in enumerate(layout.nodes):
        for node, n in zip(nodes, range(leaves.prompts[leaf], len(leaves.tokens[leaf])), strict=True):
            seen = np.flatnonzero(visible[node])
            assert layout.ids[seen].tolist() == leaves.tokens[leaf][:n].tolist()
            assert layout.depths[seen].tolist() == list(range(n))
            assert layout.labels[node] == leaves.tokens[leaf][n]


def tree_of(length: int, seed: int) -> torch.Tensor:
    """The ends of a random tree of some hundred tokens with long spans, filled up to whole blocks."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(6):
        trunk = rows[rng.integers(len(rows))] if rows else rng.integers(3, 60, length).tolist()
        rows.append(trunk[: rng.integers(1, len(trunk))] + rng.integers(3, 60, rng.integers(1, length)).tolist())
    leaves = read_leaves(*pad([([1], row) for row in rows]))
    return torch.from_numpy(lay_out(leaves, 0, len(leaves)).padded(BLOCK).ends)


@pytest.mark.parametrize("seed", range(4))
def test_branches_see_what_the_layout_says(seed: int) -> None:
    ends, places = tree_of(400, seed), []
    seen = torch.zeros(len(ends), len(ends), dtype=torch.bool)
    for own, path, mask in branches(ends, torch.float32):
        keys = torch.arange(own.start, own.stop) if path is None else torch.cat([path, torch.arange(len(ends))[own]])
        shown = torch.ones(own.stop - own.start, len(keys)).tril() if mask is None else mask == 0
        seen[own, keys] = shown.bool()
        places += range(own.start, own.stop)
    assert places == list(range(len(ends)))
    assert torch.equal(seen, dense_mask(ends))


@pytest.mark.parametrize("seed", range(4))
def test_block_masks_are_those_that_torch_finds(seed: int) -> None:
    ends = tree_of(400, seed)
    ours = block_mask(ends)
    theirs = create_block_mask(ours.mask_mod, 1, 1, len(ends), len(ends), device="cpu")
    assert torch.equal(ours.to_dense(), theirs.to_dense())
    for name in ("kv_num_blocks", "full_kv_num_blocks"):
        assert torch.equal(getattr(ours, name), getattr(theirs, name))


def intervals(count: int) -> Iterator[list[range]]:
    """Every way to cut a sequence."""
    for cuts in itertools.product((False, True), repeat=count - 1):
        edges = [0, *(place for place, cut in enumerate(cuts, 1) if cut), count]
        yield [range(start, end) for start, end in itertools.pairwise(edges)]


def cost(leaves: Leaves, cuts: list[range]) -> list[int]:
    return [len(lay_out(leaves, cut.start, cut.stop)) for cut in cuts]


@pytest.mark.parametrize("seed", range(12))
def test_no_other_cut_computes_less(seed: int) -> None:
    """A leaf over the budget stands alone."""
    assert split_leaves([50, 10, 10], [0, 5, 5], 20) == [range(0, 1), range(1, 3)]
    leaves = read_leaves(*pad([([1, 2], row) for row in random_tree(np.random.default_rng(seed), leaves=7)]))
    for budget in (10, 25, 40):
        found = cost(leaves, split_leaves(leaves.lengths, leaves.shared, budget))
        allowed = [
            sizes
            for sizes in (cost(leaves, cuts) for cuts in intervals(len(leaves)))
            if all(size <= max(budget, *leaves.lengths) for size in sizes)
        ]
        alone = max(leaves.lengths) > budget
        assert alone or (sum(found), len(found)) == min((sum(sizes), len(sizes)) for sizes in allowed)


def generation_batch(groups: int, size: int) -> dict[str, Any]:
    """A generation batch of TRL's with some more columns, rows of a group not side by side with their siblings."""
    rng, rows = np.random.default_rng(0), list[tuple[list[int], list[int]]]()
    for group in range(groups):
        tree: list[list[int]] = []
        while len(tree) < size:
            tree += random_tree(rng, leaves=size - len(tree))
        rows += [([1, group + 3, 4], tree[i]) for i in rng.permutation(size)]
    more = {"number": torch.arange(len(rows)), "text": [str(i) for i in range(len(rows))]}
    return {**columns(*pad(rows)), **more, "num_items_in_batch": torch.tensor(7), "old": None}


def test_groups_are_shuffled_and_stay_together_and_rows_are_moved_whole() -> None:
    whole = generation_batch(6, 4)
    parts = [{name: v[i : i + 4] if np.ndim(v) else v for name, v in whole.items()} for i in range(0, 24, 4)]
    dealt = [regroup(parts, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)]
    orders = [torch.cat([part["number"] for part in one]).tolist() for one in dealt]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == list(range(24))
    groups = []
    for part in dealt[0]:
        numbers = part["number"].tolist()
        groups.append({i // 4 for i in numbers})
        assert part["text"] == [str(i) for i in numbers]
        assert torch.equal(part["completion_ids"], whole["completion_ids"][numbers])
        assert (part["num_items_in_batch"], part["old"]) == (7, None)
    assert all(len(group) == 1 for group in groups)
    assert groups != sorted(groups, key=min)


def test_families_are_not_cut_where_they_fit() -> None:
    """2 + 4 + 2 leaves, cut in two: the four stay together."""
    families = [(3, 2), (4, 4), (5, 2)]
    rows = [([1], [first, 9, 9, 9, 10 + i]) for first, count in families for i in range(count)]
    order = deal_rows(columns(*pad(rows)), torch.Generator())
    assert sorted(order[:4].tolist()) == [2, 3, 4, 5]
