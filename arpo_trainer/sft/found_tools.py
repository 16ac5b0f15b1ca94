"""Tools that an episode adds to those of its start: found ones, and the actions of the environment itself.

A trace shows the documents of found tools as text, in the result of a search. They are read back from it, so that the
calls that follow can be checked as a rollout would check them; what is learnt is the text as the model saw it.

    found_schemas(turn.action.calls, results.texts)     # the tools that can be called from here on
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from arpo_env.episode import FOLD
from arpo_env.memory_folding import fold_schema
from arpo_env.protocols.protocol import ToolCall, ToolCalls, tool_names
from arpo_env.tools.tool import JsonSchema, function_schema
from arpo_env.tools.tool_search import NAME as TOOL_SEARCH
from arpo_env.tools.tool_search import as_document, tool_search

SEARCH_SCHEMA: JsonSchema = function_schema(tool_search)


def found_schemas(calls: Sequence[ToolCall], texts: Sequence[str]) -> list[JsonSchema]:
    """Return the schemas of the tools that a turn's searches found; a document that cannot be read is left out."""
    found = [text for call, text in zip(calls, texts, strict=False) if call.name == TOOL_SEARCH]
    return [schema for text in found for schema in shown_schemas(text)]


def shown_schemas(text: str) -> list[JsonSchema]:
    """Return the schemas of the documents in the result of a search: a JSON list, and perhaps a note behind it."""
    try:
        rows, _ = json.JSONDecoder().raw_decode(text.strip())
    except (ValueError, RecursionError):  # nothing was found, or the only document was too long
        return []
    schemas = []
    for row in rows if isinstance(rows, list) else []:
        try:
            schemas.append(as_document(row).schema)
        except ValueError:
            continue
    return schemas


def with_found(tools: Sequence[JsonSchema], found: Iterable[JsonSchema]) -> list[JsonSchema]:
    """Return tools and those found that are not among them; a found tool cannot take the name of another."""
    known = {name: schema for name, schema in zip(tool_names(tools), tools, strict=True)}
    for schema in found:
        known.setdefault(schema["function"]["name"], schema)
    return list(known.values())


def action_schemas(names: Iterable[str], text: str) -> tuple[JsonSchema, ...]:
    """Return the schemas of the environment's own actions that an episode used: `tool_search` and `fold_thought`.

    Args:
        names: of the calls of the episode.
        text: what the model wrote; it tells whether the policy wrote the memories of its folds, or another model.
    """
    used = set(names)
    fold = [fold_schema(by_model='"episodic"' not in text)] if FOLD in used else []
    return (*([SEARCH_SCHEMA] if TOOL_SEARCH in used else []), *fold)


def is_fold(action: object) -> bool:
    """Return whether an action is the fold of the history, after which a new prompt begins."""
    return isinstance(action, ToolCalls) and [call.name for call in action.calls] == [FOLD]
