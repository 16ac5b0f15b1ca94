"""Tool schemas from typed functions."""

from __future__ import annotations

import pytest

from arpo_env import PythonTool
from arpo_env.tools.tool import function_schema


def find(query: str, sites: list[str], top: int = 5, exact: bool = False) -> str:
    """Look for pages.

    Args:
        query: what to look for.
        sites (list): where.
        top: how many.
    """
    return query


def test_schema_of_a_function() -> None:
    function = function_schema(find)["function"]
    assert function["name"] == "find"
    assert function["description"] == "Look for pages."
    assert function["parameters"]["required"] == ["query", "sites"]
    assert function["parameters"]["properties"] == {
        "query": {"type": "string", "description": "what to look for."},
        "sites": {"type": "array", "items": {"type": "string"}, "description": "where."},
        "top": {"type": "integer", "description": "how many."},
        "exact": {"type": "boolean", "description": ""},
    }


def test_a_tool_needs_types_that_json_has() -> None:
    def untyped(query) -> None:  # type: ignore[no-untyped-def]
        """Do."""

    def odd(query: object) -> None:
        """Do."""

    with pytest.raises(TypeError, match="needs a type annotation"):
        function_schema(untyped)
    with pytest.raises(TypeError, match="a tool takes str"):
        function_schema(odd)


def test_the_python_tool_takes_code() -> None:
    assert PythonTool.schema["function"]["parameters"]["required"] == ["code"]
