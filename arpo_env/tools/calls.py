"""Calls of tools, with the same time limit and error handling for every tool; and typed functions as tools.

    def weather(city: str, days: int = 3) -> str:
        '''Tell the weather.'''

    gym.make("arpo/Arithmetic-v0", tools=["python", weather])

Name, description and schema come from the function; parameter descriptions come from its Google docstring. The function
may be `async`; otherwise it runs on its own thread and may block. A function has no state that is forked with an
episode; a tool with state subclasses `Tool`.

If a user's tool times out or raises, the model is told and the episode continues. Failures of the built-in
infrastructure, and of tools with `voids`, raise; that sample is void.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import json
import logging
import time
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from arpo_env.errors import ServiceError
from arpo_env.event_loop import run_in_daemon_thread
from arpo_env.net import redact_urls
from arpo_env.tools.tool import (
    SharedTool,
    Tool,
    ToolResult,
    function_name,
    function_schema,
    needs_arguments,
    shorten,
    type_hints,
)
from sandbox import SandboxError

logger = logging.getLogger(__name__)

INFRASTRUCTURE_ERRORS = (SandboxError, ServiceError, MemoryError)
CLEANUP_SECONDS = 1.0  # seconds for the clean-up of a cancelled call
_LONGEST_MESSAGE = 500  # characters
_warned: set[tuple[str, str]] = set()


async def call_tool(tool: Tool, arguments: Mapping[str, Any], timeout: float) -> ToolResult:
    """Call a tool and return the result that is shown to the model.

    Args:
        tool: the tool.
        arguments: arguments by name.
        timeout: time limit in seconds, raised to the tool's `min_timeout`. A tool with `keeps_time` is not interrupted.
            A thread cannot be stopped; it continues in the background and its result is dropped.
    """
    started = time.perf_counter()
    limit = None if tool.keeps_time else max(timeout, tool.min_timeout)
    try:
        value = await _with_time_limit(limit, _invoke_tool(tool, arguments))
        result = _timeout_result(tool, limit) if limit is not None and value is _TIMED_OUT else as_result(value)
    except Exception as error:
        if tool.voids or isinstance(error, INFRASTRUCTURE_ERRORS):
            raise
        hint = "set voids=True if this must void the sample"
        _warn_once(tool, f"raised {type(error).__name__} ({hint})", error)
        result = ToolResult(error_text(error), "error")
    result = await tool.shown(result, arguments)
    return result if result.seconds else replace(result, seconds=time.perf_counter() - started)


async def invoke(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """Call a function on its own thread, or await it if it is asynchronous."""
    if inspect.iscoroutinefunction(function):
        return await function(**arguments)
    # the thread sees the caller's context variables, such as the current record of a cache
    context = contextvars.copy_context()
    name = getattr(function, "__name__", "function")
    call = run_in_daemon_thread(lambda: context.run(_result_or_error, function, arguments), f"arpo-{name}")
    value, error = await asyncio.wrap_future(call)
    if error is not None:
        raise error
    return await value if inspect.isawaitable(value) else value


def as_result(value: Any) -> ToolResult:
    """Convert the return value of a tool to a result; values other than text are shown as JSON."""
    if isinstance(value, ToolResult):
        return value if isinstance(value.text, str) else replace(value, text=str(value.text))
    if isinstance(value, str) or value is None:
        return ToolResult(value or "(no output)")
    try:
        return ToolResult(json.dumps(value, ensure_ascii=False, default=str))
    except (TypeError, ValueError, RecursionError):
        return ToolResult(str(value))


def error_text(error: Exception) -> str:
    """Return the text that the model sees of an exception: type and message, without traceback and URL credentials.

    File names in operating system errors are omitted, since they are paths of this machine.
    """
    message = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    said = shorten(redact_urls(message), _LONGEST_MESSAGE)
    return f"Error: {type(error).__name__}: {said}" if said else f"Error: {type(error).__name__}"


_TIMED_OUT = object()


async def _with_time_limit(limit: float | None, work: Any) -> Any:
    """Return the result of `work`, or `_TIMED_OUT` after `limit` seconds, even if the work ignores its cancellation."""
    if limit is None:
        return await work
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=limit)
        if task.cancelled():
            raise RuntimeError("the tool cancelled its own call")
        return task.result() if done else _TIMED_OUT
    finally:
        if not task.done():
            # the tool may suppress its cancellation, so the wait for it is limited
            task.cancel()
            await asyncio.wait({task}, timeout=CLEANUP_SECONDS)
        if task.done() and not task.cancelled():
            task.exception()  # mark a late exception as retrieved, or asyncio logs it


async def _invoke_tool(tool: Tool, arguments: Mapping[str, Any]) -> Any:
    try:
        return await invoke(tool.call, arguments)
    except (SystemExit, KeyboardInterrupt) as error:  # raised by the tool's code; would end the thread of the loop
        raise RuntimeError(f"the tool ended with {type(error).__name__}") from error


def _result_or_error(function: Callable[..., Any], arguments: Mapping[str, Any]) -> tuple[Any, Exception | None]:
    """Call a function and return its result or exception; a future does not accept every exception."""
    try:
        return function(**arguments), None
    except Exception as error:
        return None, error
    except BaseException as error:
        return None, RuntimeError(f"the tool ended with {type(error).__name__}: {error}")


def _timeout_result(tool: Tool, limit: float) -> ToolResult:
    if tool.voids:
        raise TimeoutError(f"the tool {tool.name!r} did not answer within {limit:g} s")
    _warn_once(
        tool,
        f"exceeded its time limit of {limit:g} s (tool_timeout, min_timeout); a thread continues in the background",
    )
    return ToolResult(f"(no answer within {limit:g} s)", "timeout")


def _warn_once(tool: Tool, what: str, error: Exception | None = None) -> None:
    """Log an event of a tool, once per kind of event; an exception with its traceback."""
    if (tool.name, what) not in _warned:
        _warned.add((tool.name, what))
        logger.warning(
            "the tool %r %s. The model is told; further cases are not logged", tool.name, what, exc_info=error
        )


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


class FunctionTool(SharedTool):
    """A typed function with annotated parameters and a docstring as a tool."""

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


def tools_from_entry(entry: Any) -> Sequence[Tool]:
    """Return new tools for an entry that is not a name: a typed function, a `Tool` class, or a factory of tools.

    A function is a factory if it has no parameters, and its return annotation is `Tool` or a collection of tools or is
    missing.
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
