"""The Python tool's cells are stopped when their step is given up."""

import asyncio
import signal
import threading
import time
from typing import Any

import pytest

from arpo_env import ToolEnv
from arpo_env.tools.python import PythonTool
from envs_registry import Task
from sandbox import SyncInterpreter

TASK = Task("t", "q", ("4",), kind="math")
COUNT = "import time\nn = 0\nwhile True:\n    n += 1\n    time.sleep(0.001)"


def call(code: str) -> str:
    return f"<think>c</think><python>{code}</python>"


def begun(**options: Any) -> tuple[ToolEnv, SyncInterpreter]:
    """An episode whose Python session is open, and that session."""
    env = ToolEnv("arpo/Arithmetic-v0", **options)
    env.reset(options={"task": TASK})
    env.step(call("n = 0"))
    interpreter = env.tools["python"]._interpreter  # type: ignore[attr-defined]
    return env, interpreter.sync


def still_counts(python: SyncInterpreter) -> bool:
    first = python.run("n").value
    time.sleep(0.05)
    return python.run("n").value != first


def test_a_cancelled_step_stops_the_cell(isolation: str) -> None:
    async def cancelled() -> None:
        task = asyncio.create_task(env.astep(call(COUNT)))
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    env, python = begun(tool_timeout=60)
    started = time.monotonic()
    asyncio.run(cancelled())
    assert not still_counts(python)
    assert time.monotonic() - started < 20
    assert env.episode.outcome == "failed"
    env.reset(options={"task": TASK})
    assert "42" in env.step(call("6 * 7"))[0]
    env.close()


def test_a_keyboard_interrupt_in_a_step_stops_the_cell(isolation: str) -> None:
    env, python = begun(tool_timeout=60)
    main = threading.main_thread().ident
    assert main is not None
    threading.Timer(0.3, lambda: signal.pthread_kill(main, signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        env.step(call(COUNT))
    assert not still_counts(python)
    env.close()


def test_a_tool_that_is_given_up_for_its_deadline_stops_its_cell(isolation: str) -> None:
    class Hurried(PythonTool):
        keeps_time = voids = False

    tool = Hurried(timeout=60)
    env = ToolEnv("arpo/Arithmetic-v0", tools=[lambda: tool], tool_timeout=0.5)
    env.reset(options={"task": TASK})
    env.step(call("n = 0"))
    python = tool._interpreter.sync
    assert env.step(call(COUNT))[4]["tool"]["status"] == "timeout"
    assert not still_counts(python)
    env.close()
