"""Tools for the tests of protocols: only their schemas matter here."""

from arpo_env.tools.tool import JsonSchema, function_schema


def python(code: str) -> str:
    """Run Python code.

    Args:
        code: what to run.
    """
    return code


def search(query: str, k: int = 3) -> str:
    """Search for passages.

    Args:
        query: what to look for.
        k: how many.
    """
    return query * k


def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


def now() -> str:
    """Tell the time."""
    return ""


def mark(levels: list[int], loud: bool = False) -> str:
    """Set marks."""
    return f"{levels}{loud}"


PYTHON: JsonSchema = function_schema(python)
SEARCH: JsonSchema = function_schema(search)
ADD: JsonSchema = function_schema(add)
NOW: JsonSchema = function_schema(now)
MARK: JsonSchema = function_schema(mark)
BOTH = [SEARCH, PYTHON]
ALL = [SEARCH, PYTHON, ADD, NOW, MARK]
