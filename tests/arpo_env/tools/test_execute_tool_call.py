"""One call of a tool: the time limit holds for every tool, and an exception of a user's tool is told to the model."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import arpo_env
from arpo_env import ServiceError, Tool, ToolEnv
from arpo_env.tools import tool as calling
from arpo_env.tools.tool import function_schema
from envs_registry import Task
from sandbox import SandboxError

TASK = Task("t", "q", ("4",), kind="math")
CALL, DONE = "<think>c</think><work></work>", "<think>d</think><answer>\\boxed{4}</answer>"


def nothing() -> str:
    return ""


def a_tool(call: Callable[..., Any], **attributes: Any) -> type[Tool]:
    """A Tool class with this `call`."""

    async def ignore(self: Any, *_: Any) -> None:
        pass

    methods = {"call": call, "reset": ignore, "close": ignore, "fork": ignore}
    return type("Work", (Tool,), {**methods, "name": "work", "schema": function_schema(nothing, "work"), **attributes})


def play(tool: Any, **options: Any) -> tuple[dict[str, Any], str]:
    """Call it once, then answer; return what came of the call, and what was shown."""
    env = ToolEnv("arpo/Arithmetic-v0", tools=[tool], **options)
    env.reset(options={"task": TASK})
    shown, *_, info = env.step(CALL)
    assert env.step(DONE)[1] == 1.0  # the episode goes on
    return info["tool"], shown


OVER = threading.Event()


def blocks() -> str:
    OVER.wait(20)
    return "too late"


async def sleeps() -> str:
    await asyncio.sleep(20)
    return "too late"


async def goes_on() -> str:
    try:
        await asyncio.sleep(20)
    except asyncio.CancelledError:
        await asyncio.sleep(20)
    return "too late"


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Any:
    OVER.clear()
    monkeypatch.setattr(calling, "_warned", set())
    monkeypatch.setattr(calling, "CLEANUP_SECONDS", 0.1)
    yield
    OVER.set()  # the thread that was left behind ends


LATE = [
    arpo_env.tool(name="work")(blocks),
    arpo_env.tool(name="work")(sleeps),
    arpo_env.tool(name="work")(goes_on),
    a_tool(lambda self: OVER.wait(20)),
]


@pytest.mark.parametrize("tool", LATE, ids=["thread", "loop", "stubborn", "plain-method"])
def test_the_time_limit_holds_for_every_tool(tool: Any) -> None:
    began = time.monotonic()
    call, shown = play(tool, tool_timeout=0.2)
    assert call["status"] == "timeout"
    assert "(no answer within 0.2 s)" in shown
    assert 0.2 <= call["seconds"] < time.monotonic() - began < 10


def raising(error: BaseException, later: bool = False) -> Callable[..., Any]:
    def fail(self: Any = None) -> str:
        raise error

    async def fail_later(self: Any = None) -> str:
        raise error

    return fail_later if later else fail


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("no such city"), "Error: ValueError: no such city"),
        (RuntimeError(), "Error: RuntimeError"),
        (FileNotFoundError(2, "No such file", "/home/me/keys.txt"), "Error: FileNotFoundError: No such file"),
        (OSError("http://me:secret@host/ broke off"), "Error: OSError: http://***@host/ broke off"),
        (TimeoutError(), "Error: TimeoutError"),
        (StopIteration(1), "Error: "),  # which no future can hold
        (SystemExit(3), "Error: RuntimeError: the tool ended with SystemExit"),
        (asyncio.CancelledError(), "Error: RuntimeError: the tool "),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_an_exception_is_told_and_the_episode_goes_on(later: bool, error: BaseException, told: str) -> None:
    call, shown = play(a_tool(raising(error, later)))
    assert call["status"] == "error"
    assert told in shown
    for leak in ("Traceback", "/home/me", "secret", __file__):
        assert leak not in shown


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("error", [SandboxError("gone"), ServiceError("search", "down"), MemoryError()])
def test_a_failure_of_our_machinery_voids_the_sample(later: bool, error: Exception) -> None:
    with pytest.raises(type(error)):
        play(a_tool(raising(error, later)))


def test_a_tool_that_says_so_voids_the_sample() -> None:
    fail = raising(ValueError("no such city"))
    for tool in (a_tool(fail, voids=True), arpo_env.tool(name="work", voids=True)(fail)):
        with pytest.raises(ValueError, match="no such city"):
            play(tool)
    with pytest.raises(TimeoutError, match=r"'work' did not answer within 0\.1 s"):
        play(a_tool(lambda self: OVER.wait(20), voids=True), tool_timeout=0.1)
