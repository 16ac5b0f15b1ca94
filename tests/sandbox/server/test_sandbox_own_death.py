"""What a session does to itself is a result; an error is the machinery's alone, and its text is not the session's."""

import asyncio
import errno
import os
import re
import time
from typing import Any

import pytest

from arpo_env.tools.python import PythonTool
from arpo_env.tools.tool import ToolResult
from sandbox import Sandbox, SessionEnded, SessionLost, SyncInterpreter

_REWRITE = """
import sys
frame = sys._getframe()
while not hasattr(frame.f_locals.get("self"), "confinement"): frame = frame.f_back
session = frame.f_locals["self"]
inside = type(session).serve.__globals__
"""
_LATER = "import ctypes, os, resource, signal, threading, time\ndef later(do): threading.Timer(0.1, do).start()\n"
DEATHS = {
    "exit": "later(lambda: os._exit(0))",
    "garbage": "later(lambda: os.write(199, b'garbage' * 100))",
    "other program": "import sys\nlater(lambda: os.execv(sys.executable, [sys.executable, '-c', '']))",
    "by a child": "parent = os.getpid()\nif not os.fork():\n    time.sleep(0.1); os.kill(parent, 9); os._exit(0)",
    "by the parent's leaving": "def leave():\n    if os.fork(): os._exit(0)\n    time.sleep(60)\nlater(leave)",
}


def end(python: SyncInterpreter, death: str) -> None:
    assert python.run(_LATER + DEATHS[death]).status == "ok"
    time.sleep(0.4)


@pytest.mark.parametrize("death", DEATHS)
def test_the_end_between_two_cells_is_the_result_of_the_next(python: SyncInterpreter, death: str) -> None:
    end(python, death)
    execution = python.run("1")
    assert (execution.status, execution.alive, execution.value) == ("killed", False, None)
    assert re.match("the session had ended before this cell: |the code has closed", str(execution.error))
    with pytest.raises(SessionLost, match="the session has ended"):
        python.run("1")


def test_files_and_forks_of_a_session_that_has_ended(python: SyncInterpreter) -> None:
    end(python, "exit")
    for attempt in (lambda: python.get("x"), lambda: python.put("x", b"")):
        with pytest.raises(OSError, match=os.strerror(errno.EIO)) as error:
            attempt()
        assert error.value.errno == errno.EIO
    with pytest.raises(SessionEnded, match="exit code 0"):
        python.fork(2)
    assert python.run("1").status == "killed"


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


FORGERIES = {
    "errno": "lambda *_: struct.pack('>IQ', 111, 0) + b'evil'",
    "no errno": "lambda *_: struct.pack('>IQ', 2**31, 0) + b'evil'",
    "too short": "lambda *_: b'evil'",
    "exception": "evil",
    "lost": "lambda *_: os._exit(1)",
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_failure_of_a_file_is_one_neutral_error(python: SyncInterpreter, forgery: str) -> None:
    python.run(f"import os, struct\n{_REWRITE}\nclass evil(Exception): pass\ndef fail(*_): raise evil")
    python.run(f"inside['answer_file'] = {FORGERIES[forgery].replace('evil', 'fail', forgery == 'exception')}")
    for attempt in (lambda: python.get("x"), lambda: python.put("x", b"")):
        with pytest.raises(OSError, match="Input/output error") as error:
            attempt()
        assert (type(error.value), error.value.errno, error.value.filename) == (OSError, errno.EIO, "x")


async def _called(tool: PythonTool, code: str) -> ToolResult:
    return await tool.call(code=code)


def test_the_python_tool_begins_anew_and_says_so(sandbox: Sandbox) -> None:
    async def play() -> None:
        tool = PythonTool(sandbox=sandbox)
        try:
            await _called(tool, "x = 1\n" + _LATER + DEATHS["exit"])
            await asyncio.sleep(0.6)
            copies = [copy for copy in await tool.fork(2) if isinstance(copy, PythonTool)]
            result = await _called(tool, "x")
            assert result.status == "error"
            assert "had ended" in result.text
            assert "had to be restarted" in result.text
            for one in (tool, *copies):
                restarted = one is not tool
                assert ("had to be restarted" in (await _called(one, "print(1)")).text) is restarted
                assert "NameError" in (await _called(one, "x")).text
                await one.close()
        finally:
            await tool.close()

    asyncio.run(play())
