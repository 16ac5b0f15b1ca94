r"""`read_gold` parses the gold answer.

Gold answers are written by people and extracted from solutions: "63 + 200 = 263" means 263, "\cos C = -\frac{1}{2}"
also means the value alone, and "2)" lost its opening bracket in the extraction.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from arpo_env.grading.answer_text.exact_numbers import Value, as_value, is_printed
from arpo_env.grading.answer_text.normalize_latex import prepare
from arpo_env.grading.answer_text.strip_phrases import strip_phrases
from arpo_env.grading.answer_text.units import split_unit
from arpo_env.grading.math_check.answer_shapes import equation_sides, is_name
from arpo_env.grading.math_check.complexity_guard import is_too_expensive, variables
from arpo_env.grading.math_check.measure_names import is_measure

ABOUT = re.compile(r"^(?:approximately|approx\.?|about|around|roughly|\\approx|大约|约)\s*", re.IGNORECASE)
_GREEK = re.compile(r"\\(?:alpha|beta|gamma|delta|theta|lambda|mu|phi|varphi|psi|omega|rho|tau|sigma)")


@dataclass(frozen=True)
class Gold:
    r"""A parsed gold answer.

    Attributes:
        plain: the prepared text.
        value: the text without its unit, and without the name in "x = 5".
        unit: canonical name of the unit.
        name: "x", or "".
        number: set if only a number can be correct.
        ordinary: whether its evaluation terminates quickly.
        about: whether it says that it is rounded: "about 20".
        measure: the quantity that its equation measures, without spaces ("\cosC"), or "".
    """

    plain: str
    value: str
    unit: str
    name: str
    number: Value | None
    ordinary: bool
    about: bool = False
    measure: str = ""


@lru_cache(maxsize=4096)
def read_gold(gold: str) -> Gold:
    """Parse a gold answer."""
    plain = _balanced(strip_phrases(prepare(gold)) or prepare(gold))
    # "about 20" is a number; "about the origin" is not
    about = ABOUT.match(plain) is not None and as_value(split_unit(ABOUT.sub("", plain), letters=True)[0]) is not None
    bare = ABOUT.sub("", plain) if about else plain
    chain = equation_sides(bare)
    name = chain[0] if len(chain) == 2 and is_name(chain[0]) else ""
    # "\cos C = 1/2" and "63 + 200 = 263" mean their last side
    measured = bool(chain) and not name and all(map(_is_measured, chain[:-1]))
    last = chain[-1] if name or measured else bare
    value, unit = split_unit(last, letters=True)
    number = as_value(value)
    if number is not None and not is_printed(number):
        return Gold(
            bare, value, unit, without_spaces(name), number, True, about, without_spaces(chain[0]) if measured else ""
        )
    if measured and is_measure(chain[0], gold=True):
        value, unit = split_unit(last, letters=False)
        return Gold(bare, value, unit, "", None, not is_too_expensive(value), about, without_spaces(chain[0]))
    value, unit = split_unit(bare, letters=number is not None)
    return Gold(bare, value, unit, "", None, not is_too_expensive(value), about)


def has_unknowns(text: str) -> bool:
    """Return whether a formula contains unknowns."""
    return bool(variables(text) or _GREEK.search(text))


def without_spaces(text: str) -> str:
    """Remove spaces, except between digits, and the braces of short subscripts."""
    return re.sub(r"_\{(\w)\}", r"_\1", re.sub(r"(?<!\d) | (?!\d)", "", text))


def _is_measured(side: str) -> bool:
    """Return whether a side of the gold equation is the measured quantity or the computation of its value."""
    return is_measure(side, gold=True) or (not has_unknowns(side) and not split_unit(side, letters=True)[1])


def _balanced(text: str) -> str:
    """Remove closing brackets at the end that were never opened: "2)"."""
    for opening, closing in (("(", ")"), ("{", "}")):
        while (
            text.endswith((closing, "\\" + closing)) and text.count(closing) > text.count(opening) and "[" not in text
        ):
            text = text.removesuffix(closing).removesuffix("\\").rstrip()
    return text
