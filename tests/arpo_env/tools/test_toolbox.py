"""The tools of an episode: made, forked and closed together, with nothing left over when one of them fails."""

import asyncio
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from arpo_env import Tool, ToolEnv, ToolResult
from arpo_env import event_loop as background
from arpo_env.search.search_backend import Hit, SearchBackend
from arpo_env.tools.tool import function_schema
from envs_registry import Task

TASK = Task("t", "q", ("4",), kind="math")
SERVER = """
from mcp.server.mcpserver import MCPServer
server = MCPServer("small")
@server.tool()
def add(a: int, b: int) -> int:
    return a + b
server.run()
"""


def first() -> str:
    """Do something."""
    return ""


class Held(Tool):
    """A tool that holds something until it is closed; `held` counts."""

    held = 0
    name = "first"
    schema = function_schema(first)

    def __init__(self) -> None:
        Held.held += 1
        self._open = True

    async def call(self, **arguments: Any) -> ToolResult:
        return ToolResult("done")

    async def reset(self, setup: str) -> None:
        pass

    async def fork(self, n: int) -> list[Tool]:
        return [Held() for _ in range(n)]

    async def close(self) -> None:
        Held.held -= self._open
        self._open = False


def second() -> str:
    """Do something."""
    return ""


class Broken(Held):
    """Neither forked, nor reset, nor closed."""

    name = "second"
    schema = function_schema(second)

    def __init__(self) -> None:
        self.fails = False
        self._open = False

    async def reset(self, setup: str) -> None:
        if self.fails:
            raise RuntimeError("no reset")

    async def fork(self, n: int) -> list[Tool]:
        raise RuntimeError("no fork")

    async def close(self) -> None:
        raise RuntimeError("no close")


@pytest.fixture
def env() -> ToolEnv:
    Held.held = 0
    made = ToolEnv("arpo/Arithmetic-v0", tools=[Held, Broken])
    made.reset(options={"task": TASK})
    return made


def test_copies_of_one_tool_are_closed_when_another_cannot_be_forked(env: ToolEnv) -> None:
    with pytest.raises(RuntimeError, match="no fork"):
        env.fork()
    assert Held.held == 1
    assert "done" in env.step("<first></first>")[0]  # and the original goes on


def test_a_tool_that_cannot_be_closed_does_not_keep_the_others_open() -> None:
    Held.held = 0
    env = ToolEnv("arpo/Arithmetic-v0", tools=[Broken, Held])
    with pytest.raises(RuntimeError, match="no close"):
        env.close()
    assert Held.held == 0


def test_an_environment_with_an_mcp_server_can_be_spawned_on_the_event_loop(tmp_path: Path) -> None:
    pytest.importorskip("mcp")
    script = tmp_path / "server.py"
    script.write_text(SERVER)
    env = ToolEnv("arpo/Arithmetic-v0", tools=[f"mcp:{sys.executable} {script}"])
    longer = ToolEnv("arpo/Arithmetic-v0", tools=[f"mcp:{sys.executable} {script}"], tool_timeout=90)
    assert [vars(one.tools["add"])["_timeout"] for one in (env, longer)] == [60, 90]

    async def spawn() -> ToolEnv:
        return env.spawn()

    future = asyncio.run_coroutine_threadsafe(spawn(), background.background_loop())
    fresh = future.result(20)
    assert list(fresh.tools) == list(env.tools)
    assert not set(map(id, fresh.tools.values())) & set(map(id, env.tools.values()))


def test_the_synchronous_face_on_its_own_loop_is_refused_instead_of_waiting_for_ever() -> None:
    async def inside() -> None:
        background.run(asyncio.sleep(0))

    future = asyncio.run_coroutine_threadsafe(inside(), background.background_loop())
    with pytest.raises(RuntimeError, match="asynchronous"):
        future.result(5)


class Slow(SearchBackend):
    """A backend that takes long to open, as one does whose index has to be built."""

    name = "slow"
    opened: list[str] = []  # noqa: RUF012

    async def search(self, query: str, k: int) -> list[Hit]:
        return [Hit("Title", "", f"about {query}")]

    async def close(self) -> None:
        pass


def test_a_backend_is_opened_once_and_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    def open_slowly(where: str, **_: Any) -> SearchBackend:
        Slow.opened.append(threading.current_thread().name)
        time.sleep(0.5)
        return Slow()

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
    assert len(Slow.opened) == 1
