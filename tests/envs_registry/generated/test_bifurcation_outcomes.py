"""The world's list of outcomes is what entering a door gives."""

from __future__ import annotations

import random
from collections import Counter
from itertools import product

import pytest

from envs_registry.generated.bifurcation import DoorWorld, State, WorldSettings, make_world

DRAWS = 400


def states_of(world: DoorWorld) -> set[State]:
    """Every state that can be reached."""
    found, fresh = {world.start}, [world.start]
    while fresh:
        state = fresh.pop()
        after = {to for door in "abch" for _, to, _ in world.outcomes(state, door)} - found
        found |= after
        fresh += after
    return found


@pytest.mark.parametrize(("dead_ends", "noise"), list(product(["silent", "shown", "forgiving"], [0.0, 0.4])))
def test_outcomes_are_those_of_entering(dead_ends: str, noise: float) -> None:
    settings = WorldSettings(2, 3, 1, "spread", 0, dead_ends=dead_ends, noise=noise, slip=0.3)  # type: ignore[arg-type]
    world, rng = make_world(settings, 0, "test"), random.Random(0)
    for state, door in product(sorted(states_of(world), key=str), "abh"):
        outcomes = {(after, text): share for share, after, text in world.outcomes(state, door)}
        drawn = Counter(world.enter(state, door, rng) for _ in range(DRAWS))
        assert sum(outcomes.values()) == pytest.approx(1)
        assert drawn.keys() <= outcomes.keys()
        for outcome, share in outcomes.items():
            assert drawn[outcome] / DRAWS == pytest.approx(share, abs=5 * (share * (1 - share) / DRAWS) ** 0.5 + 1e-9)
