"""Questions that name their candidates, and sentences that say in the question's words what it asks for.

"Titanic came out before Avatar (2009)" tells the choice, "Galileo's father was Vincenzo" the answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from arpo_env.grading.qa_text.answer_tokens import tokens
from arpo_env.grading.qa_text.claims import HEDGES, JOINTS, NEGATIONS, QuestionWords, evades, word_set

_TOLD = re.compile(
    r"^[A-Z][^,;:()]{0,60}?(?:['’]s\s(?P<noun>[a-z]+)\s(?:is|was)|\s(?:is|was|were|are)\s(?P<verb>[a-z]+)\s(?:in|at|on)|"
    r"\s(?P<past>died|lived|grew up)\s(?:in|at|on))\s(?=\S)"
)
_SAME_DEGREE = """
first 1st earlier earliest before older oldest | last later latest after younger youngest newer newest recent |
long longer longest | shorter shortest | larger largest bigger biggest | smaller smallest fewer fewest less |
taller tallest higher highest | lower lowest | more most
"""
_DEGREES = {word: degree for degree, words in enumerate(_SAME_DEGREE.split("|")) for word in words.split()}
_THAN = word_set("than before after")
_LINKS = word_set("is was were are had has have did came come out than it of in by on")


def told_in_sentence(answer: str, asked: QuestionWords) -> str:
    """Return what a sentence with another subject says in the question's words: "Galileo's father was ..."; or ""."""
    match = _TOLD.match(answer)
    if not match or (match["noun"] or match["verb"] or match["past"]) not in asked.common:
        return ""
    return "" if evades(tokens(match[0])) else answer[match.end() :]


def is_chosen(answer: str, gold: Sequence[str], asked: QuestionWords) -> bool:
    """Return whether a sentence says of a gold answer what a choice asks for: "A came out before B (2009)"."""
    one, other = asked.sides
    words = tokens(re.sub(r"\([^()A-Z]*\d[^()A-Z]*\)", " ", answer))
    if gold[-1] in one ^ other and words[:1] == list(gold[-1:]):
        gold = gold[-1:]  # "Hanks is older"
    rest, size = words[len(gold) :], len(gold)
    if not any(asked.sides) or not rest or words[:size] != list(gold) or not (set(gold) <= one or set(gold) <= other):
        return False
    degrees = {_DEGREES[word] for word in rest if word in _DEGREES}
    if not degrees or not degrees <= {_DEGREES[word] for word in asked.words if word in _DEGREES}:
        return False
    aged = {"born"} if asked.words & word_set("older oldest younger youngest born") else set()
    issued = {"released"} if asked.words & word_set("film films movie movies album song released") else set()
    verbs = _LINKS | aged | issued
    said = {word for word in rest if not re.fullmatch(r"[12]\d{3}(?:-\d\d)*", word)}
    if not said <= verbs | _DEGREES.keys() | asked.words or said & ((NEGATIONS | HEDGES | JOINTS) - _THAN):
        return False
    at = next((place for place, word in enumerate(rest) if word in _THAN), len(rest))
    names = (one ^ other) - asked.common - verbs
    return (rest[0] in verbs or rest[0] in asked.common) and names.isdisjoint(rest[:at])
