"""Documents of tools: every format is read, and what cannot be read is named and counted, never a crash."""

import json
from pathlib import Path
from typing import Any

import pytest

from arpo_env.tools.tool_search import as_document, read_documents

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
GOOD = {"name": "get_weather", "description": "Tells the weather.", "parameters": PARAMETERS}
RAPID = {  # the fields of ToolBench's documents
    "category_name": "Weather",
    "tool_name": "Open Weather 13",
    "api_name": "Current Weather",
    "api_description": "Gives the weather now.",
    "required_parameters": [{"name": "city", "type": "STRING", "description": "", "default": "Lima"}],
    "optional_parameters": [{"name": "days", "type": "NUMBER", "description": "", "default": ""}],
    "method": "GET",
}


BAD: list[Any] = [
    "text",
    None,
    [],
    {},
    {"name": ""},
    {"name": "two words"},
    {"name": 3},
    {"name": "a", "parameters": "city"},
    {"name": "a", "parameters": {"type": "array"}},
    {"name": "a", "parameters": {"properties": ["city"]}},
    {"name": "a", "parameters": {"properties": {"city": "string"}}},
    {"name": "a", "parameters": {"properties": {"city": {"type": "strnig"}}}},
    {"name": "a", "parameters": {"properties": {}, "required": ["city"]}},
    {"api_name": "a", "required_parameters": ["city"]},
    {"api_name": "!!!"},
    {"api_name": "天气", "tool_name": "weather"},
    {"api_name": "a", "required_parameters": 5},
    {"name": "a", "parameters": {"properties": {"city": {"type": "string"}}, "required": [["city"]]}},
    {"name": "a", "parameters": {"properties": {"city": {"type": "string"}}, "required": "city"}},
    {"name": "a", "parameters": {"properties": {"city": {"type": "string", "default": {1, 2}}}}},
    {"name": "a", "description": "half of a pair: \ud800"},
]


@pytest.mark.parametrize(
    ("row", "name"),
    [
        (GOOD, "get_weather"),
        ({"type": "function", "function": GOOD}, "get_weather"),
        ({"name": "get_weather", "inputSchema": PARAMETERS}, "get_weather"),
        (RAPID, "current_weather_for_open_weather_13"),
    ],
)
def test_every_format_is_read(row: dict[str, Any], name: str) -> None:
    document = as_document(row)
    assert document.name == name
    assert document.parameters["required"] == ["city"]
    assert document.parameters["properties"]["city"]["type"] == "string"
    assert as_document(document.schema) == as_document(document) or document.category


@pytest.mark.parametrize("row", BAD, ids=str)
def test_a_document_that_cannot_be_read_is_named_and_left_out(row: Any, caplog: pytest.LogCaptureFixture) -> None:
    documents, faults = read_documents([GOOD, row])
    assert [one.name for one in documents] == ["get_weather"]
    assert [fault.partition(" (")[0] for fault in faults] == ["document 2"]
    assert "1 of 2 tool documents are left out: document 2" in caplog.text


def test_of_two_tools_with_one_name_the_first_stays() -> None:
    documents, faults = read_documents([GOOD, {**GOOD, "description": "Other."}])
    assert documents[0].description == GOOD["description"]
    assert "document 2 ('get_weather'): there is another tool" in faults[0]


@pytest.mark.parametrize("layout", ["lines", "list"])
def test_files_are_read_with_their_faults(tmp_path: Path, layout: str) -> None:
    file, rows = tmp_path / "tools", [GOOD, {"name": "two words"}, {**GOOD, "name": "b"}]
    written = {
        "lines": "\n".join([json.dumps(rows[0]), "{broken", *map(json.dumps, rows[1:])]),
        "list": json.dumps([rows[0], None, *rows[1:]]),
    }
    file.write_text(written[layout], encoding="utf-8")
    documents, faults = read_documents(file)
    assert [one.name for one in documents] == ["get_weather", "b"]
    assert len(faults) == 2
