"""A typed function is a tool: its schema, how it is called, and how it is told from a function that makes tools."""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import Iterator
from typing import Any, List, Literal  # noqa: UP035  (users write it)

import pytest

import arpo_env
from arpo_env import Tool, ToolEnv, ToolResult
from arpo_env.tools.tool import SharedTool, function_schema, shorten
from envs_registry import Task

TASK = Task("t", "How warm is it?", ("12",), kind="math")


def weather(city: str, days: int = 1, unit: Literal["C", "F"] = "C") -> str:
    """Tell the weather
    of a city.

    Args:
        city: where,
            as people call it.
        days: how far ahead.

    Returns:
        A sentence.
    """
    return f"{city}, {days} days: 12 {unit}"


async def later(city: str) -> str:
    await asyncio.sleep(0)
    return f"{city} later"


def nothing() -> str:
    return "called"


class Counter(SharedTool):
    """A tool with a state."""

    name = "count"
    schema = function_schema(nothing, "count")

    def __init__(self, start: int = 0) -> None:
        self.calls = start

    async def call(self, **arguments: Any) -> int:
        self.calls += 1
        return self.calls

    async def reset(self, setup: str) -> None:
        self.calls = 0


def made() -> list[Counter]:
    return [Counter()]


class Archive:
    def find(self, key: str, title: str) -> str:
        return f"{title} by {key}"


bound = functools.partial(Archive().find, key="secret")  # what is bound is no parameter


def make(*tools: Any, **options: Any) -> ToolEnv:
    env = ToolEnv("arpo/Arithmetic-v0", tools=tools, **options)
    env.reset(options={"task": TASK})
    return env


def result(env: ToolEnv, turn: str) -> str:
    shown = env.step(f"<think>c</think>{turn}")[0]
    return re.sub(r"^\n<result>\n|\n</result>\n$", "", shown)


def test_the_schema_is_the_function_s() -> None:
    properties = {
        "city": {"type": "string", "description": "where, as people call it."},
        "days": {"type": "integer", "description": "how far ahead."},
        "unit": {"type": "string", "enum": ["C", "F"], "description": ""},
    }
    parameters = {"type": "object", "properties": properties, "required": ["city"]}
    function = {"name": "weather", "description": "Tell the weather of a city.", "parameters": parameters}
    assert make(weather).schemas == [{"type": "function", "function": function}]


@pytest.mark.parametrize(
    ("turn", "shown"),
    [
        ("<weather>Lima</weather>", "Lima, 1 days: 12 C"),
        ('<weather>{"city": "Lima", "days": 3, "unit": "F"}</weather>', "Lima, 3 days: 12 F"),
        ('<weather>{"days": 3}</weather>', '{"days": 3}, 1 days: 12 C'),  # no city among the names: a text
        ('<weather>{"city": "Lima", "unit": "K"}</weather>', "must be one of 'C', 'F', not string."),
        ("<later>Lima</later>", "Lima later"),
        *(("<nothing></nothing>", "called"), ("<find>Emma</find>", "Emma by secret")),
    ],
)
def test_tags_call_it(turn: str, shown: str) -> None:
    assert result(make(weather, later, nothing, bound), turn).endswith(shown)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        *((None, "(no output)"), (True, "true")),
        *(({"city": "Zürich"}, '{"city": "Zürich"}'), ({(1, 2): 3}, "{(1, 2): 3}")),
        *((ToolResult("own", "error"), "own"), ("half of a pair: \ud83d", "half of a pair: ?")),
        ("x" * 9000, f"{'x' * 4000}\n... (1000 characters left out) ...\n{'x' * 4000}"),
    ],
)
def test_whatever_it_returns_is_shown(value: Any, shown: str) -> None:
    def give() -> Any:
        return value

    assert result(make(give), "<give></give>") == shown


@pytest.mark.parametrize(
    "entry",
    [Counter, made, lambda: Counter(), functools.partial(Counter, 5), functools.partial(made)],
    ids=["class", "function", "lambda", "partial-class", "partial-function"],
)
def test_what_makes_tools_still_does(entry: Any) -> None:
    assert result(make(entry), "<count></count>") == "1"


def test_the_decorator_names_it_and_leaves_the_function_alone() -> None:
    @arpo_env.tool(name="loud", max_characters=4, repeatable=True, min_timeout=30.0)
    def shout(text: str = "x") -> Any:
        return text.upper()

    @arpo_env.tool
    def now():  # type: ignore[no-untyped-def]  # its mark says what it is
        return "noon"

    env = make(shout, now)
    assert shout("a") == "A"
    assert "characters left out" in result(env, "<loud>abcdef</loud>")
    assert result(env, "<now></now>") == "noon"
    with pytest.raises(ValueError, match="max_characters must be a whole number of at least 1, got 0"):
        arpo_env.tool(max_characters=0)(later)
    assert shorten("abc", 1) == "\n... (3 characters left out) ...\n"
    loud = env.tools["loud"]
    assert (loud.repeatable, loud.min_timeout, loud.voids) == (True, 30.0, False)


def untyped(city): ...  # type: ignore[no-untyped-def]


def variadic(*cities: str) -> str:
    return ""


def unknown_name(city: NoSuchType) -> str:  # type: ignore[name-defined]  # noqa: F821
    return ""


def piecewise(city: str) -> Iterator[str]:
    yield city


def made_of(count: int) -> Tool:
    return Counter(count)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (untyped, "parameter 'city' of untyped needs a type annotation"),
        (variadic, r"parameter '\*cities' of variadic cannot be passed by name"),
        (unknown_name, "annotations of unknown_name cannot be read: name 'NoSuchType'"),
        (piecewise, "piecewise yields its result; return it"),
        (made_of, "made_of in `tools` cannot be a tool: .*missing 1 required positional argument.*functools.partial"),
        (lambda: 5, "returned 5, not a Tool .*annotate its return type, as in `def now"),
        (Counter(), "a Tool instance belongs to one episode; pass the class Counter"),
        (int, "a tool is a name, a typed function, or a factory of tools, not <class 'int'>"),
    ],
)
def test_what_is_no_tool_is_refused_with_the_cure(entry: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ToolEnv("arpo/Arithmetic-v0", tools=[entry])


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (list[str] | None, {"type": ["array", "null"], "items": {"type": "string"}}),
        *((dict[str, int], {"type": "object"}), (List, {"type": "array"})),  # noqa: UP006
        (Literal["a", 1], {"type": ["string", "integer"], "enum": ["a", 1]}),
        (Literal["a"] | None, {"type": ["string", "null"], "enum": ["a", None]}),
        *((hint, None) for hint in (bytes, list[str] | int, Literal[b"a"], dict | str, tuple[int, int])),
    ],
)
def test_types_are_those_that_json_has(hint: Any, schema: dict[str, Any] | None) -> None:
    def take(value: Any) -> None: ...

    take.__annotations__["value"] = hint
    if schema is None:
        with pytest.raises(TypeError, match=r"parameter 'value' has type .*; a tool takes str, int"):
            function_schema(take)
    else:
        assert function_schema(take)["function"]["parameters"]["properties"]["value"] == {**schema, "description": ""}
