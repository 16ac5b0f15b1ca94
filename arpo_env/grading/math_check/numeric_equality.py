"""`same_expression` compares two formulas by their values. It may take long, so it runs in worker processes.

Rational values are compared exactly, others to 35 of 60 digits. Unknowns are set to several points: first positive
ones, then also negative ones where the functions are real. A formula that has no value at any point equals only itself.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from arpo_env.grading.math_check.parse_expression import Node, symbols

_DIGITS, _AGREE = 60, 35
_EXACT_BITS = 100_000  # most bits of an exact number; a larger one is computed as a float
_LARGEST = 64  # most bits of the binary exponent of a value; what is larger takes memory, and no answer is
_MOST_FACTORS = 20_000  # of a factorial or binomial
_POINTS, _MIXED_POINTS = 3, 3
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
    """Return the value of a formula, a `Fraction` if it is exact.

    Args:
        node: the formula.
        point: values of the unknowns.
        real: raise for roots and logarithms of negative numbers.

    Raises:
        NoValue: the formula has no value at this point.
        TooLarge: a part of it is too large to compute with.
    """
    import mpmath

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
    import mpmath

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
        found.append(_divide(top, bottom))
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
    for _ in range(_POINTS if positive else _MIXED_POINTS):
        if discrete:
            yield {
                name: Fraction(number) for name, number in zip(names, rng.sample(range(3, 40), len(names)), strict=True)
            }
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
    import mpmath

    return mpmath.mpf(number.numerator) / number.denominator if isinstance(number, Fraction) else number


def _value(node: Node, point: Mapping[str, Fraction], real: bool) -> Number:
    import mpmath

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
    parts = [_value(part, point, real) for part in node.parts]
    if node.name in _OPERATIONS:
        found = _OPERATIONS[node.name](*parts)
    elif node.name in ("^", "root", "sqrt", "cbrt"):
        found = _power(node.name, parts, real)
    else:
        found = _function(node.name, parts, real)
    if isinstance(found, Fraction):
        bits = max(found.numerator.bit_length(), found.denominator.bit_length())
        return found if bits <= _EXACT_BITS else as_float(found)
    _limit(found, 2**_LARGEST)
    return found


def _limit(number: Number, bits: int) -> None:
    """Refuse to compute with a number of more bits before the point.

    Raises:
        TooLarge: it has more.
    """
    import mpmath

    for part in (mpmath.re(number), mpmath.im(number)):
        _, mantissa, exponent, length = mpmath.mpf(part)._mpf_
        if mantissa and exponent + length > bits:
            raise TooLarge(f"a number of more than {bits} bits")


def _both(operate: Callable[[Any, Any], Any]) -> Callable[[Number, Number], Number]:
    def apply(one: Number, other: Number) -> Number:
        if isinstance(one, Fraction) and isinstance(other, Fraction):
            return operate(one, other)
        return operate(as_float(one), as_float(other))

    return apply


_divide = _both(lambda one, other: one / other)


def _factorial(number: Number) -> Number:
    if not isinstance(number, Fraction) or number.denominator != 1 or number < 0:
        raise NoValue("factorial of a number that is not a natural number")
    if number > _MOST_FACTORS:
        raise TooLarge(f"the factorial of {number}")
    return Fraction(math.factorial(int(number)))


def _binomial(top: Number, bottom: Number) -> Number:
    if not all(isinstance(part, Fraction) and part.denominator == 1 and part >= 0 for part in (top, bottom)):
        raise NoValue("binomial of numbers that are not natural numbers")
    if min(bottom, top - bottom) > _MOST_FACTORS:
        raise TooLarge(f"a binomial of {_MOST_FACTORS} factors or more")
    return Fraction(math.comb(int(top), int(bottom)))


def _whole(operate: Callable[..., int]) -> Callable[..., Number]:
    def apply(*parts: Number) -> Number:
        if not all(isinstance(part, Fraction) and part.denominator == 1 for part in parts):
            raise NoValue("not an integer")
        return Fraction(operate(*map(int, parts)))

    return apply


def _round(operate: Callable[[Any], Any]) -> Callable[[Number], Number]:
    def apply(part: Number) -> Number:
        import mpmath

        if isinstance(part, Fraction):
            return Fraction(operate(part))
        _limit(part, _EXACT_BITS)
        return Fraction(int((mpmath.floor if operate is math.floor else mpmath.ceil)(part)))

    return apply


def _extreme(operate: Callable[..., Any]) -> Callable[..., Number]:
    return lambda *parts: operate(parts, key=lambda part: as_float(part).real)


_OPERATIONS: dict[str, Callable[..., Number]] = {
    "+": _both(lambda one, other: one + other),
    "*": _both(lambda one, other: one * other),
    "/": _divide,
    "negative": lambda one: -one,
    "abs": abs,
    "!": _factorial,
    "binomial": _binomial,
    "gcd": _whole(math.gcd),
    "lcm": _whole(math.lcm),
    "floor": _round(math.floor),
    "ceiling": _round(math.ceil),
    "max": _extreme(max),
    "min": _extreme(min),
}


def _power(name: str, parts: list[Number], real: bool) -> Number:
    import mpmath

    base = parts[0]
    if name == "^":
        power = parts[1]
        if isinstance(power, Fraction) and power.denominator == 1:
            return _whole_power(base, int(power))
    else:
        power = {"sqrt": Fraction(1, 2), "cbrt": Fraction(1, 3)}.get(name) or _divide(Fraction(1), parts[1])
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
    import mpmath

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
