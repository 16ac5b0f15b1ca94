"""What came of running one cell of code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "error", "timeout", "output_limit", "memory_limit", "killed", "exit", "interrupted"]


@dataclass(frozen=True)
class Execution:
    """The outcome of one cell.

    Attributes:
        stdout: what it wrote, subprocesses and C libraries included; bytes that are no UTF-8 are replaced.
        stderr: the same for standard error.
        value: `repr` of the last expression, None if there is none or it is None.
        error: a traceback of the user's own frames, ending in "ValueError: boom"; or why the cell was
            stopped.
        status: "ok"; "error" (an exception); "timeout"; "output_limit"; "memory_limit" (the kernel killed it for
            memory; a MemoryError is an "error"); "killed" (its process ended: crash, os._exit, a signal);
            "exit" (it called exit()); "interrupted" (by `Interpreter.interrupt`).
        duration: seconds from dispatch to the end.
        truncated: the middle of stdout, stderr, value or error was left out.
        alive: the session can go on, with its variables.
        isolation: what stood between the code and the machine, as `Sandbox.isolation`.
    """

    stdout: str
    stderr: str
    value: str | None
    error: str | None
    status: Status
    duration: float
    truncated: bool
    alive: bool
    isolation: str

    @property
    def timed_out(self) -> bool:
        """Whether it was stopped because it took too long."""
        return self.status == "timeout"

    @property
    def text(self) -> str:
        """What a model is shown: stdout, then the value, then stderr and the error; no newline at the end."""
        parts = (self.stdout, self.value, self.stderr, self.error)
        return "\n".join(part.rstrip("\n") for part in parts if part and part.strip("\n"))
