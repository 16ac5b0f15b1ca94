"""The action that folds the history: its schema, and `Folding`, which carries it out in an episode.

The policy calls `fold_thought`. Either it writes the memories itself, as the arguments of the call, or another model
does. Afterwards the turn holds the memory, and the episode goes on from the original prompt plus that memory
(`ToolEnv.context`). A fold that fails leaves the history as it is, and the model is told why.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from arpo_env.episode import FOLD, Call, Episode, Turn
from arpo_env.protocols.protocol import ToolCall, UnreadableCall, read_object, tool_names
from arpo_env.text import cut_middle, fenced_prompt
from arpo_env.tools.tool import JsonSchema

if TYPE_CHECKING:
    from arpo_env.chat_model import ChatModel


# The schemas of the three memories are DeepAgent's (arXiv 2510.21618). Every key is required and no other is allowed.
# `success_rate` and `step` may be texts or numbers, since models write both.

Memory = dict[str, Any]
"""The values of "episodic", "working" and "tool", each an object that fits its schema in `MEMORIES`."""

_TEXT: dict[str, Any] = {"type": "string"}
_TEXT_OR_NUMBER: dict[str, Any] = {"type": ["string", "number"]}
_TEXTS: dict[str, Any] = {"type": "array", "items": _TEXT}
_HEADING = "Your earlier work on this question was folded into these memories. Go on from them."
_LONGEST_TEXT = 64
_TYPES: dict[str, tuple[type, ...]] = {"string": (str,), "number": (int, float), "array": (list,), "object": (dict,)}


class MemoryFormatError(ValueError):
    """Raised for a memory that breaks its schema; the message is shown to the model."""


def _object(**properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _list_of(**properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": _object(**properties)}


MEMORIES: dict[str, dict[str, Any]] = {
    "episodic": _object(
        task_description=_TEXT,
        key_events=_list_of(step=_TEXT_OR_NUMBER, description=_TEXT, outcome=_TEXT),
        current_progress=_TEXT,
    ),
    "working": _object(
        immediate_goal=_TEXT, current_challenges=_TEXT, next_actions=_list_of(type=_TEXT, description=_TEXT)
    ),
    "tool": _object(
        tools_used=_list_of(
            tool_name=_TEXT,
            success_rate=_TEXT_OR_NUMBER,
            effective_parameters=_TEXTS,
            common_errors=_TEXTS,
            response_pattern=_TEXT,
            experience=_TEXT,
        ),
        derived_rules=_TEXTS,
    ),
}
"""Name of a memory -> its JSON schema."""


def check_memory(value: Mapping[str, Any]) -> Memory:
    """Return the three memories, as they were parsed from JSON, in the order of `MEMORIES`.

    Raises:
        MemoryFormatError: they break the schema; names the place, what was found and what is valid.
    """
    _check(dict(value), {"type": "object", "properties": MEMORIES}, "")
    return {name: value[name] for name in MEMORIES}


def memory_text(memory: Memory) -> str:
    """Return the memories as the text that stands behind the question in the new prompt."""
    parts = (f"{name}: {json.dumps(memory[name], ensure_ascii=False)}" for name in MEMORIES)
    return "\n".join((_HEADING, *parts))


def outline(schema: Mapping[str, Any]) -> str:
    """Return a schema in a few words, such as {step, description, outcome}, for prompts."""
    if "items" in schema:
        return f"[{outline(schema['items']) or '...'}]"
    if "properties" not in schema:
        return ""
    inner = ((key, outline(schema)) for key, schema in schema["properties"].items())
    return "{" + ", ".join(f"{key}: {text}" if text else key for key, text in inner) + "}"


def _check(value: Any, schema: Mapping[str, Any], place: str) -> None:
    kinds = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    # bool is a subclass of int in Python
    if isinstance(value, bool) or not any(isinstance(value, _TYPES[kind]) for kind in kinds):
        shown = json.dumps(value, ensure_ascii=False)[:_LONGEST_TEXT]
        raise MemoryFormatError(f"{place} must be of the type {' or '.join(kinds)}, not {shown}")
    if isinstance(value, list):
        for number, item in enumerate(value):
            _check(item, schema["items"], f"{place}[{number}]")
    if isinstance(value, dict):
        keys = schema["properties"].keys()
        if value.keys() != keys:
            others = [str(key)[:_LONGEST_TEXT] for key in value if key not in keys]
            lacking = ", ".join(key for key in keys if key not in value)
            fault = f"has no key {others[0]!r}" if others else f"lacks {lacking}"
            raise MemoryFormatError(f"{place or 'the memory'} {fault}; it takes {', '.join(keys)}")
        for key, inner in schema["properties"].items():
            _check(value[key], inner, f"{place}.{key}" if place else key)


# Another model may write the memories of a fold, as in DeepAgent (arXiv 2510.21618). What the policy wrote and read is
# marked as data.

_CHARACTERS = 100_000  # of the history; more is cut in the middle
_WRITER_TOKENS = 4096  # of each reply, reasoning included
_ASKED = {
    "episodic": "the episodic memory: what the task is, the events that matter with their outcomes, and how far the "
    "work has come. Keep every fact that was found and may still be needed, with names and numbers",
    "working": "the working memory: the goal at hand, what stands in its way, and the next actions",
    "tool": "the tool memory: for each tool that was used, how often it worked, the parameters that worked, the errors "
    "it gave, what its results look like, and what was learned about it; then rules for its use",
}
_TASK = (
    "You keep the memory of an agent that works on a question with tools. Its context is full: all that it will know "
    "from now on is the question and what you write. Write {asked}."
)
_REPLY = "Reply with one JSON object of exactly this schema, and nothing else:\n{schema}"


async def _written_part(chat: ChatModel, name: str, quoted: Mapping[str, str]) -> Any:
    """Return one of the three memories as a model wrote it.

    Raises:
        MemoryFormatError: the reply is not JSON or breaks its schema.
        ServiceError: the model failed.
    """
    schema = json.dumps(MEMORIES[name], ensure_ascii=False)
    prompt = fenced_prompt(_TASK.format(asked=_ASKED[name]), quoted, _REPLY.format(schema=schema))
    messages = [{"role": "user", "content": prompt}]
    reply = await chat.complete(messages, max_tokens=_WRITER_TOKENS, json_schema=MEMORIES[name])
    # models like to put JSON into a code block, whatever they are told
    start, end = reply.find("{"), reply.rfind("}") + 1
    try:
        value, _ = read_object(reply[:end], max(start, 0))
    except UnreadableCall as error:
        raise MemoryFormatError(f"the {name} memory is not a JSON object: {error}") from error
    _check(value, MEMORIES[name], name)
    return value


ALONE = "Nothing was run: fold_thought must be the only call of its turn."
NO_FOLDS = "No folds are left. Go on with what you have, or answer."
TOO_LONG = "Error: nothing was folded, because the memories do not fit into the context. Make them shorter, or answer."
_PURPOSE = "replaces everything after the question by memories, from which you go on"


@dataclass(frozen=True)
class Folding:
    """Folds in the episodes of an environment."""

    limit: int  # maximum number of folds in an episode
    tools: Sequence[JsonSchema]  # schemas of the tools, without that of the fold
    chat: ChatModel | None = None  # the model that writes the memories; None if the policy does

    @property
    def schema(self) -> JsonSchema:
        """The schema of the action, as one more tool."""
        return fold_schema(by_model=self.chat is not None)

    async def apply(self, calls: Sequence[ToolCall], turn: Turn, episode: Episode) -> list[str]:
        """Carry out a turn that asks for a fold: set its memory, or return one text per call that tells why not.

        Raises:
            ServiceError: the model that writes the memories failed.
        """
        started = time.perf_counter()
        refusal = ALONE if len(calls) > 1 else NO_FOLDS if episode.folds >= self.limit else ""
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

    async def _memory(self, arguments: dict[str, Any], episode: Episode) -> Memory:
        if self.chat is None:
            return check_memory(arguments)
        since = "".join(turn.text + turn.result for turn in episode.since_fold)
        quoted = {
            "The question": episode.task.question,
            "The tools, as JSON": json.dumps(list(self.tools), ensure_ascii=False),
            "The memories of the work before, as JSON": json.dumps(episode.memory, ensure_ascii=False)
            if episode.memory
            else "none",
            "What the agent wants to keep above all": arguments.get("focus") or "nothing in particular",
            "What the agent wrote and read since then": cut_middle(since, _CHARACTERS),
        }
        parts = await asyncio.gather(*(_written_part(self.chat, name, quoted) for name in MEMORIES))
        return dict(zip(MEMORIES, parts, strict=True))


def fold_schema(by_model: bool) -> JsonSchema:
    """Return the schema of the action; `by_model` if another model writes the memories, not the policy."""
    if by_model:
        focus = {"type": "string", "description": "what the memories should keep above all"}
        return _function(f"{_PURPOSE}; another model writes them.", {"focus": focus})
    # not required: what is missing is reported by `check_memory`, together with everything else
    fields = "; ".join(f"{name} {outline(schema)}" for name, schema in MEMORIES.items())
    return _function(f"{_PURPOSE}: {fields}.", MEMORIES)


def mentions_fold(text: str) -> bool:
    """Return whether a turn that cannot be read was meant as a fold: it has the tag or calls the tool, in any form."""
    return re.search(rf'(?:</|>|["=.:[]){FOLD}\b', text) is not None


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
    """Return the folding of an environment; None for a limit of 0."""
    # also without folds: calls of this name are not counted as calls of a tool
    if FOLD in tool_names(tools):
        raise ValueError(f"a tool is named {FOLD!r}, as the action that folds= adds; rename the tool")
    if not limit:
        if chat is not None:
            raise ValueError(f"fold_model={chat.model!r} writes the memories of folds; allow some with folds=3")
        return None
    return Folding(limit, list(tools), chat)


def _function(description: str, properties: dict[str, Any]) -> JsonSchema:
    parameters = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": FOLD, "description": description, "parameters": parameters}}
