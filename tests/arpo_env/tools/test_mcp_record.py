"""MCP servers in the record: played once for real, then without process or connection."""

import asyncio
import shlex
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp")

from arpo_env import Tool, ToolEnv, mcp_tools
from arpo_env.cache import Cache, CacheMiss
from arpo_env.tools.mcp_tools import McpServer, McpTool, close_connections
from envs_registry import Task
from tests.arpo_env.tools.test_mcp_tools import SCRIPT

TASK = Task("t", "q", ("4",), kind="math")
SERVER = """
import asyncio, sys
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
open(sys.argv[1], "a").write("started ")
server, notes = MCPServer("notes"), []
@server.tool()
def write(text: str) -> str:
    notes.append(text)
    return f"{len(notes)} notes"
@server.tool()
def read() -> str:
    return ", ".join(notes) or "none"
@server.tool()
def clear() -> str:
    notes.clear()
    return "cleared"
@server.tool()
def fail(reason: str) -> str:
    notes.append("failed")
    raise ToolError(f"{reason} {len(notes)}")
@server.tool()
async def slow() -> str:
    await asyncio.sleep(60)
server.run()
"""


class Notes:
    """A server that tells how often it was started, and the file of a record of it."""

    def __init__(self, folder: Path) -> None:
        self.script, self.log, self.file = folder / "server.py", folder / "starts", folder / "run.sqlite"
        self.script.write_text(SERVER)
        self.log.touch()
        self.command = shlex.join([sys.executable, str(self.script), str(self.log)])

    @property
    def starts(self) -> int:
        return self.log.read_text().count("started")

    def end(self) -> None:
        """Leave nothing that could be started or asked."""
        close_connections()
        self.script.unlink()
        self.log.write_text("")

    def tools(self, mode: str, **options: Any) -> dict[str, McpTool]:
        made = mcp_tools(self.command, cache=Cache(self.file, mode=mode), **options)
        return {tool.name: tool for tool in made}


@pytest.fixture
def notes(tmp_path: Path) -> Iterator[Notes]:
    yield Notes(tmp_path)
    close_connections()


def call(tool: McpTool, **arguments: Any) -> tuple[str, str]:
    result = asyncio.run(tool.call(**arguments))
    return result.text, result.status


def result(env: ToolEnv, name: str, argument: str = "{}") -> str:
    return str(env.step(f"<think>x</think><{name}>{argument}</{name}>")[4]["results"][0])


def forked_episode(env: ToolEnv) -> list[str]:
    """Write, fork, and go on differently in both branches, in turns."""
    env.reset(options={"task": TASK})
    seen = [result(env, "clear"), result(env, "read"), result(env, "write", "a"), result(env, "read")]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its state is shared
        twin = env.fork()
    seen += [result(env, "write", "b"), result(twin, "write", "c")]
    seen += [result(twin, "read"), result(env, "read"), result(env, "read")]
    seen += [result(env, "fail", "no luck"), result(env, "read", "wrong"), result(env, "read")]
    return seen


def test_an_episode_with_a_stateful_server_is_replayed_without_it(notes: Notes) -> None:
    options: dict[str, Any] = {"tools": (f"mcp:{notes.command}",), "cache": notes.file}
    options |= {"max_tool_calls": 50, "max_turns": 50}
    recorded = forked_episode(ToolEnv("arpo/Arithmetic-v0", **options))
    assert "none" in recorded[1]
    assert "a, b, c" in recorded[6]
    assert "no luck" in recorded[9]
    assert notes.starts == 1
    notes.end()
    env = ToolEnv("arpo/Arithmetic-v0", **options, cache_mode="replay")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert forked_episode(env) == recorded
    assert all(tool.repeatable and vars(tool)["_timeout"] == 60 for tool in env.tools.values())
    assert notes.starts == 0


def test_tools_that_a_function_makes_take_the_environment_s_record(notes: Notes) -> None:
    def made() -> list[Tool]:
        return list(mcp_tools(notes.command, allow=["write"], prefix="my_"))

    def others() -> list[Tool]:
        return list(mcp_tools(notes.command, allow=["read"]))

    seen = []
    for mode in ("record", "replay"):
        env = ToolEnv("arpo/Arithmetic-v0", tools=(made, others), cache=notes.file, cache_mode=mode)
        env.reset(options={"task": TASK})
        seen.append([result(env, "read"), result(env, "my_write", "x"), result(env, "read")])
        if mode == "record":
            notes.end()
    assert seen[0] == seen[1]
    assert "none" in seen[0][0]
    assert "x" in seen[0][2]
    assert notes.starts == 0


def test_a_stateless_tool_is_asked_once_and_its_failures_are_for_the_replay(notes: Notes) -> None:
    tools = notes.tools("record", stateless=True, timeout=2.0)
    assert [call(tools["write"], text="a"), call(tools["write"], text="a")] == [("1 notes", "ok")] * 2
    failures = [call(tools["fail"], reason="oh")[0] for _ in range(2)]
    assert failures[0] != failures[1]  # it was asked again
    assert call(tools["slow"])[1] == "timeout"
    notes.end()
    tools = notes.tools("replay", stateless=True)
    assert call(tools["write"], text="a") == ("1 notes", "ok")
    text, status = call(tools["fail"], reason="oh")
    assert (text in failures, status) == (True, "error")
    assert call(tools["slow"]) == ("(no answer within 2 s)", "timeout")
    assert notes.starts == 0


def test_a_call_that_was_not_recorded_is_named_with_the_cure(notes: Notes) -> None:
    call(notes.tools("record", stateless=True)["write"], text="a")
    with pytest.raises(CacheMiss, match=r"no mcp of .*server\.py.* for tool 'write', arguments \{'text': 'b'\}"):
        call(notes.tools("replay", stateless=True)["write"], text="b")
    with pytest.raises(CacheMiss, match="calls before 0"):
        call(notes.tools("replay")["write"], text="a")
    with pytest.raises(CacheMiss, match=r"list 'tools'.*Records of that kind: 2 of .*server\.py"):
        mcp_tools("another-server --now", cache=Cache(notes.file, mode="replay"))


@pytest.mark.parametrize(
    ("server", "env", "headers", "name"),
    [
        ("srv --api-key hunter2 --port 1", {}, {}, "srv --api-key *** --port 1"),
        ("srv --api-key=hunter2 API_TOKEN=hunter2", {}, {}, "srv --api-key=*** API_TOKEN=***"),
        ("srv --header 'Authorization: Bearer hunter2'", {}, {}, "srv --header Authorization: Bearer ***"),
        ("srv --header 'Authorization: Basic hunter2' --port 1", {}, {}, "srv --header Authorization: *** --port 1"),
        ("https://h/mcp?signature=hunter2&a=1", {}, {}, "https://h/mcp?signature=***&a=1"),
        ("srv postgres://me:hunter2@host/db", {}, {}, "srv postgres://***@host/db"),
        ("srv sk-hunter2hunter2hunter2", {}, {}, "srv ***"),
        ("srv --keyword cats --verbose", {}, {}, "srv --keyword cats --verbose"),
        ("srv", {"TZ": "UTC", "MY_API_KEY": "hunter2", "DB": "pg://a:hunter2@h"}, {}, "DB=pg://***@h TZ=UTC srv"),
        ("HTTPS://me:hunter2@Host.org:443/mcp", {}, {}, "https://host.org/mcp"),
        ("https://h/mcp?apiKey=hunter2&profile=b#x", {}, {}, "https://h/mcp?apiKey=***&profile=b"),
        ("https://h:8/mcp", {}, {"Authorization": "hunter2", "X-Team": "a"}, "X-Team=a https://h:8/mcp"),
        ("http://[::1]:80/mcp", {}, {"Cookie": "hunter2", "X-Api-Key": "hunter2"}, "http://[::1]/mcp"),
    ],
)
def test_a_server_s_name_holds_what_tells_it_apart_and_no_secret(
    server: str, env: dict[str, str], headers: dict[str, str], name: str
) -> None:
    parsed = McpServer.parse(server, env, headers)
    assert parsed.identity == name
    assert "hunter2" not in str(parsed) + repr(parsed)


def test_a_server_that_moved_is_found_under_its_given_name(notes: Notes) -> None:
    tools = mcp_tools(notes.command, cache=Cache(notes.file), record_as="notes", allow=["read"])
    assert call(tools[0]) == ("none", "ok")
    notes.end()
    moved = mcp_tools(f"elsewhere {SCRIPT}", cache=Cache(notes.file, mode="replay"), record_as="notes", allow=["read"])
    assert call(moved[0]) == ("none", "ok")
