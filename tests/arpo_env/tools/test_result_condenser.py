"""Long results of found tools: a second model condenses them, its replies are recorded, and forks share them."""

from collections.abc import Callable
from typing import Any

import pytest

from arpo_env import ToolEnv
from arpo_env.errors import ServiceError
from arpo_env.tools.tool import ToolResult
from arpo_env.tools.tool_search import ToolRegistry
from envs_registry import Task
from tests.arpo_env.chat_server import ChatServer, chat_server, saying

LONG = "row 1: nothing\n" * 600 + "row 601: the key is 42\n"
CALL = '<tool_call>{"name": "table", "arguments": {"size": %d}}</tool_call>'


def table(size: int) -> str | ToolResult:
    """Return a table."""
    if size < -1:
        return ToolResult("x" * 9000, "error")
    if size < 0:
        raise ValueError("x" * 9000)
    return LONG[-size:]


def opened(server: ChatServer, **options: Any) -> ToolEnv:
    services = {"result_model": "m", "model_url": server.address, **options}
    tools: list[str | Callable[..., Any]] = ["tool_search"]
    registry = ToolRegistry.from_functions([table])
    env = ToolEnv(
        "arpo/Arithmetic-v0", tools=tools, protocol="deepagent", tool_documents=registry, max_tool_calls=9, **services
    )
    env.reset(options={"task": Task("t", "q", ("4",))})
    env.step("I look for a key. <tool_search>table</tool_search>")
    return env


def test_a_long_result_is_condensed_with_the_last_steps_and_the_call_in_view() -> None:
    with chat_server(saying("the key is 42")) as server:
        env = opened(server)
        shown = env.step(f"I want the key. {CALL % 9000}")[0]
        assert "the key is 42\n(condensed by another model from 9,000 characters)" in shown
        [prompt] = server.prompts
        for part in ("I look for a key.", "I want the key.", '"size": 9000', "row 601: the key is 42"):
            assert part in prompt
        assert "row 1" in env.step(CALL % 4000)[0]  # short enough
        for failing in (-1, -2):  # an error is shortened, one that the tool raises or returns
            assert "characters left out" in env.step(CALL % failing)[0]
        assert len(server.prompts) == 1
        env.close()


def test_forks_share_the_record_and_a_replay_needs_no_model(tmp_path: Any) -> None:
    with chat_server(saying("first", "second")) as server:
        env = opened(server, cache=str(tmp_path / "c.sqlite"))
        twin = env.fork()
        results = [each.step(CALL % 9000)[0] for each in (env, twin)]
        env.close()
        twin.close()
    assert "first" in results[0]
    assert results[1] == results[0]
    again = opened(server, cache=str(tmp_path / "c.sqlite"), cache_mode="replay")  # the server is gone
    assert again.step(CALL % 9000)[0] == results[0]
    again.close()


def test_a_model_that_writes_too_much_is_cut_and_one_that_writes_nothing_voids_the_sample() -> None:
    with chat_server(saying("y" * 9000)) as server:
        env = opened(server)
        assert len(env.step(CALL % 9000)[0]) < 5200
        env.close()
    with chat_server(saying(" ")) as server:
        env = opened(server)
        with pytest.raises(ServiceError):
            env.step(CALL % 9000)
        env.close()


def test_a_model_without_tool_search_is_refused() -> None:
    with pytest.raises(ValueError, match=r"result_model= is given.*add tools=\['tool_search'"):
        ToolEnv("arpo/Arithmetic-v0", result_model="m").reset(seed=0)
