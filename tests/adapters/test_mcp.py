"""The MCP server of an environment's tools, used by the SDK's client and by the library's own `mcp:` tools."""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

pytest.importorskip("mcp")

import httpx2
import mcp
from mcp.client.streamable_http import streamable_http_client

from arpo_env import EnvFactory, ToolEnv
from arpo_env.adapters import FAULTS
from arpo_env.adapters.mcp_server import HostedEpisodes, make_app
from arpo_env.tools.mcp_tools import close_connections, mcp_tools
from tests.waiting import wait_for

from .live_server import served
from .scripts import Script, breaking_sandbox, native_rewards, own_sandbox, script_for, sets


@contextlib.asynccontextmanager
async def connected(url: str, **headers: str) -> AsyncIterator[mcp.Client]:
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60, verify=False) as http,  # certificates take time to load
        mcp.Client(streamable_http_client(url, http_client=http)) as client,
    ):
        yield client


async def begin(client: mcp.Client, **choice: int) -> str:
    started = await client.call_tool("start_episode", choice)
    assert not started.is_error, text_of(started)
    return str(started.structured_content["episode"])


def text_of(result: Any) -> str:
    return "\n".join(block.text for block in result.content)


async def play(client: mcp.Client, script: Script, number: int, url: str = "") -> float | None:
    """Play a task by handle, or at the episode's own URL."""
    handle = await begin(client, index=number)
    if url:
        async with connected(f"{url}/mcp/{handle}") as own:
            await turns(own, script, number, {})
    else:
        await turns(client, script, number, {"episode": handle})
    reward = (await client.call_tool("episode_reward", {"episode": handle})).structured_content
    assert reward["done"]
    await client.call_tool("end_episode", {"episode": handle})
    return reward["reward"]


async def turns(client: mcp.Client, script: Script, number: int, handle: dict[str, str]) -> None:
    turn, said = 0, ""
    while "The episode has ended" not in said:
        message = script.turn(number, turn, said)
        calls = message.get("tool_calls", [])
        if calls:
            function = calls[0]["function"]
            with contextlib.suppress(ValueError):  # JSON that cannot be read does not get as far as the wire
                function = {**function, "arguments": json.loads(function["arguments"])}
            given = function["arguments"] if isinstance(function["arguments"], dict) else {}
            result = await client.call_tool(function["name"], {**given, **handle})
        else:
            result = await client.call_tool("answer", {"answer": message["content"], **handle})
        turn, said = turn + 1, text_of(result)


@contextlib.contextmanager
def hosted(factory: EnvFactory, token: str = "", **options: Any) -> Iterator[tuple[str, HostedEpisodes]]:
    episodes = HostedEpisodes(factory, show_reward=True, **options)
    with served(make_app(episodes, token), token) as url:
        yield url, episodes
    assert len(episodes) == 0


@pytest.mark.parametrize("place", ["handle", "URL"])
@pytest.mark.parametrize("env_id", sets())
def test_rewards_are_those_of_the_environment(env_id: str, place: str, isolation: str) -> None:
    script = script_for(env_id, "hermes")

    async def play_all(url: str) -> list[float | None]:
        async with connected(f"{url}/mcp") as client:
            own = url if place == "URL" else ""
            return await asyncio.gather(*(play(client, script, number, own) for number in range(script.episodes)))

    with hosted(script_for(env_id).factory) as (url, _):  # the policy of the environment writes tags
        rewards = asyncio.run(play_all(url))
    assert rewards == native_rewards(script)
    assert {1.0, 0.0, -1.0} <= set(rewards)


def test_the_library_s_own_tools_use_it(isolation: str) -> None:
    """An episode of the server is a tool of another environment, and keeps its variables from call to call."""
    try:
        with hosted(EnvFactory("arpo/Arithmetic-v0", level=2)) as (url, _):

            async def start() -> str:
                async with connected(f"{url}/mcp") as client:
                    return await begin(client)

            outer = ToolEnv("arpo/Arithmetic-v0", level=2, tools=[f"mcp:{url}/mcp/{asyncio.run(start())}"])
            assert list(outer.tools) == ["python"]
            outer.reset(seed=0)
            outer.step("<think>a</think><python>x = 41</python>")
            assert "42" in outer.step("<think>a</think><python>x + 1</python>")[0]
            outer.close()
    finally:
        close_connections()


def test_a_broken_sandbox_is_an_error_of_the_protocol_and_never_a_result() -> None:
    async def break_it(url: str, end: Any) -> str:
        async with connected(f"{url}/mcp") as client:
            with_task, alone = await begin(client, index=0), await begin(client)
            for handle in (with_task, alone):
                result = await client.call_tool("python", {"episode": handle, "code": "x = 1; x"})
                assert (text_of(result), result.is_error) == ("1", False)
            end()
            calls = [("python", {"code": "x"}, with_task), ("answer", {"answer": "1"}, with_task)]
            calls += [("python", {"code": code}, alone) for code in ("x", "2")]
            for name, arguments, handle in calls:
                with pytest.raises(mcp.MCPError, match="the environment failed, not the policy") as raised:
                    await client.call_tool(name, {"episode": handle, **arguments})
                assert raised.value.code == mcp.types.INTERNAL_ERROR
            with pytest.raises(mcp.MCPError, match="there is no reward"):
                await client.call_tool("episode_reward", {"episode": with_task})
            return alone

    try:
        with breaking_sandbox() as (factory, end), hosted(factory, idle_seconds=2) as (url, episodes):
            handle = asyncio.run(break_it(url, end))
            [python] = mcp_tools(f"{url}/mcp/{handle}")
            with pytest.raises(FAULTS, match="the environment failed"):  # so the sample is void here as well
                asyncio.run(python.call(code="1"))
            wait_for(lambda: len(episodes) == 0)  # void episodes are forgotten like others
    finally:
        close_connections()


def test_a_client_that_leaves_between_calls_or_in_the_middle_of_one_leaves_nothing() -> None:
    async def leave(url: str) -> None:
        async with connected(f"{url}/mcp") as client:
            result = await client.call_tool("python", {"episode": await begin(client, index=0), "code": "6 * 7"})
            assert text_of(result) == "42"
            call = client.call_tool("python", {"episode": await begin(client), "code": "import time; time.sleep(2)"})
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(call, 0.5)

    with own_sandbox() as (sandbox, factory), hosted(factory, idle_seconds=1) as (url, episodes):
        asyncio.run(leave(url))
        wait_for(lambda: len(episodes) == 0 and sandbox.stats()["sessions"] == 0)


@pytest.fixture(scope="module")
def arithmetic() -> Iterator[str]:
    episodes = HostedEpisodes(EnvFactory("arpo/Arithmetic-v0", level=2), max_episodes=12)
    with served(make_app(episodes)) as url:
        yield url


WRONG = [
    ("python", {"code": "1"}, "name the episode"),
    ("python", {"code": "1", "episode": "guessed"}, "there is no episode 'guessed'"),
    ("start_episode", {"index": "3"}, "whole numbers"),
    ("start_episode", {"index": -1}, "there is no task of index -1"),
]


@pytest.mark.parametrize("task", [{"index": 0}, {"seed": 0}, {}])
def test_a_wrong_call_is_an_error_that_the_model_sees_and_the_reward_is_hidden(
    task: dict[str, int], arithmetic: str, isolation: str
) -> None:
    async def calls() -> list[Any]:
        async with connected(f"{arithmetic}/mcp") as client:
            handle = {"episode": await begin(client, **task)}
            listed = [tool.name for tool in (await client.list_tools()).tools]
            assert listed == ["start_episode", "python", "answer", "end_episode"]
            asked = [("python", {"cod": "1"}), ("pyton", {"code": "1"}), ("episode_reward", {}), ("answer", {"a": 1})]
            asked = [(name, {**arguments, **handle}) for name, arguments in asked]
            results = [await client.call_tool(*call) for call in [*(call[:2] for call in WRONG), *asked]]
            await client.call_tool("end_episode", handle)
            return results

    results = asyncio.run(calls())
    assert all(result.is_error for result in results)
    assert all(said in text_of(result) for (_, _, said), result in zip(WRONG, results, strict=False))
    assert "reward" not in "".join(text_of(result) for result in results).replace("episode_reward", "")


def test_the_place_of_an_episode_offers_its_tools_alone(arithmetic: str) -> None:
    async def names(**choice: int) -> list[str]:
        async with connected(f"{arithmetic}/mcp") as client:
            handle = await begin(client, **choice)
            async with connected(f"{arithmetic}/mcp/{handle}") as own:
                tools = (await own.list_tools()).tools
                assert "episode" not in tools[0].input_schema["properties"]
                assert (await own.call_tool("start_episode", {})).is_error
            await client.call_tool("end_episode", {"episode": handle})
            return [tool.name for tool in tools]

    assert asyncio.run(names()) == ["python"]
    assert asyncio.run(names(index=1)) == ["python", "answer"]


def test_more_episodes_than_there_is_room_for_are_refused() -> None:
    async def crowd(url: str) -> Any:
        async with connected(f"{url}/mcp") as client:
            await begin(client)
            return await client.call_tool("start_episode", {})

    with hosted(EnvFactory("arpo/Arithmetic-v0"), max_episodes=1) as (url, _):
        result = asyncio.run(crowd(url))
    assert result.is_error
    assert "1 episodes are running" in text_of(result)


@pytest.mark.parametrize(
    ("path", "headers", "body", "status"),
    [
        ("/mcp", {}, "{}", 401),
        ("/mcp", {"Authorization": "Bearer secreT"}, "{}", 401),
        ("/mcp", {"Authorization": "Bearer secret", "Origin": "http://evil.example"}, "{}", 403),
        ("/mcp", {"Authorization": "Bearer secret"}, "no json", 400),
        ("/mcp/guessed", {"Authorization": "Bearer secret"}, "{}", 404),
    ],
)
def test_status_codes(path: str, headers: dict[str, str], body: str, status: int, guarded: str) -> None:
    kind = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    assert httpx2.post(f"{guarded}{path}", content=body, headers={**kind, **headers}).status_code == status


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    with hosted(EnvFactory("arpo/Arithmetic-v0", level=2), token="secret") as (url, _):
        yield url


def test_over_standard_input_and_output_there_is_one_episode() -> None:
    task = EnvFactory("arpo/Arithmetic-v0")().tasks.task(0)
    words = ["-m", "arpo_trainer.cli", "serve", "mcp", "arpo/Arithmetic-v0", "--show-reward"]

    async def use() -> Any:
        variables = {"ARPO_SANDBOX": "unsafe_local"}
        parameters = mcp.StdioServerParameters(command=sys.executable, args=words, env=variables)
        async with mcp.Client(mcp.stdio_client(parameters)) as client:
            names = [tool.name for tool in (await client.list_tools()).tools]
            assert names == ["python", "start_episode", "answer", "episode_reward"]
            await client.call_tool("python", {"code": "x = 41"})
            assert text_of(await client.call_tool("python", {"code": "x + 1"})) == "42"
            assert (await client.call_tool("answer", {"answer": task.answers[0]})).is_error  # there is no task yet
            started = await client.call_tool("start_episode", {"index": 0})
            assert started.structured_content["messages"][1]["content"] == task.question
            lost = await client.call_tool("python", {"code": "x"})
            assert lost.is_error
            assert "NameError" in text_of(lost)
            assert not (await client.call_tool("answer", {"answer": task.answers[0]})).is_error
            return (await client.call_tool("episode_reward", {})).structured_content

    assert asyncio.run(use()) == {"done": True, "reward": 1.0}
