"""Kept keys and values: a cache grows in few steps, the longest beginning is found, shared heads copy nothing."""

import random
from collections.abc import Sequence
from types import SimpleNamespace

import pytest
import torch
from transformers.integrations import sdpa_attention
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from arpo_trainer.backends.kv_cache import (
    BLOCK,
    LayerStates,
    PrefixStore,
    SlotCache,
    accept_single_queries,
    agreement,
    single_query_mask,
)
from arpo_trainer.packing import accept_tree_masks


def states(ids: Sequence[int]) -> LayerStates:
    """States that say which ids they are of."""
    keys = torch.tensor(ids, dtype=torch.float32)[None, :, None]
    return [(keys, -keys)]


def found(store: PrefixStore, ids: Sequence[int]) -> list[int]:
    known = store.longest(ids)
    return [] if known is None else known[0][0].flatten().int().tolist()


@pytest.mark.parametrize("most", [5_000, 130])
def test_a_cache_grows_in_few_steps_up_to_what_a_row_can_have(most: int) -> None:
    cache, capacities = SlotCache(), set()
    cache.join(None, most)
    for _ in range(500):
        cache.prepare(0, [10], torch.device("cpu"))
        cache.advance(0, [10])
        assert cache.capacity >= cache.lengths[0]
        capacities.add(cache.capacity)
        assert len(capacities) <= 12 or cache.lengths[0] > most
    # a padded row may need more than it can have in the end
    assert max(capacities) == -(-5_000 // BLOCK) * BLOCK


def test_the_longest_beginning_is_found() -> None:
    rng = random.Random(0)
    kept = [[rng.randrange(3) for _ in range(rng.randrange(1, 9))] for _ in range(60)]
    store = PrefixStore(10_000)
    for ids in kept:
        store.put(ids, states(ids))
    for _ in range(300):
        wanted = [rng.randrange(3) for _ in range(rng.randrange(1, 12))]
        longest = max(agreement(ids, wanted) for ids in kept)
        assert found(store, wanted) == wanted[:longest]


def test_the_oldest_is_dropped_beyond_the_capacity() -> None:
    store = PrefixStore(10)
    for n in range(5):
        store.put([n] * 4, states([n] * 4))
    assert [found(store, [n] * 4) for n in range(5)] == [[], [], [], [3] * 4, [4] * 4]


def test_a_longer_sequence_takes_the_place_of_its_beginnings() -> None:
    store = PrefixStore(8)
    for ids in ([7, 7], [1, 2, 3], [1, 2, 3, 4, 5], [1, 2]):
        store.put(ids, states(ids))
    assert found(store, [7, 7]) == [7, 7]  # there was room for all that is not said twice
    assert found(store, [1, 2, 3, 4, 5, 6]) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(("heads", "key_heads"), [(6, 2), (4, 1), (3, 3)])
@pytest.mark.parametrize("scaling", [None, 0.3])
def test_the_numbers_are_those_of_repeated_keys(
    heads: int, key_heads: int, scaling: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept_single_queries()
    rng = torch.Generator().manual_seed(heads)
    query = torch.randn(5, heads, 1, 16, generator=rng)
    key, value = torch.randn(2, 5, key_heads, 12, 16, generator=rng)
    mask = torch.arange(12) <= torch.tensor([[0], [3], [11], [7], [7]])
    layer = SimpleNamespace(is_causal=True, num_key_value_groups=heads // key_heads)
    attention = ALL_ATTENTION_FUNCTIONS["sdpa"]
    want, _ = attention(layer, query, key, value, mask[:, None, None], scaling=scaling)
    if heads != key_heads:
        monkeypatch.setattr(sdpa_attention, "repeat_kv", None)  # nothing is copied for several heads
    got, _ = attention(layer, query, key, value, single_query_mask(mask[:, None, None]), scaling=scaling)
    assert got.shape == want.shape == (5, 1, heads, 16)
    torch.testing.assert_close(got, want)


def test_two_kinds_of_masks_are_accepted_once_each() -> None:
    accept_single_queries()
    accept_tree_masks()
    found = ALL_ATTENTION_FUNCTIONS["sdpa"]
    for accept in (accept_single_queries, accept_tree_masks, accept_single_queries):
        accept()
        assert ALL_ATTENTION_FUNCTIONS["sdpa"] is found
