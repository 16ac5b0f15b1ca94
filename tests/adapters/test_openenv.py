"""The OpenEnv server, played by OpenEnv's own generic client over WebSockets."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openenv")

import requests
import websockets
from openenv import GenericEnvClient

from arpo_env import EnvFactory
from arpo_env.adapters import openenv as adapter
from arpo_env.adapters.package import write_package
from tests.waiting import free_port, wait_for

from .live_server import served
from .scripts import Script, breaking_sandbox, native_rewards, own_sandbox, script_for, sets

ROOT = Path(__file__).resolve().parents[2]
TURN = "<think>I compute.</think><python>{}</python>"


async def play(url: str, script: Script, number: int) -> float | None:
    async with GenericEnvClient(base_url=url) as client:
        result = await client.reset(index=number)
        messages = list(result.observation["messages"])
        while not result.done:
            message = script.message(messages)
            action = {"text": message["content"], "tool_calls": message.get("tool_calls", [])}
            result = await client.step(action)
            messages += [message, *result.observation["messages"]]
        return result.reward


async def play_all(url: str, script: Script, numbers: Any) -> list[float | None]:
    return list(await asyncio.gather(*(play(url, script, number) for number in numbers)))


@pytest.mark.parametrize("protocol", ["arpo-tags", "hermes"])
@pytest.mark.parametrize("env_id", sets())
def test_rewards_are_those_of_the_environment(env_id: str, protocol: str) -> None:
    script = script_for(env_id, protocol)
    with served(adapter.make_app(script.factory)) as url:
        rewards = asyncio.run(play_all(url, script, range(script.episodes)))
    assert rewards == native_rewards(script)
    assert {1.0, 0.0} <= set(rewards)


def test_a_broken_sandbox_is_an_error_and_the_session_can_be_reset() -> None:
    async def break_it(url: str, end: Any) -> None:
        async with GenericEnvClient(base_url=url) as client:
            await client.reset(index=0)
            await client.step({"text": TURN.format("x = 1")})
            end()
            with pytest.raises(RuntimeError, match="the environment failed, not the policy"):
                await client.step({"text": TURN.format("x")})
            with pytest.raises(RuntimeError, match="there is no reward"):
                await client.step({"text": "<think>a</think><answer>\\boxed{1}</answer>"})
            again = await client.reset(index=1)
            assert again.reward is None
            done = await client.step({"text": "<think>a</think><answer>\\boxed{-987654321}</answer>"})
            assert (done.done, done.reward) == (True, 0.0)

    with breaking_sandbox() as (factory, end), served(adapter.make_app(factory)) as url:
        asyncio.run(break_it(url, end))


def test_abandoned_sessions_leave_nothing() -> None:
    async def abandon(url: str) -> None:
        """Open 20 sessions that hold one of the sandbox each, and leave without a word."""
        clients = [GenericEnvClient(base_url=url) for _ in range(20)]
        await asyncio.gather(*(client.connect() for client in clients))
        await asyncio.gather(*(client.reset(index=number) for number, client in enumerate(clients)))
        results = await asyncio.gather(*(client.step({"text": TURN.format("1 + 1")}) for client in clients))
        assert all("2" in result.observation["text"] for result in results)
        for client in clients:
            client._ws.transport.abort()

    with own_sandbox() as (sandbox, factory), served(adapter.make_app(factory, max_sessions=20)) as url:
        asyncio.run(abandon(url))
        wait_for(lambda: sandbox.stats()["sessions"] == 0)
        assert sandbox.stats()["opened"] >= 20
        # all places are free again
        script = Script(factory, 6)
        assert asyncio.run(play_all(url, script, range(6))) == native_rewards(script)


def step(text: str) -> dict[str, Any]:
    return {"type": "step", "data": {"text": text}}


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (json.dumps(step("too early")), "reset"),
        (json.dumps({"type": "reset", "data": {"split": "tst", "index": 0}}), "Did you mean 'test'"),
        (json.dumps({"type": "reset", "data": {"split": "test"}}), "split and index together"),
        (json.dumps({"type": "step", "data": {"tool_calls": [{}]}}), "protocol='hermes'"),
        (json.dumps({"type": "reset", "data": {"level": 3}}), "reset takes seed, episode_id, split and index"),
    ],
)
def test_a_malformed_message_is_an_error_and_the_session_goes_on(message: str, said: str, arithmetic: str) -> None:
    async def send() -> None:
        async with websockets.connect(arithmetic.replace("http", "ws") + "/ws") as socket:
            await socket.send(message)
            answer = json.loads(await socket.recv())
            assert answer["type"] == "error"
            assert said in answer["data"]["message"]
            await socket.send(json.dumps({"type": "reset", "data": {"index": 0}}))
            assert json.loads(await socket.recv())["data"]["observation"]["messages"]

    asyncio.run(send())


@pytest.fixture(scope="module")
def arithmetic() -> Iterator[str]:
    with served(adapter.make_app("arpo/Arithmetic-v0", level=2)) as url:
        yield url


def test_the_task_api_names_tasks_without_answers(arithmetic: str) -> None:
    assert requests.get(f"{arithmetic}/list_environments").json() == ["Arithmetic-v0"]
    name = f"{arithmetic}/Arithmetic-v0"
    assert [split["name"] for split in requests.get(f"{name}/splits").json()] == ["train", "test"]
    assert requests.post(f"{name}/num_tasks", json={"split": "test"}).json() == {"num_tasks": 2**31}
    task = requests.post(f"{name}/task", json={"split": "test", "index": 5}).json()["task"]
    expected = EnvFactory("arpo/Arithmetic-v0", level=2, split="test")().tasks.task(5)
    assert task == {"id": expected.id, "index": 5, "split": "test", "question": expected.question}
    tasks = requests.post(f"{name}/task_range", json={"split": "test", "start": 4, "stop": 6}).json()["tasks"]
    assert tasks[1] == task

    async def question() -> str:
        async with GenericEnvClient(base_url=arithmetic) as client:
            return str((await client.reset(split="test", index=5)).observation["text"])

    assert asyncio.run(question()) == expected.question
    assert requests.post(f"{name}/task", json={"split": "test", "index": -1}).status_code == 400
    assert requests.post(f"{arithmetic}/step", json={"action": {"text": "x"}}).status_code == 409  # there is no session


def test_only_clients_with_the_token_and_no_web_pages_are_served() -> None:
    async def connect(url: str, **headers: str) -> int:
        try:
            async with websockets.connect(url.replace("http", "ws") + "/ws", additional_headers=headers):
                return 101
        except websockets.InvalidStatus as error:
            return error.response.status_code

    with served(adapter.make_app("arpo/Arithmetic-v0", token="secret"), "secret") as url:
        right = {"Authorization": "Bearer secret"}
        assert asyncio.run(connect(url, **right)) == 101
        assert asyncio.run(connect(url, Authorization="Bearer secreT")) == 401
        assert asyncio.run(connect(url, Origin="http://evil.example", **right)) == 403
        assert requests.post(f"{url}/reset", json={}).status_code == 401
        assert requests.get(f"{url}/health").status_code == 200


def test_the_folder_of_a_space_is_what_openenv_wants_and_serves(tmp_path: Path) -> None:
    from openenv.cli.__main__ import app as openenv
    from openenv.cli._validation import validate_running_environment
    from openenv.cli.commands.push import _validate_openenv_directory
    from typer.testing import CliRunner

    folder = tmp_path / "space"
    script = script_for("arpo/Arithmetic-v0")
    write_package(folder, script.factory, "openenv")
    assert _validate_openenv_directory(folder)[0] == "arpo-arithmetic-v0"
    validate = ["validate", "--level", "static", "--json", str(folder)]
    report = json.loads(CliRunner().invoke(openenv, validate).stdout)
    assert report["verdict"] == "pass"

    # as the Dockerfile starts it
    variables = {**os.environ, "ARPO_SANDBOX": "unsafe_local", "PYTHONPATH": f"{folder}:{ROOT}"}
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "server.app:app", "--port", str(port)]
    with subprocess.Popen(command, cwd=folder, env=variables, stderr=subprocess.DEVNULL) as server:
        try:
            url = f"http://127.0.0.1:{port}"
            wait_for(lambda: answers(url), 120)  # importing OpenEnv takes seconds
            assert validate_running_environment(url)["passed"]
            assert asyncio.run(play(url, script, 1)) == native_rewards(script)[1]
        finally:
            server.terminate()


def answers(url: str) -> bool:
    try:
        return requests.get(f"{url}/health", timeout=5).ok
    except requests.ConnectionError:
        return False
