r"""Reads numbers exactly, without algebra: the fast path of the math grader.

`as_number` reads a plain number. `as_value` also reads scientific notation, mixed numbers, recurring decimals, base
subscripts, percentages and number words. Nothing is computed: `2^{10}`, `3+4` and `12!` are not numbers here.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, replace
from fractions import Fraction

from arpo_env.grading.answer_text.number_words import SCALES, read_ordinal, read_words

_LONGEST = 1000  # characters; no real answer is longer, and Python refuses numbers of over 4300 digits
_NUMBER = re.compile(r"(?P<sign>[-+]?)\$?(?P<body>[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?|\d++(?:\.\d*+|/\d++)?|\.\d++)%?")
_FRACTION = re.compile(
    r"(?P<sign>[-+]?)\s*(?:\\frac\s*\{\s*(?P<top>[-+]?[\d,]+)\s*\}\s*\{\s*(?P<bottom>[-+]?[\d,]+)\s*\}"
    r"|(?P<left>[\d,]+)\s*(?:/|out\s+of|in(?=\s+\d))\s*(?P<right>[-+]?[\d,]+))"
)
_SCIENTIFIC = re.compile(
    r"(?P<body>[-+]?[\d.,]+)(?:[eE]|\s*(?:\\times|\\cdot|\*|x)\s*10\s*(?:\^|\*\*)\s*)[{(]?(?P<power>[-+]?\d{1,3})[})]?"
)
_MIXED = re.compile(
    r"(?P<sign>[-+]?)\s*(?P<whole>\d{1,9})(?:\s*\\frac\{(\d{1,9})\}\{(\d{1,9})\}|\s+(?:and\s+)?(\d{1,9})/(\d{1,9}))"
)
_BASED = re.compile(r"\(?(?P<digits>[0-9]+)\)?\s*_\s*(?:\{\s*(?P<braced>[a-z]+|\d{1,2})\s*\}|(?P<base>\d{1,2}))")
BASES = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10}
_SCALED = re.compile(rf"(?P<body>[-+\d.,]+)\s*(?P<scale>{'|'.join(SCALES)}|[万亿])", re.IGNORECASE)
_SCALES = SCALES | {"万": 10**4, "亿": 10**8}
_BAR = r"\\(?:overline|bar|widebar|dot)\s*"
_RECURRING = re.compile(
    rf"(?P<sign>[-+]?)(?P<whole>\d*)\.(?P<fixed>\d*)(?:{_BAR}(?:\{{(?P<block>\d+)\}}|(?P<digit>\d))(?P<more>[^a-z]*(?:\\dot.*)?)"
    r"|\((?P<bracket>\d+)\)|(?P<dots>\s*(?:\\[lc]?dots[a-z]?)(?:\{\})?)|(?P<word>\s*(?:repeating|recurring|循环)))"
)
_PERCENT = re.compile(r"(.*[^\s\\])\s*(?:\\?%|percent|per cent)|百分之(.+)")
_EXACT_DIGITS = 10  # a gold answer with this many decimals is a computer's rounded output of another number


@dataclass(frozen=True)
class Value:
    """An exact number and the form in which it was written.

    Attributes:
        number: the value; for a number with a base subscript, its digits read as decimal digits; for 20 %, 20.
        base: the subscript, or None.
        decimals: digits after the point if it was written as a decimal number, else 0.
        percent: whether a percent sign follows.
        form: "integer", "decimal", "fraction", "mixed", "scientific", "recurring", "based", "scaled" or "words".
        parts: the integers of a fraction as written, else ().
    """

    number: Fraction
    base: int | None = None
    decimals: int = 0
    percent: bool = False
    form: str = "integer"
    parts: tuple[int, ...] = ()


def as_number(text: str) -> Fraction | None:
    r"""Parse a plain number exactly: "1,204", "-3.5", "7/8", "\$12", "20%" (as 20), "\frac{1}{2}"; else None."""
    if len(text) > _LONGEST or _is_raised(text):
        return None
    plain = unicodedata.normalize("NFKC", text).strip().rstrip(".").replace("−", "-")
    plain = plain.replace("\\$", "$").replace("\\%", "%")
    plain = re.sub(r"^\$(.*)\$$", r"\1", plain)
    plain = re.sub(r"(?<=\d)(?<!\b0) (?=\d{3}\b)", "", plain).strip()  # "0 333" is two numbers
    plain = re.sub(r"^(-?)\\[dt]?frac\{(\d+)\}\{(\d+)\}$", r"\1\2/\3", plain)
    match = _NUMBER.fullmatch(plain)
    if match is None:
        return None
    body = match["body"].replace(",", "")
    if re.fullmatch(r"\d+/0+", body):
        return None
    return Fraction(body) * (-1 if match["sign"] == "-" else 1)


def as_value(text: str) -> Value | None:
    """Parse a number in any form that needs no algebra; the text must be prepared (`normalize_latex`)."""
    if not text or len(text) > _LONGEST or _is_raised(text):
        return None
    text = _unbracketed(text.strip())
    if match := _PERCENT.fullmatch(text):
        bare = match[1] or match[2]
        inner = None if _PERCENT.fullmatch(bare) else as_value(bare)
        return None if inner is None or inner.percent or inner.base else replace(inner, percent=True)
    if match := re.fullmatch(r"(?:minus|negative|负)\s*(?=[\d\\])(.+)", text, re.IGNORECASE):
        inner = as_value(match[1])
        return None if inner is None or inner.number <= 0 else replace(inner, number=-inner.number)
    # from the most to the least common form
    for read in (_plain, _fraction, _mixed, _scientific, _recurring, _based, _scaled, _in_words):
        if (value := read(text)) is not None:
            return value
    return None


def same_value(answer: Value, gold: Value) -> bool:
    """Return whether two numbers are equal. The caller decides what a percent sign means.

    A fraction without a finite decimal form also equals its decimal form of six or more digits, rounded or truncated. A
    gold answer of ten or more decimals equals the fraction from which it was computed. Digits without a base are
    accepted for digits with one, since the question named the base.
    """
    # digits in another base are another number
    if gold.base is not None and answer.base not in (None, gold.base):
        return False
    if answer.base is not None and gold.base is None:
        return False
    if answer.number == gold.number:
        return True
    # A printed gold answer such as 0.3333333333 stands for 1/3, but never for another short decimal such as 0.33.
    if is_printed(gold) and (answer.decimals >= 6 or not is_finite(answer.number)):
        return is_rounded(gold, answer.number) or is_rounded(answer, gold.number)
    return answer.decimals >= 6 and not is_finite(gold.number) and is_rounded(answer, gold.number)


def is_rounded(decimal: Value, number: Fraction) -> bool:
    """Return whether a decimal number is another number, rounded or truncated at its last digit."""
    if not decimal.decimals:
        return False
    step = Fraction(1, 10**decimal.decimals)
    gap = abs(decimal.number) - abs(number)
    # Rounding is off by at most half a step in either direction, truncation by less than a step towards zero.
    return decimal.number * number > 0 and -step < gap <= step / 2


def is_printed(value: Value) -> bool:
    """Return whether a gold answer is a long decimal that a computer printed for another number, perhaps a root."""
    return value.decimals >= _EXACT_DIGITS


def is_finite(number: Fraction) -> bool:
    """Return whether a number has a finite decimal form."""
    rest = number.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    return rest == 1


def _unbracketed(text: str) -> str:
    """Remove brackets and a plus sign around a number: "(-3)", "{5}", "+5"."""
    while match := re.fullmatch(r"(-?)\s*(?:\(([^()]*)\)|\{([^{}]*)\})", text):
        inner = (match[2] or match[3] or "").strip()
        if match[1] and inner.startswith(("-", "+")):
            return text
        text = match[1] + inner
    return re.sub(r"^([-+])\s+", r"\1", text)


def _plain(text: str) -> Value | None:
    if "/" in text or "\\frac" in text or (number := as_number(text)) is None:
        return None
    decimals = _decimals(text)
    return Value(number, decimals=decimals, form="decimal" if decimals else "integer")


def _fraction(text: str) -> Value | None:
    match = _FRACTION.fullmatch(text)
    if match is None:
        return None
    sides = [as_number(match[one] or match[other]) for one, other in (("top", "left"), ("bottom", "right"))]
    if sides[0] is None or not sides[1]:
        return None
    sign = -1 if match["sign"] == "-" else 1
    return Value(sign * sides[0] / sides[1], form="fraction", parts=(sign * int(sides[0]), int(sides[1])))


def _mixed(text: str) -> Value | None:
    match = _MIXED.fullmatch(text)
    if match is None:
        return None
    top, bottom = (int(part) for part in match.groups()[2:] if part is not None)
    if not 0 < top < bottom:  # "7006 3/1" is not a mixed number
        return None
    number = (int(match["whole"]) + Fraction(top, bottom)) * (-1 if match["sign"] == "-" else 1)
    return Value(number, form="mixed", parts=(int(match["whole"]), top, bottom))


def _scientific(text: str) -> Value | None:
    match = _SCIENTIFIC.fullmatch(text)
    body = as_number(match["body"]) if match else None
    # "2500 \times 10^3" is a product to be computed; "2.5e3" is a number
    if match is None or body is None or ("10" in text[match.end("body") :] and abs(body) >= 1000):
        return None
    return Value(body * Fraction(10) ** int(match["power"]), form="scientific")


def _recurring(text: str) -> Value | None:
    r"""Parse 0.\overline{3}, 0.1\dot{6}, 0.\dot{1}4285\dot{7}, 0.(3), 0.333\ldots and "0.3 repeating"."""
    match = _RECURRING.fullmatch(text)
    if match is None:
        return None
    fixed, block = match["fixed"], match["block"] or match["digit"] or match["bracket"]
    if match["more"]:
        rest = re.fullmatch(rf"\s*(\d*){_BAR}(?:\{{(\d)\}}|(\d))", match["more"])
        if rest is None or block is None or len(block) > 1:
            return None
        block += rest[1] + (rest[2] or rest[3])
    elif match["dots"]:
        block, start = _repeated_block(fixed)
        if not block:
            return _plain(f"{match['sign']}{match['whole'] or 0}.{fixed}") if len(fixed) >= 6 else None
        fixed = fixed[:start]
    elif match["word"]:
        if len(set(fixed)) != 1:  # in "0.16 repeating" the block is ambiguous
            return None
        fixed, block = "", fixed[0]
    assert block is not None
    # a block of n digits after m fixed ones has the value block / (10^m (10^n - 1))
    whole = Fraction(f"{match['whole'] or 0}.{fixed or 0}") + Fraction(
        int(block), 10 ** len(fixed) * (10 ** len(block) - 1)
    )
    return Value(whole * (-1 if match["sign"] == "-" else 1), form="recurring")


def _repeated_block(digits: str) -> tuple[str, int]:
    """Return the block of digits that fills the longest end of a number by repetition, and where that end begins."""
    block, start = "", len(digits)
    for size in range(1, len(digits) // 2 + 1):
        last, begin = digits[-size:], len(digits) - size
        while digits[max(begin - size, 0) : begin] == last:
            begin -= size
        if begin < min(start, len(digits) - size):
            block, start = last, begin
    return block, start


def _based(text: str) -> Value | None:
    match = _BASED.fullmatch(text)
    if match is None:
        return None
    named = match["braced"] or match["base"]
    base = int(named) if named.isdigit() else BASES.get(named, 0)
    return Value(Fraction(int(match["digits"])), base=base, form="based") if base else None


def _scaled(text: str) -> Value | None:
    match = _SCALED.fullmatch(text)
    body = as_number(match["body"]) if match else None
    if match is None or body is None:
        return None
    return Value(body * _SCALES[match["scale"].lower()], form="scaled")


def _in_words(text: str) -> Value | None:
    if (ordinal := read_ordinal(text)) is not None:
        return Value(Fraction(ordinal), form="words")
    number = read_words(text)
    return None if number is None else Value(number, form="words")


def _decimals(text: str) -> int:
    match = re.search(r"\.(\d+)", text)
    return len(match[1]) if match else 0

    # NFKC would read "2³" as 23


def _is_raised(text: str) -> bool:
    return any(
        unicodedata.decomposition(letter).startswith(("<super>", "<sub>", "<fraction>", "<circle>")) for letter in text
    )
