"""The Python tool's cells are stopped when their step is given up."""

import asyncio
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from arpo_env import ToolEnv
from arpo_env.tools.python import PythonTool
from envs_registry import Task
from tests.arpo_env.test_env import call

TASK = Task("t", "q", ("4",), kind="math")
COUNT = "import time\nn = 0\nwhile True:\n    n += 1\n    time.sleep(0.001)"


def cancel(env: ToolEnv) -> None:
    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(env.astep(call(COUNT)), 0.3))
    assert env.episode.outcome == "failed"


def interrupt(env: ToolEnv) -> None:
    main = threading.main_thread().ident or 0
    threading.Timer(0.3, lambda: signal.pthread_kill(main, signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        env.step(call(COUNT))


def wait_for_the_deadline(env: ToolEnv) -> None:
    assert env.step(call(COUNT))[4]["tool"]["status"] == "timeout"


class Hurried(PythonTool):
    keeps_time = voids = False


@pytest.mark.parametrize(
    ("give_up", "tool", "seconds"),
    [(cancel, "python", 60), (interrupt, "python", 60), (wait_for_the_deadline, lambda: Hurried(timeout=60), 0.5)],
    ids=["cancelled", "interrupted", "deadline"],
)
def test_a_step_that_is_given_up_stops_its_cell(
    isolation: str, give_up: Callable[[ToolEnv], None], tool: Any, seconds: float
) -> None:
    env = ToolEnv("arpo/Arithmetic-v0", tools=[tool], tool_timeout=seconds)
    env.reset(options={"task": TASK})
    env.step(call("n = 0"))
    python = env.tools["python"]._interpreter.sync  # type: ignore[attr-defined]
    started = time.monotonic()
    give_up(env)
    counted = python.run("n").value
    time.sleep(0.05)
    assert python.run("n").value == counted
    assert time.monotonic() - started < 20
    env.reset(options={"task": TASK})
    assert "42" in env.step(call("6 * 7"))[0]
    env.close()
