"""Small pieces of Markdown."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; a `|` and line breaks in a cell are escaped."""
    lines = [_row(header), _row(["---"] * len(header)), *map(_row, rows)]
    return "\n".join(lines) + "\n"


def code(text: str) -> str:
    """Return a text as inline code, or nothing for an empty one."""
    return f"`{text}`" if text else ""


def block(text: str, language: str = "text") -> str:
    """Return a block of code."""
    return f"```{language}\n{text.strip(chr(10))}\n```\n"


def anchor(name: str) -> str:
    """Return a target that other pages can link to, as `(name)=`."""
    return f"({name})=\n"


def dedent(text: str) -> str:
    """Return a text without its common indentation and outer blank lines."""
    return textwrap.dedent(text).strip()


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"
