"""A cache grows in few steps; the store finds the longest beginning that agrees, within its capacity."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import torch

from arpo_trainer.backends.kv_cache import BLOCK, LayerStates, PrefixStore, SlotCache, agreement


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
