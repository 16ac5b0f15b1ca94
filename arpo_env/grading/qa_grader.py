"""`QaGrader`: exact match and token F1 over all aliases, for one claim only. `ExactGrader`: exact match only.

Exact match means the same answer in any form (`answer_tokens`, `dates`, `quantities`), with or without a sentence
around it (`claims`), also if it says more about the gold answer (`additions`). Otherwise the score is F1, as in the
papers, for a part of the gold answer or a fuller name. The score is 0 if the answer

- negates or hedges, or names another candidate beside the gold answer;
- has another number, date, unit, currency or sign than the gold answer, or lacks its number;
- shares only grammar and words of the question with the gold answer;
- shares only words for kinds of things ("University"), or Chinese characters in another order;
- is partly correct on a question that names its candidates, where the choice itself is the answer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import lru_cache

from arpo_env.grading.answer_text import read_letter, read_options
from arpo_env.grading.grader import Grader, Score
from arpo_env.grading.qa_additions import (
    fits,
    is_acronym,
    is_chosen,
    readings,
    told_in_sentence,
    untitled,
    without_landform,
)
from arpo_env.grading.qa_matches import (
    are_scores,
    initials_stand_for,
    is_confusable,
    is_fuller_name,
    is_joined,
    is_last_name,
    is_more_specific,
    is_namesake,
    is_other_name,
    is_place_within,
    is_value,
    romanised,
    same_code,
    same_formula,
    same_in_other_spelling,
    same_score,
    tells_value,
)
from arpo_env.grading.qa_question import (
    NEGATIONS,
    TITLES,
    QuestionWords,
    asked_for,
    evades,
    has_content,
    is_content,
    is_known,
    is_yes,
    only_describes,
    read_question,
    same_place,
    spelled_out,
    without_frame,
)
from arpo_env.grading.qa_tokens import (
    ADDRESS,
    belongs,
    has_digit,
    is_chinese_yes,
    normalise_words,
    plain_name,
    same_chinese_name,
    tokens,
    without_roman,
)
from arpo_env.grading.qa_values import QUALIFIERS, bare_number, date_agrees, same_amount, same_in_other_unit, units_in
from envs_registry import Task

__all__ = ["ExactGrader", "QaGrader", "qa_scores", "tokens"]

_LONGEST = 1_500  # characters of an answer that are considered
_PROSE = 8  # a gold answer with more content words is prose, not a name
_SEPARATORS = re.compile(r"[,;|/•\n(（]|\s-\s")
_ITEMS = re.compile(r"[,，；;|/•\n&]|\band\b|和|、|与|(?:^|(?<=\s))\d[.)]\s", re.IGNORECASE)
_ORDERED = re.compile(
    r"\bin (?:the |their )?(?:\w+ )?order\b|\b(?:counter-?)?clockwise\b|\bfirst\b[^.?!]{1,40}\bsecond\b|\branked\b"
    r"|顺序|先后|依次",
    re.IGNORECASE,
)
_AND = ("and", "和", "与")
_ORDINAL = re.compile(r"(\d{1,2})(?:st|nd|rd|th)")
_ROUGHLY = re.compile(r"\b(?:approximately|roughly|about how)\b|约")
_CAMEL, _HYPHEN = re.compile(r"(?<=[a-z])(?=[A-Z])"), re.compile(r"(?<=[^\W\d])-(?=[^\W\d])")
_NICKNAME = re.compile(r"((?:[A-Z][\w.]*\s)+)[\"“'‘]([A-Z][\w .]{1,20})[\"”'’]\s([A-Z]\S+)")
_AUTHOR = re.compile(r"(?:[A-Z][\w.-]{0,20} ){0,3}[A-Z][\w.-]{0,20}['’]s (?=[A-Z\"“])")
_SURNAME_FIRST = re.compile(r"([^\s,\d]+), ([^,\d]+)")
_PLURAL_OWNER = re.compile(r"(?<!\w)\w{1,30}s['’] \w{1,30}")
_STATE = re.compile(r",\s*([A-Z]{2,3})\b")
_SHORT = re.compile(r"(?:[Tt]he )?(?:[A-Z]\.?){2,7}")
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
    if any(match[0] not in question for match in _PLURAL_OWNER.finditer(answer)):
        question = ""  # no word may be dropped from "James' father"
    letters = [gold for gold in golds if len(gold) == 1 and "A" <= gold <= "Z"]
    if letters and read_options(question) and read_letter(answer, question) in letters:
        return 1.0, 1.0  # "C. Argon"
    decided = [(same_formula(without_frame(answer), gold, question), gold) for gold in golds]
    if any(same for same, _ in decided):
        return 1.0, 1.0
    golds = [gold for same, gold in decided if same is None and not _is_out_of_order(answer, gold, question)]
    # exactness is tried on every alias before partial credit
    if any(_is_exact(answer, gold, question) for gold in golds) or _names_aliases(answer, golds, question):
        return 1.0, 1.0
    return 0.0, max((_f1(answer, gold, question) for gold in golds), default=0.0)


def _is_out_of_order(answer: str, gold: str, question: str) -> bool:
    """Return whether an answer has the gold answer's words in another order, and the order is the answer.

    It is where the question asks for one, and where the numbers of named things are exchanged ("Season 9, Episode 1").
    """
    mine, other = ([word for word in tokens(text) if word not in _AND] for text in (without_frame(answer), gold))
    if mine == other or sorted(mine) != sorted(other):
        return False
    named = [[word for word in words if not has_digit(word)] for words in (mine, other)]
    return bool(_ORDERED.search(question)) or (named[0] == named[1] and sum(map(is_content, named[0])) > 1)


def _is_exact(answer: str, gold: str, question: str) -> bool:
    mine, other = tokens(answer), tokens(gold)
    if not other or mine == other:
        return bool(other)
    if is_confusable(tuple(mine), tuple(other)):
        return False
    # F1 of a yes-or-no answer would reward the wrong one
    if (due := is_chinese_yes(gold, question)) is not None:
        return is_chinese_yes(without_frame(answer), question) is due
    if other in (["yes"], ["no"]):
        return is_yes(answer, question) is (other == ["yes"])
    if _is_closed(mine) or _is_closed(other):
        return False
    if _is_chinese(mine) and sorted(mine) == sorted(other) and not _ITEMS.search(answer):
        return False  # characters in another order are another word
    if belongs(answer, gold):
        return False
    items = _items(gold)
    if _names(answer, gold, question) or (items and items in (_items(without_frame(answer)), _items(_told(answer)))):
        return True
    if set(mine).isdisjoint(other) and not is_known(tuple(other)) and answer < "\u3000":
        return False
    asked, text = read_question(question), without_frame(answer)
    if (
        is_more_specific(text, gold, asked)
        or is_chosen(text, other, asked)
        or ((told := told_in_sentence(text, asked)) and _is_exact(told, gold, question))
    ):
        return True
    return any(
        fits(text, head, last, other, asked) and _names(head, gold, question)
        for head, last in readings(text, other, asked)
    )


def _names(answer: str, gold: str, question: str) -> bool:
    """Return whether an answer is the gold answer alone, in any form, perhaps within a sentence."""
    asked, other = read_question(question), tuple(tokens(gold))
    forms = list(dict.fromkeys(_answer_forms(answer, other, asked)))
    if any(_same(form, one) for form in forms for one in _gold_forms(gold, question)):
        return True
    text = without_frame(answer)
    if not gold.isascii() and any(
        same_chinese_name(form, gold, question) for form in (text, *("".join(form) for form in forms))
    ):
        return True
    if same_score(text, gold, asked) or same_code(text, gold, question):
        return True
    if is_value(other) and tells_value(text, other[0], asked, lambda one, two: _same((one,), (two,))):
        return True
    # titles may be missing on one side only: "Queen Victoria" is not "King Victoria"
    if _SHORT.fullmatch(short := text.strip(" .")) and len(other) > 2 and is_acronym(short, gold):
        return True
    group, one_name = asked_for(asked.text)[0], not re.search(r"[,;/|:\n](?! [JS]r\b)", answer)
    wanted = (other,) if gold.isascii() else (other, tuple(tokens(gold.translate(_SPELLED_OUT))))
    plain_forms = [plain for form in forms for plain in (form, *untitled(form, group))] if one_name else []
    full = any(is_fuller_name(plain, one, asked) for plain in plain_forms for one in wanted)
    if full or any(_same(plain, other) for plain in plain_forms):
        return True
    if any(_same(form, plain) for form in forms for plain in untitled(other, "other")):
        return True
    text = text.strip()
    return (one_name and is_other_name(text, gold, asked)) or is_place_within(text, gold, asked)


def _answer_forms(answer: str, gold: Sequence[str], asked: QuestionWords) -> Iterator[tuple[str, ...]]:
    """Yield the readings of an answer: unchanged, without its frame, and without words of the question."""
    closed, fillers = asked.closed(gold), asked.fillers(gold)
    measured = any("|" in word for word in tokens(without_frame(answer)))
    units = units_in(asked.text) if measured else frozenset[tuple[Fraction, str]]()
    for text in _texts(without_frame(answer), asked):
        words = tokens(text)
        yield tuple(words)
        core = asked.core(words, fillers, closed)
        yield tuple(core)
        yield tuple(without_roman(core))
        yield tuple(bare_number(word, units) for word in core)
        if core[:1] == ["about"] and (_ROUGHLY.search(asked.text) or core[-1].endswith("|%")):
            yield from (tuple(core[1:]), tuple(bare_number(word, units) for word in core[1:]))
        # an amount that is told twice: "8 kilometers (5 miles)", "five (5)"
        core = [word for word in core[:1] + core[1:] if word != "about" or word == core[0]]
        if len(core) == 2 and "(" in text and (same_in_other_unit(*core) or core[0] == core[1]):
            yield (core[0],)
            yield (core[1],)


def _texts(text: str, asked: QuestionWords) -> Iterator[str]:
    yield text
    if text != (spelled := text.translate(_SPELLED_OUT)):
        yield spelled
    if match := _ASIDE.match(text):
        name, aside = match.groups()
        if normalise_words(text).strip() in asked.text:
            yield name
        elif is_acronym(name, aside) or is_acronym(aside, name):
            yield aside
    if text != (short := without_landform(text, asked.text)):
        yield short
    if "," in text and text != (full := _STATE.sub(lambda match: ", " + spelled_out(match[1]), text)):
        yield full
    if match := _NICKNAME.match(text):
        yield match[1] + text[match.start(3) :]
        yield f"{match[2]} {match[3]}"  # of 'James Earl "Jimmy" Carter Jr.'
    if (match := _AUTHOR.match(text)) and asked_for(asked.text)[0] == "work":
        yield text[match.end() :]
    if match := _SURNAME_FIRST.fullmatch(text):
        yield f"{match[2]} {match[1]}"
    if "-" in text:
        yield _HYPHEN.sub("", text)  # "Spider-Man" for "Spiderman"


@lru_cache(maxsize=8192)
def _gold_forms(gold: str, question: str) -> tuple[tuple[str, ...], ...]:
    """Return the accepted forms of a gold answer: without qualifiers, words of the question, or a bracketed aside."""
    asked = read_question(question)
    texts = [gold, gold.translate(_SPELLED_OUT), _CAMEL.sub(" ", gold)]
    if match := _ASIDE.match(gold):
        texts += [match[1], *(part for part, of in (match.groups(), match.groups()[::-1]) if is_acronym(part, of))]
        texts += [match[2]] if is_acronym(match[2], match[1]) or is_acronym(match[1], match[2]) else []
    measured = any("|" in word for word in tokens(gold))
    units = units_in(asked.text) if measured else frozenset[tuple[Fraction, str]]()
    found: dict[tuple[str, ...], None] = {}
    for text in texts:
        words = tokens(text)
        if (
            len(words) > 1
            and (number := [word for word in words if has_digit(word)])
            and _is_named(words, number, asked)
        ):
            found[tuple(number)] = None  # "Python 3.8" where the question is about Python
        plain = [word for word in words if word not in QUALIFIERS]
        core = asked.core(plain, asked.gold_fillers(words, text), closed=True)
        for form in (words, plain, core, [bare_number(word, units) for word in core]):
            if any(map(is_content, form)):
                found[tuple(form)] = None
    return tuple(found)


def _told(answer: str) -> str:
    """Return what a Chinese sentence lists: 三原色是红色、黄色和蓝色."""
    return re.sub(
        r"^(?:(?![不非没未])[\u4e00-\u9fff]){0,20}?(?:分别)?(?:是|为|包括|包含|有)(?=[\u4e00-\u9fff《“])", "", answer
    )


def _is_named(words: Sequence[str], number: Sequence[str], asked: QuestionWords) -> bool:
    return len(number) == 1 and all(word in asked.words - asked.common for word in words if word not in number)


def _same(mine: tuple[str, ...], gold: tuple[str, ...]) -> bool:
    if not mine or not gold:
        return False
    if len(mine) > 1 and (numeral := _ORDINAL.fullmatch(mine[-1])) and not has_digit(mine[0]):
        mine = (*mine[:-1], numeral[1])  # "George the Fourth"
    if mine == gold or same_place(mine) == same_place(gold):
        return True
    alike = len(mine) == len(gold) and all(
        one[0] == two[0] or one[-1] == two[-1] for one, two in zip(mine, gold, strict=True)
    )
    if alike and list(map(romanised, mine)) == list(map(romanised, gold)):
        return True
    if same_in_other_spelling(mine, gold):
        return True
    if len(mine) == len(gold) == 1 and (date_agrees(mine[0], gold[0]) or same_amount(mine[0], gold[0])):
        return True
    return is_joined(mine, gold) or initials_stand_for(mine, gold)


def _is_chinese(words: Sequence[str]) -> bool:
    return all("\u3400" <= word <= "\u9fff" for word in words)


def _items(text: str) -> tuple[tuple[str, ...], ...]:
    """Return the sorted items of a list; () if the text is not a list. Dates and numbers keep their commas."""
    if any(word.startswith(ADDRESS) for word in tokens(text)):
        return ()
    texts = [re.sub(r"^\s*both\b", "", part, flags=re.IGNORECASE) for part in _ITEMS.split(text)]
    parts = [words for part in texts if (words := tuple(tokens(plain_name(part))))]
    if all(map(are_scores, parts)):
        return tuple(parts) if len(parts) > 1 else ()
    return tuple(sorted(parts)) if len(parts) > 1 and not re.search(r"\d\s*[,/]\s*\d", text) else ()


def _names_aliases(answer: str, golds: Sequence[str], question: str) -> bool:
    """Return whether an answer consists of gold answers alone, such as a name and its short form, or of two joined."""
    text = without_frame(answer)
    parts = [part for part in re.split(r"[,;()/\n]|\baka\b|\balso known as\b", text) if part.strip()]
    known = {tuple(tokens(gold)) for gold in golds}
    if len(parts) > 1 and all(tuple(tokens(part)) in known for part in parts):
        return True
    words = list(filter(is_content, tokens(text)))
    union = {word for gold in known for word in gold} | read_question(question).common
    whole = any(len(gold) > 1 and set(filter(is_content, gold)) <= set(words) for gold in known)
    return len(known) > 1 and whole and set(words) <= union and not evades(words) and len(words) == len(set(words))


def _is_closed(words: Sequence[str]) -> bool:
    return "".join(words) in ("yes", "no", "noanswer")


def _f1(answer: str, gold: str, question: str) -> float:
    """Return token F1, or 0 if the answer contains several claims or none of its own."""
    other, asked = tokens(gold), read_question(question)
    mine, in_prose = tokens(without_frame(answer)), _size(other) > _PROSE
    # prose is compared as a whole, names without the words of the question
    if not in_prose:
        mine = asked.core(mine, asked.fillers(other), asked.closed(other))
    if not other or _is_closed(mine) or _is_closed(other) or all(is_value([word]) for word in other):
        return 0.0
    extra, missing = Counter(mine) - Counter(other), Counter(other) - Counter(mine)
    if not in_prose and _is_chinese(mine) and _is_chinese(other):
        # a part has to be a part as it is written, with no character of the question left out
        whole = tokens(without_frame(answer))
        part = 2 * len(whole) >= len(other) > max(len(whole), 3) and "".join(other).endswith("".join(whole))
        part = part and not _ITEMS.search(gold)
        return _overlap(whole, other) if part and not set(whole) <= asked.copied else 0.0
    if evades(extra, in_prose=in_prose) or not _numbers_match(extra, missing, other, in_prose):
        return 0.0
    if not _adds_no_candidate(mine, other, in_prose, asked) or _is_cut_up(answer, gold, extra):
        return 0.0
    # words of the question earn nothing: F1 is the smaller of all words and of the answer's own words
    own, due = ([word for word in words if word not in asked.copied] for words in (mine, other))
    shared = list(Counter(own) & Counter(due))
    if not has_content(shared) or (only_describes(shared) and not only_describes(due)):
        return 0.0
    return min(_overlap(mine, other), _overlap(own, due))


def _numbers_match(extra: Counter[str], missing: Counter[str], gold: Sequence[str], in_prose: bool) -> bool:
    """Return whether the numbers agree: the answer's are in the gold answer, and those of a gold name are present.

    The same holds for a "not" that is part of a name, and for a letter at its end ("Vitamin C").
    """
    if any(map(has_digit, extra)) and (not in_prose or any(map(has_digit, gold))):
        return False
    told = {word for word in missing if has_digit(word) or word in NEGATIONS or gold[-1].isdigit()}
    return in_prose or not (told or (len(gold[-1]) == 1 and gold[-1].isascii() and gold[-1] in missing))


def _adds_no_candidate(mine: Sequence[str], gold: Sequence[str], in_prose: bool, asked: QuestionWords) -> bool:
    """Return whether what an answer lacks or adds leaves no room for another candidate.

    More than half of its words must be in the gold answer, so that no answer scores for two gold answers without common
    words. A name may lack what is before the last name of a person, or what a choice does not need; a part of a list or
    of another name is another thing. Additional words must be inside a name ("Barack Hussein Obama"), or a title.
    """
    ours, theirs = ([word for word in words if is_content(word)] for words in (mine, gold))
    extra, missing = Counter(ours) - Counter(theirs), Counter(theirs) - Counter(ours)
    shared = len(ours) - extra.total()
    # more own words than shared ones: another candidate
    if extra.total() >= shared:
        return False
    person = asked_for(asked.text)[0] in ("", "person") and not is_namesake(ours, theirs)
    if in_prose:
        return bool(not extra or missing) or _is_within(ours, theirs)
    if not extra:
        return not missing or (person and is_last_name(mine, gold)) or any(asked.sides)
    titled = extra.total() == 1 and ours[0] in extra and ours[0] in TITLES and not missing.keys() & TITLES
    return person and not missing and (titled or _is_within(ours, theirs))


def _is_within(ours: Sequence[str], theirs: Sequence[str]) -> bool:
    return ours[0] == theirs[0] and ours[-1] == theirs[-1]


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
