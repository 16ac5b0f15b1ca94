"""What the policy can call: the `Tool` interface and `ToolResult`.

A tool belongs to one episode. It is asynchronous, has a JSON schema, and if it holds state it can be forked along
with the episode. A fault of the *caller* (bad code, time-out) is a `ToolResult` like any other; a fault of the
machinery (the sandbox died) is an exception, so that nobody takes it for a wrong answer. `tool_call` makes a call, and
`function_tool` makes tools of typed functions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from arpo_env.episode import Call
from arpo_env.tools.json_schema import JsonSchema

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


def shorten(text: str, limit: int) -> str:
    """Keep the head and the tail of a text that is longer than `limit` characters."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n... ({len(text) - 2 * half} characters left out) ...\n{text[-half:]}"
