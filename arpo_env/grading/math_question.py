r"""What a question says about its answer: the order of names, the unit, a percentage; and whether an answer copies it.

"\sqrt{50}+\sqrt{18}" does not answer "Simplify \sqrt{50}+\sqrt{18}" although it equals 8\sqrt{2}; nor does 6/8 answer
"Reduce 6/8". An answer is copied if it contains the numbers and letters of a formula of the question, in any order and
perhaps with others, and the gold answer does not.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache

from arpo_env.grading import math_formulas
from arpo_env.grading.answer_text import prepare
from arpo_env.grading.math_values import (
    BASES,
    COUNTED,
    GROUPS,
    KINDS,
    MODIFIERS,
    Value,
    as_value,
    kind_of_unit,
    names_what_is_counted,
    question_words,
    split_unit,
)

_ASKS = {  # what a question asks for
    name: re.compile(pattern, re.IGNORECASE)
    for name, pattern in {
        # items in an order: "from least to greatest"
        "order": r"\bin\s+(?:\w+\s+)?order\b(?!\s+(?:to|that|for))|\border\s+from\b|^\s*(?:order|rank|sort|arrange)\b"
        r"|\bfrom\s+\w+(?:est|st)\s+to\b|从小到大|从大到小|顺序",
        "rounding": r"\bnearest\b|\bround|\bdecimal\s+places?\b|\bapproximat|保留|精确到",
        # "(2, 3)" is an interval rather than a point: "find the range of a"
        "interval": r"\b(?:range|domain|intervals?|inequalit(?:y|ies))\b|取值范围|解集|定义域|值域|区间",
        # "Factor x^2 - 1"
        "product": r"(?:^|[.,]\s+|completely\s+|fully\s+)factor(?:i[sz]e)?\b(?!s)|\bfactored\s+form|因式分解|分解因式",
        "percent": r"(?<!\d)(?<!\d )percent|百分比|百分率|百分数|百分之几",
    }.items()
}
_FIND = r"(?:find|what\s+is|what's|compute|calculate|determine|evaluate|values?\s+(?:of|for)|求|则|计算|的值)"
_ASKS_UNIT = re.compile(
    r"(?:\bhow\s+many|\bnumber\s+of|\bin(?!\s+how\b)(?:\s+units\s+of)?|\bconvert\b[^.?]{1,80}\sto)\s+((?:[a-z]+(?:[-/\s]+|\b)){1,6})",
    re.IGNORECASE,
)

_COUNTS = re.compile(r"\bhow\s+many\b", re.IGNORECASE)
_ASKS_HAN_UNIT = re.compile(
    r"(?:每个?(?P<per>秒|分|时|秒钟|分钟|小时|天)[^,。?每]{0,12})?(?:多少|几|单位\s*[:：是为]\s*)(?P<unit>[\u4e00-\u9fff]{1,5}(?:/[\u4e00-\u9fff]{1,2})?)"
)
_KINDS = {
    name: re.compile(pattern, re.IGNORECASE)
    for name, pattern in {
        "angle": r"degree\s+measure|measure,?\s+in\s+degrees|(?:measure|size)\s+of\s+(?:\w+\s+){0,4}angles?\b"
        r"|how\s+many\s+degrees\s+(?:is|are|in|does)\b",
        "length": r"how\s+(?:far|tall|high|deep|wide)\b|what(?:'s|\s+is)\s+the\s+(?:total\s+)?distance",
        "time": r"how\s+(?:old\b|much\s+time|long\s+(?:does|did|will|would|should)\s[^?]*"
        r"\b(?:take|wait|spend|last)\b)",
        "money": r"how\s+much\s+(?:more\s+)?(?:money|profit|change|(?:did|does|do|will|would|is|are|was|were|has|have|"
        r"had|can|should|must)\b[^?]*\b(?:costs?|pay|earn|make|spend|save|owe|worth|charge|raise))\b"
        r"|\b(?:price|cost|salary|profit|revenue|income)\b",
    }.items()
}
_ASKING = re.compile(r"\b(?:find|what|compute|calculate|determine|how)\b|求|多少|是多", re.IGNORECASE)
_POWERS = {
    name: re.compile(pattern, re.IGNORECASE)
    for name, pattern in {
        "^2": r"\barea\b|面积",
        "^3": r"\bvolume\b|体积|容积",
        "^": r"\b(?:perimeter|circumference|height|length|radius|diameter|width)\b|周长|[高宽长]|半径|直径|边长|距离",
    }.items()
}
_VALUE = re.compile(r"([A-Za-z])\s*\(\s*(-?[\d.]+)\s*\)")
_DOTS = re.compile(r"\\[lc]?dots")


def asks(what: str, question: str) -> bool:
    """Return whether a question asks for an order, rounding, an interval, a product, or a percentage."""
    return _ASKS[what].search(question) is not None


def expected_unit(text: str, unit: str, question: str) -> str | None:
    """Return the unit that an answer with a unit is to be given in; None if the question contradicts the unit.

    It is the unit that the question asks for; else the answer's own, unless the question only has others of its kind.
    "6 children" does not say how many cookies each child gets.
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
    if asks("percent", last):
        return "", frozenset(), "percent", named
    kinds = [kind for kind, pattern in _KINDS.items() if pattern.search(last)]
    kind = kinds[0] if len(kinds) == 1 and (kinds != ["money"] or "money" in map(kind_of_unit, named)) else ""
    return asked.pop() if len(asked) == 1 else "", frozenset(nouns), kind, named


def is_sum(text: str) -> bool:
    """Return whether a formula is a sum, not a product."""
    try:
        return math_formulas.read_expression(text).name == "+"
    except math_formulas.Unreadable:
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
    return re.search(rf"{_FIND}\s*{spaced}(?!\s*[-+*/^=<>]|[\w(])", prepare(question), re.IGNORECASE) is not None


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
        values = re.findall(rf"{_FIND}\s*(?-i:{value[1]})\s*\(\s*(-?[\d.]+)\s*\)", asked, re.IGNORECASE)
        return bool(values) and value[2] not in values
    image = rf"|coordinates\s+of\s+(?-i:{re.escape(name)}')"  # A' is another point than A
    pattern = rf"{_FIND}\s*\\(?:sin|cos|tan|cot|sec|csc)\s*\(?\s*{re.escape(name)}{image}"
    return re.search(pattern, asked, re.IGNORECASE) is not None


def in_asked_order(answer: str, gold: str, question: str) -> tuple[str, str]:
    """Write "b = -13, m = 3/2" and "(b,m) = (-13,3/2)" as "(3/2, -13)" if the question asks for "(m,b)".

    Names of the gold answer count before those of the question. Without either, the names are in alphabetical order.
    Answers without names are kept.
    """
    mine, wanted = math_formulas.named_parts(answer), math_formulas.named_parts(gold)
    if wanted and (not mine or mine.keys() == wanted.keys()):
        return (_tuple(mine, list(wanted)) if mine else answer), _tuple(wanted, list(wanted))
    order = _asked_names(sorted(mine), question) if mine and not wanted else []
    shape = math_formulas.read_shape(gold)
    pairs = re.split(r"\s*(?<![A-Za-z\\])or(?![A-Za-z])\s*|或|;\s*", answer)
    if shape.kind in ("list", "set") and pairs[1:] and all(map(math_formulas.named_parts, pairs)):
        return ", ".join(in_asked_order(pair, "(0, 0)", question)[0] for pair in pairs), gold
    if not order and mine and shape.kind != "list" and not wanted:
        order = sorted(mine, key=lambda name: name.lstrip("\\"))
    return (_tuple(mine, order) if order else answer), gold


def _tuple(parts: dict[str, str], order: list[str]) -> str:
    return f"({', '.join(parts[name] for name in order)})"


def _asked_names(names: list[str], question: str) -> list[str]:
    """Return names in the order in which the question lists them last; [] if it does not."""
    lists = [math_formulas.names_in(match[0]) for match in math_formulas.NAME_LIST.finditer(prepare(question))]
    same = [listed for listed in lists if sorted(listed) == names]
    return same[-1] if same else []


# Answers that only repeat the question: `is_copied`, `is_copied_number`, `is_in_question`.

_FEWEST = 3  # minimum numbers and letters of a formula to be recognised in a longer one; "2x" is in many answers
_REWRITTEN = frozenset(("decimal", "fraction", "mixed", "scientific", "recurring", "scaled"))
_TYPESET = re.compile(r"\$\$?([^$]+)\$\$?|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)
_BETWEEN = re.compile(
    r"(?<![A-Za-z])[A-Za-z]{2,}+[A-Za-z']*+[,:;]?\s|\s[,:;]|[,:;.?]\s|[?]|(?<=\d)[.,]$|[\u4e00-\u9fff]+|\\(?:text|mbox)\s*\{[^{}]*\}"
)
_NUMBERS = re.compile(
    r"\d+\s*\\frac\{\d+\}\{\d+\}|-?\\frac\{-?\d+\}\{-?\d+\}|\d+\.\d*(?:\\(?:overline|bar|dot)\s*\{?\d+\}?)+|\d+\.\d+\\[lc]?dots"
    r"|(?<![\d.])\.?\d[\d.]*+\s*(?:\\times|\\cdot|\*|x)\s*10\s*\^\s*\{?-?\d+\}?|\d+\s+\d+/\d+|\d+/\d+|(?<![\d.])\.?\d[\d.]*+\s*\\?%|\d+(?:\.\d+)?"
)


def is_copied(answer: str, gold: str, question: str) -> bool:
    """Return whether a prepared answer that may equal a gold formula is a formula or a number of the question."""
    if not question or not answer or len(answer) > math_formulas.LONGEST or math_formulas.is_too_expensive(answer):
        return False
    number = as_value(answer)
    # an integer of the question is copied if the gold answer is a formula
    if number is not None and number.form == "integer" and as_value(gold) is None:
        return any(number.number == other.number for other in _numbers(question))
    if (shape := math_formulas.read_shape(answer)).marks == ("or",) and all(
        item.kind == "relation" for item in shape.items
    ):
        return is_in_question(answer, question)  # "x < 0 or x > 4" solves what it may have the numbers of
    found, wanted = _leaves(answer), _leaves(gold)
    return any(
        (asked == found and asked != wanted)
        or (_is_distinctive(asked) and _without_ones(asked) <= found and not _without_ones(asked) <= wanted)
        for asked in _formulas(question)
    )


def is_in_question(answer: str, question: str) -> bool:
    """Return whether a text occurs in the question, ignoring spaces."""
    bare = re.sub(r"\s", "", answer)
    return bool(bare and question) and bare in _without_spaces(question)


def _without_ones(found: Counter[str]) -> Counter[str]:
    """Return the leaves without the number one, which occurs everywhere."""
    return Counter({leaf: count for leaf, count in found.items() if leaf != "1"})


def _is_distinctive(asked: Counter[str]) -> bool:
    r"""Return whether a formula is long enough to be recognised in another: "\sqrt{50}" is, "2x" is not."""
    size, named = _without_ones(asked).total(), [leaf for leaf in asked if not leaf[:1].isdigit()]
    return size >= _FEWEST or (size == 2 and bool(named) and all(len(leaf) > 1 for leaf in named))


def is_copied_number(answer: Value, gold: Value, question: str) -> bool:
    """Return whether a number occurs in the question in another form than the gold answer, or is a quotient of two."""
    if not question or _form_and_value(answer) == _form_and_value(gold):
        return False
    numbers = _numbers(question)
    if (answer.form in _REWRITTEN or answer.percent) and _form_and_value(answer) in {
        _form_and_value(number) for number in numbers
    }:
        return True
    whole = {number.number for number in numbers if number.form == "integer"}
    # "12/4" for "divide 12 by 4" leaves the division undone
    divided = answer.form == "fraction" and gold.form == "integer" and abs(answer.parts[1]) != 1
    return divided and whole >= set(map(abs, answer.parts))


def _form_and_value(value: Value) -> tuple[object, ...]:
    return (value.form, value.number, value.parts, value.percent)


@lru_cache(maxsize=512)
def _without_spaces(question: str) -> str:
    return re.sub(r"\s", "", prepare(question))


@lru_cache(maxsize=512)
def _numbers(question: str) -> tuple[Value, ...]:
    found = map(as_value, _NUMBERS.findall(prepare(question)))
    return tuple(value for value in found if value is not None)


@lru_cache(maxsize=512)
def _formulas(question: str) -> tuple[Counter[str], ...]:
    """Return the numbers and letters of each formula of a question."""
    # without typeset formulas, the text between words may be one
    typeset = [next(filter(None, match.groups())) for match in _TYPESET.finditer(question)]
    pieces = typeset or _BETWEEN.split(question)
    found = [_leaves(prepare(piece)) for piece in pieces if len(piece) <= 4 * math_formulas.LONGEST]
    return tuple(each for each in found if each.total() >= 2)


@lru_cache(maxsize=2048)
def _leaves(text: str) -> Counter[str]:
    """Count the numbers and letters of a prepared text; empty if it cannot be parsed."""
    return Counter(_shape_leaves(math_formulas.read_shape(text)))


def _shape_leaves(shape: math_formulas.Shape) -> list[str]:
    if shape.kind != "formula":
        return [leaf for item in shape.items for leaf in _shape_leaves(item)]
    try:
        return math_formulas.leaves(math_formulas.read_expression(shape.text))
    except (math_formulas.Unreadable, RecursionError):
        return []
