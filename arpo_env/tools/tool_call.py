"""One call of a tool: its time limit, its exceptions, and its result, the same for every tool.

A tool of yours that takes too long or raises is a result that the model is told of, and the episode goes on. The
machinery of ours, and of a tool with `voids`, raises: that sample is void.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from arpo_env.net.daemon_threads import aside
from arpo_env.net.http import ServiceError
from arpo_env.net.http_errors import blotted
from arpo_env.tools.tool import Tool, ToolResult, shorten
from sandbox import SandboxError

logger = logging.getLogger(__name__)

MACHINERY = (SandboxError, ServiceError, MemoryError)
GRACE = 1.0  # seconds for what a cancelled call puts away
_LONGEST_MESSAGE = 500  # characters
_told: set[tuple[str, str]] = set()


async def call_tool(tool: Tool, arguments: Mapping[str, Any], timeout: float) -> ToolResult:
    """Call a tool and return what the model is shown.

    Args:
        tool: it.
        arguments: by name.
        timeout: seconds, raised to the tool's own `min_timeout`. A tool that keeps its time by itself (`keeps_time`) is
            not cut off here. A thread cannot be stopped: it is left behind, and its result dropped.

    Raises:
        Exception: the machinery failed, or a tool with `voids` did or took too long.
    """
    started = time.perf_counter()
    limit = None if tool.keeps_time else max(timeout, tool.min_timeout)
    try:
        value = await _within(limit, _called(tool, arguments))
        result = _late(tool, limit) if limit is not None and value is _LATE else as_result(value)
    except Exception as error:
        if tool.voids or isinstance(error, MACHINERY):
            raise
        hint = "where that must void the sample, set voids=True"
        _tell(tool, f"raised {type(error).__name__} ({hint})", error)
        result = ToolResult(error_text(error), "error")
    return result if result.seconds else replace(result, seconds=time.perf_counter() - started)


async def invoke(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """Call a function beside the event loop, or await it there if it is asynchronous."""
    if inspect.iscoroutinefunction(function):
        return await function(**arguments)
    context = contextvars.copy_context()
    name = getattr(function, "__name__", "function")
    value, error = await asyncio.wrap_future(aside(lambda: context.run(_outcome, function, arguments), f"arpo-{name}"))
    if error is not None:
        raise error
    return await value if inspect.isawaitable(value) else value


def as_result(value: Any) -> ToolResult:
    """Return what a tool returned as a result: a text as it is, anything else as JSON."""
    if isinstance(value, ToolResult):
        return value if isinstance(value.text, str) else replace(value, text=str(value.text))
    if isinstance(value, str) or value is None:
        return ToolResult(value or "(no output)")
    try:
        return ToolResult(json.dumps(value, ensure_ascii=False, default=str))
    except (TypeError, ValueError, RecursionError):
        return ToolResult(str(value))


def error_text(error: Exception) -> str:
    """Return what the model is told of an exception: type and message, no traceback, no keys in addresses.

    Of an error of the operating system the file's name is left out.
    """
    message = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    said = shorten(blotted(message), _LONGEST_MESSAGE)
    return f"Error: {type(error).__name__}: {said}" if said else f"Error: {type(error).__name__}"


_LATE = object()


async def _within(limit: float | None, work: Any) -> Any:
    """Return what `work` returns, or `_LATE`; it is not waited for longer than that, whatever it does with the end."""
    if limit is None:
        return await work
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=limit)
        if task.cancelled():
            raise RuntimeError("the tool cancelled its own call")
        return task.result() if done else _LATE
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=GRACE)
        if task.done() and not task.cancelled():
            task.exception()  # of one that failed after its time, nobody else asks


async def _called(tool: Tool, arguments: Mapping[str, Any]) -> Any:
    try:
        return await invoke(tool.call, arguments)
    except (SystemExit, KeyboardInterrupt) as error:  # of the tool's own code: it would end the loop's thread
        raise RuntimeError(f"the tool ended with {type(error).__name__}") from error


def _outcome(function: Callable[..., Any], arguments: Mapping[str, Any]) -> tuple[Any, Exception | None]:
    """Call, and return the result or the exception: some of these cannot be set on a future."""
    try:
        return function(**arguments), None
    except Exception as error:
        return None, error
    except BaseException as error:
        return None, RuntimeError(f"the tool ended with {type(error).__name__}: {error}")


def _late(tool: Tool, limit: float) -> ToolResult:
    if tool.voids:
        raise TimeoutError(f"the tool {tool.name!r} gave no answer within {limit:g} s")
    _tell(tool, f"took longer than {limit:g} s (tool_timeout, min_timeout); what runs on a thread goes on there")
    return ToolResult(f"(no answer within {limit:g} s)", "timeout")


def _tell(tool: Tool, what: str, error: Exception | None = None) -> None:
    """Log what happened to a tool, the first time, and an exception with its traceback."""
    if (tool.name, what) not in _told:
        _told.add((tool.name, what))
        logger.warning("the tool %r %s. The model is told, and this is logged once", tool.name, what, exc_info=error)
