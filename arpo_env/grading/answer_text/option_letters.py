r"""Option letters: "C", "(C)", "Option C", "答案选C", "A, B and D", "①③": `same_labels`, `split_option`."""

from __future__ import annotations

import re

_SAID = (
    r"(?:(?:the\s+)?(?:(?:final|correct|right)\s+)?(?:option|choice|answer|选项|答案)\s*(?:is|为|是|选)?\s*:?\s*"
    r"|(?:故|应)?选(?:择|项)?\s*:?\s*)?"
)
_LABEL = re.compile(rf"{_SAID}(?P<open>[(\[]?)\s*(?P<letter>[A-Za-z])\s*[)\].:]?", re.IGNORECASE)
_OPTION = re.compile(
    r"(?:\(?(?P<letter>[A-H])\)?\s*(?:[.:)]|\\colon)|\((?P<bracketed>[A-H])\))\s*(?P<content>\S.*)", re.DOTALL
)
_BRACKETED = re.compile(r"(?P<letter>[A-H])\s*\((?P<content>[^()A-Z]+)\)")  # B (61)
_AND = r"\s*+(?:,\s*+(?:and\s++)?+|and|和|与|及|&)\s*+"
_SEVERAL = re.compile(rf"[A-H](?:(?:{_AND}|\s*)[A-H])+|[①-⑳](?:(?:{_AND}|\s*)[①-⑳])*|\d{{1,2}}(?:{_AND}\d{{1,2}})+")
_SAID_SEVERAL = re.compile(
    r"(?:(?:the\s+)?(?:correct\s+)?(?:options|choices|answers|statements|letters|option|answer|选项|答案|命题)\s*(?:are|is|为|是|选|:)?\s*:?\s*|(?:故|应)?选\s*:?\s*)",
    re.IGNORECASE,
)


def split_option(text: str) -> tuple[str, str] | None:
    """Split "C. 20 mph" into the letter and its content; None for anything else."""
    match = _OPTION.fullmatch(text)
    if match and match["bracketed"]:
        return match["bracketed"], match["content"].strip()
    match = match or _BRACKETED.fullmatch(text)
    return (match["letter"], match["content"].strip()) if match else None


def is_several(gold: str) -> bool:
    """Return whether a gold answer is several letters, or circled numbers."""
    return _SEVERAL.fullmatch(gold) is not None and not gold[:1].isdecimal() and len(_labels(gold)) > 1


def same_labels(answer: str, gold: str) -> bool:
    """Return whether the gold answer is one or several option letters, and the answer names exactly these."""
    if (named := _LABEL.fullmatch(gold)) and (named["letter"].isupper() or named["open"]):
        label = _LABEL.fullmatch(answer)
        if label is None:
            return False
        folded = bool(named["open"]) or label["letter"].isupper() or len(answer) > 1
        return folded and label["letter"].upper() == named["letter"].upper()
    if not _SEVERAL.fullmatch(gold) or gold[:1].isdecimal():
        return False
    mine, wanted = _labels(answer), _labels(gold)
    return sorted(mine) == sorted(wanted) and len(set(wanted)) == len(wanted)


def _labels(text: str) -> list[str]:
    """Return the labels of "A, B and D", "(A)(B)(D)", "①③" or "(1), (3)"; numbers as circled numbers."""
    text = _SAID_SEVERAL.sub("", text, count=1) if _SAID_SEVERAL.match(text) else text
    text = re.sub(r"\(([A-H])\)", r"\1", text)
    text = re.sub(r"\((\d{1,2})\)\s*(?=\()", r"\1,", text)
    text = re.sub(r"\((\d{1,2})\)", r"\1", text)
    if not _SEVERAL.fullmatch(text):
        return []
    return [
        chr(0x245F + int(label)) if label.isdecimal() else label for label in re.findall(r"[A-H]|[①-⑳]|[1-9]\d?", text)
    ]
