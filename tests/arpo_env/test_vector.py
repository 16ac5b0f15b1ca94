"""`ToolVectorEnv`: many episodes in one process, with Gymnasium's three autoreset modes."""

import asyncio
import math
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import ClosedEnvironmentError, ResetNeeded

from arpo_env.vector import ToolVectorEnv
from tests.arpo_env.test_env import LIST, call

RIGHT = "<think>d</think><answer>\\boxed{4}</answer>"


@pytest.fixture
def envs(isolation: str) -> Iterator[ToolVectorEnv]:
    made = ToolVectorEnv("arpo/Arithmetic-v0", 3, level=3)
    yield made
    made.close()


def modes(mode: str) -> ToolVectorEnv:
    made: Any = gym.make_vec("arpo/Arithmetic-v0", num_envs=2, level=1, autoreset_mode=mode)
    assert isinstance(made, ToolVectorEnv)
    return made


def test_each_episode_has_an_interpreter_of_its_own(envs: ToolVectorEnv) -> None:
    envs.reset(options={"tasks": [LIST] * 3})
    envs.step([call(f"items.append({i})") for i in range(3)])
    texts, rewards, terminated, truncated, infos = envs.step([call("items[-1]")] * 3)
    assert [text.split()[1] for text in texts] == ["0", "1", "2"]
    assert (rewards.tolist(), terminated.any(), truncated.any()) == ([0.0] * 3, False, False)
    assert infos["tool"]["status"].tolist() == ["ok"] * 3


def test_disabled_waits_for_the_reset_mask() -> None:
    envs = modes("Disabled")
    questions, _ = envs.reset(seed=0)
    envs.step(["nothing", "nothing"])
    with pytest.raises(ResetNeeded, match=r"episodes \[0, 1\] have ended"):
        envs.step(["nothing", "nothing"])
    texts, _ = envs.reset(seed=[0, 0], options={"reset_mask": np.array([True, False])})
    assert texts == (questions[0], "")
    with pytest.raises(ResetNeeded, match=r"\[1\]"):
        envs.step(["nothing", "nothing"])


def test_a_failing_episode_is_marked_and_spares_the_others(envs: ToolVectorEnv, monkeypatch: Any) -> None:
    envs.reset(options={"tasks": [LIST] * 3})

    async def broken(**arguments: Any) -> None:
        raise RuntimeError("the sandbox is gone")

    monkeypatch.setattr(envs.envs[1].tools["python"], "call", broken)
    texts, rewards, _, truncated, infos = envs.step([call("len(items)")] * 3)
    assert truncated.tolist() == [False, True, False]
    assert math.isnan(rewards[1])
    assert infos["error"][1] == "RuntimeError: the sandbox is gone"
    assert ["3" in text for text in texts] == [True, False, True]
    envs.step([RIGHT, "ignored", RIGHT])  # and it starts anew


def test_bad_actions_are_refused_before_anything_moves(envs: ToolVectorEnv) -> None:
    envs.reset(options={"tasks": [LIST] * 3})
    for actions, error in (([call("1")], ValueError), ([call("1"), call("1"), 3], TypeError)):
        with pytest.raises(error):
            envs.step(actions)
    assert not any(env.episode.turns for env in envs.envs)
    with pytest.raises(ValueError, match="num_envs must be at least 1, got 0"):
        ToolVectorEnv("arpo/Arithmetic-v0", 0)


def fail_to_start(envs: ToolVectorEnv, *numbers: int) -> None:
    """Let the tools of these episodes fail at their next reset."""
    for number in numbers:
        tool: Any = envs.envs[number].tools["python"]

        async def broken(setup: str, tool: Any = tool, reset: Any = tool.reset) -> None:
            await asyncio.sleep(0.05)
            tool.reset = reset
            raise EOFError("the sandbox is gone")

        tool.reset = broken


def test_one_episode_that_cannot_be_started_leaves_the_others_alive(envs: ToolVectorEnv) -> None:
    fail_to_start(envs, 0, 1, 2)
    with pytest.raises(EOFError):  # where none can be started
        envs.reset(options={"tasks": [LIST] * 3})
    fail_to_start(envs, 1)
    texts, infos = envs.reset(options={"tasks": [LIST] * 3})
    assert texts == (LIST.question, "", LIST.question)
    assert infos["error"].tolist() == [None, "EOFError: the sandbox is gone", None]
    assert infos["_task"].tolist() == [True, False, True]
    texts, rewards, terminated, truncated, infos = envs.step([RIGHT, "ignored", RIGHT])
    assert texts[1] == infos["task"][1].question  # and now it has begun, with a task of its own
    assert rewards.tolist() == [1.0, 0.0, 1.0]
    assert terminated.tolist() == [True, False, True]
    assert not truncated.any()
    assert envs.step([RIGHT] * 3)[2].tolist() == [False, True, False]  # it is played; the others begin anew


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_an_ended_episode_starts_anew_or_is_marked_and_tried_again(mode: str) -> None:
    envs = modes(mode)
    envs.reset(seed=0)
    fail_to_start(envs, 0)
    texts, rewards, terminated, _, infos = envs.step(["nothing", "nothing"])
    assert rewards.tolist() == [-1.0, -1.0]  # what the last episode earned stays
    assert terminated.all()
    if mode == "SameStep":
        assert infos["final_info"]["outcome"].tolist() == ["no answer"] * 2
    else:
        texts, rewards, terminated, truncated, infos = envs.step(["ignored", "ignored"])
        assert (rewards[1], terminated.any(), truncated.tolist()) == (0.0, False, [True, False])
        assert math.isnan(rewards[0])
    assert infos["error"].tolist() == ["EOFError: the sandbox is gone", None]
    assert texts[1] == infos["task"][1].question
    texts, _, terminated, truncated, infos = envs.step(["nothing", "nothing"])
    assert texts[0] == infos["task"][0].question
    assert (terminated[0], truncated[0]) == (False, False)
    envs.close()
    for use in (lambda: envs.reset(seed=0), lambda: envs.step(["x", "x"])):
        with pytest.raises(ClosedEnvironmentError, match="closed and cannot be reopened; create new ones"):
            use()
