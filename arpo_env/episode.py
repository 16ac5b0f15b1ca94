"""`Episode`: the state of one episode as plain data, so that a fork is a copy."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Literal

from envs_registry import Task

Outcome = Literal["", "answered", "no answer", "truncated", "failed"]


@dataclass
class Turn:
    """One step: what the model wrote and what the environment appended ("" after the last)."""

    text: str
    result: str = ""
    tool: str | None = None
    status: str = ""
    seconds: float = 0.0


@dataclass
class Episode:
    """One episode so far.

    Attributes:
        task: what is asked.
        turns: the steps taken.
        malformed: turns that tried something unreadable.
        answer: the answer given, or None.
        outcome: "" while it runs.
    """

    task: Task
    turns: list[Turn] = field(default_factory=list)
    malformed: int = 0
    answer: str | None = None
    outcome: Outcome = ""

    @property
    def tools_used(self) -> list[str]:
        """Names of the tools that really ran, one entry a call."""
        return [turn.tool for turn in self.turns if turn.tool and turn.status != "refused"]

    @property
    def transcript(self) -> str:
        """Everything after the prompt, as one text."""
        return "".join(turn.text + turn.result for turn in self.turns)

    def copy(self) -> Episode:
        """Return an independent copy."""
        return copy.deepcopy(self)
