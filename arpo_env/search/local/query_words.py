"""Splits a query into words without stop words, and into character pairs where it is Chinese, Japanese or Korean.

A query has no syntax: quotes, brackets and operators only separate words. It is cut after `MOST_CHARACTERS` characters
and `MOST_WORDS` words, so that no query is expensive.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

MOST_CHARACTERS = 4000
MOST_WORDS = 64
LONGEST_NAME = 6  # words of a title that is matched as a whole
_ENGLISH = """
a an and are as at be been but by can could did do does for from had has have he her his how i if in into is it its many
me more much my no not of on or our she should so such than that the their them then there these they this those to was
we were what when where which who whom whose why will with would you your
"""
STOP_WORDS = frozenset(_ENGLISH.split())
_CJK = re.compile("[\u3005\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]+")
_WORD = re.compile(r"[^\W_]+")
_IN_BRACKETS = re.compile(r"\s*\([^()]*\)\s*$")


@dataclass(frozen=True)
class ParsedQuery:
    """The parts of a query, in lower case and Unicode's compatibility form.

    Attributes:
        terms: its words without stop words, or all words if all are stop words; each once.
        pairs: pairs of neighbouring CJK characters, and single ones that have no neighbour; each once.
        names: runs of words that may be the title of a passage: (text, number of words).
    """

    terms: tuple[str, ...]
    pairs: tuple[str, ...]
    names: tuple[tuple[str, int], ...]

    @classmethod
    def read(cls, query: str) -> ParsedQuery:
        """Split a query, which may be any string."""
        text, runs = divide(query[:MOST_CHARACTERS])
        words = words_of(text)[:MOST_WORDS]
        # A query of stop words alone, such as "the who", keeps them.
        terms = [word for word in words if word not in STOP_WORDS] or words
        pairs = (pair for run in runs for pair in (grams(run, 2) if len(run) > 1 else (run,)))
        return cls(_once(terms), _once(pairs)[:MOST_WORDS], tuple(dict.fromkeys(_names(words))))

    @property
    def needles(self) -> tuple[str, ...]:
        """All strings to look for in a text."""
        return self.terms + self.pairs


def divide(text: str) -> tuple[str, list[str]]:
    """Return a text without its CJK characters, and the runs of those; in compatibility form."""
    # The most common case, without the cost of normalisation.
    if text.isascii():
        return text, []
    text = unicodedata.normalize("NFKC", text)
    runs = _CJK.findall(text)
    return (_CJK.sub(" ", text), runs) if runs else (text, [])


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case."""
    return _WORD.findall(text.lower())


def name_of(title: str) -> str:
    """Return a title in the form in which it is matched: its words, without a final part in brackets."""
    return " ".join(words_of(divide(_IN_BRACKETS.sub("", title))[0]))


def grams(run: str, size: int) -> Iterator[str]:
    """Yield the substrings of that many characters."""
    return (run[start : start + size] for start in range(len(run) - size + 1))


def _names(words: list[str]) -> Iterator[tuple[str, int]]:
    for start, first in enumerate(words):
        for end in range(start + 1, min(start + LONGEST_NAME, len(words)) + 1):
            # Hardly any title ends in a stop word, or begins with one other than "a" or "the".
            if words[end - 1] not in STOP_WORDS and (first not in STOP_WORDS or first in ("a", "the")):
                yield " ".join(words[start:end]), end - start


def _once(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(words))
