r"""`same_mathematics` compares two prepared answers mathematically. It runs in worker processes.

The whole answer is read and compared shape by shape (`answer_shapes`), and formula by formula by their values
(`numeric_equality`). A relation equals a relation of the same kind; a list needs as many items as the gold answer.
"""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction

from arpo_env.grading.answer_text.exact_numbers import as_value, is_printed, same_value
from arpo_env.grading.answer_text.units import split_unit
from arpo_env.grading.math_check.answer_shapes import Shape, is_name, read_shape
from arpo_env.grading.math_check.numeric_equality import NoValue, as_float, numerator, ratio, same_expression, value
from arpo_env.grading.math_check.parse_expression import Node, Unreadable, leaves, read_expression, symbols
from arpo_env.grading.math_check.real_sets import INFINITY, NoRegion, in_signs, is_region, same_region

_ORDERED = frozenset(("tuple", "square"))
_UNORDERED = frozenset(("list", "set"))
_TURNED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
_COLUMN = re.compile(r"\\[dt]?binom\s*\{([^{}]+)\}\s*\{([^{}]+)\}")
_DECIMALS = 6  # digits after the point that a decimal number needs to stand for a root


def same_mathematics(answer: str, gold: str, by_text: bool = True) -> bool:
    """Return whether the answer equals the gold answer; both are prepared, and without units.

    Args:
        answer: the answer.
        gold: the gold answer.
        by_text: whether equal texts are equal without evaluation.

    Raises:
        TooLarge: one of them cannot be evaluated in a moment.
    """
    letters = set(re.sub(r"\\[a-zA-Z]+", "", gold))
    # if the gold answer contains both "a" and "A", they are different unknowns
    fold = len(letters) == len({letter.lower() for letter in letters})
    wanted = read_shape(gold)
    if "," not in gold:
        answer = re.sub(
            r"(?<![\d,.(\[])[1-9]\d{0,2}(?:,\d{3})+(?![\d,\])])", lambda match: match[0].replace(",", ""), answer
        )
    if re.search(r"\\log(?![_a-z])", gold):
        answer = re.sub(r"\\log_(?:\{10\}|10(?!\d))|\\lg(?![a-z])", r"\\log ", answer)
    return _Comparison(fold, by_text).same(read_shape(in_signs(answer) if is_region(wanted) else answer), wanted)


class _Comparison:
    """Compares shapes.

    Args:
        fold: whether capital and lower-case letters are the same.
        by_text: whether equal texts are equal without evaluation.
    """

    def __init__(self, fold: bool, by_text: bool = True) -> None:
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
        if gold.kind == "relation" and gold.items[-1].marks == ("pm",) and answer.items[:1] and _are_relations(answer):
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
        if (
            mine is None
            or wanted is None
            or (answer.kind != gold.kind and "square" in (answer.kind, gold.kind) and len(wanted) == 2)
        ):
            return False
        if answer.kind == "list" and (answer.marks != (",",) or any(item.kind == "relation" for item in answer.items)):
            return False
        return self.each(mine, wanted)

    def each(self, answers: tuple[Shape, ...], golds: tuple[Shape, ...]) -> bool:
        """Compare items in order."""
        return len(answers) == len(golds) and all(map(self.same, answers, golds))

    def relation(self, answer: Shape, gold: Shape) -> bool:
        """Compare with a gold relation: its value, the same value under the same name, or the same relation."""
        name, sign, wanted = gold.items[0].text or _text(gold.items[0]), gold.marks[0], gold.items[-1]
        named = len(set(gold.marks)) == 1 and sign in ("=", "in", "~") and is_name(_text(gold.items[0]))
        if answer.kind != "relation":
            return named and self.same(answer, wanted)
        if answer.marks == ("=",) and is_name(_text(answer.items[1])) and not is_name(_text(answer.items[0])):
            answer = Shape("relation", answer.items[::-1], answer.text, answer.marks)
        # the name must agree, except that y and f(x) are used alike
        if named and answer.marks[0] in (sign, "=") and is_name(_text(answer.items[0])):
            mine = _without_spaces(_text(answer.items[0]))
            # one of several roots is also called x_1
            if _without_spaces(name) in (mine, re.sub(r"_?\d$", "", mine)) and self.same(_rest(answer), wanted):
                return True
            if {_text(answer.items[0]), name} <= {"y", "f(x)", "y(x)", "f^{-1}(x)"} and self.same(
                _rest(answer), wanted
            ):
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
            return {_without_spaces(_text(side)) for side in answer.items} == {
                _without_spaces(_text(side)) for side in gold.items
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
        if any(side.kind != "formula" for side in relation.items):
            return None
        try:
            left, right = (read_expression(side.text, self.fold) for side in relation.items)
        except Unreadable:
            return None
        return Node("+", (left, Node("negative", (right,))))

    def chain(self, answer: Shape, gold: Shape) -> bool:
        r"""Compare "x = 4 + 5 = 9" with a value: its last side is the answer, and no side may contradict it."""
        first, last = answer.items[0], answer.items[-1]
        if set(answer.marks) == {"~"} or (answer.marks[-1:] == ("~",) and set(answer.marks[:-1]) <= {"="}):
            return self.approximation(answer, gold)
        if answer.marks == ("in",):
            return (
                is_name(_text(first)) and last.kind == "set" and gold.kind in ("set", "list") and self.same(last, gold)
            )
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
        if side.kind != "formula" or gold.kind != "formula":
            return False
        try:
            return same_expression(read_expression(side.text, self.fold), read_expression(gold.text, self.fold))
        except Unreadable:
            return False

    def foreign(self, side: Shape, gold: Shape) -> bool:
        r"""Return whether a side is a formula in other unknowns, as in "S = \pi r^2 = 9\pi"."""
        if side.kind != "formula" or gold.kind != "formula":
            return False
        try:
            return bool(symbols(read_expression(side.text, self.fold)) - symbols(read_expression(gold.text, self.fold)))
        except Unreadable:
            return False

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
            (answer, unit), (gold, wanted) = (
                split_unit(answer, number is not None),
                split_unit(gold, number is not None),
            )
        else:
            unit = wanted = ""
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


def _are_relations(shape: Shape) -> bool:
    return shape.kind == "list" and all(item.kind == "relation" for item in shape.items)


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
    ends = [as_value(item.text) for item in shape.items]
    return (
        shape.kind == "square"
        and len(ends) == 2
        and (ends[0] is None or ends[1] is None or ends[0].number < ends[1].number)
    )


def _vector(shape: Shape) -> tuple[Shape, ...] | None:
    """Return the items of a point, an ordered list, or a matrix with one row or one column."""
    if shape.kind == "matrix":
        if all(len(row.items) == 1 for row in shape.items):
            return tuple(row.items[0] for row in shape.items)
        return shape.items[0].items if len(shape.items) == 1 else None
    return shape.items if shape.kind in _ORDERED or shape.kind == "list" else None


def _rest(relation: Shape) -> Shape:
    """Return a relation without its first side."""
    if len(relation.items) == 2:
        return relation.items[1]
    return Shape("relation", relation.items[1:], relation.text.partition("=")[2], relation.marks[1:])


def _text(shape: Shape) -> str:
    """Return the text of a name: of a formula, or of a tuple of letters."""
    if shape.kind in ("tuple", "set"):
        return f"({', '.join(map(_text, shape.items))})"
    return shape.text


def _without_spaces(text: str) -> str:
    return re.sub(r"_\{(\w)\}", r"_\1", re.sub(r"(?<!\d)\s+|\s+(?!\d)", "", text))
