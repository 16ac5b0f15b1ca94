r"""Compares sets of real numbers: intervals, unions, inequalities, set-builders, \mathbb{R} without points.

A region is a list of border points and, for each point and each gap between points, whether it belongs to the set. Two
regions are equal if they are identical after removing points that are not borders.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cmp_to_key, reduce

from arpo_env.grading.answer_text.exact_numbers import as_value
from arpo_env.grading.math_check.answer_shapes import Shape
from arpo_env.grading.math_check.numeric_equality import NoValue, Number, as_float, same_number, value
from arpo_env.grading.math_check.parse_expression import Unreadable, read_expression

INFINITY = re.compile(r"\s*([-+]?)\s*(?:\\infty|oo|inf|infinity)\s*")
_VARIABLE = re.compile(r"(?:[A-Za-z]|\\[a-z]+)(?:_\{?\w\}?)?")
_DISTANCE = re.compile(r"\|\s*(?P<times>\d*)\s*(?P<name>[A-Za-z])\s*(?:(?P<sign>[-+])\s*(?P<number>[^|A-Za-z]+))?\|")
_DEFINITE = frozenset(("interval", "union", "minus", "builder", "reals", "empty"))


_IN_WORDS = tuple(
    (re.compile(rf"\s*(?:\bis\s+|\bare\s+)?(?:{words})\s*", re.IGNORECASE), sign)
    for sign, words in {
        "\\\\ge ": r"(?:greater|larger|more)\s+than\s+or\s+equal\s+to|at\s+least|not?\s+less\s+than|大于或?等于|不小于",
        "\\\\le ": r"(?:less|smaller)\s+than\s+or\s+equal\s+to|at\s+most|not?\s+more\s+than|小于或?等于|不大于",
        ">": r"(?:greater|larger|more)\s+than|大于",
        "<": r"(?:less|smaller)\s+than|小于",
        "\\\\ne ": r"not\s+equal\s+to|不等于",
    }.items()
)
_ALL_NUMBERS = re.compile(
    r"(?:(?:(?:all|any|every)\s+)?(?:real\s+)?(?:numbers?|values?)(?:\s+that)?)?\s*(?=[<>]|\\[gln]e)"
)
_SIGNED = {"positive": ">", "negative": "<", "nonnegative": "\\ge ", "nonpositive": "\\le ", "nonzero": "\\ne "}
_SIGNED_NUMBERS = re.compile(rf"(?:all\s+)?({'|'.join(_SIGNED)})\s+(?:real\s+)?(?:numbers|reals|values)")


class NoRegion(ValueError):
    """Raised for a shape that is not a set of real numbers, or whose borders are not numbers."""


@dataclass(frozen=True)
class Region:
    """A set of real numbers.

    points: the borders in ascending order.
    at: whether each border belongs to the set.
    between: whether each gap before, between and after the borders belongs to it; one more than `points`.
    variable: the variable, as in "2 < x", or "".
    """

    points: tuple[Number, ...]
    at: tuple[bool, ...]
    between: tuple[bool, ...]
    variable: str = ""


def in_signs(text: str) -> str:
    """Write "all real numbers greater than 2" as a set-builder, and "x is at most 3" as an inequality."""
    if match := _SIGNED_NUMBERS.fullmatch(text.lower().replace("non-", "non")):
        return rf"\{{x \mid x {_SIGNED[match[1]]} 0\}}"
    for pattern, sign in _IN_WORDS:
        text = pattern.sub(sign, text)
    return rf"\{{x \mid x {text[match.end() :]}\}}" if (match := _ALL_NUMBERS.match(text)) else text


def is_region(shape: Shape) -> bool:
    """Return whether a shape can only be a set of real numbers; "(2, 3)" may also be a point."""
    if shape.kind == "relation":
        within = shape.items[-1].kind in ("tuple", "square") or is_region(shape.items[-1])
        return any(sign not in ("=", "in", "~") for sign in shape.marks) or (shape.marks == ("in",) and within)
    return shape.kind in _DEFINITE or (shape.kind == "list" and any(map(is_region, shape.items)))


def same_region(one: Shape, other: Shape) -> bool:
    """Return whether two shapes are the same set of real numbers.

    Raises:
        NoRegion: one of them is not a set of real numbers.
    """
    mine, wanted = as_region(one), as_region(other)
    if mine.variable and wanted.variable and mine.variable != wanted.variable:
        return False
    return (
        len(mine.points) == len(wanted.points)
        and (mine.at, mine.between) == (wanted.at, wanted.between)
        and all(map(same_number, mine.points, wanted.points))
    )


def as_region(shape: Shape) -> Region:
    """Convert a shape to a set of real numbers.

    Raises:
        NoRegion: it is not such a set.
    """
    match shape.kind:
        case "reals":
            return _ALL
        case "empty":
            return _NONE
        case "interval":
            return _interval(shape.items, shape.marks)
        case "tuple" | "square" if len(shape.items) == 2:
            return _interval(shape.items, ("(", ")") if shape.kind == "tuple" else ("[", "]"))
        case "set":
            return reduce(_or, (_compared("=", _number(item)) for item in shape.items), _NONE)
        case "union":
            return reduce(_or, map(as_region, shape.items))
        case "minus":
            return _combine(
                as_region(shape.items[0]), as_region(_as_set(shape.items[1])), lambda one, other: one and not other
            )
        case "builder":
            return _builder(*shape.items)
        case "relation":
            return _relation(shape)
        case "list":
            return _list([as_region(item) for item in shape.items], shape.marks[0])
        case "formula" if shape.text == "R":
            return _ALL
    raise NoRegion(shape.kind)


def _list(regions: list[Region], marks: str) -> Region:
    """Combine conditions: "and" and commas mean all of them, unless that leaves nothing: "x < 2, x > 3"."""
    if marks == "or":
        return reduce(_or, regions)
    both = reduce(_and, regions)
    return both if marks == "and" or both.points or both.between[0] else reduce(_or, regions)


def _builder(left: Shape, right: Shape) -> Region:
    condition = as_region(right)
    name = left.items[0] if left.kind == "relation" and left.marks == ("in",) else left
    if name.kind != "formula" or condition.variable != name.text:
        raise NoRegion("a set-builder of another variable")
    universe = as_region(left) if left.kind == "relation" else _ALL
    found = _and(universe, condition)
    return Region(found.points, found.at, found.between)


def _relation(shape: Shape) -> Region:
    if shape.marks == ("in",):
        name, region = shape.items[0].text, as_region(shape.items[1])
        if not _VARIABLE.fullmatch(name):
            raise NoRegion("no variable")
        return Region(region.points, region.at, region.between, name)
    if len({sign[0] for sign in shape.marks}) > 1 or (len(shape.marks) > 1 and shape.marks[0][0] not in "<>"):
        raise NoRegion("a chain in two directions")
    if len(shape.marks) == 1 and (distance := _DISTANCE.fullmatch(shape.items[0].text)):
        # |x - 2| < 3 is an interval around 2, |x - 2| > 3 the rest of the line
        middle, gap = distance["number"] or "0", shape.items[1].text
        middle = f"-({middle})" if distance["sign"] == "+" else middle
        if as_float(_number(shape.items[1])) <= 0:
            raise NoRegion("a distance that is not positive")
        low, high = (
            _number(Shape("formula", text=f"(({middle}) {side} ({gap}))/{distance['times'] or 1}")) for side in "-+"
        )
        sign = shape.marks[0]
        join = _and if sign[0] == "<" else _or
        return _named(join(_compared(_TURNED.get(sign, sign), low), _compared(sign, high)), distance["name"])
    found = []
    for left, sign, right in zip(shape.items, shape.marks, shape.items[1:], strict=False):
        if _VARIABLE.fullmatch(left.text) and not _is_constant(left.text):
            found.append(_named(_compared(sign, _number(right)), left.text))
        elif _VARIABLE.fullmatch(right.text):
            found.append(_named(_compared(_TURNED.get(sign, sign), _number(left)), right.text))
        else:
            raise NoRegion("no bare variable")
    return reduce(_and, found)


def _is_constant(text: str) -> bool:
    return text in ("e", "\\pi")


def _named(region: Region, name: str) -> Region:
    return Region(region.points, region.at, region.between, name)


_TURNED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
# without borders there is one gap, the whole line
_ALL, _NONE = Region((), (), (True,)), Region((), (), (False,))


def _compared(sign: str, number: Number | float) -> Region:
    """Return the region of all x in a relation to a number."""
    # floats are only used for infinities
    if isinstance(number, float):
        if sign not in ("<", "<=", ">", ">="):
            raise NoRegion("equal to infinity")
        return _ALL if (number > 0) == (sign[0] == "<") else _NONE
    flags = {
        "<": (False, True, False),
        "<=": (True, True, False),
        ">": (False, False, True),
        ">=": (True, False, True),
        "=": (True, False, False),
        "!=": (False, True, True),
    }
    if sign not in flags:
        raise NoRegion(sign)
    at, below, above = flags[sign]
    return Region((number,), (at,), (below, above))


def _interval(ends: Sequence[Shape], marks: Sequence[str]) -> Region:
    low, high = map(_number, ends)
    if (isinstance(low, float) and low > 0) or (isinstance(high, float) and high < 0):
        raise NoRegion("turned round")
    if not isinstance(low, float) and not isinstance(high, float) and _order(low, high) > 0:
        raise NoRegion("turned round")
    return _and(_compared(">=" if marks[0] == "[" else ">", low), _compared("<=" if marks[1] == "]" else "<", high))


def _as_set(shape: Shape) -> Shape:
    if shape.kind in ("set", "union", "interval", "relation"):
        return shape
    return Shape("set", shape.items if shape.kind == "list" else (shape,))


def _number(shape: Shape) -> Number | float:
    if shape.kind != "formula":
        raise NoRegion(shape.kind)
    if match := INFINITY.fullmatch(shape.text):
        return float("-inf") if match[1] == "-" else float("inf")
    known = as_value(shape.text)
    try:
        if known is not None and known.base is None:
            return known.number / (100 if known.percent else 1)
        found = value(read_expression(shape.text))
    except (Unreadable, NoValue, KeyError) as error:
        raise NoRegion(str(error)) from error
    # borders must be real
    if getattr(found, "imag", 0):
        raise NoRegion("a complex number")
    return getattr(found, "real", found) if type(found).__name__ == "mpc" else found


def _order(one: Number, other: Number) -> int:
    return 0 if same_number(one, other) else -1 if as_float(one) < as_float(other) else 1


def _combine(one: Region, other: Region, operate: Callable[[bool, bool], bool]) -> Region:
    if one.variable and other.variable and one.variable != other.variable:
        raise NoRegion("two variables")
    points: list[Number] = []
    for point in sorted((*one.points, *other.points), key=cmp_to_key(_order)):
        if not points or _order(points[-1], point):
            points.append(point)
    at = [operate(_at(one, point), _at(other, point)) for point in points]
    between = [operate(_after(one, points[:gap]), _after(other, points[:gap])) for gap in range(len(points) + 1)]
    # a point is not a border if it and both neighbouring gaps are all inside, or all outside
    kept = [place for place in range(len(points)) if not between[place] == at[place] == between[place + 1]]
    return Region(
        tuple(points[place] for place in kept),
        tuple(at[place] for place in kept),
        (*(between[place] for place in kept), between[-1]),
        one.variable or other.variable,
    )


def _and(one: Region, other: Region) -> Region:
    return _combine(one, other, lambda left, right: left and right)


def _or(one: Region, other: Region) -> Region:
    return _combine(one, other, lambda left, right: left or right)


def _at(region: Region, point: Number) -> bool:
    for place, border in enumerate(region.points):
        order = _order(point, border)
        if order == 0:
            return region.at[place]
        if order < 0:
            return region.between[place]
    return region.between[-1]


def _after(region: Region, points: list[Number]) -> bool:
    """Return whether the gap after the last of some points, which include this region's borders, belongs to it."""
    if not points:
        return region.between[0]
    return region.between[sum(_order(border, points[-1]) <= 0 for border in region.points)]
