"""Numbers with their units as single tokens: `mark_quantities` unifies "$5 million" and "5,000,000 dollars".

A currency, a percent sign and a unit are part of a number: "25" is not "25%", and "€5" is not "$5". Units of one
dimension are compared by value ("1.95 m" is "195 cm") if the factor between them is exact; miles never equal
kilometres. Numbers in words are read up to the trillions, ordinals up to the ninety-ninth.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

from arpo_env.grading.qa_text.dates import CLOSE, OPEN, outside_marks
from arpo_env.grading.qa_text.units import CURRENCIES, UNITS, in_metric, unit_at

_ONES = """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
nineteen
"""
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_WORDS = {word: number for number, word in enumerate(_ONES.split())}
_WORDS |= {word: 10 * number for number, word in enumerate(_TENS.split(), 2)}
_SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_SCALES |= {"dozen": 12, "lakh": 10**5, "crore": 10**7}
_SHORT_SCALES = {"mn": 10**6, "mio": 10**6, "bn": 10**9, "b": 10**9, "tn": 10**12, "k": 10**3, "m": 10**6}
_ORDINALS = """
first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth
sixteenth seventeenth eighteenth nineteenth twentieth
"""
_NUMBER_WORD = "|".join(sorted((*_WORDS, *_SCALES), key=len, reverse=True))
_IN_WORDS = re.compile(rf"(?<![\w'-])(?:{_NUMBER_WORD})(?:(?:\s+|-)(?:and\s+)?(?:{_NUMBER_WORD}))*(?![\w'])")
_NUMBER = r"\d{1,30}(?:\.\d{1,30})?(?:\^\d{1,2})?"
_POWER_OF_TEN = r"(?:\s?[x×*·]\s?10\s?\^\s?[{(]?(?P<power>-?\d{1,3})[)}]?|e(?P<exponent>[+-]?\d{1,3}))?"
_WORD_SCALE = rf"\s*(?:{'|'.join(_SCALES)})s?(?!\w)"
_SIGN = "|".join(
    re.escape(form)
    for form in sorted(CURRENCIES, key=len, reverse=True)
    if form in (CURRENCIES[form].lower(), "rmb") or not form.isalpha() or not form.isascii()
)
_START = rf"(?:(?<!\w)(?P<sign>{_SIGN})\s*|(?<![\w.,:/$€£¥₹+-]))"
_AMOUNT = re.compile(
    rf"{_START}(?P<minus>-?)(?P<number>{_NUMBER}){_POWER_OF_TEN}"
    rf"(?P<scale>{_WORD_SCALE}|\s?(?:mn|mio|bn|tn)(?!\w)|[kmb](?!\w))?(?!\d|\.\d)"
)
_SPAN = re.compile(
    rf"(?:\b(?P<from>from|between)\s+)?{_START}(?P<first>\d{{1,15}}(?:\.\d{{1,9}})?)(?P<low>{_WORD_SCALE})?\s*(?P<joint>-|to|and)\s*(?:(?P=sign)\s*)?"
    rf"(?P<last>\d{{1,15}}(?:\.\d{{1,9}})?)(?P<high>{_WORD_SCALE})?(?![\w^]|[.,:/-]\d)"
)
_END = re.compile(r"(?<=['′])|(?![a-z0-9_^]|[.,:/-]\d)")
_NEXT = re.compile(r"[\s,-]*(?:and\s)?(\d{1,9}(?:\.\d{1,9})?)(?!\d|[.,:/-]\d)")
_RATE = re.compile(r"\s?(?:/|per |an? |每)")
_CURRENCY = re.compile(rf"\s?(?:{'|'.join(map(re.escape, sorted(CURRENCIES, key=len, reverse=True)))})(?!\w)")
_GROUPED = re.compile(r"(?<![\w.,:/-])(?<!\d )\d{1,3}(?:(?: \d{3})+|(?:'\d{3})+)(?![ ,.']?\d|\w)")
_OFTEN = {"once": "1 times", "twice": "2 times", "thrice": "3 times"}
_TIMES_IN_WORDS = re.compile(r"^\W*(once|twice|thrice)(?=\W*$)")
_A_UNIT = re.compile(r"^\W*an? (?=(?:second|minute|hour|day|week|month|year|decade|century)\W*$)")
_AND_A_HALF = re.compile(r"(?<!\w)an? ([a-z]{3,8}) and a half(?!\w)")
_NUMBER_AND_A_HALF = re.compile(r"(?<![\w.])(\d{1,6}) and (?:a |one )?(?:half|1/2)(?!\w)")
_NIL = re.compile(r"(?<=\d)[ -]nil(?!\w)")
_DIGIT = re.compile(r"\d")
_POINT = re.compile(r"(?<![\w.])(\d{1,9}) point (\d(?: \d){0,8})(?![\w.])")
_ROUND = re.compile(r"^\s*(half )?an? (dozen|hundred|thousand|million|billion)(?=\W*(?:[a-z]+\W*)?$)")
_PLACE = re.compile(r"(?<!\w)(\d{1,3}(?:st|nd|rd|th)) (?:place|position)(?!\w)")
_NEGATIVE = re.compile(r"(?<![\w.])(?<!\d )(?:minus|negative)\s+(?=\d)")
_EXACT = re.compile(r"(?<!\w)(?:exactly|precisely|just|only|aged|(?:a )?(?:grand )?total of)\s+(?=[$€£¥₹]?\s?-?\d)")
_SIZE = re.compile(r"(?<![\w.])(\d{1,9}(?:\s*(?:x|×|by)\s*\d{1,9})+)(?![\w.]\d|\w)(?:\s?(?:pixels?|px)(?!\w))?")
_PART_NAMES = {f"{word}s": number for number, word in enumerate(_ORDINALS.split(), 1)} | {"halves": 2, "quarters": 4}
_PARTS = re.compile(rf"(?<![\w.])(\d{{1,3}})[ -]({'|'.join(_PART_NAMES)})(?!\w)")
_APPROXIMATE = {
    "about": r"about|approximately|approx\.?|around|roughly|circa|ca\.|c\.|some|~|≈",
    "over": r"more than|over|above|upwards of|in excess of|greater than",
    "nearly": r"nearly|almost|just under|close to",
    "least": r"at least|a minimum of",
    "most": r"at most|up to|less than|under|fewer than|below",
}
_QUALIFIERS = [
    (re.compile(rf"(?<!\w)(?:{words})\s*(?=[$€£¥₹{OPEN}]?\s?-?\d|(?:us|a)\$)"), name)
    for name, words in _APPROXIMATE.items()
]
_CIRCA = (re.compile(rf"(?<!\w)ca?\.? ?(?= ?{OPEN}-?\d)"), "about")
QUALIFIERS = frozenset(_APPROXIMATE)
_ALIKE = {("¥", "CNY"), ("¥", "JPY"), ("deg", "°C"), ("deg", "°F")}


def with_ordinals(text: str) -> str:
    """Write "third" as 3rd, up to the ninety-ninth, and "one third" as 1/3."""
    text = _HALF.sub("1/2", _ONE_PART.sub(lambda match: f"1/{_PART_NAMES.get(match[1] + 's') or 2}", text))
    return _ORDINAL.sub(lambda match: _DIGITS[re.sub(r"\s|-", " ", match[0])], text)


def mark_quantities(text: str) -> str:
    """Replace each amount in a text (lower case, dates marked) by one token."""
    if " and a half" in text:
        text = _AND_A_HALF.sub(r"1.5 \1", text)
    if OPEN in text:
        for pattern, name in (*_QUALIFIERS, _CIRCA):
            text = pattern.sub(f"{name} ", text)
    text = _A_UNIT.sub("1 ", _TIMES_IN_WORDS.sub(lambda match: _OFTEN[match[1]], text))
    return outside_marks(_ROUND.sub(lambda match: ("0.5 " if match[1] else "one ") + match[2], text), _mark)


def same_in_other_unit(first: str, second: str) -> bool:
    """Return whether two tokens are one amount in two units, as far as the digits of either tell."""
    # "220 pounds" is read as money
    first, second = (token.replace("|GBP", "|lb") for token in (first, second))
    (one, _, its), (other, _, others) = first.partition("|"), second.partition("|")
    if its == others or not its or not others or one.count("..") != other.count(".."):
        return False
    if ".." in one:  # "5-10 km (3-6 miles)"
        ends = zip(one.split(".."), other.split(".."), strict=True)
        return all(same_in_other_unit(f"{mine}|{its}", f"{theirs}|{others}") for mine, theirs in ends)
    if {its, others} == {"°C", "°F"}:
        celsius, fahrenheit = (one, other) if its == "°C" else (other, one)
        return abs(float(Fraction(celsius)) * 1.8 + 32 - float(Fraction(fahrenheit))) <= 1
    (mine, kind), (theirs, its_kind) = in_metric(Fraction(one), its), in_metric(Fraction(other), others)
    return kind == its_kind and abs(mine - theirs) <= 0.035 * max(abs(mine), abs(theirs))


def same_amount(mine: str, gold: str) -> bool:
    """Return whether two tokens are one amount: "75|%" and "3/4", "¥" for either of its currencies, "°" for "°C"."""
    (value, _, its), (wanted, _, others) = mine.partition("|"), gold.partition("|")
    if value == wanted:
        return (its, others) in _ALIKE or (others, its) in _ALIKE
    if its == others == "" and "/" in value + wanted:
        return None is not _fraction(value) == _fraction(wanted)
    if {its, others} != {"%", ""} or "/" not in value + wanted:
        return False
    percent, part = (value, wanted) if its else (wanted, value)
    return re.fullmatch(r"\d{1,9}/\d{1,9}", part) is not None and Fraction(part) * 100 == _fraction(percent)


def _fraction(value: str) -> Fraction | None:
    return Fraction(value) if re.fullmatch(r"-?\d{1,40}(?:\.\d{1,40}|/[1-9]\d{0,40})?", value) else None


def bare_number(token: str, units: frozenset[tuple[Fraction, str]]) -> str:
    """Return the number of an amount without its unit if the question names that unit; else the token.

    Percent signs and currencies are kept, since a question rarely implies them.
    """
    value, _, dimension = token.partition("|")
    for factor, of in units if dimension else ():
        if of == dimension and of != "%" and of not in CURRENCIES.values():
            return "..".join(_decimal_text(Fraction(end) / factor) for end in value.split(".."))  # of a range, both
    return token


@lru_cache(maxsize=4096)
def units_in(question: str) -> frozenset[tuple[Fraction, str]]:
    """Return the units that a normalised question names; an age is in years."""
    places = [match.end() for match in re.finditer(r"\b(?=[a-z])|[多少几](?=[\u4e00-\u9fff])", question)]
    found = {(unit[0], unit[1]) for place in places if (unit := unit_at(question, place))}
    return frozenset(found | ({UNITS["year"]} if re.search(r"\b(?:old|age)\b|[龄岁]|多大", question) else set()))


def _mark(text: str) -> str:
    # words first, so that the patterns below only see digits
    text = _IN_WORDS.sub(_words_to_digits, text)
    if not _DIGIT.search(text):
        return text
    text = _POINT.sub(lambda match: f"{match[1]}.{match[2].replace(' ', '')}", _NIL.sub("-0", text))
    text = _NUMBER_AND_A_HALF.sub(r"\1.5", text)
    text = _EXACT.sub("", _NEGATIVE.sub("-", _GROUPED.sub(lambda match: re.sub(r"\D", "", match[0]), text)))
    text = _PLACE.sub(r"\1", text)
    text = _PARTS.sub(lambda match: f"{match[1]}/{_PART_NAMES[match[2]]}", text)
    text = _SIZE.sub(lambda match: re.sub(r"\s*(?:x|×|by)\s*", "x", match[1]), text)
    for pattern, name in _QUALIFIERS:
        text = pattern.sub(f"{name} ", text)
    text = outside_marks(text, lambda piece: _replaced(piece, _SPAN, _span))
    return outside_marks(text, lambda piece: _replaced(piece, _AMOUNT, _amount))


def _replaced(text: str, pattern: re.Pattern[str], read: Callable[[re.Match[str]], tuple[str, int] | None]) -> str:
    """Replace what a function reads from a match on: it returns the token and its end, or None."""
    found, end = [], 0
    for match in pattern.finditer(text):
        if match.start() >= end and (token := read(match)):
            found += [text[end : match.start()], f" {token[0]} "]
            end = token[1]
    return "".join((*found, text[end:]))


def _span(match: re.Match[str]) -> tuple[str, int] | None:
    # "between 5 and 10"; without it, "and" joins two numbers
    joined = (match["joint"] == "and") != (match["from"] == "between")
    if joined or re.match(r"0\d", match["first"]) or re.match(r"0\d", match["last"]):
        return None
    high = _SCALES.get((match["high"] or "").strip().rstrip("s"), 1)
    low = _SCALES.get((match["low"] or "").strip().rstrip("s"), high)
    ends, unit = (Fraction(match["first"]) * low, Fraction(match["last"]) * high), ""
    end = match.end()
    if match["sign"]:
        unit = "|" + CURRENCIES[match["sign"]]
    elif (found := unit_at(match.string, end)) and _END.match(match.string, found[2]):
        ends, unit, end = (ends[0] * found[0], ends[1] * found[0]), "|" + found[1], found[2]
    return f"{OPEN}{_decimal_text(ends[0])}..{_decimal_text(ends[1])}{unit}{CLOSE}", end


def _amount(match: re.Match[str]) -> tuple[str, int] | None:
    """Return an amount as a token; a number with leading zeros is a name and is kept."""
    text, end, sign, scale = match.string, match.end(), match["sign"], (match["scale"] or "").strip()
    number, power = match["number"], match["power"] or match["exponent"]
    if not (sign or scale or power) and len(number) > 1 and number[0] == "0" and number[1] != ".":
        return None
    if scale == "m" and not sign and not _CURRENCY.match(text, end):  # "5 m" is five metres, "$5m" five million
        scale, end = "", match.start("scale")
    base, _, raised = number.partition("^")
    value = Fraction(base)
    if raised or power or scale:
        value = value ** int(raised or 1) * Fraction(10) ** int(power or 0)
        value *= _SCALES.get(scale) or _SCALES.get(scale.rstrip("s")) or _SHORT_SCALES.get(scale) or 1
    dimension = CURRENCIES[sign] if sign else ""
    unit = None if sign else unit_at(text, end)
    if unit and _END.match(text, unit[2]):
        value, dimension, end = value * unit[0], unit[1], unit[2]
        value, end = _with_rest(value, unit, text, end)
    if dimension in CURRENCIES.values() and (again := _CURRENCY.match(text, end)):
        other = CURRENCIES[again[0].strip()]  # "$5 USD", "港币500元", "3.5亿元人民币"
        if other == dimension or "CNY" in (other, dimension):
            dimension, end = other if dimension == "CNY" else dimension, again.end()
    if sign and _RATE.match(text, end) and (rate := unit_at(text, end)):
        value, dimension, end = value * rate[0], f"{dimension}·{rate[1]}", rate[2]
    if not _END.match(text, end):
        return None
    told = _decimal_text(-value if match["minus"] else value)
    return (f"{OPEN}{told}|{dimension}{CLOSE}" if dimension else told), end


def _with_rest(value: Fraction, unit: tuple[Fraction, str, int], text: str, end: int) -> tuple[Fraction, int]:
    """Add the smaller unit of "5 feet 7 inches" and "3 h 20 min"."""
    while (more := _NEXT.match(text, end)) and more.end() - end < 16:
        inner = unit_at(text, more.end())
        if inner and unit[:2] == UNITS["hour"] and text[more.end() : inner[2]].strip() == "m":
            inner = (*UNITS["minute"], inner[2])  # "3h 20m"
        if inner is None or not _END.match(text, inner[2]):
            if unit[:2] != UNITS["foot"] or not re.match(r"\s*(?:$|[),;])", text[more.end() :]):
                break
            inner = (*UNITS["inch"], more.end())  # "5 ft 7"
        if inner[1] != unit[1] or inner[0] >= unit[0]:
            break
        value, unit, end = value + Fraction(more[1]) * inner[0], inner, inner[2]
    return value, end


def _decimal_text(value: Fraction) -> str:
    if value.denominator == 1:
        return str(value.numerator)
    # write finite decimals without an exponent; other fractions stay fractions
    for digits in range(1, 13):
        if (value * 10**digits).denominator == 1:
            whole = f"{abs(value.numerator) * 10**digits // value.denominator:0{digits + 1}}"
            return ("-" if value < 0 else "") + f"{whole[:-digits]}.{whole[-digits:]}"
    return str(value)


def _words_to_digits(match: re.Match[str]) -> str:
    """Write number words as digits; words that form no number together are converted one by one."""
    words = [word for word in re.split(r"\s+|-", match[0]) if word != "and"]
    if all(word in _SCALES for word in words):
        return match[0]  # "a million", and "5 million", which is read with its number
    return _compose(words) or " ".join(str(_WORDS[word]) if word in _WORDS else word for word in words)


def _compose(words: list[str]) -> str:
    """Return number words as digits, "" if they are not a number; "nineteen eighty-four" is 1984."""
    total = part = 0
    last = 10**15  # approximate upper limit of the next word
    for word in words:
        number = _WORDS.get(word)
        if word == "hundred":
            part, last = (part or 1) * 100, 100
        elif number is None:
            total, part, last = total + (part or 1) * _SCALES[word], 0, 10**15
        elif not total and last <= 20 and number >= 10 and 10 <= part < 100 and len(words) <= 3:
            # years are read in pairs
            part, last = part * 100 + number, 20 if number >= 20 else 1
        elif last >= 100 or (last == 20 and number < 10 and part % 10 == 0):
            part, last = part + number, 20 if number >= 10 else 1
        else:
            return ""
    return str(total + part)


_SUFFIXES = {1: "st", 2: "nd", 3: "rd"}
_DIGITS = {word: f"{number}{_SUFFIXES.get(number, 'th')}" for number, word in enumerate(_ORDINALS.split(), 1)}
_DIGITS |= {
    f"{ten} {word}": f"{number}{_DIGITS[word]}"
    for number, ten in enumerate(_TENS.split(), 2)
    for word in _ORDINALS.split()[:9]
}
_DIGITS |= {f"{ten[:-1]}ieth": f"{number}0th" for number, ten in enumerate(_TENS.split(), 2)}
_HALF = re.compile(r"^\W*half(?= of |\W*$)")
_ONE_PART = re.compile(
    rf"(?<![\w-])one[ -](half|{'|'.join(name[:-1] for name in _PART_NAMES if name != 'halves')})(?!\w)"
)
_ORDINAL = re.compile(
    rf"(?<![\w-])(?<!per )(?:{'|'.join(sorted(_DIGITS, key=len, reverse=True)).replace(' ', '[ -]')})(?![\w-])"
)
