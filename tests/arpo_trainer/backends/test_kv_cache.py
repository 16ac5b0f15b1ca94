"""Kept keys and values: the longest beginning is found, there is a limit, and heads that share keys see their own."""

import random
from collections.abc import Sequence
from types import SimpleNamespace

import pytest
import torch
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from arpo_trainer.backends.kv_cache import (
    LayerStates,
    PrefixStore,
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


@pytest.mark.parametrize(("heads", "key_heads", "scaling"), [(6, 2, None), (6, 2, 0.3), (3, 3, None)])
def test_heads_that_share_keys_have_the_numbers_of_repeated_keys(
    heads: int, key_heads: int, scaling: float | None
) -> None:
    """The tests' tiny models have one key head, which every order of heads fits."""
    accept_single_queries()
    rng = torch.Generator().manual_seed(heads)
    query = torch.randn(5, heads, 1, 16, generator=rng)
    key, value = torch.randn(2, 5, key_heads, 12, 16, generator=rng)
    mask = (torch.arange(12) <= torch.tensor([[0], [3], [11], [7], [7]]))[:, None, None]
    layer = SimpleNamespace(is_causal=True, num_key_value_groups=heads // key_heads)
    masks = (mask, single_query_mask(mask.clone()))  # it marks what it is given
    want, got = (ALL_ATTENTION_FUNCTIONS["sdpa"](layer, query, key, value, each, scaling=scaling)[0] for each in masks)
    torch.testing.assert_close(got, want)


def test_two_kinds_of_masks_are_accepted_once_each() -> None:
    """Each rollout and each packed pass accepts its own: wrapped again and again, attention would recurse too deep."""
    accept_single_queries()
    accept_tree_masks()
    found = ALL_ATTENTION_FUNCTIONS["sdpa"]
    for accept in (accept_single_queries, accept_tree_masks):
        accept()
        assert ALL_ATTENTION_FUNCTIONS["sdpa"] is found
