"""The graders' word lists and tables, from `words.txt`."""

from __future__ import annotations

import re
from pathlib import Path

_TEXT = Path(__file__).with_name("words.txt").read_text(encoding="utf-8")
_SECTIONS = re.compile(r"^\[([\w ]+)\]\n((?:(?![#\[]).*\n)*)", re.MULTILINE)
LISTS = {match[1]: match[2].strip("\n") for match in _SECTIONS.finditer(_TEXT)}


def word_set(words: str) -> frozenset[str]:
    """Return the words of a text as a set."""
    return frozenset(words.split())


def listed(name: str) -> frozenset[str]:
    """Return the words of a list."""
    return word_set(LISTS[name])


def rows(name: str) -> list[tuple[str, list[str]]]:
    """Return the rows "name: words" of a table; a row goes on where the next line is indented."""
    found = (row.partition(":") for row in re.split(r"\n(?! )", LISTS[name]))
    return [(first, rest.split()) for first, _, rest in found]
