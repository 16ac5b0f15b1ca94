"""The layout holds each shared span once, and its masks let every token see its own row and nothing else."""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

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


def rows_of(ids: torch.Tensor, mask: torch.Tensor) -> list[list[int]]:
    return [row[real.bool()].tolist() for row, real in zip(ids, mask, strict=True)]


@pytest.mark.parametrize("seed", range(5))
def test_each_prefix_is_computed_once(seed: int) -> None:
    ids, mask, keep = random_batch(seed)
    prefixes = {tuple(row[:n]) for row in rows_of(ids, mask) for n in range(2, len(row) + 1)}
    leaves = read_leaves(ids, mask, keep)
    assert len(lay_out(leaves, 0, len(leaves))) == len(prefixes)


@pytest.mark.parametrize("seed", range(5))
def test_a_token_sees_its_own_row_up_to_itself(seed: int) -> None:
    ids, mask, keep = random_batch(seed)
    leaves = read_leaves(ids, mask, keep)
    layout = lay_out(leaves, 0, len(leaves))
    visible = dense_mask(torch.from_numpy(layout.ends)).numpy()
    for leaf, nodes in enumerate(layout.nodes):
        for node, n in zip(nodes, range(leaves.prompts[leaf], len(leaves.tokens[leaf])), strict=True):
            seen = np.flatnonzero(visible[node])
            assert layout.ids[seen].tolist() == leaves.tokens[leaf][:n].tolist()
            assert layout.depths[seen].tolist() == list(range(n))
            assert layout.labels[node] == leaves.tokens[leaf][n]


def test_prompts_are_not_asked_for() -> None:
    leaves = read_leaves(*pad([([1, 5, 6], [7, 8]), ([1, 5, 6], [9])]))
    assert lay_out(leaves, 0, 2).labels.tolist() == [-100, -100, 7, 8, 9]


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
    assert torch.equal(ours.kv_num_blocks, theirs.kv_num_blocks)
    assert torch.equal(ours.full_kv_num_blocks, theirs.full_kv_num_blocks)


def test_flex_attention_over_blocks_is_dense_attention() -> None:
    ends = tree_of(200, 1)
    query, key, value = torch.randn(3, 1, 2, len(ends), 16, generator=torch.Generator().manual_seed(0))
    dense = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=dense_mask(ends))
    blocks = flex_attention(query, key, value, block_mask=block_mask(ends))
    torch.testing.assert_close(blocks, dense, atol=1e-5, rtol=1e-5)


def leaves_of(seed: int, most: int = 7) -> Leaves:
    rng = np.random.default_rng(seed)
    return read_leaves(*pad([([1, 2], row) for row in random_tree(rng, leaves=most)]))


def intervals(count: int) -> Iterator[list[range]]:
    """Every way to cut a sequence."""
    for cuts in itertools.product((False, True), repeat=count - 1):
        edges = [0, *(place for place, cut in enumerate(cuts, 1) if cut), count]
        yield [range(start, end) for start, end in itertools.pairwise(edges)]


def cost(leaves: Leaves, cuts: list[range]) -> list[int]:
    return [len(lay_out(leaves, cut.start, cut.stop)) for cut in cuts]


@pytest.mark.parametrize("seed", range(12))
def test_no_other_cut_computes_less(seed: int) -> None:
    leaves = leaves_of(seed)
    for budget in (10, 25, 40):
        found = cost(leaves, split_leaves(leaves.lengths, leaves.shared, budget))
        allowed = [
            sizes
            for sizes in (cost(leaves, cuts) for cuts in intervals(len(leaves)))
            if all(size <= max(budget, *leaves.lengths) for size in sizes)
        ]
        alone = max(leaves.lengths) > budget
        assert alone or (sum(found), len(found)) == min((sum(sizes), len(sizes)) for sizes in allowed)


def test_a_leaf_over_the_budget_stands_alone() -> None:
    assert split_leaves([50, 10, 10], [0, 5, 5], 20) == [range(0, 1), range(1, 3)]


def batch(groups: int, size: int, seed: int = 0) -> dict[str, object]:
    """A generation batch of TRL's with some more columns, rows of a group not side by side with their siblings."""
    rng = np.random.default_rng(seed)
    rows = []
    for group in range(groups):
        tree: list[list[int]] = []
        while len(tree) < size:
            tree += random_tree(rng, leaves=size - len(tree))
        rows += [([1, group + 3, 4], tree[i]) for i in rng.permutation(size)]
    return {
        **columns(*pad(rows)),
        "number": torch.arange(len(rows)),
        "text": [str(i) for i in range(len(rows))],
        "num_items_in_batch": torch.tensor(7),
        "old": None,
    }


def test_groups_stay_together_and_are_shuffled() -> None:
    order = deal_rows(batch(6, 4), torch.Generator().manual_seed(0))
    groups = [set((chunk // 4).tolist()) for chunk in order.split(4)]
    assert all(len(group) == 1 for group in groups)
    assert sorted(order.tolist()) == list(range(24))
    assert groups != sorted(groups, key=min)
    assert torch.equal(order, deal_rows(batch(6, 4), torch.Generator().manual_seed(0)))
    assert not torch.equal(order, deal_rows(batch(6, 4), torch.Generator().manual_seed(1)))


def test_regrouping_moves_whole_rows() -> None:
    whole = batch(2, 4)
    number, text = whole["number"], whole["text"]
    assert isinstance(number, torch.Tensor)
    assert isinstance(text, list)
    parts = [{**whole, "number": number[i : i + 4], "text": text[i : i + 4]} for i in (0, 4)]
    for name in ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask"):
        for part, rows in zip(parts, whole[name].split(4), strict=True):  # type: ignore[attr-defined]
            part[name] = rows
    for part in regroup(parts, torch.Generator().manual_seed(3)):
        numbers = part["number"].tolist()
        assert part["text"] == [str(i) for i in numbers]
        assert torch.equal(part["completion_ids"], whole["completion_ids"][numbers])  # type: ignore[index]
        assert part["num_items_in_batch"] == 7
        assert part["old"] is None
        assert len({i // 4 for i in numbers}) == 1


def test_families_are_not_cut_where_they_fit() -> None:
    """2 + 4 + 2 leaves, cut in two: the four stay together."""
    families = [(3, 2), (4, 4), (5, 2)]
    rows = [([1], [first, 9, 9, 9, 10 + i]) for first, count in families for i in range(count)]
    order = deal_rows(columns(*pad(rows)), torch.Generator())
    assert sorted(order[:4].tolist()) == [2, 3, 4, 5]
