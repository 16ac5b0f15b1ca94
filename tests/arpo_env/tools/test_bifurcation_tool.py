"""The tool of Bifurcation: noise follows from the seed of the episode and from the fork, and nothing else is random."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arpo_env import ToolEnv
from arpo_env.tools.bifurcation_tool import BifurcationTool

ID = "arpo/Bifurcation-v0"
NOISY = {"decisions": 12, "choices": 2, "cues": 8, "noise": 1.0, "slip": 0.5}


def world_env(**knobs: Any) -> ToolEnv:
    return ToolEnv(ID, **{"choices": 3, **knobs})


def go(env: ToolEnv, door: str) -> str:
    """Go through a door, and return what is shown."""
    return env.step(f"<go>{door}</go>")[4]["results"][0]


def walk(env: ToolEnv, places: str) -> list[str]:
    """Go through the first ("a"), second ("b") or a later door of each room, and return what is shown."""
    return [go(env, dict(zip("abcdef", open_doors(env), strict=False)).get(place, place)) for place in places]


def open_doors(env: ToolEnv) -> str:
    tool = env.tools["go"]
    assert isinstance(tool, BifurcationTool)
    rooms = tool._world.rooms
    return rooms[tool._state.room].doors if tool._state.room < len(rooms) else ""


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**31), st.text("ab", min_size=1, max_size=12))
def test_a_seed_repeats_task_and_noise(seed: int, doors: str) -> None:
    env, other = world_env(**NOISY), world_env(**NOISY)
    question, _ = env.reset(seed=seed)
    seen = walk(env, doors)
    for again in (env, other):
        assert again.reset(seed=seed)[0] == question
        assert walk(again, doors) == seen
    task = env.episode.task
    env.reset(seed=seed, options={"task": task})
    other.reset(seed=seed, options={"task": task})
    assert walk(env, doors) == walk(other, doors)


@pytest.mark.parametrize("calls", [0, 3])
def test_forks_draw_noise_of_their_own(calls: int) -> None:
    """Also those of several calls of `fork` in the same room, and those of forks."""
    env = world_env(**NOISY)
    env.reset(seed=0)
    walk(env, "a" * calls)
    twins = [env.fork(), env.fork(), *asyncio.run(env.afork(3))]
    twins += [twins[0].fork(), twins[0].fork()]
    rest = "a" * (12 - calls)
    assert len({tuple(walk(one, rest)) for one in (env, *twins)}) == 8


def test_a_door_that_is_not_open_is_an_error() -> None:
    env = world_env()
    env.reset(seed=0)
    info = env.step("<go>z</go>")[4]
    assert (info["results"], info["tool"]["status"]) == (["no such door"], "error")
    assert walk(env, "a")[0].startswith("room 2")
