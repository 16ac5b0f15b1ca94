"""The layout holds each shared span once, and its masks let every token see its own row and nothing else."""

import numpy as np
import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from arpo_trainer.packing import BLOCK, block_mask, branches, lay_out, read_leaves
from tests.arpo_trainer.packing.batches import pad, random_batch


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
    assert ours.full_kv_num_blocks is not None
    assert theirs.full_kv_num_blocks is not None
    assert torch.equal(ours.full_kv_num_blocks, theirs.full_kv_num_blocks)


def test_flex_attention_over_blocks_is_dense_attention() -> None:
    ends = tree_of(200, 1)
    query, key, value = torch.randn(3, 1, 2, len(ends), 16, generator=torch.Generator().manual_seed(0))
    dense = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=dense_mask(ends))
    blocks = flex_attention(query, key, value, block_mask=block_mask(ends))
    torch.testing.assert_close(blocks, dense, atol=1e-5, rtol=1e-5)
