"""`same_mathematics` compares two prepared answers mathematically. It may take long, so it runs in worker processes.

The whole answer is read and compared shape by shape, sets of real numbers by their borders, formulas by their values:
rational values exactly, others to 35 of 60 digits, unknowns at several points, first positive ones, then also negative
ones where the functions are real. A relation equals a relation of the same kind; a list needs as many items as the gold
answer. A formula that has no value at any point equals only itself.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cmp_to_key
from itertools import pairwise
from typing import Any

import mpmath  # only worker processes import this module: where it is missing, they are not started

from arpo_env.grading.math_formulas import (
    Node,
    Shape,
    Unreadable,
    is_name,
    leaves,
    read_expression,
    read_shape,
    symbols,
    without_spaces,
    without_thousands,
)
from arpo_env.grading.math_values import as_value, is_printed, same_value, split_unit

_ORDERED = frozenset(("tuple", "square"))
_UNORDERED = frozenset(("list", "set"))
_COLUMN = re.compile(r"\\[dt]?binom\s*\{([^{}]+)\}\s*\{([^{}]+)\}")
_DECIMALS = 6  # digits after the point that a decimal number needs to stand for a root


def same_mathematics(answer: str, gold: str, by_text: bool = True) -> bool:
    """Return whether the answer equals the gold answer; both are prepared, and without units.

    With `by_text`, equal texts are equal without evaluation. Raises TooLarge for what cannot be evaluated in a moment.
    """
    letters = set(re.sub(r"\\[a-zA-Z]+", "", gold))
    # if the gold answer contains both "a" and "A", they are different unknowns
    fold = len(letters) == len({letter.lower() for letter in letters})
    wanted = read_shape(gold)
    if "," not in gold:
        answer = without_thousands(answer)
    if re.search(r"\\log(?![_a-z])", gold):
        answer = re.sub(r"\\log_(?:\{10\}|10(?!\d))|\\lg(?![a-z])", r"\\log ", answer)
    return _Comparison(fold, by_text).same(read_shape(in_signs(answer) if is_region(wanted) else answer), wanted)


class _Comparison:
    """Compares shapes; with `fold`, capital and lower-case letters are the same."""

    def __init__(self, fold: bool, by_text: bool) -> None:
        self.fold, self.by_text = fold, by_text

    def same(self, answer: Shape, gold: Shape) -> bool:
        """Return whether two shapes are the same answer."""
        if answer.kind == "set" and len(answer.items) == 1 and gold.kind == answer.items[0].kind == "tuple":
            answer = answer.items[0]
        if is_region(answer) or is_region(gold):
            try:
                return same_region(answer, gold)
            except NoRegion:
                pass  # not sets after all: "(2, 3)" is compared as a point below
        if gold.marks == ("or",) and answer.kind == "formula" and gold.items[0].kind == "formula":
            return all(self.same(answer, either) for either in gold.items)  # the same value written in two ways
        relations = answer.kind == "list" and all(item.kind == "relation" for item in answer.items)
        if gold.kind == "relation" and gold.items[-1].marks == ("pm",) and answer.items[:1] and relations:
            golds = (replace(gold, items=(*gold.items[:-1], item)) for item in gold.items[-1].items)
            return self.unordered(answer.items, tuple(golds))
        if gold.kind == "relation":
            return self.relation(answer, gold)
        if answer.kind == "relation":
            return self.chain(answer, gold)
        if answer.kind == "formula" and (match := _COLUMN.fullmatch(answer.text)) and gold.kind == "matrix":
            answer = Shape("tuple", tuple(Shape("formula", text=part) for part in match.groups()))
        if gold.kind == "formula" and answer.kind in ("tuple", "matrix"):
            answer, gold = gold, answer
        if answer.kind == "formula" and (items := _vector(gold)) and gold.kind != "list":
            return self.of_units(answer, items)
        if gold.kind in ("formula", "reals", "empty") or answer.kind == "formula":
            return self.single(answer, gold)
        # a list without brackets may be meant in any order; a tuple may not
        if gold.kind in _UNORDERED and answer.kind in _UNORDERED | (
            {"tuple", "square"} if gold.kind == "list" and not _is_interval(answer) else set()
        ):
            return self.unordered(answer.items, gold.items)
        return self.ordered(answer, gold)

    def single(self, answer: Shape, gold: Shape) -> bool:
        """Compare formulas, or sets with one formula."""
        if answer.kind == "set" and len(answer.items) == 1 and gold.kind == "formula":
            answer = answer.items[0]
        if gold.kind == "set" and len(gold.items) == 1 and answer.kind == "formula":
            gold = gold.items[0]
        return answer.kind == gold.kind == "formula" and self.formulas(answer.text, gold.text)

    def of_units(self, answer: Shape, items: tuple[Shape, ...]) -> bool:
        r"""Compare "3\mathbf{i} - \mathbf{j}" with the items of a vector."""
        letters = ("i", "j", "k")[: len(items)]
        if any(item.kind != "formula" for item in items) or not re.search(
            r"(?<![A-Za-z\\])[ij](?![A-Za-z])", answer.text
        ):
            return False
        # other letters, for i is also the imaginary unit
        text = re.sub(r"(?<![A-Za-z\\])([ijk])(?![A-Za-z])", lambda match: f"\\psi_{match[1]}", answer.text)
        total = " + ".join(f"({item.text}) \\psi_{letter}" for item, letter in zip(items, letters, strict=False))
        return len(letters) == len(items) and self.formulas(text, total)

    def unordered(self, answers: tuple[Shape, ...], golds: tuple[Shape, ...]) -> bool:
        """Match each item with an unused equal item."""
        if len(answers) != len(golds):
            return False
        left = list(answers)
        for gold in golds:
            partner = next((place for place, answer in enumerate(left) if self.same(answer, gold)), None)
            if partner is None:
                return False
            del left[partner]
        return True

    def ordered(self, answer: Shape, gold: Shape) -> bool:
        """Compare points, vectors, matrices and intervals, item by item."""
        if gold.kind == "interval" and answer.kind == "interval":
            return answer.marks == gold.marks and self.each(answer.items, gold.items)
        if gold.kind == "union" and answer.kind == "union":
            return self.unordered(answer.items, gold.items)
        if gold.kind == answer.kind == "matrix":
            same_size = [len(row.items) for row in answer.items] == [len(row.items) for row in gold.items]
            return same_size and all(
                self.each(mine.items, row.items) for mine, row in zip(answer.items, gold.items, strict=True)
            )
        mine, wanted = _vector(answer), _vector(gold)
        if mine is None or wanted is None:
            return False
        if answer.kind != gold.kind and "square" in (answer.kind, gold.kind) and len(wanted) == 2:
            return False
        if answer.kind == "list" and (answer.marks != (",",) or any(item.kind == "relation" for item in answer.items)):
            return False
        return self.each(mine, wanted)

    def each(self, answers: tuple[Shape, ...], golds: tuple[Shape, ...]) -> bool:
        return len(answers) == len(golds) and all(map(self.same, answers, golds))

    def relation(self, answer: Shape, gold: Shape) -> bool:
        """Compare with a gold relation: its value, the same value under the same name, or the same relation."""
        name, sign, wanted = gold.items[0].text or _text(gold.items[0]), gold.marks[0], gold.items[-1]
        named = len(set(gold.marks)) == 1 and sign in ("=", "in", "~") and is_name(_text(gold.items[0]))
        if answer.kind != "relation":
            return named and self.same(answer, wanted)
        if answer.marks == ("=",) and is_name(_text(answer.items[1])) and not is_name(_text(answer.items[0])):
            answer = Shape("relation", answer.items[::-1], answer.text, answer.marks)
        if named and answer.marks[0] in (sign, "=") and is_name(own := _text(answer.items[0])):
            rest, mine = answer.items[1], without_spaces(own)
            if len(answer.items) > 2:
                rest = Shape("relation", answer.items[1:], answer.text.partition("=")[2], answer.marks[1:])
            # the name must agree, except that one of several roots is also called x_1, and y and f(x) are used alike
            alike = {own, name} <= {"y", "f(x)", "y(x)", "f^{-1}(x)"}
            if (alike or without_spaces(name) in (mine, re.sub(r"_?\d$", "", mine))) and self.same(rest, wanted):
                return True
        if len(answer.marks) != 1 or len(gold.marks) != 1:
            answer, gold = _rising(answer), _rising(gold)
            return answer.marks == gold.marks and set(gold.marks) <= {"<", "<="} and self.each(answer.items, gold.items)
        return self.same_relation(answer, gold)

    def same_relation(self, answer: Shape, gold: Shape) -> bool:
        """Compare two equations or inequalities up to a factor; a single unknown must be solved for."""
        mine, wanted = self.difference(answer), self.difference(gold)
        if mine is None or wanted is None:
            return False
        sign, other = answer.marks[0], gold.marks[0]
        if len(symbols(wanted)) < 2 and is_name(_text(gold.items[0])) and sign == "=":
            return {without_spaces(_text(side)) for side in answer.items} == {
                without_spaces(_text(side)) for side in gold.items
            }
        # equations with the same solutions often differ by a constant factor
        factor = ratio(mine, wanted)
        if factor is None and sign == other == "=":
            # or by a common denominator
            factor = ratio(numerator(mine), numerator(wanted))
        if factor is None or getattr(factor, "imag", False):
            return False
        turned = as_float(factor).real < 0  # a negative factor reverses an inequality
        return (_TURNED.get(sign, sign) if turned else sign) == other

    def difference(self, relation: Shape) -> Node | None:
        """Return the left side minus the right side."""
        sides = self.read(*relation.items)
        return Node("+", (sides[0], Node("negative", (sides[1],)))) if sides else None

    def read(self, *shapes: Shape) -> list[Node]:
        """Return the formulas of shapes; [] unless all are formulas."""
        if any(shape.kind != "formula" for shape in shapes):
            return []
        try:
            return [read_expression(shape.text, self.fold) for shape in shapes]
        except Unreadable:
            return []

    def chain(self, answer: Shape, gold: Shape) -> bool:
        r"""Compare "x = 4 + 5 = 9" with a value: its last side is the answer, and no side may contradict it."""
        first, last = answer.items[0], answer.items[-1]
        if set(answer.marks) == {"~"} or (answer.marks[-1:] == ("~",) and set(answer.marks[:-1]) <= {"="}):
            return self.approximation(answer, gold)
        if answer.marks == ("in",):
            fits = is_name(_text(first)) and last.kind == "set" and gold.kind in ("set", "list")
            return fits and self.same(last, gold)
        if set(answer.marks) != {"="}:
            return False
        named = is_name(_text(first))
        if len(answer.items) == 2 and is_name(_text(last)) and not named:
            return self.same(first, gold)
        return self.same(last, gold) and all(
            is_name(_text(side)) or self.computed(side, gold) or (named and self.foreign(side, gold))
            for side in answer.items[:-1]
        )

    def approximation(self, answer: Shape, gold: Shape) -> bool:
        r"""Compare "\sqrt{2} \approx 1.41": the exact side is the answer, the last side its rounded value."""
        *exact, last = answer.items
        rounded = as_value(last.text)
        if gold.kind != "formula" or rounded is None or not rounded.decimals:
            return False
        exact = [side for side in exact if not is_name(_text(side))]
        number = as_value(gold.text)
        if not exact:
            return number is not None and number.decimals > 0 and same_value(rounded, number)
        return all(self.computed(side, gold) for side in exact) and self.rounds(
            rounded.decimals, rounded.number, gold.text
        )

    def rounds(self, decimals: int, number: Fraction, text: str) -> bool:
        """Return whether a decimal number is the value of a formula, rounded or truncated."""
        try:
            exact = value(read_expression(text, self.fold))
        except (Unreadable, NoValue, KeyError):
            return False
        gap = abs(as_float(number) - as_float(exact))
        return bool(gap < as_float(Fraction(1, 10**decimals))) and (number != 0)

    def computed(self, side: Shape, gold: Shape) -> bool:
        """Return whether a side of an equation has the gold value."""
        if self.same(side, gold):
            return True
        if side.kind == gold.kind != "formula" and len(side.items) == len(gold.items) > 0:
            return all(map(self.computed, side.items, gold.items))
        nodes = self.read(side, gold)
        return bool(nodes) and same_expression(*nodes)

    def foreign(self, side: Shape, gold: Shape) -> bool:
        r"""Return whether a side is a formula in other unknowns, as in "S = \pi r^2 = 9\pi"."""
        nodes = self.read(side, gold)
        return bool(nodes) and bool(symbols(nodes[0]) - symbols(nodes[1]))

    def formulas(self, answer: str, gold: str) -> bool:
        """Compare two formulas, or two numbers with units."""
        same_text = re.sub(r"\s", "", answer) == re.sub(r"\s", "", gold) and not re.search(r"\d\s+\d", answer)
        if self.by_text and same_text:
            return True
        # infinity is not a value that can be computed with
        if infinite := INFINITY.fullmatch(gold):
            mine_ = INFINITY.fullmatch(answer)
            return mine_ is not None and (mine_[1] == "-") == (infinite[1] == "-")
        number = as_value(split_unit(gold, letters=True)[0])
        if number is not None or "\\circ" not in answer + gold:  # degrees of a formula are converted to radians below
            (answer, unit), (gold, wanted) = (split_unit(text, number is not None) for text in (answer, gold))
            if unit and wanted and unit != wanted:
                return False
        mine = as_value(answer)
        if number is not None and mine is not None and mine.percent == number.percent and same_value(mine, number):
            return True
        # only a number equals a gold number, unless a computer printed it, when it may stand for a root
        if number is not None and not is_printed(number):
            return False
        if mine is not None and mine.base is not None:
            return False
        try:
            left, right = read_expression(_plain_number(answer), self.fold), read_expression(gold, self.fold)
        except Unreadable:
            return False
        # electrical engineers write j
        if "i" in leaves(right) and "j" not in symbols(right):
            left = _with_i(left)
        # an answer with additional unknowns is not a value of the gold formula
        if not symbols(left) <= symbols(right):
            return False
        if same_expression(left, right):
            return True
        if symbols(right):
            return False
        if number is not None:
            return self.rounds(number.decimals, number.number, answer)
        return mine is not None and mine.decimals >= _DECIMALS and self.rounds(mine.decimals, mine.number, gold)


def _with_i(node: Node) -> Node:
    """Return a formula with the imaginary unit in place of the unknown j."""
    return Node("i") if node.symbol == "j" else replace(node, parts=tuple(map(_with_i, node.parts)))


def _rising(chain: Shape) -> Shape:
    """Write "c > b > a" as "a < b < c"."""
    if not set(chain.marks) <= {">", ">="}:
        return chain
    return Shape("relation", chain.items[::-1], chain.text, tuple(_TURNED[sign] for sign in chain.marks[::-1]))


def _plain_number(text: str) -> str:
    r"""Write 0.\overline{3} as 1/3, so that it can be parsed as a formula."""
    number = as_value(text)
    if number is None or number.base is not None or number.decimals:
        return text
    return f"({number.number.numerator})/({number.number.denominator * (100 if number.percent else 1)})"


def _is_interval(shape: Shape) -> bool:
    """Return whether "[a, b]" may be an interval: its first number is less than its second."""
    if shape.kind != "square" or len(shape.items) != 2:
        return False
    low, high = (as_value(item.text) for item in shape.items)
    return low is None or high is None or low.number < high.number


def _vector(shape: Shape) -> tuple[Shape, ...] | None:
    """Return the items of a point, an ordered list, or a matrix with one row or one column."""
    if shape.kind == "matrix":
        if all(len(row.items) == 1 for row in shape.items):
            return tuple(row.items[0] for row in shape.items)
        return shape.items[0].items if len(shape.items) == 1 else None
    return shape.items if shape.kind in _ORDERED or shape.kind == "list" else None


def _text(shape: Shape) -> str:
    """Return the text of a name: of a formula, or of a tuple of letters."""
    if shape.kind in ("tuple", "set"):
        return f"({', '.join(map(_text, shape.items))})"
    return shape.text


# Formulas by their values: `same_expression`.

_DIGITS, _AGREE = 60, 35
_EXACT_BITS = 100_000  # most bits of an exact number; a larger one is computed as a float
_LARGEST = 64  # most bits of the binary exponent of a value; what is larger takes memory, and no answer is
_MOST_FACTORS = 20_000  # of a factorial or binomial
_POINTS = 3
_DISCRETE = ("!", "binomial", "floor", "ceiling", "gcd", "lcm")
Number = Any  # Fraction, or mpmath's mpf or mpc


class NoValue(ArithmeticError):
    """Raised if a formula has no value: a division by 0, a factorial of a fraction, a root of a negative number."""


class TooLarge(Exception):
    """Raised if a formula cannot be evaluated in a moment: towers of powers and functions, factorials of millions."""


def same_expression(answer: Node, gold: Node) -> bool:
    """Return whether two formulas are equal wherever they have values."""
    # sorted, so that both formulas get the same points in every process
    names = sorted(symbols(answer) | symbols(gold))
    if not names:
        try:
            return same_number(value(answer), value(gold))
        except NoValue:
            return False
    agreed = _agree(answer, gold, _points(names, positive=True, discrete=_discrete(answer) or _discrete(gold)), False)
    return agreed is True and _agree(answer, gold, _points(names, positive=False, discrete=False), True) is not False


def value(node: Node, point: Mapping[str, Fraction] | None = None, real: bool = False) -> Number:
    """Return the value of a formula at a point, a `Fraction` if it is exact.

    Raises:
        NoValue: it has none; with `real`, also for roots and logarithms of negative numbers.
        TooLarge: a part of it is too large to compute with.
    """
    with mpmath.workdps(_DIGITS):
        try:
            found = _value(node, point or {}, real)
        except (ArithmeticError, ValueError, TypeError) as error:
            raise NoValue(str(error)) from error
        if not isinstance(found, Fraction) and not mpmath.isfinite(found):
            raise NoValue("infinite")
        return found


def same_number(one: Number, other: Number) -> bool:
    """Compare two values: exactly if both are rational, else to 35 digits."""
    if isinstance(one, Fraction) and isinstance(other, Fraction):
        return one == other
    with mpmath.workdps(_DIGITS):
        one, other = as_float(one), as_float(other)
        size = max(abs(one), abs(other))
        # relative tolerance; differences of equal numbers may leave a tiny rest instead of 0
        return bool(abs(one - other) <= mpmath.mpf(10) ** -_AGREE * size or size < mpmath.mpf(10) ** -50)


def numerator(node: Node) -> Node:
    """Return the numerator of a sum brought to a common denominator."""
    return _over_one_bar(node)[0]


def _over_one_bar(node: Node) -> tuple[Node, Node]:
    one = Node("number", value=Fraction(1))
    if node.name not in ("+", "*", "/", "negative"):
        return node, one
    parts = [_over_one_bar(part) for part in node.parts]
    (top, bottom), (other, below) = parts[0], parts[-1]
    match node.name:
        case "negative":
            return Node("negative", (top,)), bottom
        case "*":
            return Node("*", (top, other)), Node("*", (bottom, below))
        case "/":
            return Node("*", (top, below)), Node("*", (bottom, other))
    return Node("+", (Node("*", (top, below)), Node("*", (other, bottom)))), Node("*", (bottom, below))


def ratio(one: Node, other: Node) -> Number | None:
    """Return the constant c != 0 with one = c * other; None if there is none."""
    names = sorted(symbols(one) | symbols(other))
    if symbols(one) != symbols(other) or not names:
        return None
    found: list[Number] = []
    for point in _points(names, positive=True, discrete=False):
        try:
            top, bottom = value(one, point), value(other, point)
        except NoValue:
            continue
        # a zero at a random point means that no constant factor can be determined
        if bottom == 0 or top == 0:
            return None
        found.append(_operation("/", [top, bottom], False))
    if len(found) < _POINTS - 1 or not all(same_number(each, found[0]) for each in found):
        return None
    return found[0]


def _agree(answer: Node, gold: Node, points: Iterator[dict[str, Fraction]], real: bool) -> bool | None:
    checked = 0
    for point in points:
        try:
            one, other = value(answer, point, real), value(gold, point, real)
        except NoValue:
            continue
        if not same_number(one, other):
            return False
        checked += 1
    # One point may lie outside the domain; agreement at fewer points proves nothing.
    return True if checked >= _POINTS - 1 else None


def _points(names: list[str], positive: bool, discrete: bool) -> Iterator[dict[str, Fraction]]:
    # Seeded by the names, so that grading is deterministic. The fractions are unlikely to meet a root by chance.
    rng = random.Random(str(names))
    for _ in range(_POINTS):
        if discrete:
            yield dict(zip(names, map(Fraction, rng.sample(range(3, 40), len(names))), strict=True))
            continue
        point = {name: Fraction(rng.randint(1009, 3989), rng.choice((1013, 1511, 907))) for name in names}
        yield point if positive else {name: rng.choice((-1, -1, 1)) * number for name, number in point.items()}


def _discrete(node: Node) -> bool:
    # (-1)^n and factorials have values at whole numbers only
    if node.name == "^" and node.parts[0].name == "negative" and symbols(node.parts[1]):
        return True
    return (node.name in _DISCRETE and bool(symbols(node))) or any(map(_discrete, node.parts))


def as_float(number: Number) -> Any:
    """Return a value as an mpmath number."""
    return mpmath.mpf(number.numerator) / number.denominator if isinstance(number, Fraction) else number


def _value(node: Node, point: Mapping[str, Fraction], real: bool) -> Number:
    match node.name:
        case "number":
            return node.value
        case "symbol":
            return point[node.symbol]
        case "pi":
            return +mpmath.pi
        case "e":
            return +mpmath.e
        case "i":
            return mpmath.mpc(0, 1)
    found = _operation(node.name, [_value(part, point, real) for part in node.parts], real)
    if isinstance(found, Fraction):
        bits = max(found.numerator.bit_length(), found.denominator.bit_length())
        return found if bits <= _EXACT_BITS else as_float(found)
    _limit(found, 2**_LARGEST)
    return found


def _operation(name: str, parts: list[Number], real: bool) -> Number:
    match name:
        case "+" | "*" | "/":
            one, other = parts if all(isinstance(part, Fraction) for part in parts) else map(as_float, parts)
            return one + other if name == "+" else one * other if name == "*" else one / other
        case "negative":
            return -parts[0]
        case "abs":
            return abs(parts[0])
        case "max" | "min":
            return (max if name == "max" else min)(parts, key=lambda part: as_float(part).real)
        case "floor" | "ceiling" if isinstance(parts[0], Fraction):
            return Fraction(math.floor(parts[0]) if name == "floor" else math.ceil(parts[0]))
        case "floor" | "ceiling":
            _limit(parts[0], _EXACT_BITS)
            return Fraction(int((mpmath.floor if name == "floor" else mpmath.ceil)(parts[0])))
        case "!" | "binomial" | "gcd" | "lcm":
            return _of_integers(name, parts)
        case "^" | "root" | "sqrt" | "cbrt":
            return _power(name, parts, real)
    return _function(name, parts, real)


def _limit(number: Number, bits: int) -> None:
    """Raise TooLarge for a number of more bits before the point."""
    for part in (mpmath.re(number), mpmath.im(number)):
        _, mantissa, exponent, length = mpmath.mpf(part)._mpf_
        if mantissa and exponent + length > bits:
            raise TooLarge(f"a number of more than {bits} bits")


def _of_integers(name: str, parts: list[Number]) -> Number:
    if not all(isinstance(part, Fraction) and part.denominator == 1 for part in parts):
        raise NoValue(f"{name} of what is not an integer")
    numbers = list(map(int, parts))
    if name in ("gcd", "lcm"):
        return Fraction((math.gcd if name == "gcd" else math.lcm)(*numbers))
    if min(numbers) < 0:
        raise NoValue(f"{name} of a negative number")
    if (numbers[0] if name == "!" else min(numbers[1], numbers[0] - numbers[1])) > _MOST_FACTORS:
        raise TooLarge(f"{name} of {_MOST_FACTORS} factors or more")
    return Fraction(math.factorial(*numbers) if name == "!" else math.comb(*numbers))


def _power(name: str, parts: list[Number], real: bool) -> Number:
    base = parts[0]
    if name == "^":
        power = parts[1]
        if isinstance(power, Fraction) and power.denominator == 1:
            return _whole_power(base, int(power))
    else:
        power = {"sqrt": Fraction(1, 2), "cbrt": Fraction(1, 3)}.get(name) or _operation(
            "/", [Fraction(1), parts[1]], real
        )
    _limit(as_float(power), _LARGEST)
    negative = (isinstance(base, Fraction) and base < 0) or (not isinstance(base, Fraction) and mpmath.re(base) < 0)
    if name in ("root", "cbrt") and negative and isinstance(power, Fraction) and power.denominator % 2 == 1:
        # school mathematics: the odd root of a negative number is real, while mpmath returns the principal value
        return -((-as_float(base)) ** as_float(power))
    if real and (negative or mpmath.im(as_float(base)) != 0):
        raise NoValue("root of a negative number")
    return as_float(base) ** as_float(power)


def _whole_power(base: Number, power: int) -> Number:
    if power.bit_length() > _LARGEST:
        raise TooLarge(f"a power of {power.bit_length()} bits")
    if not isinstance(base, Fraction):
        return base**power
    # very large powers would exhaust memory as exact fractions
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    return base**power if bits * abs(power) <= _EXACT_BITS else as_float(base) ** power


def _function(name: str, parts: list[Number], real: bool) -> Number:
    (argument,) = map(as_float, parts)
    if name in ("ln", "lg"):
        if argument == 0:
            raise NoValue("logarithm of 0")
        if real and (mpmath.im(argument) != 0 or argument < 0):
            raise NoValue("logarithm of a negative number")
        return mpmath.ln(argument) if name == "ln" else mpmath.log10(argument)
    # sin x needs as many digits of pi as x has, exp x is a number of x bits, and sin ix is one of both
    _limit(argument, 1024 if name in ("sin", "cos", "tan", "cot", "sec", "csc") else _LARGEST)
    _limit(mpmath.im(argument), _LARGEST)
    return getattr(mpmath, name)(argument)


# Sets of real numbers: intervals, unions, inequalities, set-builders, \mathbb{R} without points.

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
    """A set of real numbers: its borders, what belongs to it, and the variable ("x" of "2 < x") or ""."""

    borders: tuple[Number, ...]
    has: Callable[[Number], bool]
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
    """Return whether two shapes are the same set of real numbers; raise NoRegion if one of them is no such set.

    Sets that agree on all borders of both and between them are equal.
    """
    mine, wanted = as_region(one), as_region(other)
    if mine.variable and wanted.variable and mine.variable != wanted.variable:
        return False
    return all(mine.has(point) == wanted.has(point) for point in _places(mine, wanted))


def _places(*regions: Region) -> list[Number]:
    """Return the borders of sets, and a point in each gap before, between and after them."""
    borders: list[Number] = []
    for point in sorted((point for region in regions for point in region.borders), key=cmp_to_key(_order)):
        if not borders or _order(borders[-1], point):
            borders.append(point)
    if not borders:
        return [Fraction(0)]
    with mpmath.workdps(_DIGITS):
        low, high = as_float(borders[0]), as_float(borders[-1])
        gaps = [(as_float(one) + as_float(other)) / 2 for one, other in pairwise(borders)]
        return [*borders, *gaps, low - abs(low) - 1, high + abs(high) + 1]


def as_region(shape: Shape) -> Region:
    """Convert a shape to a set of real numbers; raise NoRegion if it is none."""
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
            return _joined(any, [_compared("=", _number(item)) for item in shape.items])
        case "union":
            return _joined(any, list(map(as_region, shape.items)))
        case "minus":
            without = as_region(_as_set(shape.items[1]))
            others = replace(without, has=lambda point: not without.has(point))
            return _joined(all, [as_region(shape.items[0]), others])
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
    either = _joined(any, regions)
    if marks == "or":
        return either
    both = _joined(all, regions)
    return both if marks == "and" or any(map(both.has, _places(both))) else either


def _builder(left: Shape, right: Shape) -> Region:
    condition = as_region(right)
    name = left.items[0] if left.kind == "relation" and left.marks == ("in",) else left
    if name.kind != "formula" or condition.variable != name.text:
        raise NoRegion("a set-builder of another variable")
    universe = as_region(left) if left.kind == "relation" else _ALL
    return replace(_joined(all, [universe, condition]), variable="")


def _relation(shape: Shape) -> Region:
    if shape.marks == ("in",):
        name, region = shape.items[0].text, as_region(shape.items[1])
        if not _VARIABLE.fullmatch(name):
            raise NoRegion("no variable")
        return replace(region, variable=name)
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
        sides = [_compared(_TURNED.get(sign, sign), low), _compared(sign, high)]
        return replace(_joined(all if sign[0] == "<" else any, sides), variable=distance["name"])
    found = []
    for left, sign, right in zip(shape.items, shape.marks, shape.items[1:], strict=False):
        if _VARIABLE.fullmatch(left.text) and left.text not in ("e", "\\pi"):
            found.append(replace(_compared(sign, _number(right)), variable=left.text))
        elif _VARIABLE.fullmatch(right.text):
            found.append(replace(_compared(_TURNED.get(sign, sign), _number(left)), variable=right.text))
        else:
            raise NoRegion("no bare variable")
    return _joined(all, found)


_TURNED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
_ORDERS = {"<": (-1,), "<=": (-1, 0), ">": (1,), ">=": (0, 1), "=": (0,), "!=": (-1, 1)}
_ALL, _NONE = Region((), lambda point: True), Region((), lambda point: False)


def _compared(sign: str, number: Number | float) -> Region:
    """Return the region of all x in a relation to a number; only infinities are floats."""
    if isinstance(number, float):
        if sign not in ("<", "<=", ">", ">="):
            raise NoRegion("equal to infinity")
        return _ALL if (number > 0) == (sign[0] == "<") else _NONE
    if sign not in _ORDERS:
        raise NoRegion(sign)
    return Region((number,), lambda point: _order(point, number) in _ORDERS[sign])


def _interval(ends: Sequence[Shape], marks: Sequence[str]) -> Region:
    low, high = map(_number, ends)
    if (isinstance(low, float) and low > 0) or (isinstance(high, float) and high < 0):
        raise NoRegion("turned round")
    if not isinstance(low, float) and not isinstance(high, float) and _order(low, high) > 0:
        raise NoRegion("turned round")
    above, below = _compared(">=" if marks[0] == "[" else ">", low), _compared("<=" if marks[1] == "]" else "<", high)
    return _joined(all, [above, below])


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
    if not (isinstance(one, Fraction) and isinstance(other, Fraction)):
        if same_number(one, other):
            return 0
        with mpmath.workdps(_DIGITS):
            one, other = as_float(one), as_float(other)
    return int(one > other) - int(one < other)


def _joined(join: Callable[[Iterable[bool]], bool], regions: list[Region]) -> Region:
    """Return the intersection (`all`) or the union (`any`) of sets."""
    names = {region.variable for region in regions} - {""}
    if len(names) > 1:
        raise NoRegion("two variables")
    borders = tuple(border for region in regions for border in region.borders)
    return Region(borders, lambda point: join(region.has(point) for region in regions), "".join(names))
