"""Gold answers that are values: amounts, dates, scores, codes, addresses and formulas.

A value is told by an answer that has no other value, and whose other words are grammar, words of the question, or a few
lower-case words between these: "The 2011 census recorded a population of 4,812."
"""

from __future__ import annotations

import cmath
import math
import re
from collections.abc import Callable, Sequence
from functools import lru_cache

from arpo_env.grading.answer_text.allowed_words import changes_number
from arpo_env.grading.answer_text.normalize_latex import prepare
from arpo_env.grading.math_check.answer_shapes import equation_sides
from arpo_env.grading.math_check.complexity_guard import is_too_expensive
from arpo_env.grading.math_check.parse_expression import Node, Unreadable, read_expression, symbols
from arpo_env.grading.math_grader import decide
from arpo_env.grading.qa_text.answer_tokens import ADDRESS, has_digit, tokens
from arpo_env.grading.qa_text.claims import FOREIGN, GRAMMAR, HEDGES, JOINTS, NEGATIONS, QuestionWords, word_set
from arpo_env.grading.qa_text.dates import is_time
from arpo_env.grading.qa_text.quantities import QUALIFIERS, same_in_other_unit

_LONGEST = 40  # words of a sentence that tells a value
_MOST_UNKNOWN = 3  # words of it that are neither grammar nor in the question
_CHANGING = QUALIFIERS | word_set("""
    by until before after since than from half twice double triple per lost gained added removed another more fewer
    additional extra between except minus plus times half
    """)
_HARMLESS = word_set("as with all every may can would among")
_ACCOMPANYING = word_set("""
    total all altogether overall people inhabitants residents persons age aged years year old exactly there them date
    day eve weekday local time morning afternoon evening night holiday am pm according note recorded population version
    high tall long wide deep thick heavy magnitude m mw richter scale aet after extra penalties times
    tel phone fax telephone isbn issn doi arxiv email e mail website url homepage site number code won win victory
    每 上 午 下 晚 早 中 星 期 周 有 共 总 计 达 该 这 那 其 他 她 它 们 已 即 就 为 至 名 位 人 当 时
    """)
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
    """Return whether a sentence tells a value, and no other.

    Args:
        answer: the sentence.
        gold: the token of the value.
        asked: the question.
        same: whether two tokens are the same value.
    """
    words = tokens(_WEEKDAY.sub("", answer))
    places = [place for place, word in enumerate(words) if same(word, gold)]
    twice = any(words[place] == words[place - 1] for place in places[1:])
    if not places or twice or len(words) > _LONGEST or _NOT_EXACT.search(answer):
        return False
    others = [word for place, word in enumerate(words) if place not in places]
    if any(is_value([word]) and word not in asked.words and not same_in_other_unit(word, gold) for word in others):
        return False
    known = asked.words | GRAMMAR | _ACCOMPANYING | {word for word in others if is_value([word])}
    known |= FOREIGN if asked.is_foreign else set()
    refused = NEGATIONS | HEDGES | (JOINTS - _HARMLESS) | _CHANGING
    if not refused.isdisjoint(word for word in others if word not in asked.words or word in NEGATIONS):
        return False
    dated = is_time(gold)
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
    if (
        not _CODE.fullmatch(gold)
        or not _CODE.fullmatch(mine)
        or any(".." in word or "|" in word for word in tokens(gold))
    ):
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


def are_scores(words: Sequence[str]) -> bool:
    """Return whether words are scores, whose list has an order."""
    return all(map(_SCORE.fullmatch, words))


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
