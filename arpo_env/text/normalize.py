"""When two texts are the same but for how they are written: full-width forms, case, white space.

It compares whole texts. It judges no answers: tokens, numbers and punctuation are the graders' business.
"""

from __future__ import annotations

import unicodedata

_APART = ("<super>", "<sub>", "<fraction>")


def fold(text: str) -> str:
    """Return a text in NFKC, case folded, with single spaces; folding again changes nothing.

    Unlike NFKC it keeps superscripts, subscripts and fractions: 10² is not 102, and 1½ is not 11⁄2.
    """
    folded = " ".join(_compatible(text).casefold().split())
    return folded if folded == text else fold(folded)


def _compatible(text: str) -> str:
    if text.isascii():
        return text
    characters = (c if _keeps_apart(c) else unicodedata.normalize("NFKC", c) for c in text)
    return unicodedata.normalize("NFC", "".join(characters))


def _keeps_apart(character: str) -> bool:
    return unicodedata.decomposition(character).startswith(_APART)
