"""Dates and amounts as single tokens: `mark_dates` and `mark_quantities`.

Dates are read in any notation that has one meaning: "03/04/1990" could be two days and equals only itself. A currency,
a percent sign and a unit are part of a number: "25" is not "25%", and "€5" is not "$5". Units of one dimension are
compared by value ("1.95 m" is "195 cm") if the factor between them is exact; miles never equal kilometres.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache

from arpo_env.grading.math_values import ONES, ORDINALS, SCALES, TENS
from arpo_env.grading.words import LISTS

# Dates as single tokens: `mark_dates` writes 14 March 1879, in any notation, as 1879-03-14.

# private-use characters cannot occur in an answer, from which they are removed
OPEN, CLOSE = "\ue000", "\ue001"
_DIGIT = re.compile(r"\d")
_MARKED = re.compile(f"({OPEN}[^{CLOSE}]*{CLOSE})")
_ENGLISH = (calendar.month_name, calendar.month_abbr)
_MONTHS = {name.lower(): number for names in _ENGLISH for number, name in enumerate(names) if name} | {"sept": 9}
_MONTHS |= {
    name: number for number, names in enumerate(LISTS["months elsewhere"].splitlines(), 1) for name in names.split()
}
_MONTH = rf"(?P<month>{'|'.join(sorted(_MONTHS, key=len, reverse=True))})\b\.?"
_WEEKDAY = rf"(?:\b(?:{'|'.join(day.lower() for day in calendar.day_name)}|mon|tue|wed|thu|fri|sat|sun),?\s+)?"
_DAY = r"(?:(?:the|le|el|il|den|am)\s+)?(?P<day>\d{1,2})(?:st|nd|rd|th|er|º|o|\.)?(?!\d)"
_DAYS = r"(?P<from>\d{1,2})(?:st|nd|rd|th)?\s*(?:-|to|and|through|until)\s*(?P<day>\d{1,2})(?:st|nd|rd|th)?(?!\d)"
_ERA = r"(?:\s*(?P<era>bce|bc|ce|ad)\b)?"
_YEAR = rf"(?P<year>(?<!\d)(?:\d{{3,4}}|\d\d(?=\s*(?:bc|ad))))(?![\d\w]){_ERA}"
_ANY_YEAR = rf"(?P<year>(?<!\d)\d{{2,4}})(?![\d\w]){_ERA}"
_TO = r"(?:-|~|至|到)"
_GAP = r"\s*[,-]?\s*(?:(?:of|de|del)\s+)?"
_MONTH_NAME = re.compile(rf"\b{_MONTH}")
_NAMED_MONTHS = [
    re.compile(pattern)
    for pattern in (
        rf"{_WEEKDAY}\b{_DAYS}{_GAP}{_MONTH}(?:{_GAP}{_YEAR})?",
        rf"{_WEEKDAY}\b{_MONTH}\s*{_DAYS}(?:{_GAP}{_YEAR})?",
        rf"{_WEEKDAY}\b{_DAY}(?:\s+day)?{_GAP}{_MONTH}{_GAP}{_ANY_YEAR}",
        rf"{_WEEKDAY}\b{_MONTH}\s*{_DAY}{_GAP}{_YEAR}",
        rf"{_WEEKDAY}\b{_YEAR}{_GAP}{_MONTH}\s*{_DAY}",
        rf"{_WEEKDAY}\b{_YEAR}{_GAP}{_DAY}{_GAP}{_MONTH}",
        rf"{_WEEKDAY}\b{_DAY}(?:\s+day)?{_GAP}{_MONTH}",
        rf"{_WEEKDAY}\b{_MONTH}\s*{_DAY}(?![\w])",
        rf"\b{_MONTH}{_GAP}{_YEAR}",
        rf"\b{_YEAR}{_GAP}{_MONTH}(?!\w)",
    )
]
_PATTERNS = [
    re.compile(pattern)
    for pattern in (
        r"(?<![\d./-])(?P<year>\d{4})(?P<sep>[-/.])(?P<month>\d{1,2})(?P=sep)(?P<day>\d{1,2})(?![\d/-])(?:t[\d:.z+]+)?",
        rf"(?:(?P<year>\d{{4}})\s*年\s*)?(?<!\d)(?P<month>\d{{1,2}})\s*月\s*(?P<from>\d{{1,2}})\s*[日号]?\s*{_TO}\s*"
        r"(?P<day>\d{1,2})\s*[日号]",
        r"(?P<year>\d{4})\s*年\s*(?P<month>\d{1,2})\s*月\s*(?P<day>\d{1,2})\s*[日号]",
        r"(?P<year>\d{4})\s*年\s*(?P<month>\d{1,2})\s*月(?!\d)",
        r"(?<!\d)(?P<month>\d{1,2})\s*月\s*(?P<day>\d{1,2})\s*[日号]",
        r"(?<!\d)(?P<year>\d{4})\s*年(?!代)",
        r"(?<![\d./-])(?P<month>0?[1-9]|1[0-2])/(?P<year>[12]\d{3})(?![\d/-])",
    )
]
_NUMBERS = re.compile(r"(?<![\d./-])(\d{1,2})([-/.])(\d{1,2})\2(\d{4})(?![\d/-])")
_CENTURY = re.compile(
    r"(?<![\w-])(?P<year>\d{1,2})(?:st|nd|rd|th)[ -](century|millennium)(?:\s*(?P<era>bce|bc|ce|ad))?(?!\w)"
)
_BEFORE_CHRIST = re.compile(
    r"(?<!\w)(?<!(?<!\w)-)(?:(?P<before>ad|ce)\s+)?(?P<year>\d{1,4})(?!\w)\s*(?P<era>bce|bc|ce|ad)(?!\w)"
)
_AFTER = re.compile(r"(?<![\w-])(?P<era>ad|bce?)\s+(?P<year>\d{1,4})(?![\w-])")
_SEASON = "(?P<season>spring|summer|autumn|fall|winter)"
_QUARTER = r"(?:q(?P<q>[1-4])|(?P<quarter>[1-4])(?:st|nd|rd|th)\s+quarter)"
_PART = rf"(?<!\w)(?:{_SEASON}|{_QUARTER})"
_SOME_PART = re.compile(_PART)
_PART_OF_YEAR = (
    re.compile(rf"{_PART}(?:\s+of|\s+in|,)?(?:\s+the\s+year)?\s+(?P<year>\d{{4}})(?!\w)"),
    re.compile(rf"(?<!\w)(?P<year>\d{{4}})(?:,|'?s)?\s+{_PART}(?!\w)"),
)
_DECADE = re.compile(rf"(?<![\w.])(?:(?:{'|'.join(ten[:-1] for ten in TENS)})ies|'?(?P<tens>[2-9]0)s)(?!\w)")
_CLOCK = re.compile(
    r"(?<![\w:./-])(?P<hour>[01]?\d|2[0-4])(?:(?P<sign>[:.h])(?P<minute>[0-5]\d)(?:(?<=:..):00)?)?(?![:./]?\d|-\d(?!\d?:\d))\s?"
    r"(?P<half>(?:(?:o'?clock )?(?:[ap]m|in the (?:morning|afternoon|evening)|at night))(?!\w)|o'?clock)?"
)
_SPOKEN_CLOCK = re.compile(r"(?<!\w)(half past|quarter past|quarter to) (\d{1,2}|[a-z]{3,6})(?!\w)")
_DAYS_BETWEEN = re.compile(
    r"(?:\bfrom )?\b((?:mon|tues|wednes|thurs|fri|satur|sun)day)s? ?(?:-|~|to|through|until|至|到)"
    r" ?((?:mon|tues|wednes|thurs|fri|satur|sun)day)s?(?!\w)"
)
_HOURS_BETWEEN = re.compile(r"(?:\b(?:from|between)\s)?(\d\d:\d\d)\s*(?:-|~|to|until|and|至|到)\s*(\d\d:\d\d)(?![\d:])")
_NOON = re.compile(r"^\W*(?:at )?(?:12 |12:00 )?(noon|midday|midnight)\W*$")
_ZONE = re.compile(r"(?<=\d\d:\d\d) ?(?:(?P<utc>gmt|z|utc)|(?:[a-z]+ )?(?:time|hours?|hrs|uhr))(?!\w)")
_YEAR_WORD = re.compile(
    r"(?<!\w)month\s+of\s+(?=[^\W\d])|(?<!\w)(?<!\d )year\s+(?:of\s+)?(?=\d{3,4}(?!\w)|\d{1,4}\s*(?:bce?|ce|ad)(?!\w))"
)
_MONTH_RANGE = re.compile(rf"\b{_MONTH.replace('month', 'first')}\s*(?:-|to|through|until)\s*{_MONTH}{_GAP}{_YEAR}")
_SHORT_RANGE = re.compile(r"(?<![\w./-])(\d\d)(\d\d)\s?[-/]\s?(\d\d)(?![\w/-]|\.\d)")
_RANGE = re.compile(
    rf"(?:\b(?:from|between)\s+)?({OPEN}[^{CLOSE}]*{CLOSE}|(?<![\w.-])\d{{2,4}}(?![\w.]))"
    rf"\s*(?:-|\b(?:to|and|until|till?|through)\b|至|到)\s*({OPEN}[^{CLOSE}]*{CLOSE}|\d{{3,4}}(?!\w|\.\d|-\d))"
)


def mark_dates(text: str) -> str:
    """Replace each date in a text (lower case, no accents) by one token, enclosed in private-use characters."""
    if match := _NOON.match(text):
        return "00:00" if match[1] == "midnight" else "12:00"
    if "0s" in text or "ties" in text:
        text = _DECADE.sub(lambda match: f"19{match['tens'] or TENS[match[0][:-3] + 'y']}s", text)
    text = _SPOKEN_CLOCK.sub(_spoken, text) if " past " in text or "quarter to" in text else text
    text = _DAYS_BETWEEN.sub(rf" {OPEN}\1..\2{CLOSE} ", text) if "day" in text else text
    if not _DIGIT.search(text):
        return text
    if _SOME_PART.search(text):
        for pattern in _PART_OF_YEAR:
            text = pattern.sub(_part_of_year, text)
    text = _MONTH_RANGE.sub(_month_range, _YEAR_WORD.sub("", text))
    # more specific patterns first; each skips what an earlier one has marked
    for pattern in (*(_NAMED_MONTHS if _MONTH_NAME.search(text) else ()), *_PATTERNS):
        text = outside_marks(text, lambda piece, pattern=pattern: pattern.sub(_date_token, piece))  # type: ignore[misc]
    text = outside_marks(text, _mark_years)
    text = outside_marks(_RANGE.sub(_date_range, text), lambda piece: _CLOCK.sub(_clock, piece))
    text = _HOURS_BETWEEN.sub(lambda match: f" {OPEN}{match[1]}..{match[2]}{CLOSE} ", text)
    return _ZONE.sub(lambda match: " utc" if match["utc"] else "", text)


def outside_marks(text: str, change: Callable[[str], str]) -> str:
    """Apply a change to the parts of a text that are not marked as tokens."""
    if OPEN not in text:
        return change(text)
    pieces = _MARKED.split(text)
    return "".join(piece if piece.startswith(OPEN) else change(piece) for piece in pieces)


def _mark_years(text: str) -> str:
    text = _AFTER.sub(lambda match: f" {OPEN}{_year(match)}{CLOSE} ", _NUMBERS.sub(_from_numbers, text))
    text = _CENTURY.sub(lambda match: f" {OPEN}{_year(match)}{match[2]}{CLOSE} ", text)
    text = _SHORT_RANGE.sub(_short_range, text)
    return _BEFORE_CHRIST.sub(lambda match: f" {OPEN}{_year(match)}{CLOSE} ", text)


def is_date(token: str) -> bool:
    """Return whether a token is a date with more than a year."""
    found = re.fullmatch(r"(?:-?\d{4}|-)-(\d\d)(?:-(\d\d))?", token)
    return found is not None and 1 <= int(found[1]) <= 12 and 1 <= int(found[2] or 1) <= 31


def is_time(token: str) -> bool:
    """Return whether a token is a year, a date, or a range of these."""
    return re.fullmatch(r"-?(?:[12]\d{3}|\d{1,4}-|-)[\d.-]*(?:q\d|[a-z]+)?|\d{4}s", token) is not None


def date_agrees(answer: str, gold: str) -> bool:
    """Return whether an answer's token is a date that includes the date or year of the gold answer.

    "14 March 1879" agrees with "March 1879", "1879" and "14 March", but not the other way round.
    """
    if not is_date(answer):
        return False
    year, _, rest = answer.lstrip("-").partition("-")
    if gold.startswith("--"):
        return rest == gold[2:] and not answer.startswith("--")
    if re.fullmatch(r"-?\d{1,4}", gold):
        return answer.startswith("-") == gold.startswith("-") and year.isdigit() and int(year) == abs(int(gold)) > 31
    return bool(re.fullmatch(r"-?\d{4,}-\d\d", gold)) and answer.startswith(gold + "-")


def _date_token(match: re.Match[str]) -> str:
    """Return the token of a date, or the unchanged text if there is no such day."""
    found = match.groupdict()
    if found.get("month") is None:
        return f" {_year(match)} "
    month = _MONTHS.get(found["month"]) or int(found["month"] if found["month"].isdigit() else 0)
    year, day = found.get("year"), found.get("day")
    if not 1 <= month <= 12 or (day and not 1 <= int(day) <= _days(month, year)):
        return match[0]
    last = _token(match, month, day)
    if found.get("from"):
        last = f"{_token(match, month, found['from'])}..{last}"
    return f" {OPEN}{last}{CLOSE} "


def _token(match: re.Match[str], month: int, day: str | None) -> str:
    found = match.groupdict()
    start = _year(match, 4) if found.get("year") else "-"
    return f"{start}-{month:02}-{int(day):02}" if day else f"{start}-{month:02}"


def _year(match: re.Match[str], width: int = 1) -> str:
    era = match.groupdict().get("era") or ""
    return ("-" if era.startswith("b") else "") + match["year"].lstrip("0").zfill(width)


def _days(month: int, year: str | None) -> int:
    return calendar.monthrange(int(year or 4), month)[1]  # without a year, 29 February is possible


def _from_numbers(match: re.Match[str]) -> str:
    first, second, year = int(match[1]), int(match[3]), match[4]
    # with points, the day is first
    orders = ((first, second), (second, first))[: 1 if match[2] == "." else 2]
    days = {(day, month) for day, month in orders if month <= 12 and 1 <= day <= 31 and month}
    # exactly one reading is a date
    if len(days) == 1:
        ((day, month),) = days
        return f" {OPEN}{year}-{month:02}-{day:02}{CLOSE} " if day <= _days(month, year) else match[0]
    return f" {OPEN}?{first}/{second}/{year}{CLOSE} "


def _month_range(match: re.Match[str]) -> str:
    first, last, year = _MONTHS[match["first"]], _MONTHS[match["month"]], _year(match, 4)
    return f" {OPEN}{year}-{first:02}..{year}-{last:02}{CLOSE} "


def _short_range(match: re.Match[str]) -> str:
    # "1939-45"; up to 12 it is a month
    century, first, last = match.groups()
    return f"{century}{first}-{century}{last}" if int(last) > max(int(first), 12) else match[0]


def _date_range(match: re.Match[str]) -> str:
    first, last = (part.strip(OPEN + CLOSE) for part in match.groups())
    if " and " in match[0] and not match[0].startswith("between"):
        return match[0]
    if re.fullmatch(r"-\d+", last) and match[1].isdigit():
        first = f"-{first}"  # "323 to 272 BC"
    elif len(first) < 3 and not last.startswith("-"):
        return match[0]
    if first.startswith("--") and not last.startswith("-"):
        first = last[:4] + first[1:]
    elif last.startswith("--") and is_date(first) and not first.startswith("-"):
        last = first[:4] + last[1:]
    return f" {OPEN}{first}..{last}{CLOSE} "


def _part_of_year(match: re.Match[str]) -> str:
    part = (match["season"] or "").replace("fall", "autumn") or f"q{match['q'] or match['quarter']}"
    return f" {OPEN}{match['year']}-{part}{CLOSE} "


def _clock(match: re.Match[str]) -> str:
    """Return a time of day in 24 hours."""
    hour, half = int(match["hour"]), match["half"] or ""
    if not half and match["sign"] not in (":", "h"):
        return match[0]
    told = re.sub("^o'?clock ?", "", half)[-7:]
    if told and not 1 <= hour <= 12:
        return match[0]
    if told in ("am", "morning") or (told == "t night" and hour == 12):
        hour %= 12
    elif told:
        hour = hour % 12 + 12
    return f"{hour:02}:{match['minute'] or '00'}" + (
        "" if match.end() == len(match.string) or half else match[0][len(match[0].rstrip()) :]
    )


def _spoken(match: re.Match[str]) -> str:
    hour = int(match[2]) if match[2].isdigit() else ONES.get(match[2])
    if hour is None:
        return match[0]
    return f"{hour - 1}:45" if match[1].endswith("to") else f"{hour}:{30 if match[1].startswith('half') else 15}"


# Units of measurement and currencies after a number: `unit_at` reads "km/h", "square miles", "kg m^-3", "千米/小时".
#
# A unit has a factor and a dimension, a product of powers of base units. Units with an exact factor between them have
# the same bases: a litre is a thousandth of a cubic metre, a kilowatt hour 3.6 million joules. Miles never equal
# kilometres, nor dollars euros: these are bases of their own, and `in_metric` tells about how large they are.

_PREFIXES = {symbol: names for symbol, *names in map(str.split, LISTS["prefixes"].splitlines())}
_BASE = re.compile(r"([^\d\s·-]+)(-?\d)?")
# how large bases without an exact factor are in others, for amounts that are told twice: "8 kilometers (5 miles)"
_SIZES = {
    "inch": (0.0254, "m"), "nmi": (1852, "m"), "lb": (453.59237, "g"), "ton": (907184.74, "g"),
    "gal": (0.003785411784, "m3"), "ly": (9.4607e15, "m"), "AU": (1.495979e11, "m"),
}  # fmt: skip
_POWERS = {"s": 2, "c": 3, "平": 2, "立": 3}
_FACTOR = re.compile(
    r"(?P<gap>[ -]?)(?:(?P<over>(?:(?:people|persons?|inhabitants|residents|frames|beats|revolutions|人) ?)?"
    r"(?:/|per (?!cent|mil)|每|(?<=[a-z\d] )a ))\s?|[·.*](?=[a-z]))?(?P<power>square[ -]|sq\.? ?|cubic[ -]|平方|立方)?"
    r"(?P<name>[a-z]{0,2}\$|[°%‰″\"′'€£¥₹₩₽¢][cf]?(?![a-z])|[a-zμ]+(?:[ -][a-z]+){0,2}|[\u4e00-\u9fff]{1,4})"
)
_EXPONENT = re.compile(
    r"\s?\^\s?[({]{0,2}(-?[1-4])[)}]{0,2}(?!\d|[.,]\d)|(?<=[a-z])(-?[1-4])(?!\d|[.,]\d)"
    r"|\s(squared|cubed)(?!\w)"
)
_GOES_ON = re.compile(r"\s?[a-z0-9\u4e00-\u9fff]")  # "12 in Rome"
_HEIGHT = re.compile(r"\d['′]\s?\d")
_CASED = re.compile(r"(?<=\d)([ -]?)([kKMGTP]?)(Wh|W|Hz|Pa|J|eV|V|B|bit|bps|b|N|Ω|K)(?=s?(?:[^\w]|$))")
_SPELLED = {
    "Wh": "watt-hour", "W": "watt", "Hz": "hertz", "Pa": "pascal", "J": "joule", "eV": "electronvolt", "V": "volt",
    "B": "byte", "b": "bit", "bit": "bit", "bps": "bit/s", "N": "newton", "Ω": "ohm", "K": "kelvin",
}  # fmt: skip


def _spellings(name: str) -> list[str]:
    """Return the plural, American and British spellings of a unit's name; short forms have only one."""
    name = name.replace("-", " ")
    forms = [name] if len(name) <= 3 or not name.isascii() else [name, f"{name}s"]
    forms += [form.replace("meter", "metre").replace("liter", "litre") for form in forms]
    return [*forms, *(form.replace(" hour", "hour") for form in forms)]


def _read(text: str) -> tuple[Fraction, str]:
    factor, _, bases = text.strip().partition(" ")
    top, _, bottom = factor.partition("/")
    return Fraction(top) / Fraction(bottom or 1), "·".join(bases.split())


def _table() -> dict[str, tuple[Fraction, str]]:
    found: dict[str, tuple[Fraction, str]] = {}
    for line in LISTS["metric units"].splitlines():
        names, _, meaning = line.partition(" = ")
        symbol, prefixes, name, chinese = names.split()
        factor, dimension = _read(meaning)
        for form in (*_spellings(name), chinese, *([symbol] if "+" in prefixes else [])):
            found[form] = factor, dimension
        for short, (long, han, scale) in _PREFIXES.items():
            forms = [form for spelled in _spellings(name) for form in (long + spelled, f"{long} {spelled}")]
            forms += ([han + chinese] if han != "-" else []) + ([short.lower() + symbol] if short in prefixes else [])
            for form in forms:
                found.setdefault(form, (factor * Fraction(scale), dimension))
    for line in LISTS["units"].splitlines():
        names, _, meaning = line.partition(" = ")
        found |= {form: _read(meaning) for name in names.split() for form in _spellings(name)}
    return found


UNITS = _table()
_MONEY = frozenset(dimension for _, dimension in UNITS.values() if re.fullmatch("[A-Z]{3}|¥|cent", dimension))
CURRENCIES = {form: dimension for form, (_, dimension) in UNITS.items() if dimension in _MONEY}


def spelled_prefixes(text: str) -> str:
    """Write capital letters of units out, which tell megawatts from milliwatts, and bytes from bits."""

    def spelled(match: re.Match[str]) -> str:
        if match[3] in ("B", "b") and not match[2]:
            return match[0]  # "5B" are five billion
        if match[3] == "K" and (match[1] != " " or match[2]):
            return match[0]  # "5K" are five thousand
        prefix = _PREFIXES[match[2].replace("K", "k")][0] if match[2] else ""
        return f" {prefix}{_SPELLED[match[3]]}"

    return _CASED.sub(spelled, text)


def unit_at(text: str, start: int) -> tuple[Fraction, str, int] | None:
    """Return the factor and dimension of the unit at a place of a text in lower case, and where it ends."""
    factor, powers, end = Fraction(1), dict[str, int](), start
    for place in range(4):
        match = _FACTOR.match(text, end)
        name = _name(match["name"]) if match else ""
        if match is None or not name or (name == "in" and _GOES_ON.match(text, match.start("name") + 2)):
            break
        if name in ("'", '"') and not _HEIGHT.search(text, max(match.start("name") - 6, 0), match.start("name") + 3):
            break  # a quotation mark
        if name == "s" and not place and not match["gap"]:
            break  # "1970s"
        raised = _EXPONENT.match(text, match.start("name") + len(name))
        linked = match["over"] or "·" in match[0] or (raised and raised[0].lstrip(" ^({")[:1] == "-")
        if (place and not linked) or (match["power"] and raised):
            break  # "5 ft 7 in" are two amounts
        power = _POWERS[match["power"][0]] if match["power"] else 1
        if raised:
            power = int(raised[1] or raised[2] or _POWERS[raised[3][0]])
        power = -power if match["over"] else power
        size, dimension = UNITS[name]
        factor *= size**power
        for base, own in _BASE.findall(dimension):
            powers[base] = powers.get(base, 0) + power * int(own or 1)
        end = raised.end() if raised else match.start("name") + len(name)
    return (factor, _dimension(powers), end) if end > start else None


@lru_cache(maxsize=4096)
def _name(words: str) -> str:
    """Return the longest beginning of words that names a unit."""
    if words[0] > "\u4e00":
        return next((words[:end] for end in range(len(words), 0, -1) if words[:end] in UNITS), "")
    ends = [*(match.start() for match in re.finditer("[ -]", words)), len(words)]
    return next((name for end in ends[::-1] if (name := words[:end].replace("-", " ")) in UNITS), "")


def _dimension(powers: dict[str, int]) -> str:
    return "·".join(f"{base}{power if power != 1 else ''}" for base, power in sorted(powers.items()) if power)


def in_metric(value: Fraction, dimension: str) -> tuple[float, str]:
    """Return about how much an amount is in metric units, and their dimension."""
    size, powers = float(value), dict[str, int]()
    for base, own in _BASE.findall(dimension):
        factor, inner = _SIZES.get(base, (1.0, base))
        size *= factor ** int(own or 1)
        for name, count in _BASE.findall(inner):
            powers[name] = powers.get(name, 0) + int(own or 1) * int(count or 1)
    return size, _dimension(powers)


_WORDS = ONES | TENS
_SCALES = SCALES | {"dozen": 12, "lakh": 10**5, "crore": 10**7}
_SHORT_SCALES = {"mn": 10**6, "mio": 10**6, "bn": 10**9, "b": 10**9, "tn": 10**12, "k": 10**3, "m": 10**6}
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
_POINT = re.compile(r"(?<![\w.])(\d{1,9}) point (\d(?: \d){0,8})(?![\w.])")
_ROUND = re.compile(r"^\s*(half )?an? (dozen|hundred|thousand|million|billion)(?=\W*(?:[a-z]+\W*)?$)")
_PLACE = re.compile(r"(?<!\w)(\d{1,3}(?:st|nd|rd|th)) (?:place|position)(?!\w)")
_NEGATIVE = re.compile(r"(?<![\w.])(?<!\d )(?:minus|negative)\s+(?=\d)")
_EXACT = re.compile(r"(?<!\w)(?:exactly|precisely|just|only|aged|(?:a )?(?:grand )?total of)\s+(?=[$€£¥₹]?\s?-?\d)")
_SIZE = re.compile(r"(?<![\w.])(\d{1,9}(?:\s*(?:x|×|by)\s*\d{1,9})+)(?![\w.]\d|\w)(?:\s?(?:pixels?|px)(?!\w))?")
_PART_NAMES = {f"{word}s": number for word, number in ORDINALS.items()} | {"halves": 2, "quarters": 4}
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


def bare_number(token: str, units: Sequence[tuple[Fraction, str]]) -> str:
    """Return the number of an amount without its unit if the question names that unit; else the token.

    Percent signs and currencies are kept, since a question rarely implies them.
    """
    value, _, dimension = token.partition("|")
    for factor, of in units if dimension else ():
        if of == dimension and of != "%" and of not in CURRENCIES.values():
            return "..".join(_decimal_text(Fraction(end) / factor) for end in value.split(".."))  # of a range, both
    return token


@lru_cache(maxsize=4096)
def units_in(question: str) -> tuple[tuple[Fraction, str], ...]:
    """Return the units that a normalised question names, what it counts first; an age is in years."""
    places = [match.end() for match in re.finditer(r"\b(?=[a-z])|[多少几](?=[\u4e00-\u9fff])", question)]
    places.sort(key=lambda place: not question.endswith(("how many ", "number of ", "多少", "几"), 0, place))
    found = [(unit[0], unit[1]) for place in places if (unit := unit_at(question, place))]
    return (*found, *([UNITS["year"]] if re.search(r"\b(?:old|age)\b|[龄岁]|多大", question) else []))


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
    """Write finite decimals without an exponent; other fractions stay fractions."""
    if 10**12 % value.denominator:
        return str(value)
    digits = f"{abs(value.numerator) * 10**12 // value.denominator:013}"
    return ("-" if value < 0 else "") + f"{digits[:-12]}.{digits[-12:]}".rstrip("0").rstrip(".")


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
_DIGITS = {word: f"{number}{_SUFFIXES.get(number, 'th')}" for word, number in ORDINALS.items()}
_ONE_DIGIT = list(_DIGITS.items())[:9]
_DIGITS |= {f"{ten} {word}": f"{number // 10}{digit}" for ten, number in TENS.items() for word, digit in _ONE_DIGIT}
_DIGITS |= {f"{ten[:-1]}ieth": f"{number}th" for ten, number in TENS.items()}
_HALF = re.compile(r"^\W*half(?= of |\W*$)")
_ONE_PART = re.compile(
    rf"(?<![\w-])one[ -](half|{'|'.join(name[:-1] for name in _PART_NAMES if name != 'halves')})(?!\w)"
)
_ORDINAL = re.compile(
    rf"(?<![\w-])(?<!per )(?:{'|'.join(sorted(_DIGITS, key=len, reverse=True)).replace(' ', '[ -]')})(?![\w-])"
)
