"""What is done to a query before a service sees it: made sendable, cut to the service's limit, its language guessed."""

from __future__ import annotations

import re

_KANA = re.compile(r"[\u3040-\u30ff]")
_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f]")
_CONTROL = re.compile(r"[\x00-\x20\x7f]+")


def sendable(query: str, characters: int = 2000, words: int | None = None) -> str:
    """Return the query as one line of valid Unicode, cut to so many characters and words.

    Services refuse what is longer; a model that wrote too much still gets an answer to how it began.
    """
    line = _CONTROL.sub(" ", query.encode("utf-8", "replace").decode()).strip()
    if words is not None:
        line = " ".join(line.split(" ")[:words])
    return line[:characters].strip()


def language_of(query: str) -> str:
    """Return "zh" for a query with Chinese letters (and no Japanese ones), otherwise "en"."""
    return "zh" if _HAN.search(query) and not _KANA.search(query) else "en"
