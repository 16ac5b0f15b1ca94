"""Executes one call of a tool, with the same time limit, error handling and result conversion for every tool.

If a user's tool times out or raises, the model is told and the episode continues. Failures of the built-in
infrastructure, and of tools with `voids`, raise; that sample is void.
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

from arpo_env.errors import ServiceError
from arpo_env.event_loop import run_in_daemon_thread
from arpo_env.net import redact_urls
from arpo_env.tools.tool import Tool, ToolResult, shorten
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

    Raises:
        Exception: the infrastructure failed, or a tool with `voids` failed or timed out.
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
