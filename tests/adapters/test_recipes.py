"""examples/frameworks, for those that own the endpoint: ART for real, the others as far as they go."""

import ast
import asyncio
import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from arpo_env import EnvFactory
from arpo_env.adapters import FAULTS
from arpo_env.adapters.task_rows import task_rows
from tests.arpo_env.chat_server import ChatServer, chat_server

from .chat_policy import scripted
from .scripts import Script, native_rewards

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "frameworks"
NATIVE = EnvFactory("arpo/Arithmetic-v0", level=2, protocol="hermes")


def rows(episodes: int) -> list[dict[str, Any]]:
    return [json.loads(json.dumps(row)) for row in task_rows(NATIVE, "jsonl", episodes)]


def broken(server: ChatServer) -> str:
    """Return the address of an endpoint that answers nothing."""
    return server.address.replace("/v1", "/nothing")


def test_python_can_read_them_and_the_page_names_each() -> None:
    page = (FOLDER.parents[1] / "docs" / "adapters" / "play.md").read_text(encoding="utf-8")
    for script in FOLDER.glob("*.py"):
        ast.parse(script.read_text(encoding="utf-8"))
        assert f"`{script.name}`" in page


def test_areal_s_agent_returns_the_reward_or_raises(isolation: str) -> None:
    agent, script = runpy.run_path(str(FOLDER / "areal_agent.py"))["ArpoAgent"](), Script(NATIVE, 6)

    async def play(address: str) -> list[Any]:
        plays = (agent.run(row, base_url=address, api_key="k", http_client=None) for row in rows(6))
        return await asyncio.gather(*plays, return_exceptions=True)

    with chat_server(scripted(script)) as server:
        rewards = asyncio.run(play(server.address))
        failed = asyncio.run(play(broken(server)))
    assert rewards == native_rewards(script)
    assert {type(reward) for reward in rewards} == {float}  # AReaL takes nothing else
    assert all(isinstance(error, FAULTS) for error in failed)


def test_art_gets_trajectories_and_exceptions(isolation: str) -> None:
    art = pytest.importorskip("art")
    from openai.types.chat.chat_completion import Choice

    rollout, script = runpy.run_path(str(FOLDER / "art_rollout.py"))["rollout"], Script(NATIVE, 6)

    async def groups(address: str, max_exceptions: int = 0) -> list[Any]:
        model = art.Model(name="m", project="p", inference_base_url=address, inference_api_key="k")
        waiting = (art.TrajectoryGroup(rollout(model, row) for _ in range(2)) for row in rows(6))
        return list(await art.gather_trajectory_groups(waiting, max_exceptions=max_exceptions, pbar_desc=None))

    with chat_server(scripted(script)) as server:
        played = asyncio.run(groups(server.address))
        failed = asyncio.run(groups(broken(server), max_exceptions=12))
    assert [[each.reward for each in group] for group in played] == [[reward] * 2 for reward in native_rewards(script)]
    assert [(len(group), len(group.exceptions)) for group in failed] == [(0, 2)] * 6
    trajectory = played[0].trajectories[0]
    choices = [each for each in trajectory.messages_and_choices if isinstance(each, Choice)]
    assert [each.finish_reason for each in choices] == ["tool_calls", "stop"]
    assert all(each.logprobs and each.logprobs.content for each in choices)
    assert [each["role"] for each in trajectory.messages()] == ["system", "user", "assistant", "tool", "assistant"]
