"""Sets that need a debugger, a backtracer or a refiner, in the real sandbox: the score rises, and falls nowhere.

The policy is scripted: it makes the mistake that the tool mends, and answers what the last result says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import pytest

from arpo_env import ToolEnv
from arpo_trainer.backends.base import Request
from arpo_trainer.evaluation.episode_store import UnitKey, unit_row
from arpo_trainer.inference_tools import InferenceSettings
from arpo_trainer.statistics import PairedComparison, compare_paired
from arpo_trainer.tree import RolloutTree
from envs_registry import Task
from tests.arpo_trainer.inference_tools.scripted_samples import ScriptedHelper, ScriptedTurns, play

TASKS = [
    Task(f"t{n}", "How long is the list, with one more?", (str(n + 1),), setup=f"items = {list(range(n))}")
    for n in range(8)
]
CALL = "<think>{thought}</think><python>{code}</python>"
LONG = "I wonder whether that is the whole list. " * 12
LENGTH = "items.append(0)\nprint('length', len(items))"
ALL = InferenceSettings(debugger=1, backtracer=1, refiner=1)
Turn = Callable[[int, bool], str]  # number of the turn, and whether it is the first try of it


def helper(prompt: str, seed: int) -> str:
    """Knows how `len` is spelled, and is brief."""
    if "thoughts" in prompt:
        count = prompt.count('"number": ')
        return json.dumps({"thoughts": [{"number": number + 1, "text": "I count."} for number in range(count)]})
    return f"```python\n{LENGTH}\n```"


@pytest.fixture(scope="module")
def sandboxed(isolation: str) -> Any:
    made = gym.make("arpo/Arithmetic-v0", level=3)
    yield made.unwrapped
    made.close()


def misspelled(turn: int, first: bool) -> str:
    """The cell fails after it has changed the session, so that a correction in that session would count twice."""
    return CALL.format(thought="count", code=LENGTH.replace("len(items)", "lenght(items)"))


def careless(turn: int, first: bool) -> str:
    """The first try spoils the session; another one is good."""
    return CALL.format(thought="count", code="items.clear()\n1 / 0" if first else LENGTH)


def wordy(turn: int, first: bool) -> str:
    return CALL.format(thought=LONG, code="items.append(0)" if turn == 0 else "print('length', len(items))")


def curious(turn: int, first: bool) -> str:
    """Its result does not fit behind its thought."""
    return CALL.format(thought=LONG, code=f"{LENGTH}\nprint('x ' * 60)")


def careful(turn: int, first: bool) -> str:
    return CALL.format(thought="count", code=LENGTH)


def policy(tokenizer: Any, call: Turn, calls: int = 1) -> ScriptedTurns:
    """Calls so many times, and answers with the last length that a result tells, or else 0."""
    tried: set[tuple[str, tuple[int, ...]]] = set()

    def turn(request: Request) -> str:
        said = tokenizer.decode(request.ids)
        done = said.count("\n</result>")
        first = (request.group, request.ids) not in tried
        tried.add((request.group, request.ids))
        if done < calls:
            return call(done, first)
        found = re.findall(r"\nlength (\d+)", said)
        return (
            f"<think>{LONG if call is wordy else 'so'}</think><answer>\\boxed{{{found[-1] if found else 0}}}</answer>"
        )

    return ScriptedTurns(tokenizer, turn)


def scores(trees: list[RolloutTree]) -> dict[str, list[float]]:
    found = {}
    for tree in trees:
        [entry] = unit_row(UnitKey("m", "e", tree.task["id"]), 0, 1, tree).episodes
        assert entry.reward is not None, entry.error
        found[tree.task["id"]] = [entry.components["accuracy"]]
    return found


def compared(
    env: ToolEnv, tokenizer: Any, call: Turn, tools: InferenceSettings, calls: int = 1, **settings: Any
) -> PairedComparison:
    """Play without and with the tools."""
    first, second = [
        scores(play(env, policy(tokenizer, call, calls), ScriptedHelper(helper), TASKS, each, **settings))
        for each in (InferenceSettings(), tools)
    ]
    return compare_paired(first, second)


@pytest.mark.parametrize(
    ("call", "tools", "calls", "room"),
    [
        (misspelled, InferenceSettings(debugger=1), 1, 2000),
        (careless, InferenceSettings(backtracer=1), 1, 2000),
        (wordy, InferenceSettings(refiner=1), 2, 330),
        (wordy, InferenceSettings(refiner=1, refine_above=200), 2, 330),
        (curious, InferenceSettings(refiner=1), 1, 250),
    ],
    ids=["debugger", "backtracer", "refiner where room ran out", "refiner ahead", "refiner for a result"],
)
def test_the_score_rises_where_a_tool_is_needed(
    call: Turn, tools: InferenceSettings, calls: int, room: int, sandboxed: ToolEnv, tokenizer: Any
) -> None:
    result = compared(sandboxed, tokenizer, call, tools, calls, max_completion_length=room)
    assert (result.first, result.second) == (0.0, 1.0)
    assert result.low > 0
    assert result.p_value < 0.01


def test_it_does_not_fall_where_none_is_needed(sandboxed: ToolEnv, tokenizer: Any) -> None:
    result = compared(sandboxed, tokenizer, careful, ALL)
    assert (result.first, result.second, result.lost) == (1.0, 1.0, [])
