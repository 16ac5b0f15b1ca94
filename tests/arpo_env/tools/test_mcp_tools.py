"""MCP servers as tools: a real server, over stdio and over HTTP."""

import asyncio
import logging
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("mcp")

import httpx2

from arpo_env.net import ServiceError
from arpo_env.tools.mcp_tools import McpServer, McpTool, close_connections, mcp_tools
from arpo_env.tools.tool import ToolResult
from tests.waiting import free_port, listens, wait_for

SCRIPT = Path(__file__).with_name("mcp_server.py")
COMMAND = shlex.join([sys.executable, str(SCRIPT)])


@pytest.fixture(scope="module", autouse=True)
def _closed() -> Iterator[None]:
    yield
    close_connections()


@pytest.fixture(scope="module")
def http_server() -> Iterator[str]:
    port = free_port()
    with subprocess.Popen([sys.executable, str(SCRIPT), str(port)], stderr=subprocess.DEVNULL) as process:
        wait_for(lambda: listens(port))
        yield f"http://127.0.0.1:{port}/mcp"
        process.kill()


@pytest.fixture(params=["stdio", "http"])
def address(request: pytest.FixtureRequest) -> str:
    return COMMAND if request.param == "stdio" else str(request.getfixturevalue("http_server"))


def tool(address: str, name: str, **options: object) -> McpTool:
    return mcp_tools(address, allow=[name], **options)[0]  # type: ignore[arg-type]


def call(tool: McpTool, **arguments: object) -> ToolResult:
    return asyncio.run(tool.call(**arguments))


def test_slow_calls_end_at_the_limit_and_share_one_connection_side_by_side(address: str) -> None:
    def slow(seconds: float, **options: object) -> set[tuple[str, str]]:
        async def together() -> list[ToolResult]:
            one = tool(address, "slow", **options)
            return await asyncio.gather(*(one.call(seconds=seconds) for _ in range(20)))

        started = time.monotonic()
        found = {(result.status, result.text) for result in asyncio.run(together())}
        assert time.monotonic() - started < 9
        return found

    assert slow(30, timeout=0.5) == {("timeout", "(no answer within 0.5 s)")}
    assert slow(0.5) == {("ok", "done")}
    assert len({call(tool(address, "process.id")).text for _ in range(2)}) == 1


def test_reserved_and_unknown_names_and_a_server_that_cannot_start_are_told() -> None:
    with pytest.raises(ValueError, match="tool name 'reset' is reserved; set a prefix"):
        mcp_tools(COMMAND)
    assert call(tool(COMMAND, "reset", prefix="small_")).text == "reset"
    with pytest.raises(ValueError, match=r"no tool 'ad'.*add"):
        tool(COMMAND, "ad")
    with pytest.raises(ServiceError, match="No module named 'nowhere'"):
        mcp_tools(shlex.join([sys.executable, "-c", "import nowhere"]))


def test_a_fork_shares_the_server_and_says_so_once_it_matters() -> None:
    clear, write = tool(COMMAND, "clear"), tool(COMMAND, "write")
    call(clear)
    (early,) = asyncio.run(write.fork(1))
    call(write, text="a")
    with pytest.warns(RuntimeWarning, match="the state of its server cannot be forked"):
        one, other = asyncio.run(write.fork(2))
    seen = [asyncio.run(copy.call(text="b")).text for copy in (one, other, early)]
    assert seen == ["2 notes", "3 notes", "4 notes"]


def test_a_server_that_dies_voids_the_call_unless_it_is_stateless_and_is_started_anew(tmp_path: Path) -> None:
    before = call(tool(COMMAND, "process.id")).text
    with pytest.raises(ServiceError, match="was lost"):
        call(tool(COMMAND, "die_once"), marker=str(tmp_path / "died"))
    assert call(tool(COMMAND, "process.id")).text != before
    assert call(tool(COMMAND, "die_once", stateless=True), marker=str(tmp_path / "died again")).text == "alive"
    assert call(tool(COMMAND, "picture")).text == "(image left out)"


def test_a_command_gets_the_variables_it_is_given_and_not_all_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARPO_SECRET", "ours")
    reader = tool(COMMAND, "variable", env={"GIVEN": "yes"})
    assert call(reader, name="GIVEN").text == "yes"
    assert call(reader, name="ARPO_SECRET").text == "(unset)"


def test_the_server_ends_with_the_process_that_started_it() -> None:
    code = (
        "import asyncio; from arpo_env.tools.mcp_tools import mcp_tools;"
        f"print(asyncio.run(mcp_tools({COMMAND!r}, allow=['process.id'])[0].call()).text)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout), 0)


def test_a_key_in_the_address_is_in_no_error(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(ServiceError) as caught:
        mcp_tools("http://me:hunter2@127.0.0.1:9/mcp?someApiKey=hunter2")
    assert "http://127.0.0.1:9/mcp" in str(caught.value)
    logging.getLogger("httpx2").info("%s %s", 1, httpx2.URL("http://me:hunter2@host/?someApiKey=hunter2&q=1"))
    assert "1 http://***@host/?someApiKey=***&q=1" in caplog.text
    assert "hunter2" not in str(caught.value) + repr(McpServer.parse("http://h/?key=hunter2", {}, {})) + caplog.text
