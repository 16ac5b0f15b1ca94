"""Bifurcation: worlds follow from seed and number, and knobs do what they say."""

import json
import random
from collections import Counter
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arpo_env import ToolEnv
from envs_registry.generated.bifurcation import (
    DEAD_END,
    NO_DOOR,
    BifurcationSource,
    State,
    WorldSettings,
    key_quality,
    make_world,
    world_of,
)
from envs_registry.task import check_setup

SPLITS = ("train", "test")


@st.composite
def knobs(draw: st.DrawFn) -> dict[str, Any]:
    decisions = draw(st.integers(1, 4))
    wholes = {"choices": (2, 6), "routine": (0, 6), "cues": (1, 8), "uneven": (0, 10)}
    return {
        **{"decisions": decisions, "critical": draw(st.integers(0, decisions))},
        **{name: draw(st.integers(*between)) for name, between in wholes.items()},
        **{name: draw(st.booleans()) for name in ("shared_doors", "dense")},
        **{name: draw(st.sampled_from([0.0, 0.3])) for name in ("noise", "slip")},
        "layout": draw(st.sampled_from(["first", "spread"])),
        "rule": draw(st.sampled_from(["fixed", "cue", "chance"])),
        "dead_ends": draw(st.sampled_from(["silent", "shown", "forgiving"])),
    }


@settings(max_examples=60, deadline=None)
@given(knobs(), st.integers(0, 10**6), st.integers(0, 10**9))
def test_every_world_keeps_its_promises(options: dict[str, Any], seed: int, index: int) -> None:
    source, again = (BifurcationSource("train", "short", seed, **options) for _ in range(2))
    task, world = source.task(index), source.world(index)
    assert task == again.task(index)
    assert world_of(task.setup) == world
    check_setup(task)
    assert not set(world.keys) & set(json.dumps(task.setup).replace('"', " ").split())
    assert len(world.rooms) == world.settings.rooms
    assert len(set(world.keys)) == len(world.keys)
    assert task.question == f"Find the key. {world.describe(world.start)}"
    assert sum(bool(room.right) for room in world.rooms) == world.settings.mattering
    assert sum(len(room.doors) > 1 for room in world.rooms) == world.settings.decisions
    rng = random.Random(index)
    calm = replace(world, settings=replace(world.settings, slip=0.0))
    state = calm.start
    for door in source.solution(index):
        state, seen = calm.enter(state, door, rng)
    assert seen == f"key {task.answers[0]}"
    assert calm.reward(task.answers[0]) == 1.0
    assert calm.enter(state, "a", rng) == (state, NO_DOOR)


@settings(max_examples=40, deadline=None)
@given(knobs(), st.integers(0, 10**6))
def test_splits_differ_and_share_what_can_be_learned(options: dict[str, Any], seed: int) -> None:
    options |= {"rule": "cue", "critical": 0}
    meaning: dict[tuple[int, str], str] = {}
    answers = []
    for split in ("train", "test"):
        source = BifurcationSource(split, seed=seed, **options)
        answers.append([source.task(index).answers for index in range(40)])
        for number, room in [pair for index in range(40) for pair in enumerate(source.world(index).rooms)]:
            assert not room.cue or meaning.setdefault((number, room.cue), room.right) == room.right
    assert answers[0] != answers[1]


@pytest.mark.parametrize(
    ("kind", "room", "text"), [("silent", 1, "room 2"), ("shown", 1, "dead end"), ("forgiving", 0, DEAD_END)]
)
def test_wrong_doors_lead_to_dead_ends(kind: str, room: int, text: str) -> None:
    world = BifurcationSource(dead_ends=kind).world(3)
    first = world.rooms[0]
    wrong = next(door for door in first.doors if door != first.right)
    state, seen = world.enter(world.start, wrong, random.Random(0))
    assert (state.room, state.right) == (room, 0)
    assert seen.startswith(text)


@pytest.mark.parametrize(("rule", "doors"), [("fixed", 1), ("cue", 2), ("chance", 5)])
def test_rules_differ_in_what_can_be_learned(rule: str, doors: int) -> None:
    """Right doors of the first decision over tasks and seeds: one, one for each cue, or any."""
    sources = [BifurcationSource(seed=seed, rule=rule, choices=5) for seed in range(8)]
    found = [{source.world(index).rooms[0].right for index in range(60)} for source in sources]
    assert max(map(len, found)) == doors
    assert rule == "chance" or len(set().union(*found)) > doors  # another seed has another rule


def test_dense_rewards_are_shares_of_right_decisions_and_the_quality_of_an_episode() -> None:
    for dense, rewards in ((True, [0.0, 0.25, 0.5, 0.75, 1.0]), (False, [0.0, 0.0, 0.0, 0.0, 1.0])):
        world = BifurcationSource(decisions=4, dense=dense).world(0)
        assert [world.reward(world.key_of(State(4, right))) for right in range(5)] == rewards
    assert (world.reward(None), world.reward("k99"), world.reward(f" {world.keys[-1]} ")) == (0.0, 0.0, 1.0)
    env = ToolEnv("arpo/Bifurcation-v0", dense=True)
    env.reset(options={"index": 5})
    world = make_world(WorldSettings(dense=True), 0, "train/5")
    reward = env.step(f"<answer>\\boxed{{{world.keys[1]}}}</answer>")[1]
    assert (reward, key_quality(env.episode)) == (0.5, 0.5)
    for setup in ("items = 3", '{"bifurcation": {"doors": 1}, "seed": 0, "name": "x"}'):
        with pytest.raises(ValueError, match="this task has no world"):
            world_of(setup)


@pytest.mark.parametrize(("dead_ends", "noise"), list(product(["silent", "shown", "forgiving"], [0.0, 0.4])))
def test_outcomes_are_those_of_entering(dead_ends: str, noise: float) -> None:
    settings = WorldSettings(2, 3, 1, "spread", 0, dead_ends=dead_ends, noise=noise, slip=0.3)  # type: ignore[arg-type]
    world, rng = make_world(settings, 0, "test"), random.Random(0)
    states = [world.start]
    for state in states:  # every one that can be reached
        for door in "abch":
            outcomes = {(after, text): share for share, after, text in world.outcomes(state, door)}
            states += [after for after in dict.fromkeys(after for after, _ in outcomes) if after not in states]
            drawn = Counter(world.enter(state, door, rng) for _ in range(400))
            assert sum(outcomes.values()) == pytest.approx(1)
            assert drawn.keys() <= outcomes.keys()
            for outcome, share in outcomes.items():
                assert drawn[outcome] / 400 == pytest.approx(share, abs=5 * (share * (1 - share) / 400) ** 0.5 + 1e-9)
