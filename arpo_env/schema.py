"""A tool's JSON schema (OpenAI's "function" form) out of a typed function with a Google docstring."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable
from typing import Any

JsonSchema = dict[str, Any]
_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}


def function_schema(function: Callable[..., Any], name: str | None = None) -> JsonSchema:
    """Return the schema of a function: its name, the first line of its docstring, and its typed parameters.

    Raises:
        TypeError: a parameter has no annotation, or one that is not str, int, float, bool or a list of them.
    """
    hints = typing.get_type_hints(function)
    text = inspect.getdoc(function) or ""
    parameters = {key: value for key, value in inspect.signature(function).parameters.items() if key != "self"}
    properties = {}
    for key in parameters:
        if key not in hints:
            raise TypeError(f"parameter {key!r} of {function.__name__} needs a type annotation")
        properties[key] = {**_type(hints[key], key), "description": _description(text, key)}
    required = [key for key, value in parameters.items() if value.default is inspect.Parameter.empty]
    return {
        "type": "function",
        "function": {
            "name": name or function.__name__,
            "description": text.split("\n")[0],
            "parameters": {"type": "object", "properties": properties, "required": required},
        },
    }


def _type(hint: Any, key: str) -> JsonSchema:
    if hint in _TYPES:
        return {"type": _TYPES[hint]}
    if typing.get_origin(hint) is list:
        return {"type": "array", "items": _type(typing.get_args(hint)[0], key)}
    raise TypeError(f"parameter {key!r} has type {hint}; a tool takes str, int, float, bool or a list of them")


def _description(text: str, key: str) -> str:
    match = re.search(rf"^\s+{re.escape(key)}(?: \([^)]*\))?: (.+)$", text, re.MULTILINE)
    return match.group(1).strip() if match else ""
