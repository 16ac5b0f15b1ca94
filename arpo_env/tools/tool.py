"""The interface of what the policy can call: `Tool` and `ToolResult`.

A tool belongs to one episode. It is asynchronous and has a JSON schema. If it has state, it can be forked with the
episode. A mistake of the *caller* (bad code, time-out) is returned as a `ToolResult`. A failure of the infrastructure
(the sandbox died) raises an exception, so that it is never scored as a wrong answer.
"""

from __future__ import annotations

import copy
import functools
import inspect
import re
import types
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from arpo_env.episode import Call
from envs_registry import Task

# JSON schemas of tools (OpenAI's "function" format), derived from typed functions with Google docstrings.

JsonSchema = dict[str, Any]
_TYPES: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
_VARIADIC: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


def function_schema(function: Callable[..., Any], name: str | None = None) -> JsonSchema:
    """Return the schema of a function: its name, the first paragraph of its docstring, and its typed parameters.

    Arguments that a `functools.partial` binds by name are not parameters.
    """
    name = name or function_name(function)
    hints = type_hints(function)
    text = inspect.getdoc(_innermost(function)) or ""
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
        properties[key] = {**_type_schema(hints[key], key), "description": _description(text, key)}
    required = [key for key, value in parameters.items() if value.default is inspect.Parameter.empty]
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": " ".join(text.split("\n\n")[0].split()),
            "parameters": {"type": "object", "properties": properties, "required": required},
        },
    }


def function_name(function: Callable[..., Any]) -> str:
    """Return the name of the tool made of this function."""
    return str(getattr(_innermost(function), "__name__", type(function).__name__))


def type_hints(function: Callable[..., Any]) -> Mapping[str, Any]:
    """Return the annotations of a function as types."""
    try:
        return typing.get_type_hints(_innermost(function))
    except NameError as error:
        raise TypeError(f"the annotations of {function_name(function)} cannot be read: {error}; import it") from error


def needs_arguments(function: Callable[..., Any]) -> bool:
    """Return whether a function has a parameter without a default."""
    parameters = _parameters(function).values()
    return any(one.default is inspect.Parameter.empty and one.kind not in _VARIADIC for one in parameters)


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
    if origin is list:
        return {"type": "array", "items": _type_schema(inner[0], key)}
    if origin is dict or hint in (dict, list):
        return {"type": "array" if hint is list else "object"}
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


def _description(text: str, key: str) -> str:
    """Return the description of a parameter in a Google docstring, including continuation lines."""
    # One iterator for both loops: continuation lines are those indented deeper than the parameter's name.
    lines = iter(text.split("\n"))
    for line in lines:
        match = re.match(rf"^(\s+){re.escape(key)}(?: \([^)]*\))?: (.+)$", line)
        if match:
            said = [match[2].strip()]
            for more in lines:
                if not more.strip() or len(more) - len(more.lstrip()) <= len(match[1]):
                    break
                said.append(more.strip())
            return " ".join(said)
    return ""


Status = Literal["ok", "error", "timeout", "refused"]


@dataclass(frozen=True)
class ToolResult:
    """The result of a call.

    Attributes:
        text: text shown to the model.
        status: "ok", "error" (the call itself failed), "timeout", or "refused" (a limit was reached).
        seconds: wall time of the call.
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
    return f"{text[:half]}\n... ({len(text) - 2 * half} characters left out) ...\n{text[-half:]}"
