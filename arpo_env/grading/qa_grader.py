"""`QaGrader`: exact match and token F1 over all aliases, for one claim only. `ExactGrader`: exact match only.

Exact match means the same answer in any form (`answer_tokens`, `dates`, `quantities`), with or without a sentence
around it (`claims`). Otherwise the score is F1, as in the papers, for a part of the gold answer or a fuller name. The
score is 0 if the answer

- negates or hedges, or names another candidate beside the gold answer;
- has another number, date, unit, currency or sign than the gold answer, or lacks its number;
- shares only grammar and words of the question with the gold answer;
- is partly correct on a question that names its candidates, where the choice itself is the answer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache

from arpo_env.grading.grader import Grader, Score
from arpo_env.grading.qa_text.answer_tokens import has_digit, normalise_words, tokens
from arpo_env.grading.qa_text.claims import (
    NEGATIONS,
    QuestionWords,
    evades,
    has_content,
    is_content,
    is_yes,
    read_question,
    without_frame,
)
from arpo_env.grading.qa_text.dates import date_agrees
from arpo_env.grading.qa_text.quantities import QUALIFIERS, bare_number, units_in
from envs_registry import Task

__all__ = ["ExactGrader", "QaGrader", "qa_scores", "tokens"]

_LONGEST = 4_000  # characters of an answer that are considered
_PROSE = 8  # a gold answer with more content words is prose, not a name
_CLOSED = ("yes", "no", "noanswer")
_TITLE_WORDS = """
mr mrs ms dr prof sir dame lord lady president king queen prince princess emperor empress pope rev captain general
colonel senator governor judge count duke st
"""
_TITLES = frozenset(_TITLE_WORDS.split())
_COUNTRIES = {
    ("us",): "united states",
    ("usa",): "united states",
    ("united", "states", "of", "america"): "united states",
    ("uk",): "united kingdom",
    ("ussr",): "soviet union",
    ("uae",): "united arab emirates",
    ("peoples", "republic", "of", "china"): "china",
    ("prc",): "china",
    ("un",): "united nations",
    ("eu",): "european union",
}
_SEPARATORS = re.compile(r"[,;|/•\n(（]|\s-\s")
_ITEMS = re.compile(r"[,;|/•\n&]|\band\b|和|、|与", re.IGNORECASE)
_ASIDE = re.compile(r"^(.*\S)\s*[(（]([^()（）]*)[)）]\W*$", re.DOTALL)
_SPELLED_OUT = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue", "å": "aa", "ø": "oe"})


class QaGrader(Grader):
    """Grades answers in words: `Score.value` is F1, `parts` has `em` and `f1`."""

    async def grade(self, answer: str, task: Task) -> Score:
        """Score an answer by its best match among the gold answers."""
        em, f1 = qa_scores(answer, task.answers, task.question)
        return Score(f1, {"em": em, "f1": f1})


class ExactGrader(Grader):
    """Grades answers in words as right or wrong: `Score.value` is exact match, `parts` has `em` and `f1`."""

    async def grade(self, answer: str, task: Task) -> Score:
        """Score 1 for an answer that exactly matches a gold answer, else 0."""
        em, f1 = qa_scores(answer, task.answers, task.question)
        return Score(em, {"em": em, "f1": f1})


def qa_scores(answer: str, golds: Sequence[str], question: str = "") -> tuple[float, float]:
    """Return exact match and token F1 of an answer, each the maximum over the gold answers.

    Args:
        answer: the answer.
        golds: the accepted answers.
        question: the question; without it, words copied from it count as words of the answer.
    """
    answer = re.sub(r"\s*\n\s*|\s+", lambda blank: "\n" if "\n" in blank[0] else " ", answer[:_LONGEST].strip())
    # exactness is tried on every alias before partial credit
    if any(_is_exact(answer, gold, question) for gold in golds) or _names_aliases(answer, golds):
        return 1.0, 1.0
    return 0.0, max((_f1(answer, gold, question) for gold in golds), default=0.0)


def _is_exact(answer: str, gold: str, question: str) -> bool:
    mine, other = tokens(answer), tokens(gold)
    if not other or mine == other:
        return bool(other)
    # F1 of a yes-or-no answer would reward the wrong one
    if other in (["yes"], ["no"]):
        return is_yes(answer, question) is (other == ["yes"])
    if _is_closed(mine) or _is_closed(other):
        return False
    asked = read_question(question)
    forms = list(_answer_forms(answer, other, asked))
    golds = _gold_forms(gold, question)
    if any(_same(form, one) for form in forms for one in golds):
        return True
    # titles may be missing on one side only: "Queen Victoria" is not "King Victoria"
    plain = [_untitled(form) for form in forms]
    return (
        any(_same(form, tuple(other)) for form in plain)
        or any(_same(form, _untitled(tuple(other))) for form in forms)
        or _items(without_frame(answer)) == _items(gold) != ()
    )


def _answer_forms(answer: str, gold: Sequence[str], asked: QuestionWords) -> Iterator[tuple[str, ...]]:
    """Yield the readings of an answer: unchanged, without its frame, and without words of the question."""
    closed, fillers = asked.closed(gold), asked.fillers(gold)
    units = units_in(asked.words)
    for text in _texts(without_frame(answer), asked):
        words = tokens(text)
        yield tuple(words)
        core = asked.core(words, fillers, closed)
        yield tuple(core)
        yield tuple(bare_number(word, units) for word in core)


def _texts(text: str, asked: QuestionWords) -> Iterator[str]:
    yield text
    if text != (spelled := text.translate(_SPELLED_OUT)):
        yield spelled
    if match := _ASIDE.match(text):
        name, aside = match.groups()
        if _is_acronym(aside, name) or normalise_words(text).strip() in asked.text:
            yield name
        elif _is_acronym(name, aside):
            yield aside


@lru_cache(maxsize=8192)
def _gold_forms(gold: str, question: str) -> tuple[tuple[str, ...], ...]:
    """Return the accepted forms of a gold answer: without qualifiers, words of the question, or a bracketed aside."""
    asked = read_question(question)
    texts = [gold, gold.translate(_SPELLED_OUT)]
    if match := _ASIDE.match(gold):
        texts += [match[1], *(part for part, of in (match.groups(), match.groups()[::-1]) if _is_acronym(part, of))]
        texts += [match[2]] if _is_acronym(match[2], match[1]) or _is_acronym(match[1], match[2]) else []
    units = units_in(asked.words)
    found: dict[tuple[str, ...], None] = {}
    for text in texts:
        words = tokens(text)
        plain = [word for word in words if word not in QUALIFIERS]
        core = asked.core(plain, asked.gold_fillers(words, text), closed=True)
        for form in (words, plain, core, [bare_number(word, units) for word in core]):
            if any(map(is_content, form)):
                found[tuple(form)] = None
    return tuple(found)


def _same(mine: tuple[str, ...], gold: tuple[str, ...]) -> bool:
    if not mine or not gold:
        return False
    if mine == gold or _country(mine) == _country(gold):
        return True
    if len(mine) == len(gold) == 1 and date_agrees(mine[0], gold[0]):
        return True
    joined = "".join(mine)
    if joined == "".join(gold) and len(joined) >= 4 and not any(map(has_digit, mine)):
        return True  # "seagull", "J R R Tolkien"
    return _initials_stand_for(mine, gold)


def _initials_stand_for(mine: tuple[str, ...], gold: tuple[str, ...]) -> bool:
    """Return whether two names differ only in initials: "J. R. R. Tolkien", "George W. Bush" and the full names.

    A surname with one initial ("J. Smith") is not enough, since it would match both John and James.
    """
    if mine[-1] != gold[-1] or len(gold[-1]) < 3 or min(len(mine), len(gold)) < 2:
        return False
    first, second = _letters(mine, gold), _letters(gold, mine)
    if len(first) != len(second) or len(first) < 3:
        return False
    pairs = list(zip(first, second, strict=True))
    # each word must be equal or abbreviated to its first letter
    if not all(one == two or (1 in (len(one), len(two)) and one[0] == two[0]) for one, two in pairs):
        return False
    full = sum(one == two and len(one) > 1 for one, two in pairs)
    return full >= 2 or sum(len(one) == 1 or len(two) == 1 for one, two in pairs) >= 2


def _letters(words: tuple[str, ...], others: tuple[str, ...]) -> list[str]:
    found: list[str] = []
    for word in words:
        found += list(word) if len(word) <= 3 and word.isalpha() and word not in others else [word]
    return found


def _is_acronym(short: str, name: str) -> bool:
    letters = re.sub(r"[^A-Za-z]", "", short).lower()
    words = re.findall(r"[A-Za-z]+", name)
    initials = (
        "".join(word[0] for word in words).lower(),
        "".join(word[0] for word in words if word[0].isupper()).lower(),
    )
    return len(letters) >= 2 and letters in initials


def _country(words: tuple[str, ...]) -> str:
    return _COUNTRIES.get(words) or " ".join(words)


def _untitled(words: tuple[str, ...]) -> tuple[str, ...]:
    return words[1:] if len(words) > 2 and words[0] in _TITLES else words


def _items(text: str) -> tuple[tuple[str, ...], ...]:
    """Return the sorted items of a list; () if the text is not a list. Dates and numbers keep their commas."""
    parts = [tuple(tokens(re.sub(r"^\s*both\b", "", part, flags=re.IGNORECASE))) for part in _ITEMS.split(text)]
    parts = [part for part in parts if part]
    return tuple(sorted(parts)) if len(parts) > 1 and not re.search(r"\d\s*[,/]\s*\d", text) else ()


def _names_aliases(answer: str, golds: Sequence[str]) -> bool:
    """Return whether an answer consists of several gold answers, such as a name followed by its short form."""
    parts = [part for part in re.split(r"[,;()/\n]|\baka\b|\balso known as\b", without_frame(answer)) if part.strip()]
    known = {tuple(tokens(gold)) for gold in golds}
    return len(parts) > 1 and all(tuple(tokens(part)) in known for part in parts)


def _is_closed(words: Sequence[str]) -> bool:
    return "".join(words) in _CLOSED


def _f1(answer: str, gold: str, question: str) -> float:
    """Return token F1, or 0 if the answer contains several claims or none of its own."""
    other, asked = tokens(gold), read_question(question)
    mine, in_prose = tokens(without_frame(answer)), _size(other) > _PROSE
    # prose is compared as a whole, names without the words of the question
    if not in_prose:
        mine = asked.core(mine, asked.fillers(other), asked.closed(other))
    if not other or _is_closed(mine) or _is_closed(other) or (len(other) == 1 and has_digit(other[0])):
        return 0.0
    extra, missing = Counter(mine) - Counter(other), Counter(other) - Counter(mine)
    if evades(extra, in_prose=in_prose) or not _numbers_match(extra, missing, other, in_prose):
        return 0.0
    if not _adds_no_candidate(mine, other, in_prose) or _is_cut_up(answer, gold, extra):
        return 0.0
    # words of the question earn nothing: F1 is the smaller of all words and of the answer's own words
    own, due = ([word for word in words if word not in asked.copied] for words in (mine, other))
    if not has_content(Counter(own) & Counter(due)):
        return 0.0
    return min(_overlap(mine, other), _overlap(own, due))


def _numbers_match(extra: Counter[str], missing: Counter[str], gold: Sequence[str], in_prose: bool) -> bool:
    """Return whether the numbers agree: the answer's are in the gold answer, and those of a gold name are present.

    The same holds for a "not" that is part of a name, and for a letter at its end ("Vitamin C").
    """
    if any(map(has_digit, extra)) and (not in_prose or any(map(has_digit, gold))):
        return False
    told = {word for word in missing if has_digit(word) or word in NEGATIONS}
    return in_prose or not (told or (len(gold[-1]) == 1 and gold[-1].isascii() and gold[-1] in missing))


def _adds_no_candidate(mine: Sequence[str], gold: Sequence[str], in_prose: bool) -> bool:
    """Return whether the additional words of an answer leave no room for another candidate.

    More than half of its words must be in the gold answer, so that no answer scores for two gold answers without common
    words. Additional words of a name must be inside it ("Barack Hussein Obama"); only a title may precede it.
    """
    ours, theirs = ([word for word in words if is_content(word)] for words in (mine, gold))
    extra, missing = Counter(ours) - Counter(theirs), Counter(theirs) - Counter(ours)
    shared = len(ours) - extra.total()
    if not extra:
        return shared > 0
    # more own words than shared ones: another candidate
    if extra.total() >= shared:
        return False
    if in_prose and missing:
        return True
    within = not missing and ours[0] == theirs[0] and ours[-1] == theirs[-1]
    titled = extra.total() == 1 and ours[0] in extra and ours[0] in _TITLES and not missing.keys() & _TITLES
    return within or titled


def _is_cut_up(answer: str, gold: str, extra: Counter[str]) -> bool:
    """Return whether the answer has more separators than the gold answer, with its own words between them."""
    if not any(map(is_content, extra)):
        return False
    if _size(tokens(gold)) <= _PROSE:
        return len(_SEPARATORS.findall(without_frame(answer).strip())) > len(_SEPARATORS.findall(gold.strip()))
    known = set(tokens(gold))
    parts = [set(filter(is_content, tokens(part))) for part in re.split(r"[;|•\n]", answer)]
    return len(parts) > 1 and any(part and 2 * len(part & known) < len(part) for part in parts)


def _size(words: Sequence[str]) -> float:
    """Return the number of content words; a Chinese word has about two characters."""
    return sum(0.5 if "\u3040" <= word[0] <= "\u9fff" else 1.0 for word in words if is_content(word))


def _overlap(mine: Sequence[str], other: Sequence[str]) -> float:
    same = (Counter(mine) & Counter(other)).total()
    return 2 * same / (len(mine) + len(other)) if same else 0.0
