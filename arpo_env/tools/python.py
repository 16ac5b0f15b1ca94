"""The Python tool: a persistent interpreter session in the sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from arpo_env.task_files.file_extractor import load_files
from arpo_env.tools.tool import Status, Tool, ToolResult, function_schema, shorten
from sandbox import Interpreter, Sandbox, SessionEnded, default_sandbox

MOST_CHARACTERS = 2000  # of a result; longer ones are shortened in the middle


def python(code: str) -> str:
    """Run Python code in a session whose variables stay alive from call to call.

    Args:
        code: The source to run; the value of a last expression is shown.
    """
    raise NotImplementedError(code)  # only the schema is used; `PythonTool.call` runs the code


class PythonTool(Tool):
    """A persistent Python session in the sandbox, opened at the first call.

    Whatever the code does to its session is a result. If the session was killed, or ended between two calls, it is
    replaced by a new one and the model is told. The files of the task are in the session's directory from the start.

    Args:
        timeout: time limit of one call in seconds.
        sandbox: where to run the code: a sandbox, or settings of the process-wide one (see `default_sandbox`).
    """

    name = "python"
    schema = function_schema(python)
    repeatable = voids = keeps_time = True

    def __init__(self, timeout: float = 10.0, sandbox: Sandbox | Mapping[str, Any] | None = None) -> None:
        self._timeout, self._sandbox = timeout, sandbox
        self._setup = ""
        self._interpreter: Interpreter | None = None
        self._ended = False
        self._note = ""

    async def call(self, **arguments: Any) -> ToolResult:
        """Run `code` and return its output."""
        if self._interpreter is None:
            self._interpreter = await self._open()
        try:
            execution = await self._interpreter.run(str(arguments["code"]), self._timeout)
        except ValueError as error:  # the code is too long to send
            return ToolResult(f"Error: {error}", "error")
        text = shorten(execution.text, MOST_CHARACTERS) or "(no output)"
        # set by `fork` if the session had ended by then
        ended, self._ended = self._ended, False
        if not execution.alive:
            await self._drop()
            ended = True
        if ended:
            text += "\n(the Python session had to be restarted: all variables are lost)"
        if self._note:
            text, self._note = f"{text}\n{self._note}", ""
        status: Status = {"ok": "ok", "timeout": "timeout"}.get(execution.status, "error")  # type: ignore[assignment]
        return ToolResult(text, status)

    async def reset(self, setup: str) -> None:
        """Drop the session; the next call opens a new one and runs `setup` in it."""
        await self._drop()
        self._setup, self._ended = setup, False

    async def fork(self, n: int) -> list[Tool]:
        """Fork the session n times in one step; before the first call there is no session to fork.

        If the code has ended the session, the copies start with a new one, and their first call tells the model.
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
            copy = PythonTool(self._timeout, self._sandbox)
            copy._setup, copy._interpreter, copy._ended, copy.task = self._setup, session, ended, self.task
            copies.append(copy)
        return copies

    async def close(self) -> None:
        """Close the session."""
        await self._drop()

    @property
    def sandbox(self) -> Sandbox:
        """Where the code runs."""
        # looked up at each start, since the shared sandbox may have been replaced
        return default_sandbox(self._sandbox)

    async def _open(self) -> Interpreter:
        sandbox = self.sandbox
        paths = self.task.files if self.task is not None else ()
        # on a thread only if there is something to read
        files, self._note = await asyncio.to_thread(load_files, paths, sandbox.limits) if paths else ({}, "")
        return await sandbox.interpreter(self._setup, files=files)

    async def _drop(self) -> None:
        interpreter, self._interpreter = self._interpreter, None
        if interpreter is not None:
            await interpreter.close()
