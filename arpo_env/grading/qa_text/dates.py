"""Dates as single tokens: `mark_dates` writes 14 March 1879, in any notation, as 1879-03-14.

It reads day, month and year in any order with the month in words, ISO dates, Chinese and Japanese dates, month and
year, day and month, and ranges of these. Numeric dates ("25/12/1990") are read only if they are unambiguous;
"03/04/1990" could be two days and therefore equals only itself.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable

# private-use characters cannot occur in an answer, from which they are removed
OPEN, CLOSE = "\ue000", "\ue001"
_DIGIT = re.compile(r"\d")
_MARKED = re.compile(f"({OPEN}[^{CLOSE}]*{CLOSE})")
# French, German, Spanish, Italian, Portuguese, Dutch and Russian, without accents
_ELSEWHERE = """
janvier januar enero gennaio janeiro januari января | fevrier februar febrero febbraio fevereiro februari февраля |
mars marz marzo marco maart марта | avril abril aprile апреля | mai mayo maggio maio mei мая |
juin juni junio giugno junho июня | juillet juli julio luglio julho июля | aout agosto augustus августа |
septembre septiembre settembre setembro сентября | octobre oktober octubre ottobre outubro октября |
novembre noviembre novembro ноября | decembre dezember diciembre dicembre dezembro декабря
"""
_ENGLISH = (calendar.month_name, calendar.month_abbr)
_MONTHS = {name.lower(): number for names in _ENGLISH for number, name in enumerate(names) if name} | {"sept": 9}
_MONTHS |= {name: number for number, names in enumerate(_ELSEWHERE.split("|"), 1) for name in names.split()}
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
_TENS = "twenties thirties forties fifties sixties seventies eighties nineties"
_DECADE = re.compile(rf"(?<![\w.])(?:(?P<name>{_TENS.replace(' ', '|')})|'?(?P<tens>[2-9]0)s)(?!\w)")
_CLOCK = re.compile(
    r"(?<![\w:./-])(?P<hour>[01]?\d|2[0-4])(?:(?P<sign>[:.h])(?P<minute>[0-5]\d)(?:(?<=:..):00)?)?(?![:./]?\d|-\d(?!\d?:\d))\s?"
    r"(?P<half>(?:(?:o'?clock )?(?:[ap]m|in the (?:morning|afternoon|evening)|at night))(?!\w)|o'?clock)?"
)
_SPOKEN_CLOCK = re.compile(r"(?<!\w)(half past|quarter past|quarter to) (\d{1,2}|[a-z]{3,6})(?!\w)")
_HOURS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
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
    text = _DECADE.sub(_decade, text) if "0s" in text or "ties" in text else text
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
    # without a year, 29 February is possible
    if month == 2:
        return 29 if not year or calendar.isleap(int(year)) else 28
    return 30 if month in (4, 6, 9, 11) else 31


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


def _decade(match: re.Match[str]) -> str:
    return f"19{match['tens'] or 10 * (_TENS.split().index(match['name']) + 2)}s"


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
    if match[2] not in _HOURS and not match[2].isdigit():
        return match[0]
    hour = _HOURS.index(match[2]) + 1 if match[2] in _HOURS else int(match[2])
    return f"{hour - 1}:45" if match[1].endswith("to") else f"{hour}:{30 if match[1].startswith('half') else 15}"
