"""What the policy can call: `Tool` and `ToolResult`, typed functions as tools, and calls with limits for every tool.

A tool belongs to one episode. It is asynchronous and has a JSON schema. If it has state, it can be forked with the
episode. A mistake of the *caller* (bad code, time-out) is returned as a `ToolResult`. If a user's tool times out or
raises, the model is told and the episode goes on. Failures of the built-in infrastructure (the sandbox died), and of
tools with `voids`, raise, so that they are never scored as a wrong answer.
"""

from __future__ import annotations

import asyncio
import contextvars
import copy
import functools
import inspect
import json
import logging
import time
import types
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

import docstring_parser

from arpo_env.episode import Call
from arpo_env.errors import ServiceError
from arpo_env.event_loop import run_in_daemon_thread
from arpo_env.net import redact_urls
from envs_registry import Task
from sandbox import SandboxError

logger = logging.getLogger(__name__)

INFRASTRUCTURE_ERRORS = (SandboxError, ServiceError, MemoryError)
CLEANUP_SECONDS = 1.0  # seconds for the clean-up of a cancelled call
_LONGEST_MESSAGE = 500  # characters
_warned: set[tuple[str, str]] = set()

# JSON schemas of tools (OpenAI's "function" format), derived from typed functions and their docstrings.

JsonSchema = dict[str, Any]
_TYPES: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
_VARIADIC: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


def function_schema(function: Callable[..., Any], name: str | None = None) -> JsonSchema:
    """Return the schema of a function: its name, the first paragraph of its docstring, and its typed parameters.

    Arguments that a `functools.partial` binds by name are not parameters.
    """
    name = name or _function_name(function)
    if inspect.isgeneratorfunction(_innermost(function)) or inspect.isasyncgenfunction(_innermost(function)):
        raise TypeError(f"{name} yields its result; return it, for instance as a list")
    hints = _type_hints(function)
    text = inspect.getdoc(_innermost(function)) or ""
    said = {each.arg_name: " ".join((each.description or "").split()) for each in docstring_parser.parse(text).params}
    parameters = _parameters(function)
    properties = {}
    for key, parameter in parameters.items():
        if key not in hints:
            raise TypeError(f"parameter {key!r} of {name} needs a type annotation")
        if parameter.kind in _VARIADIC or parameter.kind is parameter.POSITIONAL_ONLY:
            mark = _VARIADIC.get(parameter.kind, "")
            raise TypeError(
                f"parameter {mark + key!r} of {name} cannot be passed by name; declare named parameters instead"
            )
        properties[key] = {**_type_schema(hints[key], key), "description": said.get(key, "")}
    required = [key for key, value in parameters.items() if value.default is inspect.Parameter.empty]
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": " ".join(text.split("\n\n")[0].split()),
            "parameters": {"type": "object", "properties": properties, "required": required},
        },
    }


def _function_name(function: Callable[..., Any]) -> str:
    return str(getattr(_innermost(function), "__name__", type(function).__name__))


def _type_hints(function: Callable[..., Any]) -> Mapping[str, Any]:
    try:
        return typing.get_type_hints(_innermost(function))
    except NameError as error:
        raise TypeError(f"the annotations of {_function_name(function)} cannot be read: {error}; import it") from error


def _innermost(function: Callable[..., Any]) -> Any:
    return _innermost(function.func) if isinstance(function, functools.partial) else function


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    bound = function.keywords if isinstance(function, functools.partial) else {}
    parameters = inspect.signature(function).parameters
    return {key: value for key, value in parameters.items() if key != "self" and key not in bound}


def _type_schema(hint: Any, key: str) -> JsonSchema:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    # Literals must be tested by type: True == 1, so a lookup by value would confuse them.
    if origin is Literal and all(type(value) in _TYPES for value in inner):
        return {"type": _one_or_many(_TYPES[type(value)] for value in inner), "enum": list(inner)}
    if origin in (typing.Union, types.UnionType):
        return _union_schema(hint, inner, key)
    if origin is list and inner:
        return {"type": "array", "items": _type_schema(inner[0], key)}
    if dict in (origin, hint) or list in (origin, hint):  # `typing.List` alone has an origin
        return {"type": "object" if dict in (origin, hint) else "array"}
    if hint in _TYPES:
        return {"type": _TYPES[hint]}
    raise _unsupported_type(hint, key)


def _union_schema(hint: Any, inner: Sequence[Any], key: str) -> JsonSchema:
    """Return the schema of a union: of plain types, or of one type of any kind with None."""
    options = [_type_schema(option, key) for option in inner if option is not type(None)]
    if len(options) > 1 and any(set(option) != {"type"} or option["type"] == "object" for option in options):
        raise _unsupported_type(hint, key)
    kinds = [kind for option in options for kind in ([option["type"]], option["type"])[type(option["type"]) is list]]
    # `str | None` becomes the type ["string", "null"]
    optional = type(None) in inner
    joined = {**options[0], "type": _one_or_many([*kinds, *(["null"] if optional else [])])}
    # a validator tests `enum` as well as `type`, so None must be listed in both
    return {**joined, "enum": [*joined["enum"], None]} if optional and "enum" in joined else joined


def _one_or_many(kinds: Iterable[str]) -> str | list[str]:
    different = list(dict.fromkeys(kinds))
    return different[0] if len(different) == 1 else different


def _unsupported_type(hint: Any, key: str) -> TypeError:
    return TypeError(
        f"parameter {key!r} has type {hint}; a tool takes str, int, float, bool, dict, Literal of these, a list of "
        "them, or one of them or None"
    )


Status = Literal["ok", "error", "timeout", "refused"]


@dataclass(frozen=True)
class ToolResult:
    """The result of a call.

    Attributes:
        text: text shown to the model.
        status: "ok", "error" (the call itself failed), "timeout", or "refused" (a limit was reached).
        seconds: wall time of the call, measured by `call_tool`.
        images: pictures as data URLs, for models that see; those that read token ids get the text alone.
    """

    text: str
    status: Status = "ok"
    seconds: float = 0.0
    images: tuple[str, ...] = ()


class Tool(ABC):
    """One tool of one episode.

    Attributes:
        name: name under which the model calls the tool.
        schema: JSON schema of the arguments.
        context: what the model wrote and read before the call; set by the environment.
        earlier_calls: calls of all tools that ran in the episode before this one; set by the environment.
        reserved: names of the tools of the environment, which `found` must not have; set by the environment.
        shared_state: name of the external state that calls may change or depend on, equal for tools that share it.
        repeatable: calling it twice does no harm outside the episode, so that an episode whose infrastructure failed
            may be played again.
        voids: an exception or a time-out of `call` is an infrastructure failure and voids the sample. Otherwise it is
            shown to the model. `sandbox.SandboxError` and `ServiceError` always void the sample.
        min_timeout: minimum time limit of a call in seconds, if the environment's `tool_timeout` is shorter.
        keeps_time: `call` enforces its own time limit; the environment does not interrupt it.
        noisy: its results are random, from the seed of the episode. The environment then sets `seed` before `reset`.
        seed: seed of the episode.
        task: task of the episode, for tools that need its files or start page; set by the environment before `reset`.
            The tool must not show its answers.
    """

    name: str
    schema: JsonSchema
    context: Sequence[str] = ()
    earlier_calls: Sequence[Call] = ()
    reserved: frozenset[str] = frozenset()
    shared_state: str = ""
    repeatable: bool = False
    voids: bool = False
    min_timeout: float = 0.0
    keeps_time: bool = False
    noisy: bool = False
    seed: int = 0
    task: Task | None = None

    @property
    def found(self) -> Mapping[str, Tool]:
        """Further tools that the policy may call by now, by name, since it has found them; forks take them along."""
        return {}

    @abstractmethod
    async def call(self, **arguments: Any) -> Any:
        """Execute the call and return a `ToolResult`, a text, or a value that is shown as JSON.

        It may also be a synchronous method, which runs on a thread.

        Raises:
            Exception: the call failed; see `voids`.
        """

    async def shown(self, result: ToolResult, arguments: Mapping[str, Any]) -> ToolResult:
        """Return the result of a call as the model is shown it. The time limit of the call does not count here.

        Raises:
            ServiceError: a model that was asked failed.
        """
        return result

    @abstractmethod
    async def reset(self, setup: str) -> None:
        """Discard all state. `setup` is the task's code for a new interpreter; the tool must not show its text."""

    @abstractmethod
    async def fork(self, n: int) -> list[Tool]:
        """Return n copies with the same state that are independent from then on."""

    @abstractmethod
    async def close(self) -> None:
        """Release all resources; may be called twice."""


class SharedTool(Tool):
    """A tool without state of its own: `reset` and `close` do nothing, and a fork has shallow copies."""

    async def reset(self, setup: str) -> None:
        """Do nothing."""

    async def fork(self, n: int) -> list[Tool]:
        """Return n copies that share everything."""
        return [copy.copy(self) for _ in range(n)]

    async def close(self) -> None:
        """Do nothing."""


def shorten(text: str, limit: int) -> str:
    """Replace the middle of a text that is longer than `limit` characters by a note."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n... ({len(text) - 2 * half} characters left out) ...\n{text[len(text) - half :]}"


def usable_tools(tools: Mapping[str, Tool]) -> dict[str, Tool]:
    """Return the tools of an episode and those that they have found; a tool of the environment keeps its name."""
    found = {name: tool for owner in tools.values() for name, tool in owner.found.items()}
    return {**tools, **{name: tool for name, tool in found.items() if name not in tools}}


def usable_schemas(tools: Mapping[str, Tool]) -> list[JsonSchema]:
    """Return the schemas of `usable_tools`."""
    return [tool.schema for tool in usable_tools(tools).values()]


# Calls, with the same time limit and error handling for every tool.


async def call_tool(tool: Tool, arguments: Mapping[str, Any], timeout: float) -> ToolResult:
    """Call a tool and return the result that is shown to the model.

    The timeout in seconds is raised to the tool's `min_timeout`; a tool with `keeps_time` is not interrupted. A thread
    cannot be stopped: it continues in the background, and its result is dropped.
    """
    started = time.perf_counter()
    limit = None if tool.keeps_time else max(timeout, tool.min_timeout)
    try:
        value = await _with_time_limit(limit, _invoke_tool(tool, arguments))
        result = _late(tool, limit) if value is _TIMED_OUT else as_result(value)
    except Exception as error:
        if tool.voids or isinstance(error, INFRASTRUCTURE_ERRORS):
            raise
        hint = "set voids=True if this must void the sample"
        _warn_once(tool, f"raised {type(error).__name__} ({hint})", error)
        result = ToolResult(error_text(error), "error")
    result = await tool.shown(result, arguments)
    # no tokenizer takes half of a surrogate pair
    result = replace(result, text=result.text.encode("utf-8", "replace").decode())
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


def _late(tool: Tool, limit: float | None) -> ToolResult:
    if tool.voids:
        raise TimeoutError(f"the tool {tool.name!r} did not answer within {limit:g} s")
    _warn_once(
        tool, f"had no answer within {limit:g} s (tool_timeout, min_timeout); a thread goes on in the background"
    )
    return ToolResult(f"(no answer within {limit:g} s)", "timeout")


def _warn_once(tool: Tool, what: str, error: Exception | None = None) -> None:
    """Log an event of a tool, once per kind of event; an exception with its traceback, from the tool's own code on."""
    if (tool.name, what) not in _warned:
        _warned.add((tool.name, what))
        frames = error.__traceback__ if error else None
        while frames and frames.tb_frame.f_code.co_filename == __file__:
            frames = frames.tb_next
        shown = (type(error), error, frames) if error else None
        logger.warning(
            "the tool %r %s. The model is told; further cases are not logged", tool.name, what, exc_info=shown
        )


# Typed functions as tools, and factories of tools.

F = TypeVar("F", bound=Callable[..., Any])
_MARK = "__arpo_tool__"  # the settings are stored on the function itself, which stays an ordinary function


@typing.overload
def tool(function: F) -> F: ...
@typing.overload
def tool(**settings: Any) -> Callable[[F], F]: ...
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
        return functools.partial(tool, **settings)
    FunctionTool(function, **settings)  # raises at the definition if the function cannot be a tool
    setattr(function, _MARK, settings)
    return function


class FunctionTool(SharedTool):
    """A typed function as a tool: its name, annotated parameters and Google docstring make the schema.

    The function may be `async`; otherwise it runs on its own thread and may block. It has no state that is forked.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        name: str | None = None,
        min_timeout: float = 0.0,
        voids: bool = False,
        repeatable: bool = False,
        max_characters: int = 8000,
    ) -> None:
        if type(max_characters) is not int or max_characters < 1:
            raise ValueError(f"max_characters must be a whole number of at least 1, got {max_characters!r}")
        self.schema = function_schema(function, name)
        self.name, self.function = self.schema["function"]["name"], function
        self.min_timeout, self.voids, self.repeatable = min_timeout, voids, repeatable
        self._max_characters = max_characters

    async def call(self, **arguments: Any) -> ToolResult:
        """Call the function."""
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
        if _is_tool_function(entry):
            return [FunctionTool(entry, **getattr(entry, _MARK, {}))]
        made = entry()
    except TypeError as error:
        raise ValueError(
            f"{_function_name(entry)} in `tools` cannot be a tool: {error} (arguments of a factory are bound with "
            "functools.partial)"
        ) from error
    tools = [made] if isinstance(made, Tool) else made
    if not isinstance(tools, Sequence) or not all(isinstance(one, Tool) for one in tools):
        raise ValueError(
            f"the function {entry!r} in `tools` returned {made!r:.80}, not a Tool or a list of tools; if it is a tool "
            "itself, annotate its return type, as in `def now() -> str`, or mark it with arpo_env.tool"
        )
    return tools


def _is_tool_function(entry: Callable[..., Any]) -> bool:
    if hasattr(entry, _MARK):
        return True
    if not inspect.isroutine(_innermost(entry)):
        return False  # a class, or an object that can be called
    hint = _type_hints(entry).get("return")
    if _contains_tools(hint):
        return False
    needs = any(one.default is one.empty and one.kind not in _VARIADIC for one in _parameters(entry).values())
    return needs or "return" in _type_hints(entry)


def _contains_tools(hint: Any) -> bool:
    # generic types such as `list[Tool]` are examined by their arguments below
    if inspect.isclass(hint) and typing.get_origin(hint) is None:
        return issubclass(hint, Tool)
    return any(_contains_tools(inner) for inner in typing.get_args(hint))
