"""Numbers in every notation, exactly, with their units, by the rules of mathematics: the math grader's fast path.

`as_value` reads numbers, `split_unit` cuts units off, `same_clock`, `same_ratio` and `same_angle` compare values that
are no numbers. Nothing is computed: `2^{10}`, `3+4`, `12!` and "two times three" are not numbers here. Units of measure
are converted, or the answer is wrong. A noun may say what a number counts ("9 apples"); an unknown word may turn it
into another number ("9 gross", "9 below zero"), so the text is then not accepted as a number.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from arpo_env.grading.words import LISTS, listed, rows

# Numbers in English and Chinese words: "twenty-one", "three quarters", "two and a half", "五十二", "三分之二".

ONES = {word: number for number, word in enumerate(LISTS["ones"].split())}
TENS = {word: 10 * number for number, word in enumerate(LISTS["tens"].split(), 2)}
SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
ORDINALS = {word: number for number, word in enumerate(LISTS["ordinals"].split(), 1)}
_NTH = {f"{word}th": number for word, number in (ONES | SCALES).items() if number} | ORDINALS
_NTH |= {f"{word[:-1]}ieth": number for word, number in TENS.items()}
_DIGITS = {letter: number for number, letter in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2}
_PLACES = {"十": 10, "百": 100, "千": 1000}
_MYRIADS = (("亿", 10**8), ("万", 10**4))
_CHINESE_NUMBER = re.compile("[零〇一二三四五六七八九两十百千万亿]+")
_LONGEST_WORDS = 150


def read_words(text: str) -> Fraction | None:
    """Return the number that the words mean, or None."""
    # keeps the patterns below cheap on long texts
    if len(text) > _LONGEST_WORDS:
        return None
    text = text.strip().lower()
    if text[:1] in ("负", "負") and (number := read_words(text[1:])) is not None:
        return -number
    if _CHINESE_NUMBER.fullmatch(text):
        return _read_chinese(text)
    if match := re.fullmatch("([^分百][^分]*)分之(.+)", text):
        bottom, top = (read_words(part) if not part.isdigit() else Fraction(part) for part in match.groups())
        return top / bottom if top is not None and bottom else None
    return _read_english(text)


def ordinal_denominator(word: str) -> int | None:
    """Return 8 for "eighth" or "eighths", the denominator of the fraction; None for other words."""
    named = {"half": 2, "halves": 2, "quarter": 4, "quarters": 4, "percent": None}
    if word in named:
        return named[word]
    word = word.removesuffix("s") if word.endswith(("ths", "rds", "nds")) else word
    number = _NTH.get(word)
    return number if number is not None and number > 2 else None


def _read_english(text: str) -> Fraction | None:
    sign = 1
    if match := re.match(r"(?:minus|negative)\s+", text):
        sign, text = -1, text[match.end() :]
    for match in re.finditer(r"\s+and\s+", text):
        whole, part = _read_whole(text[: match.start()]), _read_fraction(text[match.end() :])
        if whole is not None and part is not None and part < 1:
            return sign * (whole + part)
    if (part := _read_fraction(text)) is not None:
        return sign * part
    before, point, after = text.partition(" point ")
    if point and after.split():
        whole, digits = _read_whole(before), [ONES.get(word, 10) for word in after.split()]
        if whole is not None and max(digits) < 10:
            return sign * (whole + Fraction(int("".join(map(str, digits))), 10 ** len(digits)))
    whole = _read_whole(text)
    return None if whole is None else Fraction(sign * whole)


def _read_fraction(text: str) -> Fraction | None:
    """Parse "three quarters", "a half", "one-third"."""
    words = re.split(r"[\s-]+", text)
    bottom = ordinal_denominator(words[-1])
    if bottom is None or len(words) < 2:
        return Fraction(1, 2) if words == ["half"] else None
    top = 1 if words[:-1] in (["a"], ["an"]) else _read_whole(" ".join(words[:-1]))
    if len(words) == 2 and words[0].isdecimal() and (words[0] == "1") != words[1].endswith(("s", "ves")):
        top = int(words[0])  # "2 thirds"
    return None if top is None else Fraction(top, bottom)


def _read_whole(text: str) -> int | None:
    words = [word for word in re.split(r"[\s,-]+", text) if word]
    if words[:1] in (["a"], ["an"]) and words[1:2] and words[1] in SCALES:
        words[0] = "one"
    words = [word for place, word in enumerate(words) if word != "and" or place in (0, len(words) - 1)]
    if words == ["zero"]:
        return 0
    total = group = 0
    room, scale = 10**4, 10**16  # upper limits of the next word in a group and of the next scale
    for word in words:
        number = ONES.get(word) or TENS.get(word) or SCALES.get(word)
        if number is None:
            return None
        if number < 100 and number < room:
            group, room = group + number, 10 if word in TENS else 1
        elif word == "hundred" and 0 < group < 100 and room != 100:
            group, room = group * 100, 100
        elif 100 < number < scale and group:
            total, group, room, scale = total + group * number, 0, 10**4, number
        else:
            return None
    return total + group if words else None


def read_ordinal(word: str) -> int | None:
    """Return 8 for "8th" or "eighth", else None."""
    if match := re.fullmatch(r"(\d{1,9})\s*-?\^?\{?(?:st|nd|rd|th)\}?", word):
        return int(match[1])
    return _NTH.get(word.lower())


def _read_chinese(text: str) -> Fraction | None:
    for letter, size in _MYRIADS:
        if letter in text:
            high, _, low = text.partition(letter)
            top, rest = _read_chinese(high), _read_chinese(low) if low else Fraction(0)
            # 万 and 亿 group the digits by four; the remainder must be smaller
            return top * size + rest if top and rest is not None and rest < size else None
    if not any(place in text for place in _PLACES):
        # a sequence of digits such as "一九八四"; "两" counts things and never is one digit of several
        if len(text) > 1 and any(letter in "两" for letter in text):
            return None
        return Fraction("".join(str(_DIGITS[letter]) for letter in text)) if text else None
    total, digit, last = 0, None, 10_000
    for letter in text:
        if letter in _PLACES:
            # places must fall (千 before 百) and need a digit, except that 十 alone means ten
            if _PLACES[letter] >= last or (digit in (None, 0) and letter != "十"):
                return None
            total, digit, last = total + (1 if digit in (None, 0) else digit) * _PLACES[letter], None, _PLACES[letter]
        elif digit in (None, 0):
            digit = _DIGITS[letter]
        else:
            return None
    return Fraction(total + (digit or 0))


_LONGEST = 1000  # characters; no real answer is longer, and Python refuses numbers of over 4300 digits
_NUMBER = re.compile(r"(?P<sign>[-+]?)\$?(?P<body>[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?|\d++(?:\.\d*+)?|\.\d++)")
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
    """An exact number and the form in which it was written."""

    number: Fraction  # of a number with a base subscript, its digits read as decimal digits; of 20 %, 20
    base: int | None = None
    decimals: int = 0  # digits after the point, if it was written as a decimal number
    percent: bool = False
    form: str = "integer"  # or decimal, fraction, mixed, scientific, recurring, based, scaled, words
    parts: tuple[int, ...] = ()  # the integers of a fraction as written


def as_value(text: str) -> Value | None:
    """Parse a number in any form that needs no algebra; the text must be prepared (`prepare`)."""
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
    if (value := _plain(text)) is not None:
        return value
    for pattern, read in _FORMS:
        if (match := pattern.fullmatch(text)) and (value := read(match)) is not None:
            return value
    return _in_words(text)


def same_value(answer: Value, gold: Value) -> bool:
    """Return whether two numbers are equal. The caller decides what a percent sign means.

    A fraction without a finite decimal form also equals its decimal form of six or more digits, rounded or truncated. A
    gold answer of ten or more decimals equals the fraction from which it was computed.
    """
    # digits in another base are another number; without a base, the question named it
    if answer.base not in (None, gold.base):
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
    return pow(10, number.denominator.bit_length(), number.denominator) == 0


def _unbracketed(text: str) -> str:
    """Remove brackets and a plus sign around a number: "(-3)", "{5}", "+5"."""
    while match := re.fullmatch(r"(-?)\s*(?:\(([^()]*)\)|\{([^{}]*)\})", text):
        inner = (match[2] or match[3] or "").strip()
        if match[1] and inner.startswith(("-", "+")):
            return text
        text = match[1] + inner
    return re.sub(r"^([-+])\s+", r"\1", text)


def _plain(text: str) -> Value | None:
    r"""Read digits, perhaps with a sign, a dollar sign, thousands separators and a point: "1,204", "-3.5", "\$12"."""
    plain = unicodedata.normalize("NFKC", text).strip().rstrip(".").replace("−", "-").replace("\\$", "$")
    plain = re.sub(r"^\$(.*)\$$", r"\1", plain)
    match = _NUMBER.fullmatch(re.sub(r"(?<=\d)(?<!\b0) (?=\d{3}\b)", "", plain).strip())  # "0 333" is two numbers
    if match is None:
        return None
    body = match["body"].replace(",", "")
    number, decimals = Fraction(body) * (-1 if match["sign"] == "-" else 1), len(body.partition(".")[2])
    return Value(number, decimals=decimals, form="decimal") if decimals else Value(number)


def _fraction(match: re.Match[str]) -> Value | None:
    top, bottom = (_plain(match[one] or match[other]) for one, other in (("top", "left"), ("bottom", "right")))
    if top is None or bottom is None or not bottom.number:
        return None
    parts = (int(top.number) * (-1 if match["sign"] == "-" else 1), int(bottom.number))
    return Value(Fraction(*parts), form="fraction", parts=parts)


def _mixed(match: re.Match[str]) -> Value | None:
    top, bottom = (int(part) for part in match.groups()[2:] if part is not None)
    if not 0 < top < bottom:  # "7006 3/1" is not a mixed number
        return None
    number = (int(match["whole"]) + Fraction(top, bottom)) * (-1 if match["sign"] == "-" else 1)
    return Value(number, form="mixed", parts=(int(match["whole"]), top, bottom))


def _scientific(match: re.Match[str]) -> Value | None:
    body = _plain(match["body"])
    # "2500 \times 10^3" is a product to be computed; "2.5e3" is a number
    if body is None or ("10" in match.string[match.end("body") :] and abs(body.number) >= 1000):
        return None
    return Value(body.number * Fraction(10) ** int(match["power"]), form="scientific")


def _recurring(match: re.Match[str]) -> Value | None:
    r"""Read 0.\overline{3}, 0.1\dot{6}, 0.\dot{1}4285\dot{7}, 0.(3), 0.333\ldots and "0.3 repeating"."""
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


def _based(match: re.Match[str]) -> Value | None:
    named = match["braced"] or match["base"]
    base = int(named) if named.isdigit() else BASES.get(named, 0)
    return Value(Fraction(int(match["digits"])), base=base, form="based") if base else None


def _scaled(match: re.Match[str]) -> Value | None:
    body = _plain(match["body"])
    return body and Value(body.number * _SCALES[match["scale"].lower()], form="scaled")


_FORMS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Value | None]], ...] = (  # the first that reads decides
    (_FRACTION, _fraction),
    (_MIXED, _mixed),
    (_SCIENTIFIC, _scientific),
    (_RECURRING, _recurring),
    (_BASED, _based),
    (_SCALED, _scaled),
)


def _in_words(text: str) -> Value | None:
    if (ordinal := read_ordinal(text)) is not None:
        return Value(Fraction(ordinal), form="words")
    number = read_words(text)
    return None if number is None else Value(number, form="words")


def _is_raised(text: str) -> bool:
    # NFKC would read "2³" as 23
    return any(
        unicodedata.decomposition(letter).startswith(("<super>", "<sub>", "<fraction>", "<circle>")) for letter in text
    )


# Times of day ("15:40", "3:40 p.m.", "下午3点40分"), ratios ("2:3", "2 to 3") and angles ("34^\\circ 37'").

_CLOCK = re.compile(
    r"(?P<before>上午|下午|晚上|早上|凌晨)?\s*(?P<hour>\d{1,2})(?:\s*[:.点时]\s*(?P<minute>\d{2})分?(?:\s*:\s*(?P<second>\d{2}))?)?"
    r"\s*(?P<whole>o'clock|点整|点|时)?\s*(?P<half>[ap]\.?\s*m\.?|in\s+the\s+(?:morning|afternoon|evening))?",
    re.IGNORECASE,
)
_HALVES = {"上午": "am", "早上": "am", "凌晨": "am", "下午": "pm", "晚上": "pm", "a": "am", "p": "pm"}
_HALVES |= {"in the morning": "am", "in the afternoon": "pm", "in the evening": "pm"}
_ABOUT_TIME = re.compile(r"what\s+time|time\s+of\s+day|clock|HH:MM|\b[ap]\.?m\b|几点|时刻|钟", re.IGNORECASE)
_ABOUT_RATIO = re.compile(r"\bratio\b|比", re.IGNORECASE)
_RATIO = re.compile(r"\s*:\s*|\s+to\s+|-to-|比")
_DIVIDED = re.compile(r"(\d+)\s*/\s*(\d+)|\\frac\{(\d+)\}\{(\d+)\}")


_ANGLE = re.compile(
    r"(?P<degrees>-?\d+)\s*(?:\^\s*\{?\s*\\circ\s*\}?|degrees?|deg|度)\s*,?\s*(?:and\s+)?(?P<minutes>\d+)\s*"
    r"(?:'|\^\{?\\prime\}?|minutes?|min|分)\s*,?\s*(?:(?:and\s+)?(?P<seconds>\d+)\s*(?:''|\"|seconds?|sec|秒))?"
)


class Clock(NamedTuple):
    """A time of day."""

    hour: int  # as written
    minute: int
    seconds: int  # since midnight
    half: str  # "am", "pm" or ""
    sure: bool  # whether the text can only be a time; "15:40" may also be a ratio


def same_clock(answer: str, gold: str, question: str = "") -> bool | None:
    """Return whether two prepared answers are the same time of day; None if the gold answer is not a time.

    "15:40" is a time if the question is about times, or if it could be reduced as a ratio.
    """
    right, mine = _read(gold), _read(answer)
    meant = mine is not None and mine.sure
    if right is None or (not right.sure and _ABOUT_RATIO.search(question)):
        return None
    # a reduced "3:2" without further hints is a ratio
    reduced = not right.minute or Fraction(right.hour, right.minute).denominator == right.minute
    if not (right.sure or meant or _ABOUT_TIME.search(question)) and reduced:
        return None
    if mine is None:
        return False
    if mine.half and not right.half and 1 <= right.hour <= 12:  # either half of the day, of 43200 s
        return mine.seconds % 43200 == right.seconds % 43200
    return mine.seconds == right.seconds


def same_ratio(answer: str, gold: str) -> bool | None:
    """Return whether two prepared answers are the same ratio; None if the gold answer is not one. Fractions count."""
    right = _parts(gold)
    if right is None:
        return None
    divided = _DIVIDED.fullmatch(answer)
    return _parts(":".join(filter(None, divided.groups())) if divided else answer) == right


def same_angle(answer: str, gold: str) -> bool | None:
    """Return whether two angles in degrees and minutes are equal; None if one of them is not such an angle."""
    angles = [
        match and (int(match["degrees"]), int(match["minutes"]) * 60 + int(match["seconds"] or 0))
        for match in (_ANGLE.fullmatch(gold), _ANGLE.fullmatch(answer))
    ]
    return None if None in angles else angles[0] == angles[1]


def _read(text: str) -> Clock | None:
    match = _CLOCK.fullmatch(text)
    if match is None or not (match["minute"] or match["half"] or match["before"] or match["whole"]):
        return None
    hour, minute, second = int(match["hour"]), int(match["minute"] or 0), int(match["second"] or 0)
    said = re.sub(r"\s+", " ", (match["before"] or match["half"] or "").lower())
    half = _HALVES.get(said) or _HALVES.get(said[:1], "")
    if hour > (12 if half else 24) or minute > 59 or second > 59 or ("." in text[: match.end("minute")] and not half):
        return None
    since = (hour % 12 + 12 * (half == "pm") if half else hour) * 3600 + minute * 60 + second
    return Clock(hour, minute, since, half, sure=bool(half or match["second"] or match["whole"]))


def _parts(text: str) -> tuple[Fraction, ...] | None:
    """Return a ratio of plain numbers scaled so that its first part is 1; None if the text is not a ratio."""
    values = [as_value(part) for part in _RATIO.split(text)]
    parts = [value.number for value in values if value is not None and value.form in ("integer", "decimal", "words")]
    return tuple(part / parts[0] for part in parts) if 1 < len(parts) == len(values) and 0 not in parts else None


# Words that may and may not surround a number: closed lists, and the words of the question.

CHANGING = listed("changing")
_HARMLESS_CHANGING = listed("harmless changing")
# Words that multiply the number before them ("5 pairs" are 10), unless the question asks for "how many pairs".
GROUPS = frozenset(["pair", "pairs", "couple", "couples", "dozen", "dozens", "quarter", "quarters"])
_ASKS_GROUPS = re.compile(
    rf"(?:how\s+many|number\s+of|find|what)\s+(?:[\w-]+\s+){{0,3}}(?:{'|'.join(GROUPS)})\b", re.IGNORECASE
)
NOUNS = listed("nouns") - CHANGING
MODIFIERS = listed("modifiers")
_AFTER = (
    r"for\s+(?:them|it|this|that|him|her|everyone|everything|each|(?:all|each)\s+of\s+them)|(?:in|of)\s+(?:them|it)|"
    r"(?:every|each)\s+(?:morning|evening|one)|left(?:\s+over)?|remaining|remain|in\s+(?:total|all|the\s+end)|total|altogether|overall|each|apiece|away|apart|"
    r"old|long|wide|tall|high|deep|thick|more|(?:per|a|an|every|each)\s+(?:second|minute|hour|day|night|week|month|year|"
    r"person|child|student|piece|unit|item|game|gallon|liter|litre|pound|box|bag|mile|meter|trip)|of\s+them|now|today|later|ago|early|late"
)
AFTER = re.compile(rf"(.*?)(?:(?:^|\s+)(?:{_AFTER}))", re.IGNORECASE)
_HAN_CHANGING = re.compile("[不非无没倍半负反减加乘除以少多差约近余错大小于平立分之万千百亿几或另]")
_PLURAL = re.compile(r"[a-z]{2,}[a-rt-z]s|[a-z]+(?:class|glass|dress|press|pass|loss|boss|ss)es")
_SMALL_WORDS = listed("small words")

_CLAUSES = frozenset(["who", "that", "which", "whose", "to", "can", "passed", "walked", "sat", "stood", "came", "went"])
_MATHEMATICAL = listed("mathematical")


@lru_cache(maxsize=512)
def question_words(question: str) -> frozenset[str]:
    """Return the words of a question that may accompany an answer, with their singulars and plurals."""
    words = set(re.findall(r"[a-z]+(?:-[a-z]+)*", question.lower())) - _SMALL_WORDS
    if not _ASKS_GROUPS.search(question):
        words -= GROUPS
    # Chinese has no spaces, so pairs of characters serve as words
    for run in re.findall(r"[\u4e00-\u9fff]+", question):
        words |= {pair for pair in map("".join, pairwise(run)) if not _HAN_CHANGING.search(pair)}
    words |= {word.removesuffix("s") for word in words} | {f"{word}s" for word in words}
    return frozenset(re.findall(r"\d+", question)) | {
        word for word in words if (len(word) > 2 or not word.isascii()) and not changes_number(word, asked=True)
    }


def changes_number(word: str, asked: bool = False) -> bool:
    """Return whether a word changes the number before it; not where the question (`asked`) counts "squares"."""
    if asked and word in _HARMLESS_CHANGING:
        return False
    number = word.removesuffix("s")
    return (
        word in CHANGING
        or re.fullmatch("(?:hundred|thousand|[a-z]*illion)(?:th)?s?", word) is not None
        or ordinal_denominator(word) is not None
        or read_words(word) is not None
        or read_words(number) is not None
    )


def is_known_tail(words: str, known: frozenset[str]) -> bool:
    """Return whether the words of "at the market" only repeat words of the question."""
    tail = [word.removesuffix("'s").strip("'") for word in words.lower().split()]
    return any(word in known for word in tail) and all(word in known or word in _SMALL_WORDS for word in tail)


def names_what_is_counted(words: list[str], known: frozenset[str] = frozenset()) -> bool:
    """Return whether words in lower case after a number only say what it counts: "red apples", "marbles of glass"."""
    if all(word in known or word in _SMALL_WORDS for word in words) and any(word in known for word in words):
        return True
    if "of" in words[1:-1]:
        place = words.index("of")
        return names_what_is_counted(words[:place], known) and names_what_is_counted(
            [w for w in words[place + 1 :] if w != "the"] or ["?"], known
        )
    for place, word in enumerate(words[1:], 1):
        if word in _CLAUSES and names_what_is_counted(words[:place], known):
            return not any(changes_number(each) or each in _MATHEMATICAL for each in words[place:])
    *modifiers, noun = words
    counted = noun in known or ("ordered" in modifiers and noun in ("pair", "pairs"))
    if not (counted or (not changes_number(noun) and (noun in NOUNS or _PLURAL.fullmatch(noun)))):
        return False
    return all(word in known or word in MODIFIERS or (word in NOUNS and not changes_number(word)) for word in modifiers)


# Units after an answer ("9 dollars", "15 cm^2", "90^\circ", "9 red apples", "5个") and currency signs before it.

COUNTED = "things"  # the unit of "9 apples"
_MEASURES = {  # name: (kind and system, factor to the first unit of the system, other spellings)
    name: (f"{kind} {system}", int(factor), forms) for name, (kind, system, factor, *forms) in rows("measures")
}
KINDS = frozenset(kind.split()[0] for kind, _, _ in _MEASURES.values())
_KNOWN = {form: name for name, forms in rows("other units") for form in (name, *forms)}
_KNOWN |= {form: name for name, (_, _, forms) in _MEASURES.items() for form in (name, *forms)}
_CURRENCY = {sign: name for name, signs in rows("currency signs") for sign in signs}
_RATES = {"mph": "mile / hour", "kph": "kilometer / hour", "kmh": "kilometer / hour", "fps": "foot / second"}
_POWERS = {"square": "2", "squared": "2", "sq": "2", "cubic": "3", "cubed": "3", "cu": "3", "平方": "2", "立方": "3"}
_LEADING = re.compile(r"^([-+]?)\s*(US\$|USD|RMB|CNY|EUR|Rs\.?|\\\$|\\text\{\\\$\}|[$€£¥￥₹])\s*(?=[-\d.\\(])")
_WORD = r"[A-Za-z¢€£¥$][A-Za-z/.'-]*"
_TRAILING = re.compile(
    rf"^(?P<value>.*(?:[\d}})\]%]|\\pi\b|\\ldots|\d[a-z](?=\s[a-z]{3})))(?P<gap>\s*)(?P<words>{_WORD}(?:\s+{_WORD}){{0,8}})\s*(?:(?:\^\s*\{{?|(?<=m))(?P<power>[23])\}}?)?$"
)
_DOLLARS = re.compile(r"^(?P<value>-?[\d.,]+)\s*(?:\\\$|\$|€|£|¥)$")
_DEGREE = re.compile(
    r"^(?P<value>.*\S)\s*(?:\^\s*\{?\s*\\circ\s*\}?|\\degree|(?<=\s)deg(?:ree)?s?(?=\s+[CcFf]))"
    r"\s*(?P<scale>[CF]|[Cc]elsius|[Cc]entigrade|[Ff]ahrenheit)?$"
)
_OF_DEGREES = re.compile(
    r".*\\?(?:sin|cos|tan|cot|sec|csc)\s*(?:\^\s*(?:\{-?\d++\}|-?\d{1,2}))?\s*\(?[\d.]++\s*\^"
)  # \sin 75^\circ
_OVER = re.compile(r"\s*\\frac\s*\{\s*([A-Za-z]{1,8})\s*\}\s*\{\s*([A-Za-z]{1,8})\s*\}$")  # 5 \frac{km}{h}
_INVERSE = re.compile(r"(?<=\d)\s?([a-z]{1,2}?)\s?(?:\\cdot\s?)?(s|h|min)\s?\^\s?\{?-1\}?$")  # 5 m s^{-1}
_PER = re.compile(r"(?<=\d)\s*/\s*(?=(?:second|minute|hour|day|week|month|year|person|child|student|item|piece|unit)$)")
_PERCENT_WORD = re.compile(r"(?<=\d)\s(?:percent|per\scent)(?=\s)")
_HAN = r"[\u4e00-\u9fff]"
_CHINESE = re.compile(rf"^(?P<value>.*?)\s*(?P<words>(?:平方|立方)?{_HAN}{{1,12}}(?:/{_HAN}{{1,2}})?)$")
_HAN_RATE = re.compile(r"([^/每]+)[/每]个?(秒|分|时|秒钟|分钟|小时|天|月|年)")
_HAN_PER = re.compile(
    r"每个?(秒|分|时|秒钟|分钟|小时|天|月|年)(?:可?以?行驶|行|走|跑|飞行?|前进)?\s*(?=[\d零一二三四五六七八九十百])"
)
_HAN_TIMES = {"时": "hour", "分": "minute"}  # under a fraction bar
_TAIL = re.compile(
    r"(?:^|\s+)(?:at|in|on|from|for|to|of|by|with|before|after|until|when|while|if|per|up|above|along|into|onto|across"
    r"|through|around|towards?|past)\s+"
)
_COUNTERS = (
    "项道根页层排场圈步间家束株串盘碗桶罐个只条件张本支枝台辆座棵块片朵头匹位名人次种组对双套堆"
    "颗粒箱盒袋瓶杯份元角分度岁秒天日周月年斤公里米克升吨"
)
_ANY_COUNTERS = "个种人名位项次"  # people and ways are counted with either
_COUNTED = listed("chinese counted")


def split_unit(text: str, letters: bool = False, known: frozenset[str] = frozenset()) -> tuple[str, str]:
    r"""Return a prepared text without its unit, and the unit's name ("" for no unit, COUNTED for counted things).

    "%" is kept, since it is a factor rather than a unit. A single letter ("5 m") may be a unit only with `letters`.
    """
    unit = ""
    text = _PERCENT_WORD.sub(r"\\%", _PER.sub(" per ", _INVERSE.sub(r" \1/\2", _OVER.sub(r" \1/\2", text))))
    if match := _LEADING.match(text):
        unit, text = _CURRENCY.get(match[2], "dollar"), match[1] + text[match.end() :]
    if match := (None if _OF_DEGREES.match(text) else _DEGREE.match(text)) or _DOLLARS.match(text):
        scale = match["scale"][:1].upper() if match.re is _DEGREE and match["scale"] else ""
        return match["value"], _KNOWN.get(scale, "degree") if match.re is _DEGREE else unit or "dollar"
    if (match := _HAN_PER.match(text)) and "每" not in text[1:]:
        text = f"{text[match.end() :]}/{match[1]}"
    if match := _CHINESE.match(text):
        return _split_chinese(match, text, unit, known)
    match = _TRAILING.match(text) or _after_words(text)
    if match is None:
        return text, unit
    value, gap, words, power = match["value"], match["gap"], match["words"], match["power"]
    if words.split() in (["percent"], ["percentage"], ["per", "cent"], ["pct"]):
        return value.rstrip() + "\\%", unit
    if (scaled := re.match(r"(hundred|thousand|million|billion|trillion)\s+(?=\S)", words)) and re.search(
        r"\d$", value
    ):
        value, words = f"{value} {scaled[1]}", words[scaled.end() :]
    name = _unit_name(words, power, gap, letters, known)
    return (text, unit) if name is None else (value, unit if unit and name in ("", COUNTED) else name)


def same_unit(one: str, other: str) -> bool:
    """Return whether two units may be the same; "meter" may abbreviate "meter/second", and "degree" "celsius"."""
    if "degree" in (one, other) and {one, other} & {"celsius", "fahrenheit"}:
        return True
    if {one, other} == {"yen", "yuan"}:  # both are written with the same sign
        return True
    if COUNTED in (one, other) and {one, other} <= {COUNTED, *_COUNTERS}:
        return True
    return one == other or (("/" in one) != ("/" in other) and one.partition("/")[0] == other.partition("/")[0])


def convert(number: Fraction, unit: str, wanted: str) -> Fraction | None:
    """Return a number converted to another unit; None if the units have different dimensions."""
    (unit, _, under), (wanted, _, wanted_under) = unit.partition("/"), wanted.partition("/")
    if under or wanted_under:
        top, bottom = convert(number, unit, wanted), convert(Fraction(1), under, wanted_under)
        return None if top is None or not bottom else top / bottom
    if (unit, wanted) == ("celsius", "fahrenheit"):
        return number * 9 / 5 + 32
    if (unit, wanted) == ("fahrenheit", "celsius"):
        return (number - 32) * 5 / 9
    (kind, size), (wanted_kind, wanted_size) = _dimension(unit), _dimension(wanted)
    return number * size / wanted_size if kind == wanted_kind != "" else None


def _dimension(unit: str) -> tuple[str, Fraction]:
    """Return what a unit measures, and how large it is; "" for a unit that is not converted."""
    name, _, power = unit.partition("^")
    kind, size, _ = _MEASURES.get(name, ("", 1, ""))
    if (kind, power) == ("length metric", "3"):
        return "volume metric", Fraction(size**3, 1000)  # a milliliter is a cubic centimeter
    # areas and volumes scale with the power of the length
    return f"{kind}{power}" if kind else "", Fraction(size) ** int(power or 1)


def kind_of_unit(unit: str) -> str:
    """Return "length", "money", "time", "mass", "volume", or the unit itself for others; "" for rates of lengths."""
    name, _, under = re.sub(r"\^\d", "", unit).partition("/")
    kind = _MEASURES[name][0].split()[0] if name in _MEASURES else name
    return "" if under and kind != "money" else kind


def _after_words(text: str) -> re.Match[str] | None:
    """Find the unit after a number in words: "five apples"."""
    for match in reversed(list(re.finditer(r"\s+(?=[a-z])", text[:100]))):
        if as_value(text[: match.start()]) is not None:
            pattern = (
                rf"^(?P<value>.{{{match.start()}}})(?P<gap>\s+)(?P<words>[A-Za-z][A-Za-z\s/.'-]*)(?P<power>(?!))?$"
            )
            return re.match(pattern, text)
    return None


def _unit_name(words: str, power: str | None, gap: str, letters: bool, known: frozenset[str]) -> str | None:
    """Return the canonical name of a unit, "" for words like "in total", None if the words are not a unit."""
    words = words.strip().rstrip(".")
    while not _all_known(words.lower().split()) and (match := AFTER.fullmatch(words)) and match[1] != words:
        words = match[1].strip()
    if tail := next((match for match in _TAIL.finditer(words) if is_known_tail(words[match.end() :], known)), None):
        return _unit_name(words[: tail.start()], power, gap, letters, known)
    if not words:
        return "" if gap else None
    parts = words.replace(".", "").split()
    while parts[0].lower() in MODIFIERS and _all_known([part.lower() for part in parts[1:]]) and parts[1:]:
        parts = parts[1:]
    lower = [part.lower() for part in parts]
    # powers change the value
    if all(word in _POWERS for word in lower):  # "9 squared" is 81
        return None
    # a single letter is a unit only where a variable is impossible
    if len(parts[0]) == 1 and parts[0].isalpha():
        known_letter = letters and parts[0] in _KNOWN and (len(parts) == 1 or _all_known(lower))
        return (_KNOWN[parts[0]] + (f"^{power}" if power else "") if len(parts) == 1 else "") if known_letter else None
    if _all_known(lower):
        return _canonical(lower, power)
    measure = lower[0] if lower[0] in _KNOWN and lower[1:2] == ["of"] else ""
    if measure and names_what_is_counted(["items", "of", *lower[2:]], known):
        return _KNOWN[measure]
    if gap and power is None and names_what_is_counted([word.removesuffix("'s").strip("'") for word in lower], known):
        group = next((word.removesuffix("s") for word in lower if word.removesuffix("s") in ("dozen", "pair")), COUNTED)
        return COUNTED if "ordered" in lower else group
    return None


def _all_known(words: list[str]) -> bool:
    if "in" in words[1:] and words[-2] not in _POWERS:
        return False
    return all(
        part in _KNOWN or part in _POWERS or (part in ("per", "us") and len(words) > 1)
        for word in words
        for part in word.split("/")
    )


def _canonical(words: list[str], power: str | None) -> str:
    names = [part for word in words for part in word.replace("/", " / ").split() if part != "us"]
    powers = [_POWERS[name] for name in names if name in _POWERS] + ([power] if power else [])
    known = [_KNOWN.get(name, "") for name in names if name not in _POWERS]
    rate = " ".join(_RATES.get(name, name) for name in names).replace(" per ", " / ").split()
    if len(rate) == 3 and rate[1] == "/" and {rate[0], rate[2]} <= _KNOWN.keys():
        return f"{_KNOWN[rate[0]]}/{_KNOWN[rate[2]]}" + (f"^{power}" if power else "")
    name = known[0] if len(known) == 1 else ""
    return name + (f"^{powers[0]}" if powers and name else "")


def _split_chinese(match: re.Match[str], text: str, unit: str, known: frozenset[str]) -> tuple[str, str]:
    value, words = match["value"].strip(), match["words"]
    for start in range(len(words)):  # the number itself may be in Chinese: 五个
        head, tail = (value + words[:start]).strip(), words[start:]
        if as_value(head) is None and not (start == 0 and re.search(r"[\d})\]]$|\\pi$", head)):
            continue
        if rate := _HAN_RATE.fullmatch(tail):
            over = _KNOWN.get(rate[1], "" if rate[1] not in _COUNTERS else COUNTED)
            if over:
                return head, f"{over}/{_HAN_TIMES.get(rate[2]) or _KNOWN[rate[2]]}"
        power = next((mark for name, mark in _POWERS.items() if tail.startswith(name)), "")
        plain = tail[2:] if power else tail
        if plain in _KNOWN:
            return head, _KNOWN[plain] + (f"^{power}" if power else "")
        measure = next((plain[:end] for end in range(len(plain), 0, -1) if plain[:end] in _KNOWN), "")
        rest = plain.removeprefix(measure)
        if measure and (rest == "后" or _repeats(plain, known) or _repeats(rest, known)):
            return head, _KNOWN[measure] + (f"^{power}" if power else "")
        if not power and plain[0] in _COUNTERS and (_is_counted(plain[1:], known) or _repeats(plain, known)):
            return head, COUNTED if plain[0] in _ANY_COUNTERS else plain[0]
    return text, unit


def _repeats(words: str, known: frozenset[str]) -> bool:
    return len(words) > 1 and all(words[place : place + 2] in known for place in range(len(words) - 1))


def _is_counted(words: str, known: frozenset[str]) -> bool:
    """Return whether the Chinese words after a counter say what is counted: "不同的方法"."""
    words = re.sub("^(?:不同的?|可能的?|满足条件的|符合条件的|的)", "", words)
    return words in _COUNTED or not words or _repeats(words, known)
