"""`best_window`: the part of a long text that matches a query best."""

from __future__ import annotations

import re
from collections.abc import Sequence

_MARK = "..."
_STEP = 40  # characters by which a cut may move to fall between words


def best_window(text: str, needles: Sequence[str], characters: int) -> str:
    """Return the part of a text with the most different needles; a short text is returned whole.

    Args:
        text: to be cut.
        needles: words in lower case; a word of the text that begins with a needle counts.
        characters: most characters of the result, including the marks for omitted text.
    """
    if len(text) <= characters:
        return text
    # Room for a mark at both ends, whether or not both are needed.
    size = max(1, characters - 2 * len(_MARK))
    first, last = _densest(text, needles, size)
    # The matches stand in the middle, so that there is context on both sides.
    start = max(0, min(first - (size - (last - first)) // 2, len(text) - size))
    end = min(len(text), start + size)
    if start:
        start = _after_space(text, start, first)
    if end < len(text):
        end = _before_space(text, max(last, start + 1), end)
    return (_MARK if start else "") + text[start:end].strip() + (_MARK if end < len(text) else "")


def _densest(text: str, needles: Sequence[str], size: int) -> tuple[int, int]:
    """Return the start of the first and the end of the last match of the best window."""
    if not needles:
        return 0, 0
    pattern = re.compile(r"\b(?=\w)(?:" + "|".join(map(re.escape, needles)) + ")|" + _cjk(needles), re.IGNORECASE)
    found = [(match.start(), match.end(), match.group().lower()) for match in pattern.finditer(text)]
    best, place, left = 0, (0, 0), 0
    inside: dict[str, int] = {}
    for right, (_, end, word) in enumerate(found):
        inside[word] = inside.get(word, 0) + 1
        # The window moves over the matches, so that the time does not grow with their number squared.
        while left < right and end - found[left][0] > size:
            gone = found[left][2]
            inside[gone] -= 1
            if not inside[gone]:
                del inside[gone]
            left += 1
        if len(inside) > best:
            best, place = len(inside), (found[left][0], min(end, found[left][0] + size))
    return place


def _cjk(needles: Sequence[str]) -> str:
    """Return a pattern for needles of scripts without spaces, which also match inside a word."""
    return "|".join(re.escape(needle) for needle in needles if needle[0] >= "\u3005") or r"(?!)"


def _after_space(text: str, start: int, limit: int) -> int:
    match = re.compile(r"\s+").search(text, start, min(limit, start + _STEP))
    return match.end() if match else start


def _before_space(text: str, limit: int, end: int) -> int:
    match = re.compile(r"\s\S*\Z").search(text, max(limit, end - _STEP), end)
    return match.start() if match else end
