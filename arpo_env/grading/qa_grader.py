"""`QaGrader`: exact match and token F1 over all aliases, for one claim only.

Exact match means the same answer in any form (`qa_tokens`, `qa_values`), with or without a sentence around it
(`qa_question`), also if it says more about the gold answer (`qa_additions`). Otherwise the score is F1, as in the
papers, for a part of the gold answer or a fuller name. The score is 0 if the answer

- negates or hedges, or names another candidate beside the gold answer;
- has another number, date, unit, currency or sign than the gold answer, or lacks its number;
- shares only grammar and words of the question with the gold answer;
- shares only words for kinds of things ("University"), or Chinese characters in another order;
- is partly correct on a question that names its candidates, where the choice itself is the answer.
"""

from __future__ import annotations

import cmath
import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from arpo_env.grading import qa_values
from arpo_env.grading.answer_text import prepare, read_letter, read_options
from arpo_env.grading.grader import Grader, Score
from arpo_env.grading.math_formulas import Node, Unreadable, equation_sides, is_too_expensive, read_expression, symbols
from arpo_env.grading.math_grader import decide
from arpo_env.grading.math_values import changes_number
from arpo_env.grading.qa_additions import (
    fits,
    is_acronym,
    is_chosen,
    readings,
    told_in_sentence,
    untitled,
    without_landform,
)
from arpo_env.grading.qa_question import (
    FOREIGN,
    GRAMMAR,
    HEDGES,
    JOINTS,
    NEGATIONS,
    TITLES,
    QuestionWords,
    Words,
    agree,
    evades,
    has_content,
    is_content,
    is_in_america,
    is_known,
    is_region,
    is_yes,
    nation_of,
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
    roman,
    same_chinese_name,
    tokens,
    without_roman,
)
from arpo_env.grading.words import listed, word_set
from envs_registry import Task

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
    """Grades answers in words: `Score.value` is F1, or exact match if `exact`; `parts` has `em` and `f1`."""

    def __init__(self, exact: bool = False) -> None:
        self.exact = exact

    async def grade(self, answer: str, task: Task) -> Score:
        """Score an answer by its best match among the gold answers."""
        em, f1 = qa_scores(answer, task.answers, task.question)
        return Score(em if self.exact else f1, {"em": em, "f1": f1})


def qa_scores(answer: str, golds: Sequence[str], question: str = "") -> tuple[float, float]:
    """Return exact match and token F1 of an answer, each the maximum over the gold answers.

    Without the question, words copied from it count as words of the answer.
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
    one_name = not re.search(r"[,;/|:\n](?! [JS]r\b)", answer)
    wanted = (other,) if gold.isascii() else (other, tuple(tokens(gold.translate(_SPELLED_OUT))))
    plain_forms = [plain for form in forms for plain in (form, *untitled(form, asked.group))] if one_name else []
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
    units = qa_values.units_in(asked.text) if measured else ()
    for text in _texts(without_frame(answer), asked):
        words = tokens(text)
        yield tuple(words)
        core = asked.core(words, fillers, closed)
        yield tuple(core)
        yield tuple(without_roman(core))
        yield tuple(qa_values.bare_number(word, units) for word in core)
        if core[:1] == ["about"] and (_ROUGHLY.search(asked.text) or core[-1].endswith("|%")):
            yield from (tuple(core[1:]), tuple(qa_values.bare_number(word, units) for word in core[1:]))
        # an amount that is told twice: "8 kilometers (5 miles)", "five (5)"
        core = [word for word in core[:1] + core[1:] if word != "about" or word == core[0]]
        if len(core) == 2 and "(" in text and (qa_values.same_in_other_unit(*core) or core[0] == core[1]):
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
    if (match := _AUTHOR.match(text)) and asked.group == "work":
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
        texts += match.groups() if is_acronym(match[2], match[1]) or is_acronym(match[1], match[2]) else [match[1]]
    measured = any("|" in word for word in tokens(gold))
    units = qa_values.units_in(asked.text) if measured else ()
    found: dict[tuple[str, ...], None] = {}
    for text in texts:
        words = tokens(text)
        if (
            len(words) > 1
            and (number := [word for word in words if has_digit(word)])
            and _is_named(words, number, asked)
        ):
            found[tuple(number)] = None  # "Python 3.8" where the question is about Python
        plain = [word for word in words if word not in qa_values.QUALIFIERS]
        core = asked.core(plain, asked.gold_fillers(words, text), closed=True)
        for form in (words, plain, core, [qa_values.bare_number(word, units) for word in core]):
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
    if len(mine) == len(gold) == 1 and (
        qa_values.date_agrees(mine[0], gold[0]) or qa_values.same_amount(mine[0], gold[0])
    ):
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
    if all(_SCORE.fullmatch(word) for words in parts for word in words):  # scores have an order
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
    person = asked.group in ("", "person") and _NAMESAKES.isdisjoint(map(" ".join, (ours, theirs)))
    within = ours[0] == theirs[0] and ours[-1] == theirs[-1]
    if in_prose:
        return bool(not extra or missing) or within
    if not extra:
        return not missing or (person and is_last_name(mine, gold)) or any(asked.sides)
    titled = extra.total() == 1 and ours[0] in extra and ours[0] in TITLES and not missing.keys() & TITLES
    return person and not missing and (titled or within)


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


# Names: spellings, initials, middle names, nationalities for countries, parts in another order.

_LONGEST_NAME = 7  # words of a name
_PARTICLES = word_set("di da de del della van von der den du le la ibn bin al")
# the family names that belong to people who are known by one name
_KNOWN_BY_ONE_NAME = word_set("buonarroti simoni galilei alighieri bonaparte sanzio vecellio ciccone louise nascimento")
_NAMESAKES = frozenset(name.replace("-", " ") for name in listed("namesakes"))
_SHORT_NAMES = frozenset(frozenset(pair.split("-")) for pair in listed("nicknames"))
_RELATIVES = word_set("father mother son daughter brother sister grandfather grandmother grandson nephew uncle cousin")
_SUFFIXES = word_set("jr sr 2 3 4 younger elder st")
_NATIONAL = word_set("nationality country nation citizen citizenship nationalities countries from")
_OFFICES = word_set(
    "department ministry congress senate party navy army force government court parliament embassy corps house cabinet"
)
_OCCUPATIONS = word_set("occupation profession job career occupations professions jobs work position living")
_JUNIOR = word_set("vice assistant deputy co ex non student trainee junior associate sub under anti would former")
_REGIONS = word_set("country state province county continent region nation island district territory kingdom")
_PROPER = re.compile(r"[A-Z][\w.'’-]{1,30}(?: (?:of|de|la|del|upon|[A-Z][\w.'’-]{0,30})){0,3}")
_SUBTITLE = re.compile(r"^(.{2,}?)(?:[,;:]\s+or[,:;]?\s+|\s+or:\s+|:\s+(?=(?:A|An|How|Why|My|Inside|In|From)\s))(.+)$")
_SERIES = re.compile(r"\b(?:films?|movies?|games?|episode|series)\b")
_CITIZENS = word_set("citizen citizenship national nationality")
_SCHOOLS = word_set("school college university academy")
_BELIEFS = word_set("religion faith ideology belief philosophy")
_OF = word_set("of in for")


def is_other_name(text: str, gold: str, asked: QuestionWords) -> bool:
    """Return whether a text is the gold answer with less, in another order, or in a form that the question allows."""
    mine, other = tuple(tokens(text)), tuple(tokens(gold))
    if not mine or not other or is_confusable(mine, other):
        return False
    group = asked.group
    rest = other[len(mine) :] if other[: len(mine)] == mine else ()
    bare = mine[1:] if mine[0] in TITLES and len(mine) > 1 else mine
    nation = nation_of(other) if not asked.words.isdisjoint(_NATIONAL) else None
    return (
        (nation is not None and nation_of(tuple(word for word in mine if word not in _CITIZENS)) == nation)
        or _is_reordered(mine, other)
        or _is_reordered(other, mine)
        or _is_clipped(text, gold)
        or (group in ("place", "group", "") and gold < "\u3000" and _is_in_region(text, gold))
        or (group == "person" and bare[-1].isdigit() and _is_realm(bare, other))
        or (asked.noun in _SCHOOLS and len(mine) == len(rest) == 1 and rest[0] in _SCHOOLS)
        or (group == "person" and (_lacks_middle_name(mine, other, asked) or _is_half(mine, other, asked)))
        or (group == "group" and len(mine) == 1 < len(other) and asked.has("team") and mine[0] == other[-1][:-1] + "s")
        or {_without_nation(mine), _without_nation(other)} < {mine, other}
        or ({mine, other} == {("new", "york"), ("new", "york", "city")} and group == "place" and not asked.has("state"))
        or _lacks_subtitle(mine, gold, asked)
        or (not asked.words.isdisjoint(_BELIEFS) and _stem(mine) == _stem(other))
    )


def _is_realm(mine: Words, gold: Words) -> bool:
    """Return whether a monarch is told without the realm: "Nicholas II" of Russia."""
    realm, size = gold[len(mine) :], len(mine)
    numbered = realm and mine[-1] in (gold[size - 1], str(roman(gold[size - 1])))
    return bool(numbered) and gold[: size - 1] == mine[:-1] and realm[0] == "of" and nation_of(realm[1:]) is not None


def is_confusable(mine: Words, other: Words) -> bool:
    """Return whether two American universities differ in the order of their words: Miami University, of Miami."""
    if "university" not in mine or "university" not in other:
        return False
    one, two = (("university", "of") in itertools.pairwise(words) for words in (mine, other))
    if one == two:
        return False
    place = tuple(word for word in other if word not in ("university", "of"))
    return not is_known(place) or is_in_america(place)


def _is_reordered(plain: Words, linked: Words) -> bool:
    """Return whether one name has a preposition for the other's order: "Nobel Physics Prize", "Prize in Physics"."""
    for place in range(1, len(linked) - 1):
        if linked[place] not in _OF:
            continue
        one, other = linked[:place], linked[place + 1 :]
        bare = tuple(word for word in plain if word not in _OF)
        if set(other) <= {"st"} or any(map(has_digit, other)):
            continue
        if plain == bare and plain in (other + one, one[:-1] + other + one[-1:]):
            return True
        if len(plain) == len(linked) and plain[place] in _OF and plain[:place] == one and plain[place + 1 :] == other:
            return True
    return False


def _is_clipped(text: str, gold: str) -> bool:
    """Return whether every word is a beginning of the gold answer's word: "sci-fi", "rom-com"."""
    mine, other = re.findall(r"[a-z]+", text.lower()), re.findall(r"[a-z]+", gold.lower())
    if not re.fullmatch(r"[A-Za-z]{2,4}(?:-[A-Za-z]{2,4})+", text.strip(" .")) or len(mine) != len(other):
        return False
    return all(whole.startswith(part) and len(whole) > len(part) + 1 for part, whole in zip(mine, other, strict=True))


def _is_in_region(text: str, gold: str) -> bool:
    """Return whether a place is told without the gold answer's region and cannot be another: not "Paris" for Texas."""
    parts, mine = gold.split(","), tokens(text)
    for place in range(1, len(parts)):
        own = tokens(",".join(parts[:place]))
        if mine != own or own[:2] == ["university", "of"]:
            continue
        regions = [tuple(tokens(part)) for part in parts[1:]]
        return not is_known(tuple(tokens(parts[0]))) or agree(
            [tuple(tokens(parts[0])), *(region for region in regions if is_known(region))]
        )
    return False


def _lacks_middle_name(mine: Words, gold: Words, asked: QuestionWords) -> bool:
    if len(mine) != 2 or not 2 < len(gold) < 5 or not _RELATIVES.isdisjoint(asked.words) or any(asked.sides):
        return False
    between = gold[1:-1]
    known = _SUFFIXES | _PARTICLES | {"and", "y"}
    plain = all(word.isalpha() for word in (*mine, *gold)) and known.isdisjoint((*between, gold[-1]))
    plain = plain and gold[0] not in TITLES
    first = mine[0] == gold[0] or frozenset((mine[0], gold[0])) in _SHORT_NAMES
    return plain and first and mine[1] == gold[-1] and " ".join(gold) not in _NAMESAKES and not only_describes(gold)


def _is_half(mine: Words, gold: Words, asked: QuestionWords) -> bool:
    """Return whether a question has the other half of a name: "Janet" of the Jackson family."""
    left = [word for word in gold if word not in asked.words]
    plain = list(mine) == left and not only_describes(left) and not any(asked.sides)
    return plain and len(gold) == 2 and len(left[0]) > 2


def _without_nation(words: Words) -> Words:
    """Return an office of a country without the country: Department of Justice."""
    for length in (2, 1):
        rest = words[length:]
        if len(rest) > 1 and not _OFFICES.isdisjoint(rest) and nation_of(words[:length]):
            return rest
    return words


def _lacks_subtitle(mine: Words, gold: str, asked: QuestionWords) -> bool:
    match = _SUBTITLE.match(gold)
    if not match or mine != tuple(tokens(match[1])):
        return False
    return " or" in gold[match.end(1) : match.start(2)] or not _SERIES.search(asked.text)


def _stem(words: Words) -> tuple[str, ...]:
    return tuple(re.sub(r"(?:ism|ist|ian|ic|ity)$", "", re.sub(r"(?:ism|ity)$", "", word)) for word in words)


def is_more_specific(text: str, gold: str, asked: QuestionWords) -> bool:
    """Return whether an answer tells an occupation more closely, or one more: "landscape photographer and author"."""
    first, _, second = text.strip(" .").lower().partition(" and ")
    wanted = asked.noun in _OCCUPATIONS and " and " not in gold and not has_digit(gold)
    if not wanted or text[1:] != text[1:].lower() or not re.fullmatch(r"[\w ’'-]+", text.strip(" .")):
        return False
    words, other = tokens(first), tokens(gold)
    more = words[: -len(other)]
    blocked = NEGATIONS | HEDGES | JOINTS | _JUNIOR
    told = (*more, *tokens(second))
    return len(more) < 3 and len(told) < 5 and words[-len(other) :] == other and (blocked | set(other)).isdisjoint(told)


def is_place_within(text: str, gold: str, asked: QuestionWords) -> bool:
    """Return whether an answer has a smaller place before the gold answer, a region: "Athens, Georgia"."""
    inner, comma, outer = text.strip(" .").rpartition(", ")
    place, region = tuple(tokens(inner)), tuple(tokens(gold))
    if not comma or asked.noun not in _REGIONS or not _PROPER.fullmatch(inner) or len(inner) < 4:
        return False
    known = is_known(place)
    fits = same_place(tuple(tokens(spelled_out(outer)))) == same_place(region) and is_known(region)
    inside = not is_region(place) and (agree([place, region]) or is_in_america(region))
    return fits and (inside if known else set(place).isdisjoint(JOINTS | HEDGES))


def is_last_name(mine: Sequence[str], gold: Sequence[str]) -> bool:
    """Return whether an answer is the end of a person's name."""
    plain = all(word.isalpha() for word in gold) and _SUFFIXES.isdisjoint(gold) and "and" not in gold
    return plain and 1 < len(gold) < 5 and 0 < len(mine) < len(gold) and list(gold[-len(mine) :]) == list(mine)


def romanised(word: str) -> str:
    """Return a name from Cyrillic in one of its spellings: Dostoyevskiy, Dostoevsky."""
    if len(word) < 5 or not word.isascii():
        return word
    word = word.replace("yev", "ev").replace("yov", "ev").replace("tsch", "ch").replace("tch", "ch")
    return word.rstrip("iyj") + "y" if word[-1] in "iyj" else word


def same_in_other_spelling(mine: Words, gold: Words) -> bool:
    """Return whether names differ in a short first name, a Roman numeral, or the spelling of Arabic and the like."""
    if len(mine) != len(gold):
        bare = [tuple(word for word in words if word not in ("al", "el")) for words in (mine, gold)]
        return bare != [mine, gold] and len(bare[0]) == len(bare[1]) > 1 and same_in_other_spelling(*bare)
    if len(mine) < 2:
        return False
    if mine[:-1] == gold[:-1]:
        one, other = mine[-1], gold[-1]
        if any(first.isdigit() and str(roman(second)) == first for first, second in ((one, other), (other, one))):
            return True
    if mine[1:] == gold[1:] and frozenset((mine[0], gold[0])) in _SHORT_NAMES:
        return True
    alike = any(one == two for one, two in zip(mine, gold, strict=True))
    return alike and list(map(_folded, mine)) == list(map(_folded, gold))


def _folded(word: str) -> str:
    """Return a name from Arabic, Persian or Hindi in one of its spellings: Qaddafi, Gadhafi; Husayn, Hussein."""
    if re.fullmatch(r"abd[aeu]l", word):
        return "abdul"
    if len(word) < 6 or not word.isalpha():
        return word
    for old, new in (("ou", "u"), ("oo", "u"), ("ee", "i"), ("ay", "e"), ("ai", "e"), ("ei", "e"), ("ey", "e")):
        word = word.replace(old, new)
    word = re.sub(r"(?<=[dgkb])h", "", re.sub(r"^(?:q|g|kh?)", "k", word))
    return re.sub(r"(.)\1", r"\1", word).replace("q", "k")


def is_joined(mine: tuple[str, ...], gold: tuple[str, ...]) -> bool:
    """Return whether an answer only writes words of the gold answer together ("Hongkong"), or initials apart."""
    joined = "".join(gold)
    if any(map(has_digit, gold)):  # "ISO9001", "F-16"
        runs = [[run for word in words for run in re.findall(r"\d[\d.]*|\D+", word)] for words in (mine, gold)]
        apart = len(mine) > len(gold) and len(gold[0]) < 3  # "U2" is not "U-2"
        return runs[0] == runs[1] and len(runs[0]) > 1 and not apart and not any("|" in word for word in gold)
    if "".join(mine) != joined or len(joined) < 4 or any(map(has_digit, mine)):
        return False
    ours, theirs = ({*itertools.accumulate(map(len, words))} for words in (mine, gold))
    initials = {end for end, word in zip(itertools.accumulate(map(len, mine)), mine, strict=True) if len(word) == 1}
    return all(end in theirs or (end in initials and _is_short(end, gold)) for end in ours)


def _is_short(end: int, words: tuple[str, ...]) -> bool:
    """Return whether the word that a place is in has at most three letters."""
    ends = itertools.accumulate(map(len, words))
    return next(len(word) for word, last in zip(words, ends, strict=True) if end <= last) <= 3


def initials_stand_for(mine: tuple[str, ...], gold: tuple[str, ...]) -> bool:
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


def is_fuller_name(words: Sequence[str], gold: Sequence[str], asked: QuestionWords) -> bool:
    """Return whether an answer is a person's fuller name: with names between the first and the last, or after the only.

    Relatives share names, so this does not hold where the question asks for one, or has the inserted name.
    """
    if not all(word.isalpha() for word in (*words, *gold)) or not len(gold) < len(words) <= _LONGEST_NAME:
        return False
    if asked.group != "person" or not _RELATIVES.isdisjoint(asked.words) or any(asked.sides):
        return False
    more = words[1 : len(words) - len(gold) + 1]
    known = NEGATIONS | HEDGES | JOINTS | TITLES | _SUFFIXES | asked.words | set(gold)
    short = frozenset((words[0], gold[0])) in _SHORT_NAMES and len(gold) == 2
    if not (words[0] == gold[0] or short) or known.intersection(more) or only_describes(gold):
        return False
    if len(gold) == 1:
        return len(gold[0]) > 3 and (set(more) <= _KNOWN_BY_ONE_NAME or (more[0] in _PARTICLES and len(more) > 1))
    if len(gold) == 3 and gold[1] in _PARTICLES:
        return len(words) == 4 and tuple(words[-2:]) == tuple(gold[1:])  # "Vincent Willem van Gogh"
    whole = len(gold) == 2 and min(map(len, gold)) > 1 and words[-1] == gold[1] and gold[1] not in _SUFFIXES
    return whole and len(more) <= 2 and " ".join(words) not in _NAMESAKES


# Values: amounts, dates, scores, codes, addresses and formulas. One is told by an answer that has no other value, and
# whose other words are grammar, words of the question, or a few lower-case words between these: "The 2011 census
# recorded a population of 4,812."

_LONGEST_SENTENCE = 40  # words of a sentence that tells a value
_MOST_UNKNOWN = 3  # words of it that are neither grammar nor in the question
_CHANGING = qa_values.QUALIFIERS | listed("changing a value")
_HARMLESS = word_set("as with all every may can would among")
_ACCOMPANYING = listed("accompanying")
_DAYS = re.compile(r"(?:[a-z]*day|christmas|easter|eve|halloween|new|year|holiday)s?")
_WEEKDAY = re.compile("(?:星期|周)[一二三四五六日天]")
_NOT_EXACT = re.compile(
    r"以上|以下|以内|不足|不到|超过?|逾|至少|最多|左右|将近|接近|多于|少于|\d\s?[余多几]|多[名位个人项]"
)
_CODE = re.compile(r"[+(]{0,2}\d[\d\s().+/-]{4,40}[\dXx]")
_PHONE = re.compile(r"phone|\btel\b|\bfax\b|call|电话|传真|手机|联系方式", re.IGNORECASE)
_LABEL = re.compile(r"^[^\d+(]{0,40}?(?:-1[03])?[\s:：]*(?=[+(\d])")
_SCORES = re.compile(r"scores?|result|ratio|odds|scale|final|beat|defeat|win|won|lose|lost|finish|比", re.IGNORECASE)
_SCORE = re.compile(r"(\d{1,3})(?:\.\.|[-:/])(\d{1,7})")
_FORMULA = re.compile(r"\\(?!text|math|boxed|[$%&#_])[a-z]+|[\^=√π∫∑∞≤≥]")
_LONGEST_FORMULA = 200


def is_value(gold: Sequence[str]) -> bool:
    """Return whether a gold answer is a single value."""
    return len(gold) == 1 and (has_digit(gold[0]) or gold[0].startswith(ADDRESS))


def tells_value(answer: str, gold: str, asked: QuestionWords, same: Callable[[str, str], bool]) -> bool:
    """Return whether a sentence tells a value, given by its token, and no other; `same` compares two tokens."""
    words = tokens(_WEEKDAY.sub("", answer))
    places = [place for place, word in enumerate(words) if same(word, gold)]
    twice = any(words[place] == words[place - 1] for place in places[1:])
    if not places or twice or len(words) > _LONGEST_SENTENCE or _NOT_EXACT.search(answer):
        return False
    others = [word for place, word in enumerate(words) if place not in places]
    if any(
        is_value([word]) and word not in asked.words and not qa_values.same_in_other_unit(word, gold) for word in others
    ):
        return False
    known = asked.words | GRAMMAR | _ACCOMPANYING | {word for word in others if is_value([word])}
    known |= FOREIGN if asked.is_foreign else set()
    refused = NEGATIONS | HEDGES | (JOINTS - _HARMLESS) | _CHANGING
    if not refused.isdisjoint(word for word in others if word not in asked.words or word in NEGATIONS):
        return False
    dated = qa_values.is_time(gold)
    known |= {"年"} if dated else frozenset()
    roots = {_root(word) for word in asked.words if len(word) > 2} | asked.inflected
    in_question = {word for word in others if not {word, _root(word)}.isdisjoint(asked.words | roots)}
    unknown, told = [word for word in others if word not in known | in_question], in_question - GRAMMAR - JOINTS
    names = set(tokens(" ".join(re.findall(r"(?:(?<=\s)|^)[^\w\s]*[A-Z][\w'’-]*", answer))))
    if dated and any(_DAYS.fullmatch(word) for word in others):
        return len(unknown) <= _MOST_UNKNOWN + 1  # "8 May 1945 (V-E Day)"
    if len(unknown) > (_MOST_UNKNOWN if told else 0) or not names.isdisjoint(unknown):
        return False
    if any(word > "\u3000" for word in unknown):
        return False
    after = words[places[-1] + 1 :]
    if dated or not after or after[0] in known or _root(after[0]) in roots:
        return True
    # "128 guest rooms"
    return len(after) > 1 and _root(after[1]) in roots and not changes_number(after[0])


def _root(word: str) -> str:
    """Return a word without its ending, so that "ended" and "end" are alike."""
    return re.sub(r"(?<=...)(?:es|ed|ing|s|e)$", "", word) if word.isascii() else word


def same_code(answer: str, gold: str, question: str) -> bool:
    """Return whether two numbers for machines differ only in what separates their digits: ISBN, telephone numbers."""
    gold = gold.strip()
    mine = _LABEL.sub("", answer.strip().rstrip(". "), count=1)
    measured = any(".." in word or "|" in word for word in tokens(gold))
    if measured or not (_CODE.fullmatch(gold) and _CODE.fullmatch(mine)):
        return False
    one, other = (re.sub(r"[^\dXx]", "", text).upper() for text in (mine, gold))
    if min(len(one), len(other)) < 7 or (one != other and not _PHONE.search(question)):
        return False
    # the country code, and the 0 before the area code, may be missing
    short, long = sorted((one.lstrip("0"), other.lstrip("0")), key=len)
    return one == other or (len(short) > 7 and long.endswith(short) and len(long) - len(short) <= 3)


def same_score(answer: str, gold: str, asked: QuestionWords) -> bool:
    """Return whether two answers are the same scores or ratios in the same order: "3:1", "3-1", "3 to 1"."""
    scores = [_SCORE.fullmatch(word) for word in tokens(gold)]
    if not all(scores) or not _SCORES.search(asked.text):
        return False
    mine = tokens(answer)
    found = [match for word in mine if (match := _SCORE.fullmatch(word))]
    rest = {word for word in mine if not _SCORE.fullmatch(word)} - {"and"}
    if [tuple(map(int, match.groups())) for match in found] != [tuple(map(int, one.groups())) for one in scores if one]:
        return False
    return not (rest - asked.words - GRAMMAR - _ACCOMPANYING) and rest.isdisjoint(NEGATIONS | HEDGES)


def same_formula(answer: str, gold: str, question: str) -> bool | None:
    """Return whether two formulas are equal; None if the gold answer is none that can be read."""
    if not _FORMULA.search(gold) or len(gold) > _LONGEST_FORMULA or (wanted := _sides(gold)) is None:
        return None
    if len(answer) > 2 * _LONGEST_FORMULA:
        return False
    verdict = decide(answer, gold, question)
    if isinstance(verdict, bool):
        return verdict
    mine = _sides(verdict.answer)
    if mine is None or len(mine) > len(wanted) + 1:
        return False
    orders = (mine[::-1], mine) if len(mine) == len(wanted) == 2 else (mine[::-1],)
    return len(mine) >= len(wanted) and any(
        all(_equal(one, two) for one, two in zip(order, wanted[::-1], strict=False)) for order in orders
    )


@lru_cache(maxsize=1024)
def _sides(text: str) -> tuple[Node, ...] | None:
    """Return the formula, or the sides of an equation; None if it cannot be read."""
    plain = prepare(text)
    if len(plain) > 2 * _LONGEST_FORMULA or is_too_expensive(plain):
        return None
    try:
        return tuple(read_expression(side, fold=False) for side in equation_sides(plain) or [plain])
    except (Unreadable, RecursionError):
        return None


def _equal(one: Node, two: Node) -> bool:
    """Return whether two formulas have the same values at a few points, as far as floating-point numbers tell."""
    names = sorted(symbols(two))
    if symbols(one) - set(names):
        return False
    for shift in (0.37, 1.13, 2.71):
        point = {name: complex(shift + 0.59 * place) for place, name in enumerate(names)}
        try:
            mine, wanted = _value(one, point), _value(two, point)
        except (ArithmeticError, ValueError, KeyError, TypeError):
            return one == two
        if not abs(mine - wanted) <= 1e-9 * max(abs(mine), abs(wanted)):
            return False
    return True


_FUNCTIONS: dict[str, Callable[..., complex]] = {
    "+": lambda one, two: one + two,
    "*": lambda one, two: one * two,
    "/": lambda one, two: one / two,
    "^": lambda one, two: one**two,
    "negative": lambda one: -one,
    "root": lambda one, degree: one ** (1 / degree),
    "!": lambda one: complex(math.gamma(one.real + 1)),
    "ln": cmath.log,
    "lg": cmath.log10,
    "abs": lambda one: complex(abs(one)),
    "pi": lambda: complex(math.pi),
    "e": lambda: complex(math.e),
    "i": lambda: 1j,
}
_FUNCTIONS |= {
    name: getattr(cmath, name)
    for name in ("sqrt", "exp", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh")
}


def _value(node: Node, point: dict[str, complex]) -> complex:
    if node.name == "number":
        return complex(node.value)
    if node.name == "symbol":
        return point[node.symbol]
    return _FUNCTIONS[node.name](*(_value(part, point) for part in node.parts))
