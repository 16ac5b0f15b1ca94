"""`passage`: the part of a page that a search result is about: the sentence most like the snippet, with its context.

The rule is that of the papers' search tool: best word-set F1 above 0.2, 3,000 characters on either side. Sentences end
at punctuation marks and line ends, in English and in Chinese; there is no list of abbreviations.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_THRESHOLD = 0.2
_LONGEST = 100_000  # characters of a text that are looked at
_LONGEST_SENTENCE = 1_000
_END = re.compile(r"""[。！？…]+["'”’」』）)]*|(?<![.!?])[.!?]+["'”’)\]]*\s+|\n+""")
_WORD = re.compile(
    r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7a3]|[^\W_]+?(?=[\u3040-\u9fff]|\b|_)"
)


def passage(text: str, snippet: str, characters: int = 3000) -> str:
    """Return the part of a text that a snippet is about.

    Args:
        text: of the page.
        snippet: of the search result.
        characters: kept on either side of the best sentence. If no sentence is like the snippet, twice as many from
            the start of the text are returned.
    """
    wanted = words(snippet)
    best, place = _THRESHOLD, None
    for start, end in sentences(text[:_LONGEST]):
        score = _f1(words(text[start:end]), wanted)
        if score > best:
            best, place = score, (start, end)
    if place is None:
        return text[: 2 * characters]
    # White space after the sentence is no part of it, so that the context on both sides is equally long.
    start, end = place[0], place[0] + len(text[place[0] : place[1]].rstrip())
    return text[max(0, start - characters) : end + characters]


def sentences(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of each sentence; very long ones are cut."""
    start = 0
    for end in [*(found.end() for found in _END.finditer(text)), len(text)]:
        for piece in range(start, end, _LONGEST_SENTENCE):
            yield piece, min(end, piece + _LONGEST_SENTENCE)
        start = end


def words(text: str) -> set[str]:
    """Return the words of a text in lower case; each Chinese, Japanese or Korean character is one word."""
    return set(_WORD.findall(text.lower()))


def _f1(found: set[str], wanted: set[str]) -> float:
    both = len(found & wanted)
    return 2 * both / (len(found) + len(wanted)) if both else 0.0
