r"""Times of day ("15:40", "3:40 p.m.", "下午3点40分"), ratios ("2:3", "2 to 3") and angles ("34^\\circ 37'").

The comparisons are `same_clock`, `same_ratio` and `same_angle`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from arpo_env.grading.answer_text.exact_numbers import as_value

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


@dataclass(frozen=True)
class Clock:
    """A time of day.

    Attributes:
        hour: the hour as written.
        minute: 0 to 59.
        second: 0 to 59.
        half: "am", "pm" or "".
        sure: whether the text can only be a time; "15:40" may also be a ratio.
    """

    hour: int
    minute: int
    second: int
    half: str
    sure: bool

    @property
    def seconds(self) -> int:
        """Seconds since midnight."""
        hour = self.hour % 12 + (12 if self.half == "pm" else 0) if self.half else self.hour
        return (hour * 60 + self.minute) * 60 + self.second


def same_clock(answer: str, gold: str, question: str = "") -> bool | None:
    """Return whether two prepared answers are the same time of day; None if the gold answer is not a time.

    "15:40" is a time if the question is about times, or if it could be reduced as a ratio. If the gold answer does not
    say which half of the day it means, either half is accepted.
    """
    right, mine = _read(gold), _read(answer)
    meant = mine is not None and mine.sure
    # a reduced "3:2" without further hints is a ratio
    if right is None or not (right.sure or meant or _ABOUT_TIME.search(question) or not _is_reduced(right)):
        return None
    if not right.sure and _ABOUT_RATIO.search(question):
        return None
    if mine is None:
        return False
    if mine.half and not right.half and 1 <= right.hour <= 12:
        # 43200 s are twelve hours
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
    right, mine = _ANGLE.fullmatch(gold), _ANGLE.fullmatch(answer)
    return None if right is None or mine is None else _seconds(mine) == _seconds(right)


def _seconds(match: re.Match[str]) -> tuple[int, int]:
    degrees = int(match["degrees"])
    return degrees, int(match["minutes"]) * 60 + int(match["seconds"] or 0)


def _read(text: str) -> Clock | None:
    match = _CLOCK.fullmatch(text)
    if match is None or not (match["minute"] or match["half"] or match["before"] or match["whole"]):
        return None
    hour, minute, second = int(match["hour"]), int(match["minute"] or 0), int(match["second"] or 0)
    said = re.sub(r"\s+", " ", (match["before"] or match["half"] or "").lower())
    half = _HALVES.get(said) or _HALVES.get(said[:1], "")
    if hour > (12 if half else 24) or minute > 59 or second > 59 or ("." in text[: match.end("minute")] and not half):
        return None
    return Clock(hour, minute, second, half, sure=bool(half or match["second"] or match["whole"]))


def _is_reduced(clock: Clock) -> bool:
    return not clock.minute or Fraction(clock.hour, clock.minute).denominator == clock.minute


def _parts(text: str) -> tuple[Fraction, ...] | None:
    """Return a ratio of plain numbers scaled so that its first part is 1; None if the text is not a ratio."""
    values = [as_value(part) for part in _RATIO.split(text)]
    parts = [value.number for value in values if value is not None and value.form in ("integer", "decimal", "words")]
    return tuple(part / parts[0] for part in parts) if 1 < len(parts) == len(values) and 0 not in parts else None
