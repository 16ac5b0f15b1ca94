"""`ToolDocument`, which describes a tool that can be found, and the reading of documents in the formats that exist.

    documents, faults = read_documents("tools.jsonl")

Read are OpenAI's function format, bare functions (`name`, `description`, `parameters`, as in ToolHop), MCP's tools
(`inputSchema`) and RapidAPI's documents (ToolBench). A document that cannot be read is left out and named in the list
of faults; it is never an error of the whole file.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arpo_env.tools.function_schema import JsonSchema
from envs_registry.datasets.tool_formats import rapid_function

logger = logging.getLogger(__name__)

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_TYPES = {"string", "integer", "number", "boolean", "array", "object", "null"}
_SHOWN = 3  # faults that a warning names
_DEEPEST = 50  # levels of a schema; JSON encoders give up at some hundreds


@dataclass(frozen=True)
class ToolDocument:
    """One tool that can be found.

    Attributes:
        name: name for calls.
        description: what it does, for the search and for the model.
        parameters: JSON schema of its arguments.
        category: the collection that it belongs to, or "".
    """

    name: str
    description: str
    parameters: dict[str, Any]
    category: str = ""

    @property
    def schema(self) -> JsonSchema:
        """The schema in OpenAI's function format."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}

    @property
    def title(self) -> str:
        """The words of its name."""
        return _spaced(self.name)

    @property
    def text(self) -> str:
        """What the search reads: words of the name, category, description and parameters."""
        properties: Mapping[str, Any] = self.parameters.get("properties") or {}
        parameters = [f"{_spaced(name)} {_text(schema, 'description')}" for name, schema in properties.items()]
        return " ".join(filter(None, [self.title, self.category, self.description, *parameters]))


@dataclass(frozen=True)
class DocumentFault:
    """A document that could not be read.

    Attributes:
        where: its place: "line 12", "document 12".
        name: its name, as far as it can be told, or "".
        reason: what is wrong.
    """

    where: str
    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.where}{f' ({self.name})' if self.name else ''}: {self.reason}"


def read_documents(
    source: str | Path | Iterable[Any], warn: bool = True
) -> tuple[list[ToolDocument], list[DocumentFault]]:
    """Return the documents of a file or a collection, and the faults of those that cannot be read.

    Args:
        source: a file of JSON (a list, or an object of lists) or JSON Lines, or the documents themselves as data.
        warn: log how many documents have faults, and the first of them.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: no document can be read.
    """
    rows = _file_rows(Path(source)) if isinstance(source, str | Path) else _numbered(source, "document")
    documents: dict[str, ToolDocument] = {}
    faults: list[DocumentFault] = []
    for where, row in rows:
        try:
            document = as_document(row)
            if document.name in documents:
                raise ValueError(f"there is another tool named {document.name!r}")
            documents[document.name] = document
        except ValueError as error:
            faults.append(DocumentFault(where, _name_of(row), str(error)))
    if not documents:
        raise ValueError(f"no tool document can be read: {'; '.join(map(str, faults[:_SHOWN])) or 'there is none'}")
    if faults and warn:
        shown = "; ".join(map(str, faults[:_SHOWN]))
        logger.warning("%d of %d tool documents are left out: %s", len(faults), len(documents) + len(faults), shown)
    return list(documents.values()), faults


def as_document(row: Any) -> ToolDocument:
    """Return the document of a row in any of the formats.

    Raises:
        ValueError: it cannot be read; the message says why.
    """
    if isinstance(row, ToolDocument):
        return row
    if isinstance(row, ValueError):
        raise row
    if not isinstance(row, Mapping):
        raise ValueError(f"a tool document is an object, not {type(row).__name__}")
    if "api_name" in row:
        row = rapid_function(row)
    function = row["function"] if isinstance(row.get("function"), Mapping) else row
    name = _text(function, "name")
    if not _NAME.fullmatch(name):
        raise ValueError(f"its name {name[:80]!r} is not a name: letters, digits, '_', '-' and '.'")
    given: Any = next((function[key] for key in ("parameters", "inputSchema") if function.get(key) is not None), {})
    parameters = _checked_parameters(given)
    document = ToolDocument(name, _text(function, "description"), parameters, _text(row, "category"))
    _check_json([parameters, document.text])
    return document


def _checked_parameters(given: Any) -> dict[str, Any]:
    """Return a schema of arguments that calls can be checked against."""
    if not isinstance(given, Mapping):
        raise ValueError(f"its parameters are a JSON schema, not {type(given).__name__}")
    properties, required = given.get("properties") or {}, given.get("required") or []
    if given.get("type", "object") != "object" or not isinstance(properties, Mapping):
        raise ValueError("its parameters are a JSON schema of type 'object' with 'properties'")
    if not all(isinstance(name, str) for name in properties):
        raise ValueError("the names of its parameters are not all text")
    if not isinstance(required, list | tuple) or not all(
        isinstance(name, str) and name in properties for name in required
    ):
        raise ValueError("'required' names parameters that are not in 'properties'")
    for name, schema in properties.items():
        kinds = schema.get("type", "string") if isinstance(schema, Mapping) else None
        listed = kinds if isinstance(kinds, list) else [kinds]
        if not all(isinstance(kind, str) and kind in _TYPES for kind in listed):
            raise ValueError(f"the parameter {str(name)[:80]!r} has no JSON type: {kinds!r:.80}")
    return {**given, "type": "object", "properties": dict(properties), "required": list(required)}


def _check_json(value: Any) -> None:
    """Refuse what cannot be shown as JSON, as one such document would fail every search that finds it."""
    _check_depth(value, _DEEPEST)
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        raise ValueError("it holds half of a surrogate pair") from None
    except (TypeError, ValueError) as error:
        raise ValueError(f"it cannot be written as JSON: {error}") from None


def _check_depth(value: Any, room: int) -> None:
    if not room:
        raise ValueError(f"it is nested more than {_DEEPEST} levels deep")
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    for one in inner:
        _check_depth(one, room - 1)


def _file_rows(path: Path) -> Iterable[tuple[str, Any]]:
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        return [(f"line {number}", _row(line)) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if isinstance(whole, Mapping) and "name" not in whole and any(isinstance(one, list) for one in whole.values()):
        whole = [row for rows in whole.values() if isinstance(rows, list) for row in rows]
    return _numbered(whole if isinstance(whole, list) else [whole], "document")


def _row(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        return ValueError(f"it is not JSON: {error}")


def _numbered(rows: Iterable[Any], what: str) -> Iterable[tuple[str, Any]]:
    return ((f"{what} {number}", row) for number, row in enumerate(rows, 1))


def _name_of(row: Any) -> str:
    if not isinstance(row, Mapping):
        return ""
    inner = row.get("function")
    return (_text(row, "name") or _text(row, "api_name") or (_text(inner, "name") if inner else ""))[:80]


def _text(row: Any, key: str) -> str:
    value = row.get(key) if isinstance(row, Mapping) else None
    return " ".join(value.split()) if isinstance(value, str) else ""


def _spaced(name: str) -> str:
    """Split snake case, camel case and dots into words."""
    return " ".join(re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[_.-]+", " ", name).split())
