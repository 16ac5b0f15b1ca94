"""Descriptions with names of their own: "Mark Twain (born Samuel Clemens)", "Helium (He)", "玉山(海拔3952米)".

A bracket or apposition is no second claim if it says itself what it tells: another name after "born" or "from Latin",
a symbol, a Latin name, a size, the name in another script. A bare name could be another candidate. In any case only
the name before it is paid. The same holds for sentences that say in the words of the question what it asks for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from arpo_env.grading.qa_text import chinese
from arpo_env.grading.qa_text.additions import TITLES, asked_for, only_describes
from arpo_env.grading.qa_text.answer_tokens import CJK, has_digit, tokens
from arpo_env.grading.qa_text.claims import HEDGES, JOINTS, NEGATIONS, QuestionWords, evades, word_set
from arpo_env.grading.qa_text.places import NATIONALITIES, is_known

_SPLIT = re.compile(
    r"^(?P<name>[^,()（），]{1,80}?)\s*(?:[,，]\s*(?P<said>[^()（）]+?)|[(（](?P<aside>[^()（）]+)[)）])[\s.。]*$"
)
_LANGUAGES = "|".join(("Latin", "Greek", "Hebrew", "Arabic", "pinyin", *(word.title() for word in NATIONALITIES)))
_NAMED = re.compile(
    r"(?:(?:whose|his|her|its|the)\s)?(?:(?:real|birth|full|original|legal|pen|stage|scientific|Latin)\sname)"
    r"(?:\s(?:is|was|of)|:)?\s"
    r"|(?:was\s)?born\s(?:as\s)?(?=[A-Z])|n[ée]e?\s|(?:formerly|originally|previously)\s(?:(?:known|called|named)\s(?:as\s)?)?"
    rf"|from\s(?:the\s)?(?:{_LANGUAGES})\s(?:word\s|for\s)?|(?:{_LANGUAGES}):\s?|(?:chemical\s)?symbol:?\s"
)
_NAMED_IN_CHINESE = re.compile(
    r"(?:字|号|名|原名|本名|又名|又称|别名|笔名|英文名?|拉丁学?名|学名|简称|全称|海拔|全?长|高|位于)[:：为是]?(?=.)"
)
_LIFE_IN_CHINESE = re.compile(
    r"(?:约|生于|公元|前)*\d{1,4}年?[\d月日]*\s?[-－—–~至]{1,2}\s?(?:约|卒于|公元|前)*\d{1,4}年?[\d月日]*"
)
_LATIN = re.compile(r"[A-Z][a-z]+(?: [a-z]+(?:us|a|um|is|es|ae|i|eo|o|ns|ix|ex|ps)){1,2}")
_SYMBOL, _SYMBOLIC = re.compile(r"[A-Z][a-z]?"), word_set("element symbol chemical metal gas atomic")
_LIVING = word_set("animal species bird mammal fish insect reptile plant tree flower fruit")
_SIZES = word_set("high long tall wide deep above sea level height elevation length altitude in of at area with about")
_LONGEST = 7  # words of a name
_PARTICLES = word_set("di da de del della van von der den du le la ibn bin al")
# the family names that belong to people who are known by one name
_KNOWN_BY_ONE_NAME = word_set("buonarroti simoni galilei alighieri bonaparte sanzio vecellio ciccone louise nascimento")
# other people who have the first and the last name of a well-known one
_NAMESAKES = frozenset({"john quincy adams", "michael b jordan", "james earl jones", "paul thomas anderson"})
_RELATIVES = word_set("father mother son daughter brother sister grandfather grandmother grandson nephew uncle cousin")
_SUFFIXES = word_set("jr sr 2 3 4 younger elder st")
_TOLD = re.compile(
    r"^[A-Z][^,;:()]{0,60}?(?:['’]s\s(?P<noun>[a-z]+)\s(?:is|was)|\s(?:is|was|were|are)\s(?P<verb>[a-z]+)\s(?:in|at|on)|"
    r"\s(?P<past>died|lived|grew up)\s(?:in|at|on))\s(?=\S)"
)
_DEGREES = {
    word: degree
    for degree, words in enumerate(
        (
            "first 1st earlier earliest before older oldest",
            "last later latest after younger youngest newer newest recent",
            "long longer longest",
            "shorter shortest",
            "larger largest bigger biggest",
            "smaller smallest fewer fewest less",
            "taller tallest higher highest",
            "lower lowest",
            "more most",
        )
    )
    for word in words.split()
}
_THAN = word_set("than before after")
_LINKS = word_set("is was were are had has have did came come out than it of in by on")


def descriptions(answer: str) -> Iterator[tuple[str, str]]:
    """Yield a name and what an answer says about it in a bracket at its end or after its comma."""
    if match := _SPLIT.match(answer):
        yield match["name"], match["said"] or match["aside"]


def describes(said: str, name: str, asked: QuestionWords) -> bool:
    """Return whether every part of a text only describes the name before it."""
    parts = [part.strip(" .") for part in re.split(r"[,;，；、](?!\d{3})", said)]
    if any("|" in word for word in tokens(name)) or all(map(has_digit, tokens(name))):
        return False  # an amount or a date
    one, other = asked.sides
    return not (one ^ other).intersection(tokens(said)) and all(_describes(part, name, asked) for part in parts)


def _describes(part: str, name: str, asked: QuestionWords) -> bool:
    own, words = re.search(f"[{CJK}]", name) is not None, tokens(part)
    if match := _NAMED.match(part) or (_NAMED_IN_CHINESE.match(part) if own else None):
        told = tokens(part[match.end() :])
        return (
            0 < len(told) <= (12 if own else _LONGEST)
            and not evades(told)
            and (told == tokens(name) or not is_known(tuple(told)))
        )
    if not words or evades(words):
        return False
    if own and (chinese.is_role(part) or _LIFE_IN_CHINESE.fullmatch(part)):
        return asked_for(asked.text)[0] == "person"
    latin = [re.search("[a-zA-Z]", text) is not None for text in (name, part)]
    foreign = [re.search("[\u0370-\u1cff\u3040-\ud7af]", text) is not None for text in (name, part)]
    if latin != foreign and latin[0] != latin[1] and foreign[0] != foreign[1]:
        return len(words) <= _LONGEST and not any(map(has_digit, words))  # another script
    if _SYMBOL.fullmatch(part):
        return not _SYMBOLIC.isdisjoint(asked.words)
    if _LATIN.fullmatch(part):
        living = asked_for(asked.text)[0] in ("", "other") or not _LIVING.isdisjoint(asked.words)
        return living and not only_describes(words)
    if sum("|" in word for word in words) == 1 and part == part.lower():
        return {word for word in words if "|" not in word} <= _SIZES
    if set(words) <= asked.words and not asked.words.isdisjoint(("born", "name")):
        return True  # the name that the question has
    return part == part.lower() and set(words) <= asked.common - asked.sides[0] - asked.sides[1]


def is_fuller_name(words: Sequence[str], gold: Sequence[str], asked: QuestionWords) -> bool:
    """Return whether an answer is a person's fuller name: with names between the first and the last, or after the only.

    Relatives share names, so this does not hold where the question asks for one, or has the inserted name.
    """
    if not all(word.isalpha() for word in (*words, *gold)) or not len(gold) < len(words) <= _LONGEST:
        return False
    if asked_for(asked.text)[0] != "person" or not _RELATIVES.isdisjoint(asked.words) or any(asked.sides):
        return False
    more = words[1 : len(words) - len(gold) + 1]
    known = NEGATIONS | HEDGES | JOINTS | TITLES | _SUFFIXES | asked.words | set(gold)
    if words[0] != gold[0] or known.intersection(more) or only_describes(gold):
        return False
    if len(gold) == 1:
        return len(gold[0]) > 3 and (set(more) <= _KNOWN_BY_ONE_NAME or (more[0] in _PARTICLES and len(more) > 1))
    whole = len(gold) == 2 and min(map(len, gold)) > 1 and words[-1] == gold[1] and gold[1] not in _SUFFIXES
    return whole and len(more) <= 2 and " ".join(words) not in _NAMESAKES


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
