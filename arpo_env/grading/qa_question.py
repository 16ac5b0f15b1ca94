"""The claim of an answer without the gold answer: what the question asks for, and which of its words say nothing.

A policy that is rewarded for shared words will name several candidates, hedge, negate, or copy the question. An answer
is therefore reduced to the one thing it says: "The answer is Paris", "It is Paris" and "Paris is the capital of France"
all say Paris. Only words of grammar and of the question are removed, from both ends; two candidates both remain.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from arpo_env.grading.qa_tokens import CJK, has_digit, normalise_words, tokens
from arpo_env.grading.words import listed, rows, word_set

# Where places are, as far as an answer may say it: "Green Bay, Wisconsin" is Green Bay, "Paris, Texas" is not Paris.
#
# The tables hold countries with their continents and nationalities, the first-level regions of the larger countries,
# and the large cities and those with namesakes. Of a place that is in no table, any region may be told.

Words = tuple[str, ...]

_LONG = listed("long names")
_NOT_LONG = ("china", "korea", "congo", "vietnam", "ireland", "macedonia", "germany")
_KIND_NAMES = "county province prefecture state district oblast canton parish region"
_KINDS = frozenset(_KIND_NAMES.split())


def _words(name: str) -> Words:
    return tuple(name.split("-"))


def _table(rows: Iterable[tuple[str, str]]) -> dict[Words, set[Words]]:
    found: dict[Words, set[Words]] = {}
    for name, outer in rows:
        found.setdefault(_words(name), set()).add(tuple(outer.split()))
    return found


_COUNTRIES, _REGIONS = (
    [(*entry.split(":"), outer.replace("-", " ")) for outer, names in rows(table) for entry in names]
    for table in ("countries", "regions")
)
_INSIDE = [(name, outer) for name, _, outer in (*_COUNTRIES, *_REGIONS)]
_REGION_IN = _table(_INSIDE)
_IN = _table([*_INSIDE, *((city, region.replace("-", " ")) for region, cities in rows("cities") for city in cities)])
_SAME_PLACE = {_words(other): _words(name) for name, others in rows("other names") for other in others}
_OUTER = _REGION_IN.keys() | {(continent,) for continent in ("europe", "asia", "africa", "oceania")}
_OUTER |= {("north", "america"), ("south", "america"), ("britain",), ("new", "york", "city")}
_SHORT = {mark.upper(): name for name, mark, _ in _REGIONS if mark}
NATIONALITIES = {mark: _words(name) for name, mark, _ in _COUNTRIES if mark}
_FIRST = {name[0] for name in (*_OUTER, *_SAME_PLACE)} | {"county"} | _LONG
_NATIONS = frozenset(_words(name) for name, _, _ in _COUNTRIES)
_BRITISH = frozenset({("england",), ("scotland",), ("wales",), ("britain",), ("great", "britain")})


def same_place(words: Words) -> Words:
    """Return the usual name of a place: of the USA, United States; other words are returned unchanged."""
    if words[:1] and words[0] in _LONG and "of" in words:
        before, name = words[: words.index("of")], words[words.index("of") + 1 :]
        if name in _REGION_IN and name[0] not in _NOT_LONG and set(before) <= _LONG:
            return name
    return _SAME_PLACE.get(words, words)


def region_at(words: Sequence[str], start: int) -> int:
    """Return the length of the longest name of a region or country that starts at a word; 0 if none does."""
    if words[start] not in _FIRST and _KINDS.isdisjoint(words[start + 1 : start + 2]):
        return 0
    for length in range(min(6, len(words) - start), 0, -1):
        name = tuple(words[start : start + length])
        if name in _OUTER or same_place(name) in _OUTER:
            return length
        if length == 2 and (name[1] in _KINDS or name[0] == "county") and not any(map(str.isdigit, name)):
            return length
    return 0


def spelled_out(text: str) -> str:
    """Return a region's name for its short form in capitals, such as WI; other texts are returned unchanged."""
    name = _SHORT.get(text.strip(" .").replace(".", ""))
    return name.replace("-", " ") if name else text


def agree(places: Sequence[Words]) -> bool:
    """Return whether each place may be in all that follow it."""
    named = [same_place(place) for place in places]
    return all(_may_be_in(one, other) for one, other in itertools.combinations(named, 2))


def _may_be_in(inner: Words, outer: Words) -> bool:
    around = _around(inner)
    if is_vague(outer):
        return inner not in _REGION_IN or outer[-1] == "state"
    if not around:
        return inner != outer
    direct, wider = _IN[inner], _REGION_IN.get(outer, set())
    if outer not in _NATIONS and wider & around and not wider & _REGION_IN.keys():
        return True  # "Sri Lanka, South Asia"
    # of many towns only the country is in the table: "Oxford, Oxfordshire"
    unlisted = inner not in _REGION_IN and not any(_IN.get(region, set()) & direct for region in direct)
    return outer in around or (unlisted and bool(wider & direct))


def _around(place: Words) -> set[Words]:
    """Return everything that a place is known to be in; nothing for an unknown place."""
    found: set[Words] = set()
    todo = [place]
    while todo:
        fresh = _IN.get(todo.pop(), set()) - found
        found |= fresh
        todo += fresh
    return found | ({("britain",), ("great", "britain")} if ("united", "kingdom") in found else set())


def is_known(place: Words) -> bool:
    """Return whether it is in the tables where a place is."""
    return same_place(place) in _IN


def is_vague(place: Words) -> bool:
    """Return whether a place is known by its kind alone, such as "Brown County"."""
    return (place[-1] in _KINDS and place[:-1] not in _REGION_IN) or place[0] == "county"


def regions_in(words: Sequence[str]) -> list[Words]:
    """Return the regions and countries that words name, and the countries whose nationality they name."""
    found, place = [], 0
    while place < len(words):
        length = region_at(words, place)
        if length or words[place] in NATIONALITIES:
            found.append(tuple(words[place : place + length]) if length else NATIONALITIES[words[place]])
        place += length or 1
    return found


def city_at(words: Sequence[str], start: int) -> int:
    """Return the length of the name of a city in the table that starts at a word; 0 if none does."""
    return next((length for length in (3, 2, 1) if tuple(words[start : start + length]) in _IN), 0)


def is_region(place: Words) -> bool:
    """Return whether a place is a region or country, not a city."""
    return place not in _IN or region_at(place, 0) == len(place)


def is_in_america(place: Words) -> bool:
    """Return whether a place is known to be in the United States or Canada."""
    return not {("united", "states"), ("canada",)}.isdisjoint(_around(same_place(place)) | {place})


def nation_of(words: Words) -> Words | None:
    """Return the country that words name, or whose nationality they name: Swiss, South Korean, Icelander."""
    name = same_place(words)
    if name in _NATIONS or not words:
        return name if words else None
    nation = NATIONALITIES.get(words[-1]) or NATIONALITIES.get(re.sub(r"(?:wo)?m[ae]n$", "", words[-1]))
    if nation and len(words) == 2:  # "South Korean" and "North Korean" by the last word
        nation = (words[0], nation[-1])
    elif nation and len(nation) > 1 and words[-1] in ("african", "rican", "lankan", "zealander"):
        return None
    if not nation or len(words) > 2:
        nation = same_place((words[0].removesuffix("er"),) if len(words) == 1 else words)
    return nation if nation in _NATIONS else None


def nations_in(words: Sequence[str]) -> frozenset[Words]:
    """Return the countries that words name, or whose nationality; of England, both England and the United Kingdom."""
    found = {name for name in map(same_place, regions_in(words)) if name in _NATIONS}
    return frozenset(found | ({("united", "kingdom")} if found & _BRITISH else set()))


GRAMMAR = listed("grammar")
NEGATIONS = listed("negations")
HEDGES = listed("hedges")
JOINTS = listed("joints")
COMPARED = listed("compared")
_YES = word_set("yes yeah yep true correct right indeed 对")
_NO = word_set("no nope false incorrect wrong 否")
_PRONOUNS = word_set("they it he she both we this that these those")
_PEOPLE = word_set("people persons inhabitants residents")
_PEOPLED = _PEOPLE | word_set("population inhabitant inhabited died killed live lived attended")
_ALL = word_set("both all same")
_ALIKE = word_set("same share common alike")
_APART = word_set("only just 1 one alone either different differ differs while whereas")
_CONFIRMED = re.compile(
    r"(?:yes|yeah|yep) (?:thats|(?:that|this|it) (?:is|was)) (?:correct|right|true)"
    r"|no (?:thats|(?:that|this|it) (?:is|was)) (?:incorrect|wrong|false|untrue|not (?:correct|right|true|so))"
)
_CONTRACTED = re.compile(r"\b(they|we|both|it|he|she)['’](re|s)\b", re.IGNORECASE)
_SUBJECTS = _PRONOUNS | word_set("all neither none only just one 1 each 2 there since because")
RELATIONS = listed("relations")
FOREIGN = listed("foreign") - {"no", "a"}
_ASKED_ELSEWHERE = listed("asked elsewhere")
_ASKING = word_set("which what who whose whom where when how the is are was were did")
_ARTICLES = word_set("a an the")
_IRREGULAR = tuple(frozenset(forms.split("-")) for forms in listed("verb forms"))
_CHANGING = word_set("by from into")
_PLACING = word_set("in on at by from during of for")
_VERBS = word_set("is are was were do does did has have had can will")
_FRAME = re.compile(
    r"^\s*(?:therefore|thus|hence|so)?,?\s*(?:#+\s*|\*+\s*)?(?:(?:(?:the|my|our)\s+)?(?:(?:final|correct|right|short|exact)\s+)*"
    r"(?:answer|result|solution)(?:\s+to\s+(?:the|this|your)\s+question)?\s*\**\s*(?:is\b|are\b|was\b|:|=)+\**|a:|答案(?:是|为|：|:))\s*:?",
    re.IGNORECASE,
)


def without_frame(text: str) -> str:
    """Return an answer without a leading "The answer is"."""
    return _FRAME.sub("", text, count=1)


def is_content(token: str) -> bool:
    """Return whether a token is more than grammar."""
    return token not in GRAMMAR


def has_content(words: Iterable[str]) -> bool:
    """Return whether words contain more than grammar, "and", "or" and "not"."""
    return not set(words) <= GRAMMAR | NEGATIONS | HEDGES | JOINTS | {"a", "an", "the"}


def evades(words: Iterable[str], *, in_prose: bool = False) -> bool:
    """Return whether words negate, hedge, or join several candidates; in prose, "and" and the like are ignored."""
    return not (NEGATIONS | HEDGES | (frozenset() if in_prose else JOINTS)).isdisjoint(words)


def is_yes(answer: str, question: str = "") -> bool | None:
    """Return whether an answer to a yes-or-no question says yes; None if it says both, neither or nothing clear.

    The first word decides: "Yes, they are", "No, only one is". A sentence about "they", "both" or the subject of the
    question may follow, but must not take the first word back.
    """
    words = tokens(
        _CONTRACTED.sub(lambda match: f"{match[1]} {'are' if match[2] == 're' else 'is'}", without_frame(answer))
    )
    rest = words[1:]
    if _CONFIRMED.fullmatch(" ".join(words)):
        return words[0] in _YES
    # after a hedge or a contradiction, the first word no longer decides
    if not words or set(rest) & HEDGES or {"if", "wrong", "false", "incorrect"} & set(rest) or "but" in rest[:1]:
        return None
    if _is_elliptic(words):
        return "not" not in words and not words[1].endswith("nt")
    asked = read_question(question)
    if words[0] in _PRONOUNS and _asserts(words, asked):
        return True  # "They are both magazines."
    denied = [word for word in words if word in ("not", "never") or (word in NEGATIONS and word.endswith("nt"))]
    if len(denied) == 1 and words[0] not in _YES | _NO and _is_denial(words, denied[0], asked):
        return False  # "They do not share a border."
    told = re.match(r"\W*no[,;]\s", without_frame(answer), re.IGNORECASE) and len(rest) > 3 and set(rest[1:-1]) & _VERBS
    if told and not set(rest) & (_YES | _ALL | {"no", "they"}) and not _asserts(rest, asked):
        return False  # "No, the Volga is in Europe"
    if words[0] not in _YES | _NO or (rest and not _is_sentence(rest, asked)):
        # "No, Berlin is the capital of Germany", where Munich is asked for
        other = words[0] == "no" and rest[-1:] != ["no"] and len(asked.topics.intersection(rest)) > 1
        return False if other and set(rest[1:]) & _VERBS and not set(rest) & (_YES | NEGATIONS) else None
    if words[0] in _YES:
        return None if set(rest) & (NEGATIONS | _NO | {"but"}) or _tells_apart(rest, asked) else True
    taken_back = len(rest) > 1 and set(rest) <= _PRONOUNS | _VERBS | _ALL
    return None if set(rest) & (_YES | {"no"}) or taken_back or _asserts(rest, asked) else False


def _tells_apart(words: Sequence[str], asked: QuestionWords) -> bool:
    """Return whether a sentence tells the subjects of a question apart: "only one is", "one is, the other is not"."""
    if set(words) & _APART - asked.words:
        return True
    places = [place for place in map(same_place, regions_in(words)) if not set(place) <= asked.words]
    regions = [region for region in map(same_place, regions_in(tokens(asked.text))) if places]
    if regions and not all(any(agree([place, to]) or agree([to, place]) for to in regions) for place in places):
        return True
    return not asked.words.isdisjoint(_ALIKE) and not agree(list(dict.fromkeys(places)))


def _asserts(words: Sequence[str], asked: QuestionWords) -> bool:
    """Return whether a sentence says of all subjects of a question what it asks: "both are magazines"."""
    said = set(words)
    if not set(words[1:]) & _VERBS | said & {"because"} or said & (_YES | _NO):
        return False
    if said & (NEGATIONS | _APART):
        return False
    topics = asked.words - GRAMMAR - _ALL
    if said & _ALL and asked.words & _ALIKE:
        return "same" in said or any(is_content(word) for word in said - topics - _ALL - _PRONOUNS)
    told = {word for word in said if is_content(word)} - _ALL - _PRONOUNS
    whole = told and topics <= told | (topics if said & _ALL else set())
    return bool(asked.words & _ALL | (said & topics)) and bool(whole) and told <= topics | {"because"}


def _is_denial(words: Sequence[str], denial: str, asked: QuestionWords) -> bool:
    """Return whether a sentence denies what a question asks, in its words."""
    rest = [word for word in words if word != denial]
    told = {word for word in rest if is_content(word)} - _PRONOUNS - _VERBS
    subject = rest[:1] and (rest[0] in _PRONOUNS or rest[0] in asked.words)
    return bool(subject and told) and all(map(asked.has, told)) and not any(asked.sides)


def _is_sentence(words: Sequence[str], asked: QuestionWords) -> bool:
    """Return whether words are a sentence about "they", "both" or the question's subject, naming no candidate."""
    verbs = _VERBS | (asked.common - GRAMMAR)
    has_verb = any({word, word.removesuffix("nt"), word.removesuffix("d")} & verbs for word in words[1:])
    plain = len(words) > 1 and words[0] in ("it", "he", "she", "they")
    return words[0] in ("both", "neither") or plain or (words[0] in _SUBJECTS | asked.topics and has_verb)


def _is_elliptic(words: Sequence[str]) -> bool:
    """Return whether the words are elliptic, such as "they are" or "it did not"."""
    known = len(words) in (2, 3) and words[0] in _PRONOUNS
    return known and words[1].removesuffix("nt") in _VERBS | {"wo", "ca"} and list(words[2:]) in ([], ["not"])


@dataclass(frozen=True)
class QuestionWords:
    """The words of a question."""

    text: str  # the normalised question
    words: frozenset[str]
    common: frozenset[str]  # words in lower case, which are not names
    sides: tuple[frozenset[str], frozenset[str]]  # the words before and after an "or"
    nations: frozenset[Words]  # the countries that it names or whose nationality it names
    inflected: frozenset[str]  # words of `common` in another number or tense
    group: str  # of what it asks for: a group of [descriptions], "time", "number", "other", or "" if that is unclear
    noun: str  # its word for it, or ""

    @property
    def is_foreign(self) -> bool:
        """Return whether it is in another European language."""
        return not self.words.isdisjoint(_ASKED_ELSEWHERE) and self.words.isdisjoint(_ASKING)

    def has(self, word: str) -> bool:
        """Return whether the question has a word, perhaps in another number or tense."""
        word = word.removeprefix("co-")
        return word in self.words or word in self.inflected or (word[-1:] == "s" and word[:-1] in self.words)

    @property
    def copied(self) -> frozenset[str]:
        """Words that earn nothing: all except those that distinguish the alternatives of the question."""
        one, other = self.sides
        return self.words - (one ^ other)

    @property
    def topics(self) -> frozenset[str]:
        """Words of the question that a sentence about its subject has."""
        return self.words - GRAMMAR - NEGATIONS - HEDGES - JOINTS - _VERBS

    def closed(self, gold: Sequence[str]) -> bool:
        """Return whether the question names the gold answer, as a question that asks to choose does."""
        return all(word in self.words for word in gold if is_content(word))

    def fillers(self, gold: Sequence[str]) -> frozenset[str]:
        """Return words without information in an answer to this question.

        If the question names its candidates, these are grammar, words of comparison, and the words that belong to the
        correct alternative ("the town Ober").
        """
        if not self.closed(gold):
            return self._open_fillers
        one, other = self.sides
        outside = self.common - one - other if one else frozenset()
        own = next((mine - others for mine, others in ((one, other), (other, one)) if set(gold) <= mine), frozenset())
        told = (own & self.common) | outside
        return GRAMMAR | (COMPARED & self.words - one - other) | (told - NEGATIONS - HEDGES - JOINTS)

    @cached_property
    def _open_fillers(self) -> frozenset[str]:
        people = _PEOPLE if self.words & _PEOPLED else frozenset()
        return GRAMMAR | people | self.inflected | (self.common - NEGATIONS - HEDGES - JOINTS)

    def gold_fillers(self, gold: Sequence[str], text: str) -> frozenset[str]:
        """Return words that a gold answer may lack: the question's, and "in" before a place or time.

        A title keeps its grammatical words ("On the Road").
        """
        placing = _PLACING if text[:1].islower() else frozenset()
        fillers = self.fillers(gold) - GRAMMAR
        # "Waterloo" where the question asks for a battle
        placing |= FOREIGN if self.is_foreign else frozenset()  # "la Loire"
        return fillers | placing | (frozenset({"of"}) if gold[:1] and gold[0] in fillers else frozenset())

    def core(self, words: Sequence[str], fillers: frozenset[str], closed: bool) -> list[str]:
        """Return an answer without uninformative words at both ends: fillers, and names of the question beyond them."""
        other = {word for word in ("born", "died", "lived") if not self.has(word)}
        if 0 < len(other) < 3 and other & set(words):
            return list(words)  # where somebody died is not where he was born
        # if the question names its candidates, its names are answers and must stay
        names = frozenset() if closed else self.words
        start = _count_uninformative(words, fillers, names)
        if start < len(words) and words[start - 1] in _CHANGING and has_digit(words[start]):
            start = 0  # "by 1990" is not 1990
        if 2 <= start < len(words) and words[start - 1] == "of" and words[start - 2] in RELATIONS:
            start = 0  # nor is "the father of John" John
        end = len(words) - _count_uninformative(words[::-1], fillers, names)
        return list(words[start:end])


def _count_uninformative(words: Sequence[str], fillers: frozenset[str], names: frozenset[str]) -> int:
    """Return the number of uninformative words at the start. The last one is a filler, so that no two names touch."""
    count, skipped = 0, names - NEGATIONS - HEDGES - JOINTS
    for place, word in enumerate(words):
        if word in fillers:
            count = place + 1
        elif word not in skipped:
            break
    return count


@lru_cache(maxsize=4096)
def read_question(question: str) -> QuestionWords:
    """Parse a question; it may be empty."""
    small = [word for word in re.findall(r"[^\W\d_][\w'’]*", question) if word[0].islower()]
    common = frozenset(tokens(" , ".join(small))) | (_ARTICLES & frozenset(small))  # commas, so that no words join
    common |= frozenset(re.findall(f"[{CJK}]", question))
    words, text = tokens(question), normalise_words(question)
    nations, inflected = nations_in(words), _inflected(common)
    return QuestionWords(text, frozenset(words), common, _sides(question), nations, inflected, *_asked_for(text))


def _inflected(words: Iterable[str]) -> frozenset[str]:
    """Return the regular plurals and past forms of words, and what they are forms of."""
    found: set[str] = set()
    for pair in _IRREGULAR:
        found |= pair if not pair.isdisjoint(words) else set()
    for word in words:
        if len(word) > 2 and word.isascii() and word.isalpha():
            stems = {word.removesuffix(end) for end in ("s", "es", "ed", "d", "ing") if len(word) > len(end) + 2}
            found |= {stem + end for stem in stems | {word} for end in ("", "s", "ed", "d", "ing")}
    found |= {"national", "citizen"} if "nationality" in words else set()
    return frozenset(found) - NEGATIONS - HEDGES - JOINTS


def _sides(question: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the words of the two alternatives of a question."""
    found = re.search(r"(?<![^,:;?])(?P<one>[^,:;?]*)\bor\b(?P<other>[^,;?]*)", question)
    found = found or re.search(r"\bbetween\b(?P<one>[^?]*?)\band\b(?P<other>[^,?]*)", question, re.IGNORECASE)
    if not found:
        return frozenset(), frozenset()
    return frozenset(tokens(found["one"])), frozenset(tokens(found["other"]))


# What a question asks for, and the words that say what something is: "actor", "film", "city", "battle".

KINDS = {word: group for group, words in rows("descriptions") for word in words}
WORK_SAME = {"movie": "film", "book": "novel", "show": "series", "sitcom": "series"}
TITLES = frozenset(word for word, group in KINDS.items() if group == "title")
ROYAL = word_set("king queen prince princess emperor empress pope tsar czar duke duchess sultan shah")
QUALITIES = listed("qualities")
SITES = listed("sites")
_ASKED = {word: group for group, words in rows("asked") for word in words}
_SKIPPED = word_set("is are was were the a an of these two three both")
_ENDS = listed("ends of the asked")


def _asked_for(question: str) -> tuple[str, str]:
    """Return the group of what a normalised question asks for, and its word for it."""
    words = re.findall(r"[a-z]+", question.lower().replace("country music", "music"))
    for place, word in enumerate(words):
        if word in ("who", "whom", "whose") and not (place and words[place - 1] in KINDS):
            return "person", ""
        if word in ("where", "when", "how"):
            return {"where": "place", "when": "time", "how": "number"}[word], ""
        if word in ("which", "what"):
            return _noun_after(words, place + 1)
    if words and words[0] in ("wo", "dove", "donde", "onde", "ou"):
        return "place", ""
    if words and words[0] in ("wer", "qui", "quien", "chi", "quem"):
        return "person", ""
    if re.search(r"谁|哪一?位|什么人|哪[^,，。?？]{0,6}[人家员者师手帝王]", question):
        return "person", ""
    return ("place" if re.search(r"哪里|哪儿|何地|地方|哪个(?:国家|城市|省|县|州)", question) else ""), ""


def _noun_after(words: Sequence[str], start: int) -> tuple[str, str]:
    """Return the group and the noun that a question has after "which"; of "film director", the second."""
    while start < len(words) and words[start] in _SKIPPED:
        start += 1
    if words[start : start + 2] in (["name", "of"], ["names", "of"], ["title", "of"]):
        return _noun_after(words, start + 2)
    found = ("other", "")
    for word in words[start : start + 8]:
        verb = found[0] not in ("other", "work", "group")  # "which city hosts"
        noun = word if word in KINDS or word in _ASKED or verb else word.removesuffix("s")
        noun = "surname" if words[start : start + 2] == ["last", "name"] else noun
        group = _ASKED.get(noun) or KINDS.get(noun)
        if group:
            found = "person" if group == "title" else group, WORK_SAME.get(noun, noun)
        elif found[1] or word in _ENDS:
            break
    return found


def only_describes(words: Sequence[str]) -> bool:
    """Return whether words name nothing: "university", "American actor"."""
    return all(word in KINDS or word in NATIONALITIES or word in QUALITIES or word == "and" for word in words)
