"""Kept keys and values: the longest beginning is found, and there is a limit."""

import random
from collections.abc import Sequence

import torch

from arpo_trainer.backends.kv_cache import LayerStates, PrefixStore, agreement


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
