"""What a session does to itself is a result; an error is the machinery's alone, and its text is not the session's."""

import asyncio
import errno
import os
import time
from typing import Any

import pytest

from arpo_env.tools.python import PythonTool
from sandbox import Sandbox, SessionEnded, SessionLost, SyncInterpreter

ENDS_LATER = "import os, threading\nthreading.Timer(0.1, os._exit, (0,)).start()"


def test_the_end_between_two_cells_is_the_result_of_the_next(python: SyncInterpreter) -> None:
    python.run(ENDS_LATER)
    time.sleep(0.4)
    for attempt in (lambda: python.get("x"), lambda: python.put("x", b"")):
        with pytest.raises(OSError, match=os.strerror(errno.EIO)) as error:
            attempt()
        assert error.value.errno == errno.EIO
    with pytest.raises(SessionEnded, match="exit code 0"):
        python.fork(2)
    execution = python.run("1")
    assert (execution.status, execution.alive, execution.value) == ("killed", False, None)
    assert "the session had ended before this cell: " in str(execution.error)
    with pytest.raises(SessionLost, match="the session has ended"):
        python.run("1")


def test_all_cells_that_wait_for_a_session_that_ends_have_a_result(sandbox: Sandbox) -> None:
    async def several() -> list[Any]:
        python = await sandbox.interpreter()
        cells = ("import time; time.sleep(0.2)", "import os; os._exit(0)", "1", "2")
        try:
            return await asyncio.gather(*(python.run(cell) for cell in cells))
        finally:
            await python.close()

    executions = asyncio.run(several())
    assert [execution.status for execution in executions] == ["ok", "killed", "killed", "killed"]


def test_the_python_tool_begins_anew_and_says_so(sandbox: Sandbox) -> None:
    async def play() -> None:
        tool = PythonTool(sandbox=sandbox)
        try:
            await tool.call(code=f"x = 1\n{ENDS_LATER}")
            await asyncio.sleep(0.6)
            copies: Any = await tool.fork(2)
            result = await tool.call(code="x")
            assert result.status == "error"
            assert "had ended" in result.text
            assert "had to be restarted" in result.text
            for one in (tool, *copies):
                restarted = one is not tool
                assert ("had to be restarted" in (await one.call(code="print(1)")).text) is restarted
                assert "NameError" in (await one.call(code="x")).text
                await one.close()
        finally:
            await tool.close()

    asyncio.run(play())
