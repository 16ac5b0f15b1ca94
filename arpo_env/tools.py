"""What the policy can call: the `Tool` interface, and the Python tool.

A tool belongs to one episode. It is asynchronous, has a JSON schema, and if it holds state it can be forked along
with the episode. A fault of the *caller* (bad code, time-out) is a `ToolResult` like any other; a fault of the
machinery (the sandbox died) is an exception, so that nobody takes it for a wrong answer. `calling` makes a call, and
`function_tool` makes tools of typed functions.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from arpo_env.episode import Call
from arpo_env.schema import JsonSchema, function_schema
from sandbox import Interpreter, Sandbox, SessionEnded, default_sandbox

Status = Literal["ok", "error", "timeout", "refused"]


@dataclass(frozen=True)
class ToolResult:
    """What came of a call.

    Attributes:
        text: what the model is shown.
        status: "ok", "error" (the call itself failed), "timeout", or "refused" (a limit was reached).
        seconds: wall time it took.
    """

    text: str
    status: Status = "ok"
    seconds: float = 0.0


class Tool(ABC):
    """One tool of one episode.

    Attributes:
        name: how the model calls it.
        schema: of its arguments.
        context: what the model wrote and read before the call; set by the environment.
        earlier_calls: those that ran in the episode before this one, of all tools; set by the environment.
        shared_state: name of what outside the episode a call may change or depend on; the same for tools that share it.
        repeatable: calling it twice does no harm outside the episode, so that an episode whose machinery failed may be
            played again.
        voids: an exception of `call`, or no answer in time, is a failure of the machinery and voids the sample. If not,
            the model is told of it. `sandbox.SandboxError` and `ServiceError` void the sample in any case.
        min_timeout: seconds that a call has at least, where the environment's `tool_timeout` is shorter.
        keeps_time: `call` keeps to a limit of its own; the environment does not cut it off.
    """

    name: str
    schema: JsonSchema
    context: Sequence[str] = ()
    earlier_calls: Sequence[Call] = ()
    shared_state: str = ""
    repeatable: bool = False
    voids: bool = False
    min_timeout: float = 0.0
    keeps_time: bool = False

    @abstractmethod
    async def call(self, **arguments: Any) -> Any:
        """Do it, and return a `ToolResult`, a text, or anything that is shown as JSON.

        It may also be a plain method, which is then called on a thread.

        Raises:
            Exception: something failed; see `voids`.
        """

    @abstractmethod
    async def reset(self, setup: str) -> None:
        """Forget everything; `setup` is the task's code for a fresh interpreter, whose text it must not show."""

    @abstractmethod
    async def fork(self, n: int) -> list[Tool]:
        """Return n copies with the same state, each independent from then on."""

    @abstractmethod
    async def close(self) -> None:
        """Give back what it holds; may be called twice."""


def python(code: str) -> str:
    """Run Python code in a session whose variables stay alive from call to call.

    Args:
        code: The source to run; the value of a last expression is shown.
    """
    raise NotImplementedError(code)  # the schema's source; `PythonTool.call` does the work


class PythonTool(Tool):
    """A live Python session in the sandbox, opened at the first call.

    Whatever the code does to its session is a result: one that had to be killed, or has ended by itself between two
    calls, is replaced by a fresh one, and the model is told.

    Args:
        timeout: seconds one call may take.
        sandbox: where to run; None takes the process-wide one at the first call.
        max_characters: a longer result keeps its head and tail.
        fresh: forget everything after each call, as the papers' tools do; the next one starts from the setup again.
    """

    name = "python"
    schema = function_schema(python)
    repeatable = voids = keeps_time = True

    def __init__(
        self,
        timeout: float = 10.0,
        sandbox: Sandbox | None = None,
        max_characters: int = 2000,
        fresh: bool = False,
    ) -> None:
        self._timeout = timeout
        self._sandbox = sandbox
        self._max_characters = max_characters
        self._fresh = fresh
        self._setup = ""
        self._interpreter: Interpreter | None = None
        self._ended = False

    async def call(self, **arguments: Any) -> ToolResult:
        """Run `code` and return what came of it."""
        started = time.perf_counter()
        if self._interpreter is None:
            sandbox = self._sandbox or default_sandbox()  # asked anew: a shared one that was closed has been replaced
            self._interpreter = await sandbox.interpreter(self._setup, self._fresh)
        try:
            execution = await self._interpreter.run(str(arguments["code"]), self._timeout)
        except ValueError as error:  # more code than can be sent
            return ToolResult(f"Error: {error}", "error", time.perf_counter() - started)
        text = shorten(execution.text, self._max_characters) or "(no output)"
        ended, self._ended = self._ended, False
        if not execution.alive and not self._fresh:
            await self._drop()
            ended = True
        if ended:
            text += "\n(the Python session had to be restarted: all variables are lost)"
        status: Status = {"ok": "ok", "timeout": "timeout"}.get(execution.status, "error")  # type: ignore[assignment]
        return ToolResult(text, status, time.perf_counter() - started)

    async def reset(self, setup: str) -> None:
        """Drop the session; the next call opens a fresh one and runs `setup` in it."""
        await self._drop()
        self._setup, self._ended = setup, False

    async def fork(self, n: int) -> list[Tool]:
        """Fork the live session n times in one step; before the first call there is nothing to fork.

        Where the code has ended the session, the copies begin with a fresh one, and their first call says so.
        """
        sessions: list[Interpreter | None] = [None] * n
        ended = self._ended
        if self._interpreter is not None:
            try:
                sessions = list(await self._interpreter.fork(n))
            except SessionEnded:
                ended = True
        copies: list[Tool] = []
        for session in sessions:
            copy = PythonTool(self._timeout, self._sandbox, self._max_characters, self._fresh)
            copy._setup, copy._interpreter, copy._ended = self._setup, session, ended
            copies.append(copy)
        return copies

    async def close(self) -> None:
        """Close the session."""
        await self._drop()

    async def _drop(self) -> None:
        interpreter, self._interpreter = self._interpreter, None
        if interpreter is not None:
            await interpreter.close()


def shorten(text: str, limit: int) -> str:
    """Keep the head and the tail of a text that is longer than `limit` characters."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n... ({len(text) - 2 * half} characters left out) ...\n{text[-half:]}"
