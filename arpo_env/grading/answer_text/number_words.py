r"""Numbers in English and Chinese words: "twenty-one", "three quarters", "two and a half", "五十二", "三分之二".

Only numbers are read, not computations: "five squared" and "two times three" are not numbers here.
"""

from __future__ import annotations

import re
from fractions import Fraction

_ONES = """
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
    eighteen nineteen
    """
_DECADES = "twenty thirty forty fifty sixty seventy eighty ninety"
_SMALL = {word: number for number, word in enumerate(_ONES.split())}
_TENS = {word: 10 * number for number, word in enumerate(_DECADES.split(), 2)}
SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_ORDINALS = {"first": 1, "second": 2, "third": 3, "fifth": 5, "eighth": 8, "ninth": 9, "twelfth": 12}
_DIGITS = {letter: number for number, letter in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2}
_PLACES = {"十": 10, "百": 100, "千": 1000}
_MYRIADS = (("亿", 10**8), ("万", 10**4))
_CHINESE = re.compile("[零〇一二三四五六七八九两十百千万亿]+")
_LONGEST = 150


def read_words(text: str) -> Fraction | None:
    """Return the number that the words mean, or None."""
    # keeps the patterns below cheap on long texts
    if len(text) > _LONGEST:
        return None
    text = text.strip().lower()
    if text[:1] in ("负", "負") and (number := read_words(text[1:])) is not None:
        return -number
    if _CHINESE.fullmatch(text):
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
    number = _ordinal(word)
    return number if number is not None and number > 2 else None


def _read_english(text: str) -> Fraction | None:
    sign = 1
    if match := re.match(r"(?:minus|negative)\s+", text):
        sign, text = -1, text[match.end() :]
    if match := re.fullmatch(r"(.+?)\s+and\s+(?:a|an|one)\s+(half|quarter|third)", text):
        whole = _read_whole(match[1])
        return None if whole is None else sign * (whole + Fraction(1, ordinal_denominator(match[2]) or 1))
    if match := re.fullmatch(r"(.+?)\s+and\s+(.+)", text):
        whole, part = _read_whole(match[1]), _read_fraction(match[2])
        if whole is not None and part is not None and part < 1:
            return sign * (whole + part)
    if (part := _read_fraction(text)) is not None:
        return sign * part
    if match := re.fullmatch(r"(.+?)\s+point((?:\s+[a-z]+)+)", text):
        whole, digits = _read_whole(match[1]), [_SMALL.get(word, 10) for word in match[2].split()]
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
        number = _SMALL.get(word) or _TENS.get(word) or SCALES.get(word)
        if number is None:
            return None
        if number < 100 and number < room:
            group, room = group + number, 10 if word in _TENS else 1
        elif word == "hundred" and 0 < group < 100 and room != 100:
            group, room = group * 100, 100
        elif 100 < number < scale and group:
            total, group, room, scale = total + group * number, 0, 10**4, number
        else:
            return None
    return total + group if words else None


def _ordinal(word: str) -> int | None:
    if word in _ORDINALS:
        return _ORDINALS[word]
    if not word.endswith("th"):
        return None
    stem = word.removesuffix("th")
    stem = stem.removesuffix("ie") + "y" if stem.endswith("ie") else stem
    return _SMALL.get(stem) or _TENS.get(stem) or SCALES.get(stem)


def read_ordinal(word: str) -> int | None:
    """Return 8 for "8th" or "eighth", else None."""
    if match := re.fullmatch(r"(\d{1,9})\s*-?\^?\{?(?:st|nd|rd|th)\}?", word):
        return int(match[1])
    return _ordinal(word.lower())


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
