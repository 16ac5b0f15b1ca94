"""The action that folds the history: its schema, and `Folding`, which carries it out in an episode.

The policy calls `fold_thought`. Either it writes the memories itself, as the arguments of the call, or a `MemoryWriter`
does. Afterwards the turn holds the memory, and the episode goes on from the original prompt plus that memory
(`ToolEnv.context`). A fold that fails leaves the history as it is, and the model is told why.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from arpo_env.episode import FOLD, Call, Episode, Turn
from arpo_env.memory_folding.memory import MEMORIES, Memory, MemoryFormatError, check_memory, memory_text, outline
from arpo_env.memory_folding.memory_writer import FoldedHistory, MemoryWriter
from arpo_env.protocols.parse_tool_calls import tool_names
from arpo_env.protocols.protocol import ToolCall
from arpo_env.tools.function_schema import JsonSchema

if TYPE_CHECKING:
    from arpo_env.chat_model import ChatModel

ALONE = "Nothing was run: fold_thought must be the only call of its turn."
NO_FOLDS = "No folds are left. Go on with what you have, or answer."
TOO_LONG = "Error: nothing was folded, because the memories do not fit into the context. Make them shorter, or answer."
_PURPOSE = "replaces everything after the question by memories, from which you go on"


@dataclass(frozen=True)
class Folding:
    """Folds in the episodes of an environment.

    Attributes:
        limit: most folds in an episode.
        tools: schemas of the tools, without that of the fold.
        writer: writes the memories; None if the policy does.
    """

    limit: int
    tools: Sequence[JsonSchema]
    writer: MemoryWriter | None = None

    @property
    def schema(self) -> JsonSchema:
        """The schema of the action, as one more tool."""
        return fold_schema(by_model=self.writer is not None)

    def left(self, episode: Episode) -> int:
        """Return how many folds the episode may still make."""
        return max(0, self.limit - episode.folds)

    async def apply(self, calls: Sequence[ToolCall], turn: Turn, episode: Episode) -> list[str]:
        """Carry out a turn that asks for a fold: set its memory, or return the texts that tell the model why not.

        Args:
            calls: of the turn; one of them at least asks for a fold.
            turn: the last turn of the episode.
            episode: the episode.

        Returns:
            One text per call; empty if the history was folded.

        Raises:
            ServiceError: the model that writes the memories failed.
        """
        started = time.perf_counter()
        refusal = ALONE if len(calls) > 1 else NO_FOLDS if not self.left(episode) else ""
        if refusal:
            turn.calls += [Call(call.name, "refused") for call in calls]
            return [refusal] * len(calls)
        arguments = calls[0].arguments
        try:
            turn.memory, said = await self._memory(arguments, episode), []
        except MemoryFormatError as error:
            said = [f"Error: nothing was folded, because {error}."]
        status = "error" if said else "ok"
        turn.calls.append(Call(FOLD, status, time.perf_counter() - started, arguments))
        return said

    def undone(self, turn: Turn) -> list[str]:
        """Undo the fold of a turn, whose memories do not fit, and return what tells the model so, as `apply` does."""
        return [undo_fold(turn)]

    async def _memory(self, arguments: dict[str, Any], episode: Episode) -> Memory:
        if self.writer is None:
            return check_memory(arguments)
        since, focus = "".join(turn.text + turn.result for turn in episode.since_fold), arguments.get("focus") or ""
        history = FoldedHistory(episode.task.question, self.tools, episode.memory, since, focus)
        return await self.writer.write(history)


def fold_schema(by_model: bool) -> JsonSchema:
    """Return the schema of the action; `by_model` if another model writes the memories, not the policy."""
    if by_model:
        focus = {"type": "string", "description": "what the memories should keep above all"}
        return _function(f"{_PURPOSE}; another model writes them.", {"focus": focus})
    # not required: what is missing is reported by `check_memory`, together with everything else
    fields = "; ".join(f"{name} {outline(schema)}" for name, schema in MEMORIES.items())
    return _function(f"{_PURPOSE}: {fields}.", MEMORIES)


def asks_for_fold(calls: Sequence[ToolCall]) -> bool:
    """Return whether one of the calls asks for a fold."""
    return any(call.name == FOLD for call in calls)


def mentions_fold(text: str) -> bool:
    """Return whether a turn that cannot be read was meant as a fold: it has the tag or names the tool."""
    return f"</{FOLD}>" in text or f'"{FOLD}"' in text


def context_messages(opening: list[dict[str, str]], episode: Episode) -> list[dict[str, str]]:
    """Return the opening messages of an episode with the memory of its last fold behind the question."""
    if episode.memory is None:
        return opening
    *before, question = opening
    return [*before, {**question, "content": f"{question['content']}\n\n{memory_text(episode.memory)}"}]


def fold_counts(episode: Episode) -> dict[str, float]:
    """Return how often an episode was folded, and how often it was tried with a memory that could not be used."""
    calls = [call.status for turn in episode.turns for call in turn.calls if call.name == FOLD]
    return {"folds": float(episode.folds), "folds_failed": float(calls.count("error"))}


def undo_fold(turn: Turn) -> str:
    """Undo the fold of a turn, whose memories do not fit; return what to tell the model, or "" if there is no fold."""
    if turn.memory is None:
        return ""
    turn.memory, turn.calls[-1].status = None, "error"
    return TOO_LONG


def make_folding(limit: int, tools: Sequence[JsonSchema], chat: ChatModel | None) -> Folding | None:
    """Return the folding of an environment; None for a limit of 0.

    Args:
        limit: most folds in an episode.
        tools: schemas of the tools.
        chat: the model that writes the memories; None if the policy does.

    Raises:
        ValueError: a tool has the name of the action, or a model is given and no fold is allowed.
    """
    # also without folds: calls of this name are not counted as calls of a tool
    if FOLD in tool_names(tools):
        raise ValueError(f"a tool is named {FOLD!r}, as the action that folds= adds; rename the tool")
    if not limit:
        if chat is not None:
            raise ValueError(f"fold_model={chat.model!r} writes the memories of folds; allow some with folds=3")
        return None
    return Folding(limit, list(tools), MemoryWriter(chat) if chat else None)


def _function(description: str, properties: dict[str, Any]) -> JsonSchema:
    parameters = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": FOLD, "description": description, "parameters": parameters}}
