"""`Episode`: the state of one episode as plain data, so that it can be forked by copying."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from envs_registry import EnvSpec, Task

Outcome = Literal["", "answered", "no answer", "truncated", "failed"]
FOLD = "fold_thought"  # the action that folds the history, see `arpo_env.memory_folding`
_WORST_FIRST = ("timeout", "error", "ok", "refused")


@dataclass
class Call:
    """One tool call."""

    name: str
    status: str  # "ok", "error", "timeout" or "refused"
    seconds: float = 0.0  # wall time
    arguments: dict[str, Any] = field(default_factory=dict)
    shared_state: str = ""  # of the tool, see `Tool.shared_state`


@dataclass
class Turn:
    """One step: the model's text, its calls, and the text that the environment appended ("" after the last step)."""

    text: str
    result: str = ""
    calls: list[Call] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    memory: dict[str, Any] | None = (
        None  # if the step folded the history: the next one goes on from question and memory
    )
    images: list[str] = field(default_factory=list)  # pictures that came with the results, as data URLs

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
    """The state of an episode."""

    task: Task
    turns: list[Turn] = field(default_factory=list)
    malformed: int = 0  # number of turns that could not be parsed
    format_fault: str = ""  # the first of them, and why
    answer: str | None = None
    outcome: Outcome = ""  # "" while the episode runs
    tokens_left: int | None = None  # remaining token budget if a rollout engine counts tokens

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

    def note_malformed(self, why: str) -> None:
        """Count the last turn as malformed."""
        self.malformed += 1
        self.format_fault = self.format_fault or f"turn {len(self.turns)}: {why}"

    def copy(self) -> Episode:
        """Return an independent copy."""
        return copy.deepcopy(self)


# Limits of an episode: turns, tool calls in total and per tool, and tokens. When a limit is reached, the model is told
# to answer in the place of the tool result; nothing is appended on its behalf. A model that continues regardless is cut
# off, and the episode counts as truncated.

NO_CALLS = "No tool calls are left. Answer now with what you have."
NO_CALLS_OF = "No calls of {tool} are left. Use what you have, or answer."
LAST_TURN = "There is room for one turn: answer in the next turn with what you have."
FOLD_SOON = "There is little room left: fold your thoughts, or answer."
NO_ROOM_FOLD = "There is no room left to show this. Fold your thoughts, or answer."
NO_ROOM = "There is no room left to show this. Answer now with what you have."
BYTES_A_TOKEN = 4  # rough estimate for ordinary text; a rollout engine counts tokens exactly


@dataclass(frozen=True)
class Budget:
    """The limits of an episode."""

    turns: int  # of the model
    calls: int  # that are executed
    calls_of: Mapping[str, int] = field(default_factory=dict)  # of single tools
    tokens: int | None = None  # after the prompt, of model and environment together; None means no limit
    answer_tokens: int = 32  # the model is told to answer when fewer than this are left,
    folds: int = 0  # of the history
    fold_tokens: int = 256  # and of a fold that is possible when fewer than this are left

    def __post_init__(self) -> None:
        limits = {"max_turns": self.turns, "max_tool_calls": self.calls, "max_tokens": self.tokens}
        limits |= {f"tool_limits[{name!r}]": limit for name, limit in self.calls_of.items()}
        for name, limit in limits.items():
            if limit is not None and (not isinstance(limit, int) or limit < 1):
                raise ValueError(f"{name} must be a whole number of at least 1, got {limit!r}")
        if not isinstance(self.folds, int) or isinstance(self.folds, bool) or self.folds < 0:
            raise ValueError(f"folds must be a whole number of at least 0, got {self.folds!r}; 0 means no folding")

    @classmethod
    def of(
        cls,
        spec: EnvSpec,
        tools: Sequence[str],
        turns: int | None = None,
        calls: int | None = None,
        calls_of: Mapping[str, int] | None = None,
        tokens: int | None = None,
        folds: int = 0,
    ) -> Budget:
        """Return the limits of a spec, overridden by the given ones; a ValueError names a tool not among `tools`."""
        # A spec may limit tools that this environment leaves out; only names that the caller gave can be mistakes.
        unknown = ", ".join(sorted((calls_of or {}).keys() - set(tools)))
        if unknown:
            raise ValueError(f"tool_limits names {unknown}; the tools are {', '.join(tools) or 'none'}")
        return cls(
            spec.max_turns if turns is None else turns,
            spec.max_tool_calls if calls is None else calls,
            dict(spec.tool_limits) if calls_of is None else dict(calls_of),
            spec.max_tokens if tokens is None else tokens,
            folds=folds,
        )

    def refusal(self, episode: Episode, tool: str) -> str | None:
        """Return the message to the model if another call of `tool` is not executed, else None."""
        used = episode.tools_used
        if len(used) >= self.calls:
            return NO_CALLS
        # A tool without a limit of its own gets one that it cannot reach.
        if used.count(tool) >= self.calls_of.get(tool, len(used) + 1):
            return NO_CALLS_OF.format(tool=tool)
        return None

    def results_left(self, calls: int = 0, turns: int = 0) -> int:
        """Return how many more results can be shown after so many calls and turns; another turn follows each."""
        most = self.turns - 1 - turns
        # a fold shows a result without a call of a tool
        return max(0, most if self.folds else min(self.calls - calls, most))

    def notice(self, episode: Episode) -> str | None:
        """Return the notice that is added to a result if the next turn must be the answer or a fold, else None."""
        # The current turn is in the list already, so that exactly one is left then.
        last = len(episode.turns) == self.turns - 1
        if not last and self.may_fold(episode):
            return FOLD_SOON if self._left(episode) < self.fold_tokens else None
        return LAST_TURN if last or self._left(episode) < self.answer_tokens else None

    def no_room(self, episode: Episode) -> str:
        """Return the notice that replaces a result which does not fit into the context."""
        return NO_ROOM_FOLD if self.may_fold(episode) else NO_ROOM

    def may_fold(self, episode: Episode) -> bool:
        """Return whether the history may be folded in the next turn, with another turn after it."""
        return episode.folds < self.folds and len(episode.turns) < self.turns - 1

    def memory_fits(self, episode: Episode) -> bool:
        """Return whether a fold leaves room to answer; a rollout engine, which counts tokens, sees to it itself."""
        return episode.tokens_left is not None or self._left(episode) >= self.answer_tokens

    def spent(self, episode: Episode) -> bool:
        """Return whether no turn or no token is left."""
        return len(episode.turns) >= self.turns or self._left(episode) <= 0

    def _left(self, episode: Episode) -> float:
        # The count of a rollout engine is exact and wins over the estimate.
        if episode.tokens_left is not None:
            return episode.tokens_left
        if self.tokens is None:
            return float("inf")
        seen = json.dumps(episode.memory) if self.folds and episode.memory else ""
        seen += "".join(turn.text + turn.result for turn in episode.since_fold)
        return self.tokens - len(seen.encode(errors="surrogatepass")) / BYTES_A_TOKEN
