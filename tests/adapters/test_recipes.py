"""Recipes for frameworks that own the endpoint: ART and Agent Lightning for real, the others as far as they go."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from arpo_env import EnvFactory
from arpo_env.adapters import FAULTS
from arpo_env.adapters.task_rows import task_rows
from tests.arpo_env.chat_server import ChatServer, chat_server

from .chat_policy import scripted
from .scripts import Script, native_rewards

PAGE = Path(__file__).resolve().parents[2] / "docs" / "adapters" / "recipes.md"
NATIVE = EnvFactory("arpo/Arithmetic-v0", level=2, protocol="hermes")


def recipes() -> dict[str, str]:
    """Return the code of each framework."""
    found = re.findall(r"^## (.+?)\n\n```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return dict(found)


def run_recipe(name: str) -> dict[str, Any]:
    """Return the names that a recipe defines."""
    names: dict[str, Any] = {"__name__": "recipe"}
    exec(compile(recipes()[name], name, "exec"), names)
    return names


def rows(episodes: int) -> list[dict[str, Any]]:
    """Return exported rows."""
    return [json.loads(json.dumps(row)) for row in task_rows(NATIVE, "jsonl", episodes)]


def broken(server: ChatServer) -> str:
    """Return the address of an endpoint that answers nothing."""
    return server.address.replace("/v1", "/nothing")


def test_there_are_recipes_that_python_can_read() -> None:
    assert list(recipes()) == ["ART", "Agent Lightning", "AReaL", "rLLM", "slime"]
    for code in recipes().values():
        ast.parse(code)


def test_areal_s_agent_returns_the_reward_or_raises(isolation: str) -> None:
    agent, script = run_recipe("AReaL")["ArpoAgent"](), Script(NATIVE, 6)

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

    rollout, script = run_recipe("ART")["rollout"], Script(NATIVE, 6)

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


@contextlib.contextmanager
def lightning(endpoint: str) -> Iterator[str]:
    """Serve Agent Lightning's own application, in front of an endpoint."""
    import httpx
    import uvicorn
    from agentlightning.server.app import create_app

    proxy = {"model_name": "m", "include_log_probs": True, "include_routed_experts": False}
    proxy |= {"train": {"temperature": 1}, "val": {"temperature": 0.7}}
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(create_app({"key": "secret", "default_proxy": proxy}), log_level="error"))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    while not server.started:
        time.sleep(0.02)
    models = [{"model": "m", "endpoint": endpoint}]
    httpx.post(f"{address}/api/models", json=models, headers={"x-api-key": "secret"}).raise_for_status()
    yield address
    server.should_exit = True
    thread.join()


def test_agent_lightning_s_server_and_controller(
    isolation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("agentlightning")
    (tmp_path / "my_agents.py").write_text(recipes()["Agent Lightning"])
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(__file__).resolve().parents[2]}")
    monkeypatch.setenv("ARPO_SANDBOX", "unsafe_local")  # the controller starts a process for each rollout
    script = Script(NATIVE, 4)
    answers = scripted(script)

    def answer(body: dict[str, Any]) -> tuple[int, Any]:
        # the third task's second turn gets no answer, ever
        number = script.number_of(body["messages"][1]["content"])
        return (400, {"error": "broken"}) if number == 2 and len(body["messages"]) > 2 else answers(body)

    with chat_server(answer) as server, lightning(server.address) as address:
        states, events = asyncio.run(lightning_plays(address, rows(4)))
    assert states == ["succeeded", "succeeded", "failed", "succeeded"]
    native = native_rewards(script)
    for number, given in enumerate(events):
        rewards = [each["data"]["value"] for each in given if each["event_type"] == "reward"]
        turns = [each["data"] for each in given if each["event_type"] == "model_request"]
        if number == 2:  # the trainer skips rollouts without requests, and would take 0.0 for the reward of others
            assert (rewards, turns) == ([], [])
        else:
            assert rewards == [native[number]]
            assert len(turns) >= 2
            assert all(each["prompt_token_ids"] and each["response_token_ids"] for each in turns)


async def lightning_plays(address: str, tasks: list[dict[str, Any]]) -> tuple[list[str], list[list[dict[str, Any]]]]:
    """Enqueue a rollout for each row as the trainer does, let the local controller run them, and fetch their events."""
    from agentlightning.client import AgentLightningAsyncClient
    from agentlightning.controller.local_reconciler import LocalReconciler
    from omegaconf import OmegaConf

    local = {"agent_class": "my_agents.ArpoAgent", "env_map": {"ARPO_TASK": "input.extra_info"}}
    config = {"runner_type": "local", "agl_server": {"url": address, "key": "secret"}}
    config |= {"local_runner": {"maximum_size": 2, "poll_interval": 0.3}}
    async with AgentLightningAsyncClient(base_url=address, key="secret", timeout=60) as api:
        created = await api.post("/api/rollouts", json=[{"input": row, "config": {"local": local}} for row in tasks])
        identities = [each["rollout_id"] for each in created.json()]
        controller = LocalReconciler(api=api, config=OmegaConf.create(config))
        running = asyncio.create_task(controller.run())
        states: list[str] = []
        while not states or {"queuing", "running"} & set(states):
            await asyncio.sleep(0.3)
            details = [(await api.get(f"/api/rollouts/{each}")).json() for each in identities]
            states = [each["rollout"]["status"]["state"] for each in details]
        controller.stop()
        await running
        events = [(await api.get(f"/api/rollouts/{each}/events?format=triplet")).json() for each in identities]
    return states, events
