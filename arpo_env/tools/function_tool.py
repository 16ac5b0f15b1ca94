"""A typed function as a tool, and what an entry of `tools` is that is no name.

    def weather(city: str, days: int = 3) -> str:
        '''Tell the weather.'''

    gym.make("arpo/Arithmetic-v0", tools=["python", weather])

Name, description and schema come from the function, and what is said of a parameter from its Google docstring. It may
be `async`; a plain one runs on a thread of its own, so it may block. A function has no state that is forked with an
episode: what keeps some is a `Tool`.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from arpo_env.tools.json_schema import function_name, function_schema, needs_arguments, type_hints
from arpo_env.tools.tool import Tool, ToolResult, shorten
from arpo_env.tools.tool_call import as_result, invoke

F = TypeVar("F", bound=Callable[..., Any])
_MARK = "__arpo_tool__"


@dataclass(frozen=True)
class _Settings:
    name: str | None = None
    min_timeout: float = 0.0
    voids: bool = False
    repeatable: bool = False
    max_characters: int = 8000


@typing.overload
def tool(function: F) -> F: ...
@typing.overload
def tool(
    *,
    name: str | None = None,
    min_timeout: float = 0.0,
    voids: bool = False,
    repeatable: bool = False,
    max_characters: int = 8000,
) -> Callable[[F], F]: ...
def tool(function: Any = None, **settings: Any) -> Any:
    """Mark a typed function as a tool; only needed for these settings, or where its annotations do not say so.

    Args:
        function: it, where the decorator has no brackets.
        settings: `name` (how the model calls it; the function's), `min_timeout` (seconds it has at least, whatever the
            environment's `tool_timeout`), `voids` (failing voids the sample; otherwise the model is told),
            `repeatable` (calling it twice does no harm) and `max_characters` (a longer result keeps head and tail).

    Returns:
        The function itself.
    """
    if function is None:
        return functools.partial(_marked, _Settings(**settings))
    return _marked(_Settings(), function)


def _marked(settings: _Settings, function: Any) -> Any:
    function_schema(function, settings.name)  # what cannot be a tool is refused here
    setattr(function, _MARK, settings)
    return function


class FunctionTool(Tool):
    """A typed function as a tool.

    Args:
        function: with annotated parameters and a docstring.

    Raises:
        TypeError: its parameters cannot be described.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        settings: _Settings = getattr(function, _MARK, _Settings())
        self.schema = function_schema(function, settings.name)
        self.name = self.schema["function"]["name"]
        self.function = function
        self.min_timeout, self.voids = settings.min_timeout, settings.voids
        self.repeatable, self._max_characters = settings.repeatable, settings.max_characters

    async def call(self, **arguments: Any) -> ToolResult:
        """Call the function; one that is not asynchronous runs on a thread of its own."""
        result = as_result(await invoke(self.function, arguments))
        return replace(result, text=shorten(result.text, self._max_characters))

    async def reset(self, setup: str) -> None:
        """Do nothing: a function keeps nothing."""

    async def fork(self, n: int) -> list[Tool]:
        """Return n tools of the same function."""
        return [FunctionTool(self.function) for _ in range(n)]

    async def close(self) -> None:
        """Do nothing."""


def tools_of(entry: Any) -> Sequence[Tool]:
    """Return fresh tools for an entry that is no name: a typed function, a `Tool` class, or what makes tools.

    A function makes tools if it takes nothing and its annotation says that it returns them, or says nothing at all.

    Raises:
        ValueError: it is none of these.
    """
    if isinstance(entry, Tool):
        raise ValueError(f"a Tool belongs to one episode: give the class {type(entry).__name__}, or what makes it")
    if not callable(entry) or (inspect.isclass(entry) and not issubclass(entry, Tool)):
        raise ValueError(f"a tool is a name, a typed function, or what makes a Tool; not {entry!r:.80}")
    try:
        function = FunctionTool(entry) if _is_tool_itself(entry) else None
    except TypeError as error:
        raise ValueError(f"{function_name(entry)} in `tools` cannot be a tool: {error}") from error
    return _made(entry) if function is None else [function]


def _is_tool_itself(entry: Callable[..., Any]) -> bool:
    base = entry.func if isinstance(entry, functools.partial) else entry
    if hasattr(entry, _MARK):
        return True
    if not inspect.isroutine(base):
        return False  # a class, or an object that can be called
    makes_tools = _holds_tools(type_hints(entry).get("return"))
    if makes_tools and needs_arguments(entry):
        raise TypeError("it returns tools, and nobody gives it its arguments; bind them with functools.partial")
    return not makes_tools and ("return" in type_hints(entry) or needs_arguments(entry))


def _holds_tools(hint: Any) -> bool:
    if inspect.isclass(hint) and typing.get_origin(hint) is None:
        return issubclass(hint, Tool)
    return any(_holds_tools(inner) for inner in typing.get_args(hint))


def _made(entry: Callable[[], Any]) -> Sequence[Tool]:
    if inspect.isclass(entry) and needs_arguments(entry):
        raise ValueError(f"{entry.__name__} in `tools` needs arguments; bind them with functools.partial")
    made = entry()
    tools = [made] if isinstance(made, Tool) else made
    if not isinstance(tools, Sequence) or not all(isinstance(one, Tool) for one in tools):
        if inspect.iscoroutine(made):
            made.close()
        raise ValueError(
            f"the function {entry!r} in `tools` gave {made!r:.80}, not a Tool or a list of them; if it is a tool "
            "itself, say what it returns, as in `def now() -> str`, or mark it with arpo_env.tool"
        )
    return tools
