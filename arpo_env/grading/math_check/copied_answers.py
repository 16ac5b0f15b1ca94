r"""Detects answers that only repeat the question: `is_copied`, `is_copied_number`, `is_in_question`.

"\sqrt{50}+\sqrt{18}" does not answer "Simplify \sqrt{50}+\sqrt{18}" although it equals 8\sqrt{2}; nor does 6/8 answer
"Reduce 6/8". An answer is copied if it contains the numbers and letters of a formula of the question, in any order and
perhaps with others, and the gold answer does not.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache

from arpo_env.grading.answer_text.exact_numbers import Value, as_value
from arpo_env.grading.answer_text.normalize_latex import prepare
from arpo_env.grading.math_check.answer_shapes import Shape, read_shape
from arpo_env.grading.math_check.complexity_guard import LONGEST, is_too_expensive
from arpo_env.grading.math_check.parse_expression import Unreadable, leaves, read_expression

_FEWEST = 3  # minimum numbers and letters of a formula to be recognised in a longer one; "2x" is in many answers
_REWRITTEN = frozenset(("decimal", "fraction", "mixed", "scientific", "recurring", "scaled"))
_TYPESET = re.compile(r"\$\$?([^$]+)\$\$?|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)
_BETWEEN = re.compile(
    r"(?<![A-Za-z])[A-Za-z]{2,}+[A-Za-z']*+[,:;]?\s|\s[,:;]|[,:;.?]\s|[?]|(?<=\d)[.,]$|[\u4e00-\u9fff]+|\\(?:text|mbox)\s*\{[^{}]*\}"
)
_NUMBERS = re.compile(
    r"\d+\s*\\frac\{\d+\}\{\d+\}|-?\\frac\{-?\d+\}\{-?\d+\}|\d+\.\d*(?:\\(?:overline|bar|dot)\s*\{?\d+\}?)+|\d+\.\d+\\[lc]?dots"
    r"|(?<![\d.])\.?\d[\d.]*+\s*(?:\\times|\\cdot|\*|x)\s*10\s*\^\s*\{?-?\d+\}?|\d+\s+\d+/\d+|\d+/\d+|(?<![\d.])\.?\d[\d.]*+\s*\\?%|\d+(?:\.\d+)?"
)


def is_copied(answer: str, gold: str, question: str) -> bool:
    """Return whether an answer that may equal a gold formula is a formula or a number of the question.

    Args:
        answer: prepared by `arpo_env.grading.answer_text.normalize_latex.prepare`.
        gold: prepared as well.
        question: the unprocessed question.
    """
    if not question or not answer or len(answer) > LONGEST or is_too_expensive(answer):
        return False
    number = as_value(answer)
    # an integer of the question is copied if the gold answer is a formula
    if number is not None and number.form == "integer" and as_value(gold) is None:
        return any(number.number == other.number for other in _numbers(question))
    if (shape := read_shape(answer)).marks == ("or",) and all(item.kind == "relation" for item in shape.items):
        return is_in_question(answer, question)  # "x < 0 or x > 4" solves what it may have the numbers of
    found, wanted = _leaves(answer), _leaves(gold)
    return any(
        (asked == found and asked != wanted)
        or (_is_distinctive(asked) and _without_ones(asked) <= found and not _without_ones(asked) <= wanted)
        for asked in _formulas(question)
    )


def is_in_question(answer: str, question: str) -> bool:
    """Return whether a text occurs in the question, ignoring spaces."""
    bare = re.sub(r"\s", "", answer)
    return bool(bare and question) and bare in _without_spaces(question)


def _without_ones(found: Counter[str]) -> Counter[str]:
    """Return the leaves without the number one, which occurs everywhere."""
    return Counter({leaf: count for leaf, count in found.items() if leaf != "1"})


def _is_distinctive(asked: Counter[str]) -> bool:
    r"""Return whether a formula is long enough to be recognised in another: "\sqrt{50}" is, "2x" is not."""
    size, named = _without_ones(asked).total(), [leaf for leaf in asked if not leaf[:1].isdigit()]
    return size >= _FEWEST or (size == 2 and bool(named) and all(len(leaf) > 1 for leaf in named))


def is_copied_number(answer: Value, gold: Value, question: str) -> bool:
    """Return whether a number occurs in the question in another form than the gold answer, or is a quotient of two."""
    if not question or _form_and_value(answer) == _form_and_value(gold):
        return False
    numbers = _numbers(question)
    if (answer.form in _REWRITTEN or answer.percent) and _form_and_value(answer) in {
        _form_and_value(number) for number in numbers
    }:
        return True
    whole = {number.number for number in numbers if number.form == "integer"}
    # "12/4" for "divide 12 by 4" leaves the division undone
    divided = answer.form == "fraction" and gold.form == "integer" and abs(answer.parts[1]) != 1
    return divided and whole >= set(map(abs, answer.parts))


def _form_and_value(value: Value) -> tuple[object, ...]:
    return (value.form, value.number, value.parts, value.percent)


@lru_cache(maxsize=512)
def _without_spaces(question: str) -> str:
    return re.sub(r"\s", "", prepare(question))


@lru_cache(maxsize=512)
def _numbers(question: str) -> tuple[Value, ...]:
    found = map(as_value, _NUMBERS.findall(prepare(question)))
    return tuple(value for value in found if value is not None)


@lru_cache(maxsize=512)
def _formulas(question: str) -> tuple[Counter[str], ...]:
    """Return the numbers and letters of each formula of a question."""
    # without typeset formulas, the text between words may be one
    typeset = [next(filter(None, match.groups())) for match in _TYPESET.finditer(question)]
    pieces = typeset or _BETWEEN.split(question)
    found = [_leaves(prepare(piece)) for piece in pieces if len(piece) <= 4 * LONGEST]
    return tuple(each for each in found if each.total() >= 2)


@lru_cache(maxsize=2048)
def _leaves(text: str) -> Counter[str]:
    """Count the numbers and letters of a prepared text; empty if it cannot be parsed."""
    return Counter(_shape_leaves(read_shape(text)))


def _shape_leaves(shape: Shape) -> list[str]:
    if shape.kind != "formula":
        return [leaf for item in shape.items for leaf in _shape_leaves(item)]
    try:
        return leaves(read_expression(shape.text))
    except (Unreadable, RecursionError):
        return []
