r"""What a question asks for: the order of the names in "(m,b)", the unit in "how many miles", a percentage, a base."""

from __future__ import annotations

import re
from functools import lru_cache

from arpo_env.grading.answer_text.allowed_words import GROUPS, MODIFIERS, names_what_is_counted, question_words
from arpo_env.grading.answer_text.exact_numbers import BASES
from arpo_env.grading.answer_text.normalize_latex import prepare
from arpo_env.grading.answer_text.units import COUNTED, KINDS, kind_of_unit, split_unit
from arpo_env.grading.math_check.answer_shapes import NAME_LIST, named_parts, names_in, read_shape
from arpo_env.grading.math_check.parse_expression import Unreadable, read_expression

_ASKS_ORDER = re.compile(
    r"\bin\s+(?:\w+\s+)?order\b(?!\s+(?:to|that|for))|\border\s+from\b|^\s*(?:order|rank|sort|arrange)\b|\bfrom\s+\w+(?:est|st)\s+to\b|从小到大|从大到小|顺序",
    re.IGNORECASE,
)
_ASKS_ROUNDING = re.compile(r"\bnearest\b|\bround|\bdecimal\s+places?\b|\bapproximat|保留|精确到", re.IGNORECASE)
_ASKS_INTERVAL = re.compile(
    r"\b(?:range|domain|intervals?|inequalit(?:y|ies))\b|取值范围|解集|定义域|值域|区间", re.IGNORECASE
)
_ASKS = r"(?:find|what\s+is|what's|compute|calculate|determine|evaluate|values?\s+(?:of|for)|求|则|计算|的值)"
_ASKS_PRODUCT = re.compile(
    r"(?:^|[.,]\s+|completely\s+|fully\s+)factor(?:i[sz]e)?\b(?!s)|\bfactored\s+form|因式分解|分解因式", re.IGNORECASE
)
_ASKS_PERCENT = re.compile(r"(?<!\d)(?<!\d )percent|百分比|百分率|百分数|百分之几", re.IGNORECASE)

_ASKS_UNIT = re.compile(
    r"(?:\bhow\s+many|\bnumber\s+of|\bin(?!\s+how\b)(?:\s+units\s+of)?|\bconvert\b[^.?]{1,80}\sto)\s+((?:[a-z]+(?:[-/\s]+|\b)){1,6})",
    re.IGNORECASE,
)

_COUNTS = re.compile(r"\bhow\s+many\b", re.IGNORECASE)
_ASKS_HAN_UNIT = re.compile(
    r"(?:每个?(?P<per>秒|分|时|秒钟|分钟|小时|天)[^,。?每]{0,12})?(?:多少|几|单位\s*[:：是为]\s*)(?P<unit>[\u4e00-\u9fff]{1,5}(?:/[\u4e00-\u9fff]{1,2})?)"
)
_KINDS = {
    "angle": re.compile(
        r"degree\s+measure|measure,?\s+in\s+degrees|(?:measure|size)\s+of\s+(?:\w+\s+){0,4}angles?\b|how\s+many\s+degrees\s+(?:is|are|in|does)\b",
        re.IGNORECASE,
    ),
    "length": re.compile(
        r"how\s+(?:far|tall|high|deep|wide)\b|what(?:'s|\s+is)\s+the\s+(?:total\s+)?distance", re.IGNORECASE
    ),
    "time": re.compile(
        r"how\s+(?:old\b|much\s+time|long\s+(?:does|did|will|would|should)\s[^?]*\b(?:take|wait|spend|last)\b)",
        re.IGNORECASE,
    ),
    "money": re.compile(
        r"how\s+much\s+(?:more\s+)?(?:money|profit|change|(?:did|does|do|will|would|is|are|was|were|has|have|had|can|should|must)\b[^?]*"
        r"\b(?:costs?|pay|earn|make|spend|save|owe|worth|charge|raise))\b|\b(?:price|cost|salary|profit|revenue|income)\b",
        re.IGNORECASE,
    ),
}

_ASKING = re.compile(r"\b(?:find|what|compute|calculate|determine|how)\b|求|多少|是多", re.IGNORECASE)
_POWERS = {
    "^2": re.compile(r"\barea\b|面积", re.IGNORECASE),
    "^3": re.compile(r"\bvolume\b|体积|容积", re.IGNORECASE),
    "^": re.compile(
        r"\b(?:perimeter|circumference|height|length|radius|diameter|width)\b|周长|[高宽长]|半径|直径|边长|距离", re.I
    ),
}
_VALUE = re.compile(r"([A-Za-z])\s*\(\s*(-?[\d.]+)\s*\)")
_DOTS = re.compile(r"\\[lc]?dots")


def asks_order(question: str) -> bool:
    """Return whether the items of the answer have an order: "from least to greatest"."""
    return _ASKS_ORDER.search(question) is not None


def asks_interval(question: str) -> bool:
    """Return whether "(2, 3)" is an interval rather than a point: "find the range of a"."""
    return _ASKS_INTERVAL.search(question) is not None


def asks_rounding(question: str) -> bool:
    """Return whether a question asks for a rounded number."""
    return _ASKS_ROUNDING.search(question) is not None


def asks_percent(question: str) -> bool:
    """Return whether a question asks for a percentage."""
    return _ASKS_PERCENT.search(question) is not None


def expected_unit(text: str, unit: str, question: str) -> str | None:
    """Return the unit that an answer with a unit is to be given in; None if the question contradicts the unit.

    It is the unit that the question asks for; else the answer's own, unless the question only has others of its kind.
    "6 children" does not say how many cookies each child gets.

    Args:
        text: the answer.
        unit: its unit.
        question: the question.
    """
    asked, nouns, kind, named = _asked_for(question)
    if (power := _power_asked(question)) and kind_of_unit(unit) == "length" and unit.partition("^")[2] != power[1:]:
        return None
    if asked == unit == COUNTED and nouns:
        said = set(re.findall("[a-z]{3,}", text.lower()))
        others = {word for word in said & question_words(question) if names_what_is_counted([word])}
        return None if others and not {word.removesuffix("s") for word in said} & nouns else unit
    if asked:
        return asked
    if kind and kind_of_unit(unit) != kind:
        return None
    if kind_of_unit(unit) in KINDS and _COUNTS.search(question) and unit not in named:
        return None
    alike = {name for name in named if kind_of_unit(name) == kind_of_unit(unit) != ""}
    return unit if not alike or unit.partition("^")[0] in alike else alike.pop() if len(alike) == 1 else None


@lru_cache(maxsize=512)
def _power_asked(question: str) -> str:
    """Return "^2" if the question asks for an area, "^3" for a volume, "^" for a length, "" if that is unclear."""
    last = _ASKING.split(question)[-1]
    found = {power for power, pattern in _POWERS.items() if pattern.search(last)}
    return found.pop() if len(found) == 1 else ""


@lru_cache(maxsize=512)
def _asked_for(question: str) -> tuple[str, frozenset[str], str, frozenset[str]]:
    """Return the only unit that the last question asks for, the nouns that it counts, its kind, and all units named."""
    sentences = re.split(r"(?<=[.!?])\s+(?=[A-Z])", question.strip())
    last = next((sentence for sentence in reversed(sentences) if "?" in sentence), sentences[-1])
    asked: set[str] = set()
    nouns: set[str] = set()
    for match in _ASKS_UNIT.finditer(last):
        words = re.split(r"[\s-]+", match[1].strip())
        while words and words[0].lower() in MODIFIERS - {"ordered"}:
            words = words[1:]
        heads = [" ".join(words[:count]) for count in range(4, 0, -1)]
        split = ((split_unit(f"1 {head}", letters=True, known=GROUPS)[1], head) for head in heads)
        unit, head = next((each for each in split if each[0]), ("", ""))
        # not "in terms of" and "in pairs"; the ordered pairs that solve an equation are also called its solutions
        if words[:1] != ["ordered"] and (unit != COUNTED or match[0][:1].lower() in "hn"):
            asked.add(unit)
            nouns |= {word.removesuffix("s") for word in head.lower().split()}
    for match in _ASKS_HAN_UNIT.finditer(question):
        said = match["unit"] + (f"/{match['per']}" if match["per"] and "/" not in match["unit"] else "")
        units = (split_unit("1" + said[:count], letters=True)[1] for count in range(len(said), 0, -1))
        asked.add(next(filter(None, units), ""))
    asked.discard("")
    found = re.findall(
        r"[a-z]{3,}|(?<=\d)\s*[\u4e00-\u9fff]{1,2}|(?<=\d)\s*[A-Za-z]{1,2}(?![A-Za-z])|[¢€£¥₹]", question
    )
    if re.search(r"\$\s?\d[\d,.]*(?![^$]*\$)|\\\$", question):
        found.append("dollars")
    written = {split_unit(f"1 {word.strip()}", letters=True)[1] for word in found} - {"", COUNTED}
    named = frozenset(part for unit in written for part in unit.split("/"))
    if asks_percent(last):
        return "", frozenset(), "percent", named
    kinds = [kind for kind, pattern in _KINDS.items() if pattern.search(last)]
    kind = kinds[0] if len(kinds) == 1 and (kinds != ["money"] or "money" in map(kind_of_unit, named)) else ""
    return asked.pop() if len(asked) == 1 else "", frozenset(nouns), kind, named


def asks_product(question: str) -> bool:
    """Return whether a question asks for a product: "Factor x^2 - 1"."""
    return _ASKS_PRODUCT.search(question) is not None


def is_sum(text: str) -> bool:
    """Return whether a formula is a sum, not a product."""
    try:
        return read_expression(text).name == "+"
    except Unreadable:
        return False


def asks_base(base: int, question: str) -> bool:
    """Return whether the question asks for digits in a base."""
    names = "|".join((str(base), *(name for name, number in BASES.items() if number == base)))
    return re.search(rf"(?:in|to|into)\s+base[\s-]*\\?\$?(?:{names})(?!\w)", question, re.IGNORECASE) is not None


def asks_formula(side: str, question: str) -> bool:
    r"""Return whether the question asks for a formula with letters: "\cos A" in "find \cos A"."""
    if not question or not re.search("[A-Za-z]", re.sub(r"\\[a-z]+", "", side)):
        return False
    spaced = r"\s*".join(map(re.escape, re.sub(r"\s", "", side)))
    return re.search(rf"{_ASKS}\s*{spaced}(?!\s*[-+*/^=<>]|[\w(])", prepare(question), re.IGNORECASE) is not None


def abbreviates(side: str, question: str) -> bool:
    r"""Return whether "1+2+\cdots+100" is the sum of the question, which may name more of the terms before the dots."""
    head, *tail = _DOTS.split(re.sub(r"\s", "", side))
    if not tail or not question or not head:
        return False
    asked = re.sub(r"\s", "", prepare(question))
    between = r"(?:[-+*,][^=\u4e00-\u9fff]{0,60}|\\(?:cdot|times)[^=\u4e00-\u9fff]{0,60})?"
    start = re.escape(head.rstrip("+-*,").removesuffix("\\cdot").removesuffix("\\times"))
    ends = _DOTS.pattern.join(map(re.escape, tail))
    return re.search(rf"(?<![\d.]){start}{between}[-+*,]?{_DOTS.pattern}{ends}(?![\d^])", asked) is not None


def asks_another(name: str, question: str) -> bool:
    r"""Return whether a question asks for something else: \tan \theta instead of \theta, or f(3) instead of f(2)."""
    if not question:
        return False
    asked = prepare(question)
    if value := _VALUE.fullmatch(name):
        values = re.findall(rf"{_ASKS}\s*(?-i:{value[1]})\s*\(\s*(-?[\d.]+)\s*\)", asked, re.IGNORECASE)
        return bool(values) and value[2] not in values
    image = rf"|coordinates\s+of\s+(?-i:{re.escape(name)}')"  # A' is another point than A
    pattern = rf"{_ASKS}\s*\\(?:sin|cos|tan|cot|sec|csc)\s*\(?\s*{re.escape(name)}{image}"
    return re.search(pattern, asked, re.IGNORECASE) is not None


def in_asked_order(answer: str, gold: str, question: str) -> tuple[str, str]:
    """Write "b = -13, m = 3/2" and "(b,m) = (-13,3/2)" as "(3/2, -13)" if the question asks for "(m,b)".

    Names of the gold answer count before those of the question. Without either, the names are in alphabetical order.
    Answers without names are kept.
    """
    mine, wanted = named_parts(answer), named_parts(gold)
    if wanted and (not mine or mine.keys() == wanted.keys()):
        return (_tuple(mine, list(wanted)) if mine else answer), _tuple(wanted, list(wanted))
    order = _asked_names(sorted(mine), question) if mine and not wanted else []
    shape = read_shape(gold)
    pairs = re.split(r"\s*(?<![A-Za-z\\])or(?![A-Za-z])\s*|或|;\s*", answer)
    if shape.kind in ("list", "set") and pairs[1:] and all(map(named_parts, pairs)):
        return ", ".join(in_asked_order(pair, "(0, 0)", question)[0] for pair in pairs), gold
    if not order and mine and shape.kind != "list" and not wanted:
        order = sorted(mine, key=lambda name: name.lstrip("\\"))
    return (_tuple(mine, order) if order else answer), gold


def _tuple(parts: dict[str, str], order: list[str]) -> str:
    return f"({', '.join(parts[name] for name in order)})"


def _asked_names(names: list[str], question: str) -> list[str]:
    """Return names in the order in which the question lists them last; [] if it does not."""
    lists = [names_in(match[0]) for match in NAME_LIST.finditer(prepare(question))]
    same = [listed for listed in lists if sorted(listed) == names]
    return same[-1] if same else []
