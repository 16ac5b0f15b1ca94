"""The tools of an episode: made, forked and closed together, with nothing left over when one of them fails."""

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from arpo_env import Tool, ToolEnv, ToolResult, mcp_tools
from arpo_env import event_loop as background
from arpo_env.search.search_backend import Hit
from arpo_env.tools.tool import SharedTool, function_schema
from envs_registry import Task

TASK = Task("t", "q", ("4",), kind="math")


def first() -> str:
    """Do something."""
    return ""


class Held(SharedTool):
    """A tool that holds something until it is closed; `held` counts."""

    held = 0
    name = "first"
    schema = function_schema(first)

    def __init__(self) -> None:
        Held.held += 1
        self._open = True

    async def call(self, **arguments: Any) -> ToolResult:
        return ToolResult("done")

    async def fork(self, n: int) -> list[Tool]:
        return [Held() for _ in range(n)]

    async def close(self) -> None:
        Held.held -= self._open
        self._open = False


class Broken(Held):
    """Neither forked nor closed."""

    name = "second"
    schema = function_schema(first, "second")

    def __init__(self) -> None: ...

    async def fork(self, n: int) -> list[Tool]:
        raise RuntimeError("no fork")

    async def close(self) -> None:
        raise RuntimeError("no close")


class Other(Held):
    name = "third"
    schema = function_schema(first, "third")


def test_tools_are_closed_when_another_can_be_neither_forked_nor_closed() -> None:
    Held.held = 0
    env = ToolEnv("arpo/Arithmetic-v0", tools=[Held, Broken, Other])
    env.reset(options={"task": TASK})
    with pytest.raises(RuntimeError, match="no fork"):
        env.fork()
    assert Held.held == 2
    assert "done" in env.step("<first></first>")[0]  # and the original goes on
    with pytest.raises(RuntimeError, match="no close"):
        env.close()
    assert Held.held == 0


class Renamed(Held):
    name = "counter"


class Nameless(Tool):
    schema = function_schema(first)
    call = fork = close = reset = SharedTool.close


class Miscounted(Held):
    async def fork(self, n: int) -> list[Tool]:
        return [Held()]


def test_an_own_tool_that_could_not_be_called_or_forked_is_named() -> None:
    for made, has in ((Renamed, "'counter' and 'first'"), (Nameless, "None and 'first'")):
        with pytest.raises(ValueError, match=f"the tool {made.__name__} needs a name and a schema of that name.*{has}"):
            ToolEnv("arpo/Arithmetic-v0", tools=[made])
    env = ToolEnv("arpo/Arithmetic-v0", tools=[Miscounted])
    env.reset(options={"task": TASK})
    with pytest.raises(TypeError, match=r"Miscounted.fork\(2\) returned \[.*, not a list of 2 tools"):
        asyncio.run(env.afork(2))
    env.close()


def test_an_environment_with_an_mcp_server_can_be_spawned_on_the_event_loop() -> None:
    pytest.importorskip("mcp")
    from tests.arpo_env.tools.test_mcp_tools import COMMAND

    env = ToolEnv("arpo/Arithmetic-v0", tools=[lambda: mcp_tools(COMMAND, allow=["add"])])

    async def spawn() -> ToolEnv:
        return env.spawn()

    fresh = asyncio.run_coroutine_threadsafe(spawn(), background.background_loop()).result(20)
    assert list(fresh.tools) == ["add"]


def test_the_synchronous_face_on_its_own_loop_is_refused_instead_of_waiting_for_ever() -> None:
    async def inside() -> None:
        background.run(asyncio.sleep(0))

    future = asyncio.run_coroutine_threadsafe(inside(), background.background_loop())
    with pytest.raises(RuntimeError, match="asynchronous"):
        future.result(5)


def test_a_backend_is_opened_once_and_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []

    def open_slowly(where: str, **_: Any) -> Any:
        """As for a backend whose index has to be built."""
        opened.append(where)
        time.sleep(0.5)
        return SimpleNamespace(name=where, search=lambda query, k: asyncio.sleep(0, [Hit("T", "", f"about {query}")]))

    monkeypatch.setattr("arpo_env.search.open_search", open_slowly)
    env = ToolEnv("arpo/Arithmetic-v0", tools=["search"], search="slow")
    envs = [env, env.spawn(), env.spawn()]

    async def play() -> int:
        for one in envs:
            await one.areset(options={"task": TASK})
        asking = asyncio.gather(*(one.astep("<think>a</think><search>towns</search>") for one in envs))
        ticks = 0
        while not asking.done():
            await asyncio.sleep(0.02)
            ticks += 1
        assert all("about towns" in step[0] for step in await asking)
        return ticks

    assert asyncio.run(play()) > 5
    assert opened == ["slow"]
