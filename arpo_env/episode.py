"""`Episode`: the state of one episode as plain data, so that it can be forked by copying."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any, Literal

from envs_registry import Task

Outcome = Literal["", "answered", "no answer", "truncated", "failed"]
FOLD = "fold_thought"  # the action that folds the history, see `arpo_env.memory_folding`
_WORST_FIRST = ("timeout", "error", "ok", "refused")


@dataclass
class Call:
    """One tool call.

    Attributes:
        name: name of the tool.
        status: "ok", "error", "timeout" or "refused".
        seconds: wall time of the call.
        arguments: arguments of the call.
        shared_state: shared state of the tool; see `Tool.shared_state`.
    """

    name: str
    status: str
    seconds: float = 0.0
    arguments: dict[str, Any] = field(default_factory=dict)
    shared_state: str = ""


@dataclass
class Turn:
    """One step: the model's text, its calls, and the text that the environment appended ("" after the last step).

    `memory` is set if the step folded the history: the next one goes on from the question and this memory. `images` are
    the pictures that came with the results, as data URLs.
    """

    text: str
    result: str = ""
    calls: list[Call] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    memory: dict[str, Any] | None = None
    images: list[str] = field(default_factory=list)

    def content(self, text: str) -> str | list[dict[str, Any]]:
        """Return a text about the results as the content of a chat message: in OpenAI's parts if there are pictures."""
        if not self.images:
            return text
        pictures = [{"type": "image_url", "image_url": {"url": url}} for url in self.images]
        return [{"type": "text", "text": text}, *pictures]

    @property
    def tool(self) -> dict[str, str | float] | None:
        """Summary of the turn's calls: their names, the worst status of the executed ones, and the total seconds."""
        if not self.calls:
            return None
        statuses = {call.status for call in self.calls}
        status = next((status for status in _WORST_FIRST if status in statuses), "ok")
        name = "+".join(dict.fromkeys(call.name for call in self.calls))
        return {"name": name, "status": status, "seconds": sum(call.seconds for call in self.calls)}


@dataclass
class Episode:
    """The state of an episode.

    Attributes:
        task: the task.
        turns: the turns so far.
        malformed: number of turns that could not be parsed.
        answer: the final answer, or None.
        outcome: "" while the episode runs.
        tokens_left: remaining token budget if a rollout engine counts tokens, else None.
    """

    task: Task
    turns: list[Turn] = field(default_factory=list)
    malformed: int = 0
    answer: str | None = None
    outcome: Outcome = ""
    tokens_left: int | None = None

    @property
    def tools_used(self) -> list[str]:
        """Names of the tools that were executed, one entry per call; a fold is not one of them."""
        calls = (call for turn in self.turns for call in turn.calls)
        return [call.name for call in calls if call.status != "refused" and call.name != FOLD]

    @property
    def folds(self) -> int:
        """How often the history was folded."""
        return sum(turn.memory is not None for turn in self.turns)

    @property
    def memory(self) -> dict[str, Any] | None:
        """The memory of the last fold; None before the first."""
        return next((turn.memory for turn in reversed(self.turns) if turn.memory is not None), None)

    @property
    def since_fold(self) -> list[Turn]:
        """The turns after the last fold, which the model still sees."""
        folds = [number for number, turn in enumerate(self.turns) if turn.memory is not None]
        return self.turns[folds[-1] + 1 :] if folds else self.turns

    @property
    def transcript(self) -> str:
        """Everything after the prompt, as one text."""
        return "".join(turn.text + turn.result for turn in self.turns)

    def copy(self) -> Episode:
        """Return an independent copy."""
        return copy.deepcopy(self)
