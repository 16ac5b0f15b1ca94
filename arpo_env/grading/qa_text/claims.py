"""Finds the claim of an answer without using the gold answer: `QuestionWords.core`, `is_yes`, and the words that evade.

A policy that is rewarded for shared words will name several candidates, hedge, negate, or copy the question. An answer
is therefore reduced to the one thing it says: "The answer is Paris", "It is Paris" and "Paris is the capital of France"
all say Paris. Only words without information are removed, from both ends: words of grammar and words of the question.
The rest is one claim; two candidates both remain in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from arpo_env.grading.qa_text.answer_tokens import CJK, has_digit, normalise_words, tokens
from arpo_env.grading.qa_text.places import agree, nations_in, regions_in, same_place


def word_set(words: str) -> frozenset[str]:
    """Return the words of a text as a set."""
    return frozenset(words.split())


GRAMMAR = word_set("""
    it its is was are were be been has have had he she they his her their this that these those thats
    hes shes theyre there who which what where when in on at by of for from during into did does do located born
    died called named known written directed founded made held created released published 的 是 在 为 于 了 位 设 由
    """)
NEGATIONS = word_set("""
    not no never neither nor none nobody nothing isnt arent wasnt werent dont doesnt didnt hasnt havent hadnt
    cant cannot couldnt wont wouldnt shouldnt aint unlike except excluding instead rather anything opposite
    wrong false incorrect untrue hardly barely unless 不 没 非 未 否
    """)
HEDGES = word_set("""
    or either maybe perhaps possibly probably alternatively might otherwise unsure uncertain unclear unknown
    whichever likely guess think believe suppose could doubt depends vs potentially presumably apparently
    seemingly 或 也许 可能 大概 多 余 几 约 近
    """)
JOINTS = word_set("""
    and both without but plus also besides well another other others than then else if whether would can may any
    some all every everything everyone between among respectively etc with as aka 和 与 及
    """)
COMPARED = word_set("""
    older younger oldest youngest earlier later last larger smaller bigger taller longer shorter higher more less most
    came out film movie band person happened lived 1st
    """)
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
RELATIONS = word_set("""
    father mother parent parents son daughter child children brother sister sibling wife husband spouse uncle aunt
    grandfather grandmother grandson granddaughter nephew niece cousin friend teacher student pupil successor wives
    predecessor director author writer producer composer founder creator owner president king queen mayor leader ceo
    member sequel prequel capital part half rival enemy partner 父亲 母亲
    """)
# articles, prepositions and verbs of German, French, Spanish, Italian and Portuguese
FOREIGN = word_set("""
    der die das den dem des ein eine ist war wurde liegt heisst im am auf von vom zu zum und er sie es le la les un une
    de du des en au aux est etait fut il elle cest cetait dans sur a par et qui el los las una en del al es fue era se
    por y lo il lo gli i uno di da dal della nel nella nell e ed o os as um uma do na no em foi
    """) - {"no", "a"}
_ASKED_ELSEWHERE = word_set("""
    wer wie wo wann welche welcher welches welchem welchen qui quel quelle quels quelles ou quand combien comment quien
    que cual donde cuando cuantos cuanto chi quale dove quando quanti quem qual onde quantos
    """)
_ASKING = word_set("which what who whose whom where when how the is are was were did")
_ARTICLES = word_set("a an the")
_VERB_FORMS = """
    win-won write-wrote-written make-made give-gave-given take-took-taken find-found lead-led sing-sang-sung hold-held
    build-built speak-spoke-spoken draw-drew-drawn shoot-shot begin-began-begun become-became teach-taught sell-sold
    buy-bought get-got fly-flew-flown run-ran fight-fought beat-beaten choose-chose-chosen drive-drove-driven
    grow-grew-grown sink-sank-sunk wear-wore-worn eat-ate-eaten know-knew-known tell-told leave-left lose-lost
    marry-married
    """
_IRREGULAR = tuple(frozenset(forms.split("-")) for forms in _VERB_FORMS.split())
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
    """The words of a question.

    Attributes:
        text: the normalised question.
        words: all words.
        common: words in lower case, which are not names.
        sides: the words before and after an "or".
        nations: the countries that it names or whose nationality it names.
        inflected: words of `common` in another number or tense.
    """

    text: str
    words: frozenset[str]
    common: frozenset[str]
    sides: tuple[frozenset[str], frozenset[str]]
    nations: frozenset[tuple[str, ...]]
    inflected: frozenset[str]

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
    words = tokens(question)
    return QuestionWords(
        normalise_words(question), frozenset(words), common, _sides(question), nations_in(words), _inflected(common)
    )


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
