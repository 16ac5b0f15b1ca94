"""The three memories of a fold: their JSON schemas, a check against them, and their text in a prompt.

The schemas are those of DeepAgent (arXiv 2510.21618): episodic, working and tool memory. Every key is required and no
other is allowed. `success_rate` and `step` may be texts or numbers, since models write both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from envs_registry.nearest_name import nearest_hint

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
        immediate_goal=_TEXT,
        current_challenges=_TEXT,
        next_actions=_list_of(type=_TEXT, description=_TEXT),
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
    """Return the three memories in the order of `MEMORIES`.

    Args:
        value: the three memories by name, as they were parsed from JSON.

    Raises:
        MemoryFormatError: it breaks the schema; names the place, what was found and what is valid.
    """
    _check(dict(value), {"type": "object", "properties": MEMORIES, "required": list(MEMORIES)}, "")
    return {name: value[name] for name in MEMORIES}


def check_part(name: str, value: Any) -> Any:
    """Return one of the three memories.

    Raises:
        MemoryFormatError: it breaks its schema.
    """
    _check(value, MEMORIES[name], name)
    return value


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
    return "{" + ", ".join(f"{key}{_with_colon(outline(inner))}" for key, inner in schema["properties"].items()) + "}"


def _with_colon(text: str) -> str:
    return f": {text}" if text else ""


def _check(value: Any, schema: Mapping[str, Any], place: str) -> None:
    kinds = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    # bool is a subclass of int in Python
    if isinstance(value, bool) or not any(isinstance(value, _TYPES[kind]) for kind in kinds):
        raise MemoryFormatError(f"{place} must be {_words(kinds)}, not {_short(value)}")
    if isinstance(value, list):
        for number, item in enumerate(value):
            _check(item, schema["items"], f"{place}[{number}]")
    if isinstance(value, dict):
        _check_keys(value, schema, place)
        for key, inner in schema["properties"].items():
            _check(value[key], inner, f"{place}.{key}" if place else key)


def _check_keys(value: dict[str, Any], schema: Mapping[str, Any], place: str) -> None:
    known, place = schema["properties"], place or "the memory"
    for key in value:
        if key not in known:
            shown = str(key)[:_LONGEST_TEXT]
            hint = nearest_hint(shown, list(known), "; did you mean {!r}? It", "; it")
            raise MemoryFormatError(f"{place} has no key {shown!r}{hint} takes {', '.join(known)}")
    missing = [key for key in known if key not in value]
    if missing:
        raise MemoryFormatError(f"{place} lacks {', '.join(missing)}")


def _words(kinds: list[str]) -> str:
    articles = {"string": "a text", "number": "a number", "array": "a list", "object": "an object"}
    return " or ".join(articles[kind] for kind in kinds)


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}..."
