"""The interface of what the policy can call: `Tool` and `ToolResult`.

A tool belongs to one episode. It is asynchronous and has a JSON schema. If it has state, it can be forked with the
episode. A mistake of the *caller* (bad code, time-out) is returned as a `ToolResult`. A failure of the infrastructure
(the sandbox died) raises an exception, so that it is never scored as a wrong answer. `tool_call` executes a call, and
`function_tool` turns typed functions into tools.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from arpo_env.episode import Call
from arpo_env.tools.function_schema import JsonSchema
from envs_registry import Task

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

    @abstractmethod
    async def reset(self, setup: str) -> None:
        """Discard all state. `setup` is the task's code for a new interpreter; the tool must not show its text."""

    @abstractmethod
    async def fork(self, n: int) -> list[Tool]:
        """Return n copies with the same state that are independent from then on."""

    @abstractmethod
    async def close(self) -> None:
        """Release all resources; may be called twice."""


def shorten(text: str, limit: int) -> str:
    """Replace the middle of a text that is longer than `limit` characters by a note."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n... ({len(text) - 2 * half} characters left out) ...\n{text[-half:]}"
