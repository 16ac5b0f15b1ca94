"""Numbers with their units as single tokens: `mark_quantities` unifies "$5 million" and "5,000,000 dollars".

A currency, a percent sign and a unit are part of a number: "25" is not "25%", and "€5" is not "$5". Units of one
dimension are compared by value ("1.95 m" is "195 cm") if the factor between them is exact; miles never equal
kilometres. Numbers in words are read up to the trillions, ordinals up to the ninety-ninth.
"""

from __future__ import annotations

import re
from fractions import Fraction

from arpo_env.grading.qa_text.dates import CLOSE, OPEN, outside_marks

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
_CURRENCIES = {
    "USD": "$ us$ usd dollar dollars united-states-dollar united-states-dollars american-dollars bucks",
    "EUR": "€ eur euro euros",
    "GBP": "£ gbp pounds-sterling sterling british-pounds pound pounds",
    "JPY": "¥ jpy yen",
    "CNY": "rmb cny yuan renminbi 元",
    "INR": "₹ inr rs rupee rupees",
    "AUD": "a$ au$ aud australian-dollars",
    "CAD": "c$ ca$ cad canadian-dollars",
    "HKD": "hk$ hkd",
    "NZD": "nz$ nzd",
    "SGD": "s$ sgd",
    "KRW": "₩ krw won",
    "RUB": "₽ rub rubles roubles",
    "CHF": "chf francs franc",
    "BRL": "r$ brl reais",
    "cent": "cents cent ¢",
}
_UNITS = {  # dimension: {names: factor}; a unit with a dimension of its own has no exact factor to others
    "m": {"mm millimeter": "1/1000", "cm centimeter": "1/100", "m meter": "1", "km kilometer": "1000"},
    "inch": {"inch inches ″": "1", "ft foot feet": "12", "yd yard": "36", "mi mile": "63360"},
    "m2": {
        "m2 square-meter sq-m sqm": "1",
        "ha hectare": "10000",
        "km2 square-kilometer sq-km": "1000000",
        "cm2": "1/10000",
    },
    "ft2": {"ft2 sq-ft square-foot square-feet": "1"},
    "acre": {"acre": "1"},
    "mi2": {"mi2 square-mile sq-mi": "1"},
    "m3": {"m3 cubic-meter": "1"},
    "nmi": {"nmi nautical-mile": "1"},
    "g": {"mg milligram": "1/1000", "g gram": "1", "kg kgs kilogram kilo": "1000", "t tonne metric-ton": "1000000"},
    "lb": {"lb lbs pounds-weight": "1"},
    "oz": {"oz ounce": "1"},
    "ton": {"ton": "1"},
    "l": {"ml milliliter": "1/1000", "l liter": "1"},
    "gal": {"gal gallon": "1"},
    "s": {"sec second": "1", "min minute": "60", "hr hrs hour": "3600", "day": "86400", "week": "604800"},
    "month": {"month": "1", "yr yrs year 岁": "12", "decade": "120", "century centuries": "1200"},
    "kmh": {"km/h kmh kph kilometers-per-hour kilometer-per-hour": "1"},
    "mph": {"mph miles-per-hour mile-per-hour": "1"},
    "Hz": {"hz hertz": "1", "khz kilohertz": "1000", "mhz megahertz": "1000000", "ghz gigahertz": "1000000000"},
    "W": {"watt": "1", "kw kilowatt": "1000", "mw megawatt": "1000000", "gw gigawatt": "1000000000"},
    "°C": {"°c celsius degrees-celsius degree-celsius degrees-c": "1"},
    "K": {"kelvin": "1"},
    "°F": {"°f fahrenheit degrees-fahrenheit degree-fahrenheit degrees-f": "1"},
    "deg": {"° degree deg": "1"},
    "%": {"% percent percentage per-cent pct": "1"},
    "pp": {"percentage-point": "1"},
    "天": {"天": "1"},
    "人": {"人": "1"},
}
# what one of a dimension's own unit measures, for amounts that are told twice: "8 kilometers (5 miles)"
_MEASURES = {
    "length": {"m": 1, "inch": 0.0254, "nmi": 1852},
    "area": {"m2": 1, "ft2": 0.09290304, "acre": 4046.856, "mi2": 2589988.11},
    "mass": {"g": 1, "lb": 453.59237, "oz": 28.349523, "ton": 907184.74},
    "volume": {"l": 1, "gal": 3.785411784, "m3": 1000},
    "speed": {"kmh": 1, "mph": 1.609344},
}
_MEASURED = {dimension: (measure, factor) for measure, of in _MEASURES.items() for dimension, factor in of.items()}


def _spellings(name: str) -> list[str]:
    """Return the plural, American and British spellings of a unit's name; short forms have only one."""
    if len(name) <= 2 or not name.isascii():
        return [name]
    british = name.replace("meter", "metre").replace("liter", "litre")
    return [form.replace("-", " ") for form in (name, f"{name}s", british, f"{british}s")]


_FACTORS: dict[str, tuple[str, Fraction]] = {
    form: (dimension, Fraction(factor))
    for dimension, units in _UNITS.items()
    for names, factor in units.items()
    for name in names.split()
    for form in _spellings(name)
}
_MONEY = {form.replace("-", " "): code for code, names in _CURRENCIES.items() for form in names.split()}
_NUMBER = r"\d{1,30}(?:\.\d{1,30})?(?:\^\d{1,2})?"
_SCALE = rf"(?P<scale>\s*(?:{'|'.join(_SCALES)})s?(?!\w)|\s?(?:mn|mio|bn|tn)(?!\w)|[kmb](?!\w))?"
_MONEY_WORD = "|".join(re.escape(form) for form in sorted(_MONEY, key=len, reverse=True))
_CODES = ("usd", "eur", "gbp", "jpy", "rmb", "cny", "inr", "aud", "cad", "hkd", "nzd", "sgd", "krw", "chf", "brl")
_SIGN = "|".join(
    re.escape(form) for form in sorted(_MONEY, key=len, reverse=True) if form in _CODES or not form.isalnum()
)
_UNIT = "|".join(re.escape(form) for form in sorted({**_FACTORS, **_MONEY}, key=len, reverse=True))
_ALONE = r"(?<![\w.,:/$€£¥₹+-])"
_PRICE = re.compile(
    rf"(?<!\w)(?P<sign>{_SIGN})\s*(?P<number>{_NUMBER}){_SCALE}(?![\w.,:/]*\d)(?:\s?(?:{_MONEY_WORD})(?!\w))?"
)
_AMOUNT = re.compile(
    rf"{_ALONE}(?P<minus>-?)(?P<number>{_NUMBER})(?:{_SCALE})(?:\s?-?\s?(?P<unit>{_UNIT})(?![\w²³]))?"
    r"(?P<aside>\s+(?:old|long|tall|high|wide|deep)(?!\w))?(?![\w^]|[.,:/-]\d)"
)
_HEIGHT = re.compile(
    r"(?<![\w.])(\d+)(?:\s*(?:ft|feet|foot)\.?\s+|['′]\s*)(\d+(?:\.\d+)?)\s*(?:in|inch|inches|\"|″|'')(?!\w)"
)
_GROUPED = re.compile(r"(?<![\w.,:/-])(?<!\d )\d{1,3}(?:(?: \d{3})+|(?:'\d{3})+)(?![ ,.']?\d|\w)")
_ROUND = re.compile(r"^\s*(half )?an? (dozen|hundred|thousand|million|billion)(?=\W*(?:[a-z]+\W*)?$)")
_TIME = re.compile(r"(?<![\w:.])(1[0-2]|0?[1-9])(?:[:.]([0-5]\d))?\s?([ap])m(?!\w)")
_PLACE = re.compile(r"(?<!\w)(\d{1,3}(?:st|nd|rd|th)) (?:place|position)(?!\w)")
_NEGATIVE = re.compile(r"(?<![\w.])(?<!\d )(?:minus|negative)\s+(?=\d)")
_EXACT = re.compile(r"(?<!\w)(?:exactly|precisely|just|only|aged|(?:a )?(?:grand )?total of)\s+(?=[$€£¥₹]?\s?-?\d)")
_SIZE = re.compile(r"(?<![\w.])(\d{1,9}(?:\s*(?:x|×|by)\s*\d{1,9})+)(?![\w.]\d|\w)(?:\s?(?:pixels?|px)(?!\w))?")
_PART_NAMES = {f"{word}s": number for number, word in enumerate(_ORDINALS.split(), 1)} | {"halves": 2, "quarters": 4}
_PARTS = re.compile(rf"(?<![\w.])(\d{{1,3}})[ -]({'|'.join(_PART_NAMES)})(?!\w)")
_SPAN = re.compile(
    rf"{_ALONE}(?:(?P<from>from|between)\s+)?(?P<first>\d{{1,15}}(?:\.\d{{1,9}})?)\s*(?P<joint>-|to|and)\s*"
    rf"(?P<last>\d{{1,15}}(?:\.\d{{1,9}})?)(?:\s?(?P<unit>{_UNIT})(?![\w²³]))?(?![\w^]|[.,:/-]\d)"
)
_APPROXIMATE = {
    "about": r"about|approximately|approx\.?|around|roughly|circa|ca\.|c\.|some|~|≈",
    "over": r"more than|over|above|upwards of|in excess of|greater than",
    "nearly": r"nearly|almost|just under|close to",
    "least": r"at least|a minimum of",
    "most": r"at most|up to|less than|under|fewer than|below",
}
_QUALIFIERS = [
    (re.compile(rf"(?<!\w)(?:{words})\s*(?=[$€£¥₹]?\s?\d|(?:us|a)\$)"), name) for name, words in _APPROXIMATE.items()
]
QUALIFIERS = frozenset(_APPROXIMATE)


def with_ordinals(text: str) -> str:
    """Write "third" as 3rd, up to the ninety-ninth, and "one third" as 1/3."""
    text = _ONE_PART.sub(lambda match: f"1/{_PART_NAMES.get(match[1] + 's') or 2}", text)
    return _ORDINAL.sub(lambda match: _DIGITS[re.sub(r"\s|-", " ", match[0])], text)


def mark_quantities(text: str) -> str:
    """Replace each amount in a text (lower case, dates marked) by one token."""
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
    if its not in _MEASURED or others not in _MEASURED or _MEASURED[its][0] != _MEASURED[others][0]:
        return False
    mine, theirs = (float(Fraction(value)) * _MEASURED[of][1] for value, of in ((one, its), (other, others)))
    # the token of "5 miles" is in inches
    return abs(mine - theirs) <= 0.035 * max(abs(mine), abs(theirs))


def bare_number(token: str, units: frozenset[str]) -> str:
    """Return the number of an amount without its unit if the question names that unit; else the token.

    Percent signs and currencies are kept, since a question rarely implies them.
    """
    value, _, dimension = token.partition("|")
    for unit in units if dimension else ():
        of, factor = _FACTORS[unit]
        if of == dimension != "%":
            return "..".join(_decimal_text(Fraction(end) / factor) for end in value.split(".."))  # of a range, both
    return token


def units_in(words: frozenset[str]) -> frozenset[str]:
    """Return the words that are units; an age is in years."""
    return words & _FACTORS.keys() | (frozenset({"year"}) if words & {"old", "age", "龄", "岁"} else frozenset())


def _mark(text: str) -> str:
    # words first, so that the patterns below only see digits
    text = _IN_WORDS.sub(_words_to_digits, text)
    if not any(letter.isdigit() for letter in text):
        return text
    text = _TIME.sub(_time, text)
    text = _EXACT.sub("", _NEGATIVE.sub("-", _GROUPED.sub(lambda match: re.sub(r"\D", "", match[0]), text)))
    text = _PLACE.sub(r"\1", text)
    text = _PARTS.sub(lambda match: f"{match[1]}/{_PART_NAMES[match[2]]}", text)
    text = _SIZE.sub(lambda match: re.sub(r"\s*(?:x|×|by)\s*", "x", match[1]), text)
    for pattern, name in _QUALIFIERS:
        text = pattern.sub(f"{name} ", text)
    text = _HEIGHT.sub(lambda match: f"{_decimal_text(Fraction(match[1]) * 12 + Fraction(match[2]))} inch", text)
    text = outside_marks(_PRICE.sub(_price, text), lambda piece: _SPAN.sub(_span, piece))
    return outside_marks(text, lambda piece: _AMOUNT.sub(_amount, piece))


def _time(match: re.Match[str]) -> str:
    hour = int(match[1]) % 12 + (12 if match[3] == "p" else 0)
    return f"{hour:02}:{match[2] or '00'}"


def _span(match: re.Match[str]) -> str:
    first, last, unit = match["first"], match["last"], match["unit"]
    # "between 5 and 10"; without it, "and" joins two numbers
    if (match["joint"] == "and") != (match["from"] == "between") or re.match(r"0\d", last):
        return match[0]
    if unit not in _FACTORS:
        return f" {OPEN}{first}..{last}{CLOSE} " + (unit or "")
    dimension, factor = _FACTORS[unit]
    first, last = (_decimal_text(Fraction(value) * factor) for value in (first, last))
    return f" {OPEN}{first}..{last}|{dimension}{CLOSE} "


def _price(match: re.Match[str]) -> str:
    return f" {OPEN}{_decimal_text(_value(match, money=True))}|{_MONEY[match['sign']]}{CLOSE} "


def _amount(match: re.Match[str]) -> str:
    """Return an amount as a token; a number with leading zeros is a name and is kept."""
    unit, number = match["unit"], match["number"]
    if not unit and not match["scale"] and (len(number) > 1 and number[0] == "0" and number[1] != "."):
        return match[0]
    money = _MONEY.get(unit or "")
    scale = match["scale"] or ""
    # "5 m" is five metres, "$5m" five million
    if scale == "m" and not unit:  # metres; with a currency, millions
        unit, scale = "m", ""
    value = _value(match, money=bool(money), scale=scale)
    value = -value if match["minus"] else value
    if money:
        return f" {OPEN}{_decimal_text(value)}|{money}{CLOSE} "
    if unit in _FACTORS:
        dimension, factor = _FACTORS[unit]
        return f" {OPEN}{_decimal_text(value * factor)}|{dimension}{CLOSE} "
    return f" {_decimal_text(value)} " + (match["aside"] or "")


def _value(match: re.Match[str], money: bool, scale: str | None = None) -> Fraction:
    scale = ((match["scale"] or "") if scale is None else scale).strip()
    base, _, power = match["number"].partition("^")
    value = Fraction(base) ** (int(power) if power and len(power) < 3 else 1)
    return value * (_SCALES.get(scale) or _SCALES.get(scale.rstrip("s")) or _SHORT_SCALES.get(scale) or 1)


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
_ONE_PART = re.compile(
    rf"(?<![\w-])one[ -](half|{'|'.join(name[:-1] for name in _PART_NAMES if name != 'halves')})(?!\w)"
)
_ORDINAL = re.compile(
    rf"(?<![\w-])(?:{'|'.join(sorted(_DIGITS, key=len, reverse=True)).replace(' ', '[ -]')})(?![\w-])"
)
