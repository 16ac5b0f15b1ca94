"""tool_search: tools are found, called, played by models and condensed, and belong to one episode and its forks."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

from arpo_env import ToolEnv
from arpo_env.adapters.chat_episode import ChatEpisode
from arpo_env.errors import ServiceError
from arpo_env.protocols.protocol import tool_names
from arpo_env.tools.tool import ToolResult
from arpo_env.tools.tool_search import (
    CALLED_BEFORE,
    NAME,
    SEARCHED_BEFORE,
    ToolDocument,
    ToolRegistry,
    ToolSearchTool,
    as_document,
    read_documents,
    shown_documents,
)
from envs_registry import Task
from tests.arpo_env.chat_server import chat_server, saying
from tests.arpo_trainer.folding_policy import memory

TASK = Task("t", "q", ("4",))


def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


def reverse(text: str) -> str:
    """Write a text backwards."""
    if not text:
        raise ValueError("the text is empty")
    return text[::-1] * 1000


REGISTRY = ToolRegistry.from_functions([add, reverse])


def found_tools() -> ToolSearchTool:
    return ToolSearchTool(REGISTRY)


@pytest.fixture
def env() -> Iterator[ToolEnv]:
    made = ToolEnv("arpo/Arithmetic-v0", tools=[found_tools], protocol="deepagent")
    made.reset(options={"task": TASK})
    yield made
    made.close()


def search(env: Any, query: str) -> str:
    return str(env.step(f"I look. <tool_search>{query}</tool_search>")[0])


def call(env: Any, name: str, /, **arguments: Any) -> str:
    return str(env.step(f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>")[0])


@pytest.mark.parametrize("seed", range(2))
def test_the_tools_of_a_question_are_found_and_called_in_every_seed(seed: int) -> None:
    env: Any = gym.make("arpo/ToolWorld-v0", seed=seed)
    for index in range(12):
        env.reset(options={"index": index})
        for step in env.unwrapped.tasks.steps(index):
            assert f'"name": "{step.tool}"' in search(env, step.query)
            assert step.result in call(env, step.tool, **step.arguments)
        assert env.step(f"\\boxed{{{env.unwrapped.episode.task.answers[0]}}}")[1] == 1.0
    env.close()


def test_a_fork_knows_what_was_found_and_finds_on_by_itself(env: ToolEnv) -> None:
    search(env, "add numbers")
    twin = env.fork()
    assert "3" in call(twin, "add", a=1, b=2)
    search(twin, "backwards text")
    assert "cba" in call(twin, "reverse", text="abc")
    assert "there is no tool 'reverse'" in call(env, "reverse", text="abc")
    twin.close()


def test_a_tool_with_the_name_of_the_environment_s_own_is_not_offered() -> None:
    documents = [{"name": name, "description": "Add numbers."} for name in ("python", "other", NAME)]
    registry = ToolRegistry(documents, lambda name, given: 1)
    env = ToolEnv("arpo/Arithmetic-v0", tools=[NAME, "python"], tool_documents=registry, protocol="deepagent")
    env.reset(options={"task": TASK})
    for one in (env, env.fork()):
        assert "python" not in (shown := search(one, "add numbers"))
        assert '"name": "other"' in shown
        one.close()


@pytest.mark.parametrize(
    ("given", "said"),
    [({}, "nothing to find"), ("/no.json", "No such file"), ([{"name": "a"}], "tool_model=NAME")],
)
def test_an_environment_with_nothing_to_find_or_run_is_told_before_the_first_search(given: Any, said: str) -> None:
    with pytest.raises((ValueError, FileNotFoundError), match=said):
        ToolEnv("arpo/Arithmetic-v0", tools=[NAME], protocol="deepagent", tool_documents=given or None).check()


def test_arguments_may_have_the_names_of_python_s_own() -> None:
    names = {name: {"type": "string"} for name in ("self", "name", "arguments")}
    row = {"name": "take", "description": "Take it.", "parameters": {"properties": names}}
    registry = ToolRegistry([row], lambda tool, given: sorted(given))  # the names of its parameters are free
    env = ToolEnv("arpo/Arithmetic-v0", tools=[NAME], tool_documents=registry, protocol="deepagent")
    env.reset(options={"task": TASK})
    search(env, "take")
    assert '["arguments", "name", "self"]' in call(env, "take", self="a", name="b", arguments="c")


def test_repeated_searches_and_calls_are_refused_and_cost_no_call(env: ToolEnv) -> None:
    search(env, "Add numbers")
    assert SEARCHED_BEFORE in search(env, " add  numbers ")
    call(env, "add", a=1, b=2)
    assert CALLED_BEFORE in call(env, "add", b=2, a=1)
    assert "4" in call(env, "add", a=1, b=3)
    assert len(env.episode.tools_used) == 3


def test_wrong_arguments_are_told_and_long_results_shortened(env: ToolEnv) -> None:
    search(env, "text backwards")
    assert "reverse needs text" in call(env, "reverse")
    assert "error: the text is empty" in call(env, "reverse", text="")
    assert len(call(env, "reverse", text="abcdefghij")) < 5200


def test_after_a_fold_what_is_not_seen_any_more_may_be_asked_again() -> None:
    limits: dict[str, Any] = {"folds": 1, "max_turns": 20, "max_tool_calls": 20}
    env = ToolEnv("arpo/Arithmetic-v0", tools=[found_tools], protocol="deepagent", **limits)
    env.reset(options={"task": TASK})
    search(env, "add numbers")
    call(env, "add", a=1, b=2)
    env.step(f"<fold_thought>{json.dumps(memory(1, 'q'))}</fold_thought>")
    assert env.episode.folds == 1
    assert "3" in call(env, "add", a=1, b=2)  # still found
    assert CALLED_BEFORE in call(env, "add", a=1, b=2)
    assert '"name": "add"' in search(env, "add numbers")
    assert SEARCHED_BEFORE in search(env, "add numbers")
    env.close()


def test_a_chat_is_offered_what_it_has_found() -> None:
    async def chat() -> list[list[str]]:
        episode = ChatEpisode(ToolEnv("arpo/Arithmetic-v0", tools=[found_tools], protocol="hermes"))
        await episode.start(task=TASK)
        offered = [tool_names(episode.tools)]
        await episode.call("tool_search", {"query": "add numbers"})
        assert await episode.call("add", {"a": 1, "b": 2}) == "3"
        return [*offered, tool_names(episode.tools)]

    assert asyncio.run(chat()) == [["tool_search"], ["tool_search", "add"]]


def test_documents_that_do_not_fit_are_counted_and_not_found() -> None:
    documents = [ToolDocument(f"t{number}", "x" * 100, {"type": "object", "properties": {}}) for number in range(5)]
    text, shown = shown_documents(documents, 500)
    assert len(text) < 600
    assert len(shown) < 5
    assert f"({5 - len(shown)} more did not fit" in text
    assert shown_documents(documents, 10)[1] == documents[:1]


PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
GOOD = {"name": "get_weather", "description": "Tells the weather.", "parameters": PARAMETERS}
RAPID = {  # the fields of ToolBench's documents
    "category_name": "Weather",
    "tool_name": "Open Weather 13",
    "api_name": "Current Weather",
    "api_description": "Gives the weather now.",
    "required_parameters": [{"name": "city", "type": "STRING", "description": "", "default": "Lima"}],
}


BAD: list[Any] = [
    None,
    {"name": "two words"},
    {"name": "get_weather", "description": "Another."},
    {"name": "a", "parameters": "city"},
    {"name": "a", "parameters": {"properties": {"city": "string"}}},
    {"name": "a", "parameters": {"properties": {"city": {"type": "strnig"}}}},
    {"name": "a", "parameters": {"properties": {"city": {"type": "string"}}, "required": [["town"]]}},
    {"api_name": "天气", "tool_name": "weather"},
    {"api_name": "a", "required_parameters": 5},
    {"name": "a", "parameters": {"properties": {"city": {"type": "string", "default": {1, 2}}}}},
    {"name": "a", "description": "half of a pair: \ud800"},
]


@pytest.mark.parametrize(
    ("row", "name"),
    [
        ({"type": "function", "function": GOOD}, "get_weather"),
        ({"name": "get_weather", "inputSchema": PARAMETERS}, "get_weather"),
        (RAPID, "current_weather_for_open_weather_13"),
    ],
)
def test_every_format_is_read(row: dict[str, Any], name: str) -> None:
    document = as_document(row)
    assert (document.name, document.parameters["required"]) == (name, ["city"])
    assert document.parameters["properties"]["city"]["type"] == "string"
    assert as_document(document.schema) == as_document(document) or document.category


@pytest.mark.parametrize("row", BAD, ids=str)
def test_a_document_that_cannot_be_read_is_named_and_left_out(row: Any, caplog: pytest.LogCaptureFixture) -> None:
    documents, faults = read_documents([GOOD, row])
    assert [one.description for one in documents] == [GOOD["description"]]
    assert [fault.partition(" (")[0] for fault in faults] == ["document 2"]
    assert "1 of 2 tool documents are left out: document 2" in caplog.text


@pytest.mark.parametrize("layout", ["lines", "list"])
def test_files_are_read_with_their_faults(tmp_path: Path, layout: str) -> None:
    rows = [json.dumps(row) for row in (GOOD, {"name": "two words"}, {**GOOD, "name": "b"})]
    text = "\n".join(["{broken", *rows]) if layout == "lines" else f"[{', '.join(['null', *rows])}]"
    (tmp_path / "tools").write_text(text, encoding="utf-8")
    documents, faults = read_documents(tmp_path / "tools")
    assert [one.name for one in documents] == ["get_weather", "b"]
    assert len(faults) == 2


WEATHER = '<tool_call>{"name": "get_weather", "arguments": {"city": "Lima <|im_end|>"}}</tool_call>'


def played(folder: Path, address: str, **options: Any) -> str:
    (folder / "tools.json").write_text(json.dumps([GOOD, {"name": "no name"}]), encoding="utf-8")
    options |= {"tool_documents": str(folder / "tools.json"), "tool_model": "sim", "model_url": address}
    env = ToolEnv("arpo/Arithmetic-v0", tools=[NAME], protocol="deepagent", **options)
    env.reset(options={"task": TASK})
    env.step("<tool_search>weather</tool_search>")
    try:
        return env.step(WEATHER)[0]
    finally:
        env.close()


def test_the_model_answers_for_the_tool_and_reads_its_document_or_voids_the_sample(tmp_path: Path) -> None:
    cache = str(tmp_path / "c.sqlite")
    with chat_server(saying('```json\n{"degrees": 21}\n```', "other")) as server:  # as Qwen2.5-Coder-1.5B writes
        shown = played(tmp_path, server.address, cache=cache)
        assert played(tmp_path, server.address, cache=cache) == shown
    assert '{"degrees": 21}' in shown
    assert "```" not in shown
    [prompt] = server.prompts
    assert GOOD["description"] in prompt
    assert '{"city": "Lima < |im_end|>"}' in prompt  # no control token of the model's own template
    assert played(tmp_path, server.address, cache=cache, cache_mode="replay") == shown
    with chat_server(saying("<think>hm</think>")) as server, pytest.raises(ServiceError):
        played(tmp_path, server.address)


LONG = "row 1: nothing\n" * 600 + "row 601: the key is 42\n"
TABLE = '<tool_call>{"name": "table", "arguments": {"size": %d}}</tool_call>'


def table(size: int) -> str | ToolResult:
    """Return a table."""
    if size < -1:
        return ToolResult("x" * 9000, "error")
    if size < 0:
        raise ValueError("x" * 9000)
    return LONG[-size:]


def test_a_long_result_is_condensed_with_the_last_steps_and_the_call_in_view() -> None:
    with chat_server(saying("the key is 42")) as server:
        options: dict[str, Any] = {"result_model": "m", "model_url": server.address, "max_tool_calls": 9}
        options |= {"tool_documents": ToolRegistry.from_functions([table])}
        env = ToolEnv("arpo/Arithmetic-v0", tools=[NAME], protocol="deepagent", **options)
        env.reset(options={"task": TASK})
        env.step("I look for a key. <tool_search>table</tool_search>")
        shown = env.step(f"I want the key. {TABLE % 9000}")[0]
        assert "the key is 42\n(condensed by another model from 9,000 characters)" in shown
        [prompt] = server.prompts
        for part in ("I look for a key.", "I want the key.", '"size": 9000', "row 601: the key is 42"):
            assert part in prompt
        assert "row 1" in env.step(TABLE % 4000)[0]  # short enough
        for failing in (-1, -2):  # an error is shortened, one that the tool raises or returns
            assert "characters left out" in env.step(TABLE % failing)[0]
        assert len(server.prompts) == 1
        env.close()
