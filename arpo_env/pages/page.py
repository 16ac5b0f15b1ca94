"""The results of reading a page: a `Page`, or a `PageError` whose reason the model can read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

_LONGEST_URL = 200


@dataclass(frozen=True)
class Page:
    """The text of one page: its address after redirects, its title, or "", and its main text.

    `links` are text and address of each link, in order, if the reader collects them.
    """

    url: str
    title: str
    text: str
    links: tuple[tuple[str, str], ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON data; `links` only where there are some."""
        data = asdict(self)
        return {name: value for name, value in data.items() if name != "links" or value}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Page:
        """Make a page from the result of `as_dict`."""
        return cls(**{**data, "links": tuple((text, url) for text, url in data.get("links", ()))})


class PageError(Exception):
    """Raised when a page cannot be read because of the page or its address. Failures on our side are other errors.

    Attributes:
        url: of the requested page.
        reason: a clause for the model, as in "there is no such page (status 404)", without text of the page.
        passing: it may be otherwise at another time.
    """

    def __init__(self, url: str, reason: str, passing: bool = False) -> None:
        super().__init__(f"{shown(url)}: {reason}")
        self.url, self.reason, self.passing = url, reason, passing


def shown(url: str) -> str:
    """Return an address for a message, on one line and not too long."""
    line = "".join(character if character.isprintable() else "?" for character in url)
    return line if len(line) <= _LONGEST_URL else line[:_LONGEST_URL] + "..."


# `passage`: the part of a page that a search result is about: the sentence most like the snippet, with its context.
#
# The rule is that of the papers' search tool: best word-set F1 above 0.2, 3,000 characters on either side. Sentences
# end at punctuation marks and line ends, in English and in Chinese; there is no list of abbreviations.

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
