"""Compares answers in words: "East" and "the east", "odd" and "an odd function", "June 20" and "20th June"."""

from __future__ import annotations

import re

_WORDS = re.compile(r"[^\W\d_①-⑳]{1,}(?:[\s'-]+[^\W\d_①-⑳]+)*")
_SYNONYMS_LIST = (
    "yes 是 对 是的 正确 true",
    "no 否 不是 错 错误 false",
    "monday mon 星期一 周一 礼拜一",
    "tuesday tue tues 星期二 周二 礼拜二",
    "wednesday wed 星期三 周三 礼拜三",
    "thursday thu thurs thur 星期四 周四 礼拜四",
    "friday fri 星期五 周五 礼拜五",
    "saturday sat 星期六 周六 礼拜六",
    "sunday sun 星期日 星期天 周日 礼拜天",
    "january jan 一月",
    "february feb 二月",
    "march mar 三月",
    "april apr 四月",
    "may 五月",
    "june jun 六月",
    "july jul 七月",
    "august aug 八月",
    "september sep sept 九月",
    "october oct 十月",
    "november nov 十一月",
    "december dec 十二月",
    "odd 奇 奇数 奇函数",
    "even 偶 偶数 偶函数",
    "east 东",
    "west 西",
    "south 南",
    "north 北",
    "neither 非奇非偶 非奇非偶函数",
    "tie draw 平局",
    "heads head",
    "tails tail",
    "gray grey",
    "infinite infinity",
    "converges convergent 收敛",
    "diverges divergent 发散",
    "circle 圆",
    "ellipse 椭圆",
    "parabola 抛物线",
    "hyperbola 双曲线",
    "line 直线",
    "increasing 递增 单调递增",
    "decreasing 递减 单调递减",
)
_ONE_NAME = {word: words.split()[0] for words in _SYNONYMS_LIST for word in words.split()}
_KINDS = frozenset(
    ["function", "number", "integer", "triangle", "angle", "direction", "quadrilateral", "day", "month", "sequence"]
)
# the twelve rows of months in the list above
_MONTHS = {words.split()[0]: month for month, words in enumerate(_SYNONYMS_LIST[9:21], 1)}
_DAY = r"(\d{1,2})(?:st|nd|rd|th)?"
_DATES = (
    (re.compile(rf"([A-Za-z]+)\.?\s+(?:the\s+)?{_DAY}(?:,?\s+(\d{{4}}))?"), (1, 2, 3)),
    (re.compile(rf"(?:the\s+)?{_DAY}\s+(?:of\s+)?([A-Za-z]+)(?:,?\s+(\d{{4}}))?"), (2, 1, 3)),
    (re.compile(r"(?:(\d{4})\s*年\s*)?(\d{1,2})\s*月\s*(\d{1,2})\s*[日号]"), (2, 3, 1)),
)


def is_words(text: str) -> bool:
    """Return whether a gold answer is a name, a word or an option letter rather than a formula such as "p - q"."""
    text = re.sub(r"^\((\w)\)$", r"\1", text)
    longest = max((len(word) for word in re.split(r"[\s'-]+", text)), default=0)
    named = len(text) > 4 or text[:1].isupper() or text.casefold() in _ONE_NAME
    return named and (longest > 2 or longest == len(text)) and _WORDS.fullmatch(text) is not None


def same_words(answer: str, gold: str) -> bool:
    """Compare words without case, articles and brackets, or two calendar dates."""
    date = _date(gold)
    if date is not None:
        return _date(answer) == date
    if not _WORDS.fullmatch(gold) or (len(gold) < 2 and gold not in _ONE_NAME):
        return False
    bare = re.sub(r"^[(\[]\s*(.*?)\s*[)\]]$", r"\1", answer)
    if not _WORDS.fullmatch(bare):
        return False
    mine, wanted = _named(bare), _named(gold)
    return mine == wanted or (len(mine) == len(wanted) + 1 and mine[-1] in _KINDS and mine[:-1] == wanted)


def _named(text: str) -> list[str]:
    words = text.casefold().replace("-", " ").split()
    words = words[1:] if len(words) > 1 and words[0] in ("a", "an", "the", "on", "in") else words
    words = words[1:] if len(words) > 1 and words[0] in ("a", "an", "the") else words
    return [_ONE_NAME.get(word, word) for word in words]


def _date(text: str) -> tuple[str, ...] | None:
    """Return month, day and year; "" for a missing part."""
    for pattern, places in _DATES:
        if match := pattern.fullmatch(text.strip().removeprefix("on ")):
            month, day, year = (match[place] or "" for place in places)
            month = month if month.isdigit() else str(_MONTHS.get(_ONE_NAME.get(month.lower(), ""), ""))
            return (month, day.lstrip("0"), year) if month else None
    return None
