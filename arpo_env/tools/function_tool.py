"""Typed functions as tools, and the tools of an entry of `tools` that is not a name.

    def weather(city: str, days: int = 3) -> str:
        '''Tell the weather.'''

    gym.make("arpo/Arithmetic-v0", tools=["python", weather])

Name, description and schema come from the function; parameter descriptions come from its Google docstring. The function
may be `async`; otherwise it runs on its own thread and may block. A function has no state that is forked with an
episode; a tool with state subclasses `Tool`.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from arpo_env.tools.execute_tool_call import as_result, invoke
from arpo_env.tools.tool import Tool, ToolResult, function_name, function_schema, needs_arguments, shorten, type_hints

F = TypeVar("F", bound=Callable[..., Any])
# The settings are stored on the function itself, so that a decorated function stays an ordinary function.
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
    """Mark a typed function as a tool. Only needed to change these settings, or if annotations are ambiguous.

    Args:
        function: the function, if the decorator is used without parentheses.
        settings: `name` (name for the model, default that of the function), `min_timeout` (minimum time limit in
            seconds, regardless of the environment's `tool_timeout`), `voids` (a failure voids the sample instead of
            being shown to the model), `repeatable` (calling it twice does no harm) and `max_characters` (longer results
            are shortened in the middle).

    Returns:
        The function itself.
    """
    if function is None:
        return functools.partial(_marked, _Settings(**settings))
    return _marked(_Settings(), function)


def _marked(settings: _Settings, function: Any) -> Any:
    function_schema(function, settings.name)  # raises at the definition if the function cannot be a tool
    setattr(function, _MARK, settings)
    return function


class FunctionTool(Tool):
    """A typed function as a tool.

    Args:
        function: a function with annotated parameters and a docstring.

    Raises:
        TypeError: a parameter cannot be described by a JSON schema.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        settings: _Settings = getattr(function, _MARK, _Settings())
        self.schema = function_schema(function, settings.name)
        self.name = self.schema["function"]["name"]
        self.function = function
        self.min_timeout, self.voids = settings.min_timeout, settings.voids
        self.repeatable, self._max_characters = settings.repeatable, settings.max_characters

    async def call(self, **arguments: Any) -> ToolResult:
        """Call the function; a synchronous one runs on its own thread."""
        result = as_result(await invoke(self.function, arguments))
        return replace(result, text=shorten(result.text, self._max_characters))

    async def reset(self, setup: str) -> None:
        """Do nothing, since a function has no state."""

    async def fork(self, n: int) -> list[Tool]:
        """Return n tools of the same function."""
        return [FunctionTool(self.function) for _ in range(n)]

    async def close(self) -> None:
        """Do nothing."""


def tools_from_entry(entry: Any) -> Sequence[Tool]:
    """Return new tools for an entry that is not a name: a typed function, a `Tool` class, or a factory of tools.

    A function is a factory if it has no parameters, and its return annotation is `Tool` or a collection of tools or is
    missing.

    Raises:
        ValueError: the entry is none of these.
    """
    if isinstance(entry, Tool):
        raise ValueError(
            f"a Tool instance belongs to one episode; pass the class {type(entry).__name__} or a function that makes it"
        )
    if not callable(entry) or (inspect.isclass(entry) and not issubclass(entry, Tool)):
        raise ValueError(f"a tool is a name, a typed function, or a factory of tools, not {entry!r:.80}")
    try:
        function = FunctionTool(entry) if _is_tool_function(entry) else None
    except TypeError as error:
        raise ValueError(f"{function_name(entry)} in `tools` cannot be a tool: {error}") from error
    return _call_factory(entry) if function is None else [function]


def _is_tool_function(entry: Callable[..., Any]) -> bool:
    # A partial is judged by the function that it wraps, since it is never a routine itself.
    base = entry.func if isinstance(entry, functools.partial) else entry
    if hasattr(entry, _MARK):
        return True
    if not inspect.isroutine(base):
        return False  # a class, or an object that can be called
    makes_tools = _contains_tools(type_hints(entry).get("return"))
    if makes_tools and needs_arguments(entry):
        raise TypeError("a factory of tools takes no arguments; bind them with functools.partial")
    return not makes_tools and ("return" in type_hints(entry) or needs_arguments(entry))


def _contains_tools(hint: Any) -> bool:
    # generic types such as `list[Tool]` are examined by their arguments below
    if inspect.isclass(hint) and typing.get_origin(hint) is None:
        return issubclass(hint, Tool)
    return any(_contains_tools(inner) for inner in typing.get_args(hint))


def _call_factory(entry: Callable[[], Any]) -> Sequence[Tool]:
    if inspect.isclass(entry) and needs_arguments(entry):
        raise ValueError(f"{entry.__name__} in `tools` has required arguments; bind them with functools.partial")
    made = entry()
    tools = [made] if isinstance(made, Tool) else made
    if not isinstance(tools, Sequence) or not all(isinstance(one, Tool) for one in tools):
        if inspect.iscoroutine(made):
            # an unawaited coroutine would only add a warning to the error
            made.close()
        raise ValueError(
            f"the function {entry!r} in `tools` returned {made!r:.80}, not a Tool or a list of tools; if it is a tool "
            "itself, annotate its return type, as in `def now() -> str`, or mark it with arpo_env.tool"
        )
    return tools
