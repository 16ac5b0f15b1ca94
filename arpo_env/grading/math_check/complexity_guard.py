r"""Recognises answers that are too expensive to evaluate: towers of powers, factorials, long sums, deep nesting.

Policies find such answers. Beside an ordinary gold answer they are wrong without evaluation, which would cost a process
its whole time limit each. The check takes linear time.
"""

from __future__ import annotations

import math
import re

LONGEST = 200  # characters of a prepared answer, unless the gold answer itself is longer
_DEPTH = 6
_SLASHES = 12
_POWER = 100  # maximum exponent of a variable
_SUM_POWER = 20  # maximum exponent of a bracket that is not a number
_TERMS = 300  # maximum terms of such brackets when expanded
_DIGITS = 1000  # maximum digits of the result for a numeric base
_EXPONENT = re.compile(
    r"(?P<base>(?<![\w.])[\w.]*+|(?<=[\w.])|[)}\]])\s*(?:\^|\*\*)\s*(?P<power>\{|\(|[-+]?[\w.]+|\\[a-z]+)"
)
_LITERAL = re.compile(r"[-+({\[]*(?:\d++(?:\.\d++|\s*/\s*\d++)?|\.\d++|\\frac\{\d+\}\{\d+\})[)}\]]*")
_OPERATORS = re.compile(
    r"\\(?:sum|prod|int|iint|oint|lim|Gamma|uparrow|underbrace|overbrace|bigcup|bigcap|zeta)(?![a-z])|∑|∏|∫"
    r"|\b(?:sum|prod|product|summation|factorial|gamma|integrate|limit|zeta|primorial|bell|fibonacci)\s*\(",
    re.IGNORECASE,
)
_NAMES = re.compile(
    r"\\[a-zA-Z]+(?:\{p?b?matrix\}|\{array\})?|arc(?:sin|cos|tan)|a?(?:sin|cos|tan)h?|sec|csc|cot|ln|log|exp|sqrt|cbrt|pi|oo|inf"
    r"(?:inity)?|abs|mod|alpha|beta|gamma|delta|epsilon|theta|lambda|omega|sigma|Rational|Matrix|Interval|Union|FiniteSet|Tuple|Eq|[LR]?open|and|or|(?<![A-Za-z])[eEiI](?![A-Za-z])",
    re.IGNORECASE,
)
_BINOMIAL = re.compile(r"\\[dt]?binom|\\choose|\bbinom(?:ial)?\s*\(|\\atop")


def is_too_expensive(text: str) -> bool:
    """Return whether evaluating a prepared answer may not terminate in reasonable time."""
    return (
        _depth(text) > _DEPTH
        or max(text.count("/"), text.count("|")) > _SLASHES
        or any(len(digits) > _DIGITS for digits in re.findall(r"\d+", text))
        or _OPERATORS.search(text) is not None
        or _has_huge_factorial(text)
        or _has_huge_binomial(text)
        or _has_huge_power(text)
    )


def variables(text: str) -> set[str]:
    """Return the letters of a prepared answer that are variables, in lower case; words count letter by letter."""
    return set(_NAMES.sub("", text).lower()) & set("abcdefghijklmnopqrstuvwxyz")


def _depth(text: str) -> int:
    depth = deepest = 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        deepest = max(deepest, depth)
    return deepest


def _has_huge_factorial(text: str) -> bool:
    for match in re.finditer(r"(?<!\d)(\d*+)\s*(!+)(?!=)", text):
        if not match[1] or len(match[1]) > 3 or int(match[1]) > 200 or len(match[2]) > 1:
            return True
    return False


def _has_huge_binomial(text: str) -> bool:
    return _BINOMIAL.search(text) is not None and re.search(r"\d{4}|\^|\*\*", text) is not None


def _has_huge_power(text: str) -> bool:
    """Return whether a power is too large; the sizes of expanded sums multiply."""
    sums = 1
    for match in _EXPONENT.finditer(text):
        power = _exponent_at(text, match.start("power"))
        # a tower of powers
        if re.search(r"\^|\*\*|!", power):
            return True
        size = _size(power)
        base = match["base"] if match["base"] not in (")", "}", "]") else _group_before(text, match.end("base"))
        if _LITERAL.fullmatch(base):
            # the product bounds the number of digits of the power
            if size * len(base) > _DIGITS:
                return True
        elif size > (_POWER if base.isalnum() else _SUM_POWER):
            return True
        elif not base.isalnum():
            sums *= _expanded_terms(base, size)
    return sums > _TERMS


def _expanded_terms(base: str, power: int) -> int:
    """Return the number of terms of the expanded power of a sum."""
    terms = 1 + len(re.findall(r"(?<=[\w)}\]])\s*[-+]", base))
    return math.comb(power + terms - 1, terms - 1)


def _size(power: str) -> int:
    """Return the product of the integers in an exponent, an upper bound of its value."""
    size = 1
    for number in re.findall(r"\d+", power):
        size = size * max(int(number), 1) if len(number) <= 6 else 10**6
    return size


def _group_before(text: str, end: int) -> str:
    """Return the group that ends at `end`, including the command before it."""
    depth = 0
    for position in range(end - 1, -1, -1):
        depth += (text[position] in ")]}") - (text[position] in "([{")
        if depth == 0:
            return re.search(r"(?:\\frac\{\d+\}|\\[a-z]+)?$", text[:position])[0] + text[position:end]  # type: ignore[index]
    return text[:end]


def _exponent_at(text: str, start: int) -> str:
    r"""Return the exponent that begins at `start`: a group, or a run of letters and digits."""
    opening = text[start]
    if opening not in "{(":
        rest = re.match(r"[-+]?\\?[\w.]+(?:\s*(?:\^|\*\*)\s*\S)?", text[start:])
        return rest[0] if rest else ""
    depth = 0
    for position in range(start, len(text)):
        depth += (text[position] == opening) - (text[position] == {"{": "}", "(": ")"}[opening])
        if depth == 0:
            return text[start : position + 1] + re.match(r"\s*(?:\^|\*\*)?", text[position + 1 :])[0]  # type: ignore[index]
    return text[start:]
