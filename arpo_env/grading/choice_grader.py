"""`ChoiceGrader` grades the letter of a multiple-choice answer; `GaiaGrader` applies GAIA's quasi-exact match.

Source of the latter: the rules of GAIA's official scorer, implemented from scratch.
"""

from __future__ import annotations

import math
import re
import string

from arpo_env.grading.answer_text import (
    is_several,
    plain_text,
    prepare,
    read_letter,
    read_options,
    same_labels,
    same_option,
    split_option,
    strip_phrases,
)
from arpo_env.grading.check_pool import CheckPool
from arpo_env.grading.grader import Grader, Score
from arpo_env.grading.math_grader import MathGrader
from envs_registry import Task

__all__ = ["ChoiceGrader", "GaiaGrader", "gaia_match", "read_letter", "read_options"]


_AND = re.compile(r"\s*(?:[,;、]\s*(?:and\s)?|\sand\s|&|[和与及])\s*")


class ChoiceGrader(Grader):
    """Multiple choice: "B", "(B)", "答案是B", "B." with its text, only the text, or "A, B, D" if several are correct.

    Args:
        pool: processes that compare formulas of options; None uses the pool of this process.
    """

    def __init__(self, pool: CheckPool | None = None) -> None:
        self._math = MathGrader(pool)

    async def grade(self, answer: str, task: Task) -> Score:
        """Score 1 for the letter of a gold answer, for all its letters, or for the text of its option."""
        for gold in task.answers:
            if await self._matches(answer, gold, task.question):
                return Score(1.0)
        return Score(0.0)

    async def _matches(self, answer: str, gold: str, question: str) -> bool:
        plain = strip_phrases(prepare(gold))
        if plain_text(answer) == plain_text(gold) or same_labels(strip_phrases(prepare(answer[:2000])), plain):
            return bool(answer.strip())
        if is_several(plain):
            # all or nothing
            letters = [read_letter(part, question) for part in _AND.split(answer[:300].strip(" []"))]
            return None not in letters and same_labels("".join(map(str, letters)), plain)
        options = read_options(question)
        letter, content = split_option(plain) or (read_letter(gold), "")
        content = content or options.get(letter or "", "")
        # a letter decides alone; its text must agree with it, which `read_letter` checks
        mine = read_letter(answer, question)
        if mine is not None:
            return mine == letter
        text = strip_phrases(prepare(answer[:2000]))
        if (labelled := split_option(text)) is not None:
            if labelled[0] != letter:
                return False
            text = labelled[1]
        content = content if letter is not None else plain
        stem = re.split(r"\(?(?<![A-Za-z])A\s*[.:)]", question)[0]  # formulas of the stem are copied, not answered
        if not content or re.fullmatch(r"\(?[A-Z]\)?", content):
            return False
        return same_option(text, content) if _is_prose(content) else await self._math.equal(text, content, stem)


def _is_prose(text: str) -> bool:
    """Return whether an option is a sentence rather than a formula."""
    return re.search(r"(?<![\\a-z])[a-z]{3,}\s+[a-z]{2,}", text) is not None


class GaiaGrader(Grader):
    """GAIA: numbers are compared as numbers, lists item by item, other answers by letters and digits."""

    async def grade(self, answer: str, task: Task) -> Score:
        """Score 1 if the answer matches one of the gold answers."""
        return Score(float(any(gaia_match(answer, gold) for gold in task.answers)))


def gaia_match(answer: str, gold: str) -> bool:
    """Return whether an answer matches a gold answer; the form of the gold answer decides how they are compared."""
    if _float(gold) is not None:
        return _gaia_number(answer) == _float(gold)
    # the gold answer decides whether a list is expected, as in the official scorer
    if not re.search("[,;]", gold):
        return _gaia_text(answer) == _gaia_text(gold) if _gaia_text(gold) else answer.strip() == gold.strip()
    wanted, given = (re.split("[,;]", text) for text in (gold, answer))
    return len(wanted) == len(given) and all(map(_same_item, given, wanted))


def _same_item(answer: str, gold: str) -> bool:
    number = _float(gold)
    if number is not None:
        return _gaia_number(answer) == number
    return _gaia_text(answer, punctuation=True) == _gaia_text(gold, punctuation=True)


def _gaia_number(text: str) -> float | None:
    return _float(text.replace("$", "").replace("%", "").replace(",", ""))


def _float(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    # "nan" is a word here; as a number it would equal nothing, not even itself
    return None if math.isnan(number) else number


def _gaia_text(text: str, punctuation: bool = False) -> str:
    squeezed = re.sub(r"\s", "", text).lower()
    return squeezed if punctuation else squeezed.translate(str.maketrans("", "", string.punctuation))
