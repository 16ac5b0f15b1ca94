"""Documents of tools in the formats of data sets, as functions with a JSON schema: RapidAPI (ToolBench) and OpenAPI.

    rapid_function({"tool_name": ..., "api_name": ..., "required_parameters": [...]})
    openapi_functions(json.load(open("tmdb_oas.json")))["GET /search/person"]

A function is {"name", "description", "parameters", "category"}.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]+")
_RAPID_TYPES = {"NUMBER": "number", "INTEGER": "integer", "BOOLEAN": "boolean", "ARRAY": "array", "OBJECT": "object"}
_METHODS = ("get", "post", "put", "patch", "delete")
_TYPES = ("string", "integer", "number", "boolean", "array", "object")
_LONGEST_NAME, _LONGEST_DESCRIPTION = 128, 1000  # characters


def rapid_name(api: str, tool: str) -> str:
    """Return the name of one API of a tool of RapidAPI; "" if no character of the API's name can be in one."""
    return _name(f"{api}_for_{tool}" if _name(tool) else api) if _name(api) else ""


def rapid_function(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the function of a RapidAPI document: one API of a tool, with two lists of parameters.

    Raises:
        ValueError: it cannot be read; the message says why.
    """
    tool, api = _text(row, "tool_name"), _text(row, "api_name")
    properties: dict[str, Any] = {}
    required = []
    for key in ("required_parameters", "optional_parameters"):
        given = row.get(key) or []
        for one in given if isinstance(given, list | tuple) else [given]:
            if not isinstance(one, Mapping) or not _text(one, "name"):
                raise ValueError(f"{key} is a list of objects with a name")
            kind = _RAPID_TYPES.get(_text(one, "type").upper(), "string")
            properties[_text(one, "name")] = {"type": kind, "description": _text(one, "description")}
            if key == "required_parameters":
                required.append(_text(one, "name"))
    if not rapid_name(api, tool):
        raise ValueError(f"its name {api[:80]!r} has no letter or digit that names can have")
    description = " ".join(filter(None, [_text(row, "api_description"), _text(row, "tool_description")]))
    return {
        "name": rapid_name(api, tool),
        "description": description[:_LONGEST_DESCRIPTION],
        "parameters": {"type": "object", "properties": properties, "required": required},
        "category": _text(row, "category_name"),
    }


def openapi_functions(spec: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the function of each operation of an OpenAPI document, by method and path as in "GET /search/person".

    Parameters of paths, queries and JSON bodies become arguments; references within the document are followed.
    """
    found = {}
    for path, item in _inner(spec, "paths").items():
        for method in _METHODS:
            operation = item.get(method) if isinstance(item, Mapping) else None
            if isinstance(operation, Mapping):
                found[f"{method.upper()} {path}"] = _operation(spec, method, path, item, operation)
    return found


def _operation(
    spec: Mapping[str, Any], method: str, path: str, item: Mapping[str, Any], operation: Mapping[str, Any]
) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    required = []
    for given in [*_listed(item, "parameters"), *_listed(operation, "parameters")]:
        one = _followed(spec, given)
        name = _text(one, "name")
        if one.get("in") not in ("path", "query") or not name:
            continue
        properties[name] = _argument(spec, {**_inner(one, "schema"), "description": one.get("description")})
        required += [name] if one.get("required") else []
    body = _followed(spec, operation.get("requestBody") or {})
    schema = _followed(spec, _inner(_inner(_inner(body, "content"), "application/json"), "schema"))
    for name, one in _inner(schema, "properties").items():
        properties.setdefault(name, _argument(spec, _followed(spec, one)))
    required += [name for name in properties if name in _listed(schema, "required") and name not in required]
    told = [_text(operation, "summary"), _text(operation, "description")]
    return {
        "name": _name(f"{method} {path.strip('/')}"),
        "description": ". ".join(filter(None, told))[:_LONGEST_DESCRIPTION],
        "parameters": {"type": "object", "properties": properties, "required": list(dict.fromkeys(required))},
        "category": "",
    }


def _argument(spec: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    kind = _followed(spec, schema).get("type")
    return {
        "type": kind if kind in _TYPES else "string",
        "description": _text(schema, "description")[:_LONGEST_DESCRIPTION],
    }


def _followed(spec: Mapping[str, Any], value: Any) -> Mapping[str, Any]:
    """Follow a reference such as {"$ref": "#/components/parameters/PathId"}."""
    for _ in range(8):
        if not isinstance(value, Mapping):
            return {}
        if "$ref" not in value:
            return value
        target: Any = spec
        for part in str(value["$ref"]).removeprefix("#/").split("/"):
            target = target.get(part) if isinstance(target, Mapping) else None
        value = target
    return {}


def _inner(value: Any, key: str) -> Mapping[str, Any]:
    """Return the object at a key; an empty one for anything else, as a document may hold what it should not."""
    found = value.get(key) if isinstance(value, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _listed(value: Mapping[str, Any], key: str) -> list[Any]:
    found = value.get(key)
    return found if isinstance(found, list) else []


def _name(text: str) -> str:
    return _NOT_IN_NAMES.sub("_", text).strip("_.-").lower()[:_LONGEST_NAME]


def _text(row: Mapping[str, Any], key: str) -> str:
    value = row.get(key)
    return " ".join(value.split()) if isinstance(value, str) else ""
