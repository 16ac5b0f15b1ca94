"""MCP servers in the record: played once for real, then without process or connection."""

import asyncio
import shlex
import shutil
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


class Notes:
    """A server that is there until it is ended, and the file of a record of it."""

    def __init__(self, folder: Path) -> None:
        self.script, self.file = folder / "server.py", folder / "run.sqlite"
        shutil.copy(SCRIPT, self.script)
        self.command = shlex.join([sys.executable, str(self.script)])

    def end(self) -> None:
        """Leave nothing that could be started or asked."""
        close_connections()
        self.script.unlink()

    def tools(self, mode: str) -> dict[str, McpTool]:
        cache, allow = Cache(self.file, mode=mode), ["write", "fail", "slow"]
        return {one.name: one for one in mcp_tools(self.command, cache=cache, allow=allow, stateless=True, timeout=2.0)}


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
    seen = [result(env, "clear"), result(env, "read"), result(env, "my_write", "a"), result(env, "read")]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its state is shared
        twin = env.fork()
    seen += [result(env, "my_write", "b"), result(twin, "my_write", "c")]
    seen += [result(twin, "read"), result(env, "read"), result(env, "read")]
    seen += [result(env, "fail", "no luck"), result(env, "read", "wrong"), result(env, "read")]
    return seen


def test_an_episode_with_a_stateful_server_is_replayed_without_it(notes: Notes) -> None:
    """The tools of which come from several functions, and are of one server."""

    def made() -> list[Tool]:
        return list(mcp_tools(notes.command, allow=["write"], prefix="my_"))

    def others() -> list[Tool]:
        return list(mcp_tools(notes.command, allow=["read", "clear", "fail"]))

    options: dict[str, Any] = {"tools": (made, others), "cache": notes.file, "max_tool_calls": 50, "max_turns": 50}
    recorded = forked_episode(ToolEnv("arpo/Arithmetic-v0", **options))
    assert "none" in recorded[1]
    assert "a, b, c" in recorded[6]
    assert "no luck" in recorded[9]
    notes.end()
    env = ToolEnv("arpo/Arithmetic-v0", **options, cache_mode="replay")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert forked_episode(env) == recorded
    assert all(tool.repeatable for tool in env.tools.values())


def test_a_stateless_tool_is_asked_once_and_its_failures_are_for_the_replay(notes: Notes) -> None:
    tools = notes.tools("record")
    assert [call(tools["write"], text="a"), call(tools["write"], text="a")] == [("1 notes", "ok")] * 2
    failures = [call(tools["fail"], reason="oh") for _ in range(2)]
    assert failures[0] != failures[1]  # it was asked again
    assert call(tools["slow"], seconds=60)[1] == "timeout"
    notes.end()
    tools = notes.tools("replay")
    assert call(tools["write"], text="a") == ("1 notes", "ok")
    assert call(tools["fail"], reason="oh") in failures
    assert call(tools["slow"], seconds=60) == ("(no answer within 2 s)", "timeout")


def test_a_call_that_was_not_recorded_is_named_with_the_cure(notes: Notes) -> None:
    call(notes.tools("record")["write"], text="a")
    with pytest.raises(CacheMiss, match=r"no mcp of .*server\.py.* for tool 'write', arguments \{'text': 'b'\}"):
        call(notes.tools("replay")["write"], text="b")
    [stateful] = mcp_tools(notes.command, cache=Cache(notes.file, mode="replay"), allow=["write"])
    with pytest.raises(CacheMiss, match="calls before 0"):
        call(stateful, text="a")
    with pytest.raises(CacheMiss, match=r"list 'tools'.*Records of that kind: 2 of .*server\.py"):
        mcp_tools("another-server --now", cache=Cache(notes.file, mode="replay"))


@pytest.mark.parametrize(
    ("server", "env", "headers", "name"),
    [
        ("srv --api-key hunter2 --port 1", {}, {}, "srv --api-key *** --port 1"),
        ("srv --api-key=hunter2 API_TOKEN=hunter2", {}, {}, "srv --api-key=*** API_TOKEN=***"),
        ("srv --header 'Authorization: Basic hunter2' --port 1", {}, {}, "srv --header Authorization: *** --port 1"),
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
    for command, mode in ((notes.command, "record"), ("elsewhere --now", "replay")):
        cache = Cache(notes.file, mode=mode)  # type: ignore[arg-type]
        [read] = mcp_tools(command, cache=cache, record_as="notes", allow=["read"])
        assert call(read) == ("none", "ok")
