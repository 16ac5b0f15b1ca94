r"""Answers that only repeat the question: `is_copied`, `is_copied_number`, `stands_in`.

"\sqrt{50}+\sqrt{18}" is no answer to "Simplify \sqrt{50}+\sqrt{18}", though it equals 8\sqrt{2}; nor is 6/8 one to
"Reduce 6/8". An answer is copied if it has the numbers and letters of some formula of the question, in whatever order,
or more than those, and the gold answer has not.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache

from arpo_env.grading.answer_text.normalize_latex import prepare
from arpo_env.grading.math_check.answer_shapes import Shape, read_shape
from arpo_env.grading.math_check.complexity_guard import LONGEST, is_absurd
from arpo_env.grading.math_check.exact_numbers import Value, as_value
from arpo_env.grading.math_check.parse_expression import Unreadable, leaves, read_expression

_FEWEST = 3  # numbers and letters of a formula that is recognised in a longer one; "2x" stands in many answers
_REWRITTEN = frozenset(("decimal", "fraction", "mixed", "scientific", "recurring", "scaled"))
_TYPESET = re.compile(r"\$\$?([^$]+)\$\$?|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)
_BETWEEN = re.compile(
    r"[A-Za-z]{2,}[A-Za-z']*[,:;]?\s|\s[,:;]|[,:;.?]\s|[?]|(?<=\d)[.,]$|[\u4e00-\u9fff]+|\\(?:text|mbox)\s*\{[^{}]*\}"
)
_NUMBERS = re.compile(
    r"\d+\s*\\frac\{\d+\}\{\d+\}|-?\\frac\{-?\d+\}\{-?\d+\}|\d+\.\d*(?:\\(?:overline|bar|dot)\s*\{?\d+\}?)+|\d+\.\d+\\[lc]?dots"
    r"|[\d.]+\s*(?:\\times|\\cdot|\*|x)\s*10\s*\^\s*\{?-?\d+\}?|\d+\s+\d+/\d+|\d+/\d+|[\d.]+\s*\\?%|\d+(?:\.\d+)?"
)


def is_copied(answer: str, gold: str, question: str) -> bool:
    """Say whether an answer that may equal a gold formula is a formula of the question, or a number of it.

    Args:
        answer: prepared by `arpo_env.grading.answer_text.normalize_latex.prepare`.
        gold: prepared as well.
        question: as the task has it.
    """
    if not question or not answer or len(answer) > LONGEST or is_absurd(answer):
        return False
    number = as_value(answer)
    if number is not None and number.form == "integer" and as_value(gold) is None:
        return any(number.number == other.number for other in _numbers(question))
    found, wanted = _leaves(answer), _leaves(gold)
    return any(
        (asked == found and asked != wanted)
        or (_is_telling(asked) and _few(asked) <= found and not _few(asked) <= wanted)
        for asked in _formulas(question)
    )


def stands_in(answer: str, question: str) -> bool:
    """Say whether a text, spaces aside, stands in the question."""
    bare = re.sub(r"\s", "", answer)
    return bool(bare and question) and bare in re.sub(r"\s", "", prepare(question))


def _few(found: Counter[str]) -> Counter[str]:
    """Leave the ones out, which stand everywhere."""
    return Counter({leaf: count for leaf, count in found.items() if leaf != "1"})


def _is_telling(asked: Counter[str]) -> bool:
    r"""Say whether a formula is long enough to be recognised in another: "\sqrt{50}" is, "2x" is not."""
    size, named = _few(asked).total(), [leaf for leaf in asked if not leaf[:1].isdigit()]
    return size >= _FEWEST or (size == 2 and bool(named) and all(len(leaf) > 1 for leaf in named))


def is_copied_number(answer: Value, gold: Value, question: str) -> bool:
    """Say whether a number stands in the question, not written as the gold answer is, or divides two of its numbers."""
    if not question or _written(answer) == _written(gold):
        return False
    numbers = _numbers(question)
    if (answer.form in _REWRITTEN or answer.percent) and _written(answer) in {_written(number) for number in numbers}:
        return True
    whole = {number.number for number in numbers if number.form == "integer"}
    divided = answer.form == "fraction" and gold.form == "integer" and abs(answer.parts[1]) != 1
    return divided and whole >= set(map(abs, answer.parts))


def _written(value: Value) -> tuple[object, ...]:
    return (value.form, value.number, value.parts, value.percent)


@lru_cache(maxsize=512)
def _numbers(question: str) -> tuple[Value, ...]:
    found = map(as_value, _NUMBERS.findall(prepare(question)))
    return tuple(value for value in found if value is not None)


@lru_cache(maxsize=512)
def _formulas(question: str) -> tuple[Counter[str], ...]:
    """Return the numbers and letters of each formula of a question."""
    typeset = [next(filter(None, match.groups())) for match in _TYPESET.finditer(question)]
    pieces = typeset or _BETWEEN.split(question)
    found = [_leaves(prepare(piece)) for piece in pieces if len(piece) <= 4 * LONGEST]
    return tuple(each for each in found if each.total() >= 2)


@lru_cache(maxsize=2048)
def _leaves(text: str) -> Counter[str]:
    """Count the numbers and letters of a prepared text; nothing if it cannot be read."""
    return Counter(_of(read_shape(text)))


def _of(shape: Shape) -> list[str]:
    if shape.kind != "formula":
        return [leaf for item in shape.items for leaf in _of(item)]
    try:
        return leaves(read_expression(shape.text))
    except (Unreadable, RecursionError):
        return []
