r"""The gold answer as it was read: `read_gold`.

Gold answers are written by people and cut out of solutions: "63 + 200 = 263" means 263, "\cos C = -\frac{1}{2}" means
the value too, and "2)" lost its bracket on the way.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from arpo_env.grading.answer_text.normalize_latex import prepare
from arpo_env.grading.answer_text.strip_phrases import strip_phrases
from arpo_env.grading.answer_text.units import split_unit
from arpo_env.grading.math_check.answer_shapes import is_name, sides
from arpo_env.grading.math_check.complexity_guard import is_absurd, variables
from arpo_env.grading.math_check.exact_numbers import Value, as_value, is_printed
from arpo_env.grading.math_check.measure_names import is_measure

ABOUT = re.compile(r"^(?:approximately|approx\.?|about|around|roughly|\\approx|大约|约)\s*", re.IGNORECASE)
_GREEK = re.compile(r"\\(?:alpha|beta|gamma|delta|theta|lambda|mu|phi|varphi|psi|omega|rho|tau|sigma)")


@dataclass(frozen=True)
class Gold:
    r"""A gold answer as it was read.

    Attributes:
        plain: prepared.
        value: without its unit, and without the name in "x = 5".
        unit: the unit's name.
        name: "x", or "".
        number: set if only a number can be right.
        ordinary: whether evaluating it ends.
        about: whether it says that it is rounded: "about 20".
        measure: what an equation of it measures, squeezed: "\cosC", or "".
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
    """Read a gold answer."""
    plain = _balanced(strip_phrases(prepare(gold)) or prepare(gold))
    about = ABOUT.match(plain) is not None and as_value(split_unit(ABOUT.sub("", plain), letters=True)[0]) is not None
    bare = ABOUT.sub("", plain) if about else plain
    chain = sides(bare)
    name = chain[0] if len(chain) == 2 and is_name(chain[0]) else ""
    measured = bool(chain) and not name and all(map(_is_measured, chain[:-1]))
    last = chain[-1] if name or measured else bare
    value, unit = split_unit(last, letters=True)
    number = as_value(value)
    if number is not None and not is_printed(number):
        return Gold(bare, value, unit, squeezed(name), number, True, about, squeezed(chain[0]) if measured else "")
    if measured and is_measure(chain[0], gold=True):
        value, unit = split_unit(last, letters=False)
        return Gold(bare, value, unit, "", None, not is_absurd(value), about, squeezed(chain[0]))
    value, unit = split_unit(bare, letters=number is not None)
    return Gold(bare, value, unit, "", None, not is_absurd(value), about)


def has_unknowns(text: str) -> bool:
    """Say whether a formula has letters that stand for something."""
    return bool(variables(text) or _GREEK.search(text))


def squeezed(text: str) -> str:
    """Drop the spaces, but not between digits."""
    return re.sub(r"(?<!\d) | (?!\d)", "", text)


def _is_measured(side: str) -> bool:
    """Say whether a side of the gold equation is what was measured, or the sum that was done."""
    return is_measure(side, gold=True) or (not has_unknowns(side) and not split_unit(side, letters=True)[1])


def _balanced(text: str) -> str:
    """Drop brackets at the end that were never opened: "2)"."""
    for opening, closing in (("(", ")"), ("{", "}")):
        while (
            text.endswith((closing, "\\" + closing)) and text.count(closing) > text.count(opening) and "[" not in text
        ):
            text = text.removesuffix(closing).removesuffix("\\").rstrip()
    return text
