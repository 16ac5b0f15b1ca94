"""`Episode`: the state of one episode as plain data, so that a fork is a copy."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any, Literal

from envs_registry import Task

Outcome = Literal["", "answered", "no answer", "truncated", "failed"]
_WORST_FIRST = ("timeout", "error", "ok", "refused")


@dataclass
class Call:
    """One tool call.

    Attributes:
        name: of the tool.
        status: how it ended.
        seconds: it took.
        arguments: it was given.
        shared_state: of the tool; see `Tool.shared_state`.
    """

    name: str
    status: str
    seconds: float = 0.0
    arguments: dict[str, Any] = field(default_factory=dict)
    shared_state: str = ""


@dataclass
class Turn:
    """One step: what the model wrote, the calls it made, and what the environment appended ("" after the last)."""

    text: str
    result: str = ""
    calls: list[Call] = field(default_factory=list)
    results: list[str] = field(default_factory=list)

    @property
    def tool(self) -> dict[str, str | float] | None:
        """The turn's calls in one line: their names, the worst status of those that ran, and the seconds in all."""
        if not self.calls:
            return None
        statuses = {call.status for call in self.calls}
        status = next((status for status in _WORST_FIRST if status in statuses), "ok")
        name = "+".join(dict.fromkeys(call.name for call in self.calls))
        return {"name": name, "status": status, "seconds": sum(call.seconds for call in self.calls)}


@dataclass
class Episode:
    """One episode so far.

    Attributes:
        task: what is asked.
        turns: the steps taken.
        malformed: turns that tried something unreadable.
        answer: the answer given, or None.
        outcome: "" while it runs.
        tokens_left: room for more tokens, where a rollout engine counts them; else None.
    """

    task: Task
    turns: list[Turn] = field(default_factory=list)
    malformed: int = 0
    answer: str | None = None
    outcome: Outcome = ""
    tokens_left: int | None = None

    @property
    def tools_used(self) -> list[str]:
        """Names of the tools that really ran, one entry a call."""
        return [call.name for turn in self.turns for call in turn.calls if call.status != "refused"]

    @property
    def transcript(self) -> str:
        """Everything after the prompt, as one text."""
        return "".join(turn.text + turn.result for turn in self.turns)

    def copy(self) -> Episode:
        """Return an independent copy."""
        return copy.deepcopy(self)
