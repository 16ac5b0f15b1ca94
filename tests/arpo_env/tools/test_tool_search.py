"""tool_search: tools are found by what they do, can be called from then on, and belong to one episode and its forks."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import pytest

from arpo_env import ToolEnv
from arpo_env.adapters.chat_episode import ChatEpisode
from arpo_env.protocols.protocol import tool_names
from arpo_env.tools.tool_search import (
    CALLED_BEFORE,
    NAME,
    SEARCHED_BEFORE,
    ToolDocument,
    ToolRegistry,
    ToolSearchTool,
    shown_documents,
)
from envs_registry import Task
from envs_registry.generated.toolworld import ToolStep
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


def play(env: Any, index: int) -> float:
    """Find, read and call what a question needs, and answer from what the tools said."""
    steps: tuple[ToolStep, ...] = env.unwrapped.tasks.steps(index)
    question, _ = env.reset(options={"index": index})
    said: list[str] = []
    for step in steps:
        shown = search(env, step.query).partition("<tool_call_result>")[2].partition("</tool_call_result>")[0]
        [document] = [one for one in json.loads(shown) if one["name"] == step.tool]
        # the values come from the question and from earlier results, their names from the document
        values = {name: step.arguments[name] for name in document["parameters"]["required"]}
        assert all(value in question + " ".join(said) for value in values.values())
        said.append(call(env, document["name"], **values).split("\n")[2])
    numbers = [int(text) for text in said if text.isdigit()]
    apart = "How far apart" in question
    answer = abs(numbers[0] - numbers[-1]) if apart else sum(numbers)
    return float(env.step(f"\\boxed{{{answer}}}")[1])


@pytest.mark.parametrize("seed", range(2))
def test_three_tools_are_found_read_and_combined_in_every_seed(seed: int) -> None:
    env: Any = gym.make("arpo/ToolWorld-v0", seed=seed)
    assert all(play(env, index) == 1.0 for index in range(12))
    env.close()


def test_a_tool_can_be_called_from_the_moment_it_is_found(env: ToolEnv) -> None:
    assert "there is no tool 'add'" in call(env, "add", a=1, b=2)
    assert '"name": "add"' in search(env, "sum of numbers to add")
    assert "3" in call(env, "add", a=1, b=2)
    assert [one.name for turn in env.episode.turns for one in turn.calls] == ["tool_search", "add"]


def test_a_fork_knows_what_was_found_and_finds_on_by_itself(env: ToolEnv) -> None:
    search(env, "add numbers")
    twin = env.fork()
    assert "3" in call(twin, "add", a=1, b=2)
    search(twin, "backwards text")
    assert "cba" in call(twin, "reverse", text="abc")
    assert "there is no tool 'reverse'" in call(env, "reverse", text="abc")
    twin.close()


def test_a_tool_with_the_name_of_the_environment_s_own_is_not_offered() -> None:
    document = {"name": "python", "description": "Add numbers."}
    registry = ToolRegistry(
        [document, {**document, "name": "other"}, {**document, "name": NAME}], lambda name, given: 1
    )
    env = ToolEnv("arpo/Arithmetic-v0", tools=[NAME, "python"], tool_documents=registry, protocol="deepagent")
    env.reset(options={"task": TASK})
    twin = env.fork()
    for one in (env, twin):
        assert "python" not in (shown := search(one, "add numbers"))
        assert '"name": "other"' in shown
        one.close()


@pytest.mark.parametrize(("given", "error"), [({}, ValueError), ({"tool_documents": "/no.json"}, FileNotFoundError)])
def test_an_environment_with_nothing_to_find_is_told_before_the_first_search(
    given: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        ToolEnv("arpo/Arithmetic-v0", tools=[NAME], protocol="deepagent", **given).check()


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


def test_wrong_arguments_are_told_and_long_results_shortened(env: ToolEnv) -> None:
    search(env, "text backwards")
    assert "reverse needs text" in call(env, "reverse")
    assert "error: the text is empty" in call(env, "reverse", text="")
    assert len(call(env, "reverse", text="abcdefghij")) < 5200


@pytest.mark.parametrize("protocol", ["hermes", "websailor"])
def test_found_tools_are_called_natively_as_well(protocol: str) -> None:
    env = ToolEnv("arpo/Arithmetic-v0", tools=[found_tools], protocol=protocol)
    env.reset(options={"task": TASK})
    env.step('<tool_call>{"name": "tool_search", "arguments": {"query": "add"}}</tool_call>')
    assert "3" in env.step('<tool_call>{"name": "add", "arguments": {"a": 1, "b": 2}}</tool_call>')[0]


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
