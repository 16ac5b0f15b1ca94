"""Classes whose methods are made of JSON schemas, for frameworks that read tools from signatures and docstrings.

`method_class(Base, schemas)` returns a subclass of `Base` with a method for each schema. Signature, type hints and
Google docstring describe the schema so that `get_json_schema` of transformers reads it again. A method calls
`self._call(name, arguments)`.
"""

from __future__ import annotations

import functools
import inspect
import json
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar

from arpo_env.tools.function_schema import JsonSchema

T = TypeVar("T")
_HINTS: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "object": dict,
    "array": list,
    "null": type(None),
}
_SECTIONS = re.compile(r"(Args|Returns|Raises):")  # where `get_json_schema` ends a description
_PLAIN = {"type", "enum", "items", "description", "title"}  # keys that a hint and a docstring convey, or nobody needs


def method_class(base: type[T], schemas: Sequence[JsonSchema], reserved: Sequence[str] = ()) -> type[T]:
    """Return a subclass with a method for each tool; the same class for the same schemas.

    Args:
        base: has a method `_call(name, arguments)`, which the methods call.
        schemas: the tools, in OpenAI's form.
        reserved: names that tools may not have.

    Raises:
        ValueError: the name of a tool or of a parameter cannot be used.
    """
    kind: Any = base  # a type is hashable, which its checker does not know
    made: type[T] = _made(kind, json.dumps(schemas), tuple(reserved))
    return made


@functools.cache
def _made(base: type, schemas: str, reserved: tuple[str, ...]) -> Any:
    tools = [schema["function"] for schema in json.loads(schemas)]
    for tool in tools:
        name = tool["name"]
        if name in reserved or name.startswith("_"):
            raise ValueError(f"a tool cannot be named {name!r} here, rename it; taken: {', '.join(reserved)}, _...")
    methods = {tool["name"]: _method(tool, base) for tool in tools}
    return type(base.__name__, (base,), {"__module__": base.__module__, "__doc__": base.__doc__, **methods})


def _method(tool: Mapping[str, Any], base: type) -> Callable[..., str]:
    name, schema = tool["name"], tool.get("parameters") or {}
    properties: dict[str, Any] = schema.get("properties") or {}

    def method(self: Any, /, **arguments: Any) -> str:
        result: str = self._call(name, arguments)
        return result

    method.__name__, method.__qualname__ = name, f"{base.__qualname__}.{name}"
    method.__module__, method.__doc__ = base.__module__, _docstring(tool, properties)
    hints = {key: _hint(value) for key, value in properties.items()}
    # no hint for the result, which would become part of the schema
    method.__annotations__ = hints
    try:
        # Arguments that the model leaves out are not passed on, so that their defaults are the tool's own.
        parameters = [
            inspect.Parameter(
                key,
                inspect.Parameter.KEYWORD_ONLY,
                annotation=hints[key],
                default=inspect.Parameter.empty if key in schema.get("required", ()) else None,
            )
            for key in properties
        ]
        receiver = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
        vars(method)["__signature__"] = inspect.Signature([receiver, *parameters])
    except ValueError as error:
        raise ValueError(f"the tool {name!r} cannot be a method: {error}") from error
    return method


def _docstring(tool: Mapping[str, Any], properties: Mapping[str, Any]) -> str:
    said = _plain(" ".join(str(tool.get("description") or tool["name"]).split()))
    lines = [f"    {key}: {_plain(_described(key, value))}" for key, value in properties.items()]
    return "\n".join([said, "", "Args:", *lines]) if lines else said


def _plain(text: str) -> str:
    """Return a description without what `get_json_schema` gives a meaning."""
    said = _SECTIONS.sub(r"\1 :", text)
    # it reads "(choices: ...)" at the end as JSON
    return f"{said}." if said.endswith(")") and "(choices:" in said.lower() else said


def _described(key: str, schema: Mapping[str, Any]) -> str:
    # A docstring without a description of each parameter is refused.
    said = " ".join(str(schema.get("description") or key).split())
    rest = {name: value for name, value in schema.items() if name != "description"}
    return said if _conveyed(schema) else f"{said} JSON schema: {json.dumps(rest, ensure_ascii=False)}"


def _conveyed(schema: Mapping[str, Any]) -> bool:
    """Return whether a type hint says everything that the schema says."""
    kinds = schema.get("type")
    known = set(kinds if isinstance(kinds, list) else [kinds]) <= set(_HINTS)
    enum_known = "enum" not in schema or _has_literals(schema)
    return known and enum_known and set(schema) <= _PLAIN and ("items" not in schema or _conveyed(schema["items"]))


def _has_literals(schema: Mapping[str, Any]) -> bool:
    return bool(schema.get("enum")) and all(isinstance(value, str | int | None) for value in schema["enum"])


def _hint(schema: Mapping[str, Any]) -> Any:
    if _has_literals(schema):
        return Literal[tuple(schema["enum"])]
    kinds = schema.get("type")
    if isinstance(kinds, list):
        return functools.reduce(operator.or_, (_hint({**schema, "type": kind}) for kind in kinds))
    if kinds == "array" and schema.get("items"):
        return list[_hint(schema["items"])]  # type: ignore[misc]
    return _HINTS.get(str(kinds), Any)
