r"""Reads formulas: the outer shape of an answer (`read_shape`), a formula itself (`read_expression`), its cost.

Shapes are lists, points, intervals, matrices and relations of formulas. Nothing is dropped: text that is not part of a
shape remains in a formula, which then cannot be parsed. The parser takes LaTeX ("3\sqrt{13}") and Python notation
("3*sqrt(13)"), and refuses any remaining text. Nothing is evaluated.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate

from arpo_env.grading.math_values import as_value
from arpo_env.grading.words import listed, word_set

_SIGNS = {
    form: sign
    for sign, forms in {
        "=": "= ==",
        "<": r"< \lt",
        ">": r"> \gt",
        "<=": r"<= \le \leq \leqslant",
        ">=": r">= \ge \geq \geqslant",
        "!=": r"!= \ne \neq",
        "in": r"\in",
        "~": r"\approx \simeq \doteq",
    }.items()
    for form in forms.split()
}
_SIGN = re.compile(
    r"\\(?:leqslant|leq|le|lt|geqslant|geq|ge|gt|neq|ne|in|approx|simeq|doteq)(?![a-zA-Z])|[<>]=|(?<!\d)!=|==|[=<>]"
)
_COMMA = re.compile(
    r"[,;]\s*(?:and|or)(?![A-Za-z])|[,;]|(?<![A-Za-z\\])(?:and|or)(?![A-Za-z])|\\l?or(?![A-Za-z])|\\l?and(?![A-Za-z])|[和或且与及]"
)
_BOTH = re.compile(r"(?<![A-Za-z\\])and(?![A-Za-z])|\\l?and(?![A-Za-z])|[且]")
_EITHER = re.compile(r"(?<![A-Za-z\\])or(?![A-Za-z])|\\l?or(?![A-Za-z])|或")
_CUP = re.compile(r"\\cup(?![a-z])|(?<![A-Za-z\\])U(?=\s*[(\[])")
_MINUS = re.compile(
    r"\\(?:setminus|backslash|smallsetminus)(?![a-z])|(?<=\\mathbb\{R\})\s*-(?=\s*\\?\{)|\s*(?:except|excluding)\s*(?:for)?\s*"
)
_MATRIX = re.compile(
    r"[(\[]?\s*\\begin\s*\{(?P<name>[pbB]?matrix|smallmatrix|array)\}\s*(?:\{[^{}]*\}|\[[^\[\]]*\])?(?P<rows>.*)\\end\s*\{(?P=name)\}\s*[)\]]?",
    re.DOTALL,
)
_SCALED = re.compile(
    r"(?P<factor>-|[^=<>,&]*?[\w})])\s*(?:\\cdot|\\times|\*)?\s*(?P<matrix>[(\[]?\s*\\begin\s*\{(?:[pbB]?matrix|smallmatrix|array)\}.*)",
    re.DOTALL,
)
_TRANSPOSED = re.compile(r"\^\s*\{?\s*(?:\\mathsf\s*|\\mathrm\s*)?(?:T|\\top|\\intercal)\s*\}?$")
_CASES = re.compile(
    r"\\begin\s*\{(?:cases|aligned)\}(?P<rows>.*)\\end\s*\{(?:cases|aligned)\}"
    r"|\\?\{\s*\\begin\s*\{array\}\s*\{[lcr|]*\}(?P<lines>.*)\\end\s*\{array\}\s*\.?",
    re.DOTALL,
)
_BUILDER = re.compile(r"(?=.*\}\Z)\\?\{\s*(?P<left>[^|:]+?)\s*(?:\\mid|\\vert|\\:|\||:)\s*(?P<right>.+?)\s*\\?\}")
_FRENCH = re.compile(r"(?P<left>[\[\]])(?P<low>[^\[\],;]+)[,;](?P<high>[^\[\],;]+)(?P<right>[\[\]])")
_PYTHON_INTERVAL = re.compile(r"Interval(?:\.(?P<ends>open|Lopen|Ropen))?\((?P<low>[^,]+),(?P<high>[^,]+)\)")
_EMPTY = re.compile(
    r"\\(?:emptyset|varnothing)|\\\{\s*\\\}|\{\s*\}|EmptySet|(?:the\s+)?empty\s+set|(?:there\s+(?:is|are)\s+)?no\s+(?:real\s+)?(?:solutions?|answers?)|none|无解|空集|无实数解",
    re.IGNORECASE,
)
_REALS = re.compile(
    r"\\mathbb\{R\}|Reals|\\Re|(?:the\s+set\s+of\s+)?(?:all|any)(?:\s+the)?\s+(?:real\s+numbers?|reals?)|(?:the\s+)?real\s+(?:numbers|line)|全体实数|实数集|任意实数|一切实数",
    re.IGNORECASE,
)
_INFINITE = re.compile(r"\\infty|(?<![A-Za-z])(?:oo|inf|infinity)(?![A-Za-z])")
_GREEK = (
    r"\\(?:alpha|beta|gamma|delta|epsilon|varepsilon|theta|lambda|mu|nu|xi|rho|sigma|tau|phi|varphi|psi|omega|eta|ell"
    r"|Delta|Omega|Phi)(?![a-zA-Z])"
)
_ATOM = rf"(?:[A-Za-z]|{_GREEK})(?:\s*_\s*(?:\{{[^{{}}]*\}}|[A-Za-z0-9]))?'*(?:\s*[(\[](?:[^()\[\]]|\([^()]*\))*[)\]])?"
_FIGURE = (
    r"(?:m?\s*\\angle|\\triangle|\\overline|\\overrightarrow|\\widehat|\\arc|\\mathrm)?\s*\{?\s*[A-Z](?:\s*[A-Z]'?){0,4}\s*\}?"
    r"|\|\s*\{?[A-Z]\s*[A-Z]\}?\s*\||\[[A-Z]{3,}\]|\\angle\s*\d"
)
_INVERSE = r"\\(?:bar|overline)\s*\{?\s*[a-z]\s*\}?|[A-Za-z]\s*\^\s*\{\s*-\s*1\s*\}\s*\([^()]*\)"
_NAME = re.compile(
    rf"{_INVERSE}|(?:{_ATOM})(?:\s*\+\s*{_ATOM})*|{_FIGURE}|(?:max|min|\\max|\\min)(?:_\S+)?(?:\s+{_ATOM})?"
)
_NAMES = re.compile(rf"\\?[({{]\s*{_ATOM}(?:\s*,\s*{_ATOM})+\s*\\?[)}}]")
NAME_LIST = re.compile(rf"(?<![A-Za-z\\]){_ATOM}(?:\s*,\s*{_ATOM})*\s*,?\s*(?:and|[,和与])\s*{_ATOM}(?![A-Za-z])")


@dataclass(frozen=True)
class Shape:
    """A text with its outer structure."""

    # formula, list, set, tuple, square (brackets), interval, union, minus, matrix, row (of a matrix), relation,
    # builder, empty or reals
    kind: str
    items: tuple[Shape, ...] = ()  # the parts; the sides of a relation
    text: str = ""  # of a formula
    marks: tuple[str, ...] = ()  # the brackets of an interval; the signs of a relation; "and", "or" or "," of a list


@lru_cache(maxsize=64)  # the parts of a list, and the whole answer, are read several times
def read_shape(text: str) -> Shape:
    """Return the shape of a prepared answer."""
    text = text.replace("\\langle", "(").replace("\\rangle", ")").replace("\\lbrace", "\\{").replace("\\rbrace", "\\}")
    text = text.replace("\\colon", ":").replace("\\lvert", "|").replace("\\rvert", "|").replace("\\vert", "|")
    return _read_any(re.sub(r"\+/-|\+-", r"\\pm ", text))


def is_name(text: str) -> bool:
    """Return whether a text names a quantity: "x", "f(2)", "AB", "m+n", "S_{20}"; neither "2x" nor "|x|"."""
    text = text.strip()
    return _NAME.fullmatch(text) is not None or _NAMES.fullmatch(text) is not None


def without_spaces(text: str) -> str:
    """Remove spaces, except between digits, and the braces of short subscripts."""
    return re.sub(r"_\{(\w)\}", r"_\1", re.sub(r"(?<!\d) | (?!\d)", "", text))


def without_thousands(text: str) -> str:
    """Write 1,204 as 1204, unless the commas may separate items."""
    return re.sub(r"(?<![\d,.(\[])[1-9]\d{0,2}(?:,\d{3})+(?![\d,\])])", lambda match: match[0].replace(",", ""), text)


def names_in(text: str) -> list[str]:
    r"""Return the names in "(r, \theta)" or "p, q and r", without spaces."""
    names = re.findall(_ATOM, re.sub(r"\band\b", ",", text))
    return [re.sub(r"_\{(\w)\}", r"_\1", re.sub(r"\s", "", name)) for name in names]


def named_parts(text: str) -> dict[str, str]:
    """Return the values of "x = 1, y = 2" and "(x, y) = (1, 2)" by name; {} for other texts and repeated names."""
    if match := _CASES.fullmatch(text):
        text = ", ".join(_rows(match))
    if _EITHER.search(text):
        return {}
    sides = equation_sides(text)
    if len(sides) == 2 and _NAMES.fullmatch(sides[0].strip()) and _encloses(sides[1]):
        names, values = names_in(sides[0]), list(split_outside_brackets(sides[1][1:-1], re.compile("[,;]")))
    else:
        pairs = [equation_sides(part) for part in split_outside_brackets(text, _COMMA)]
        if len(pairs) < 2 or not all(len(pair) == 2 and is_name(pair[0]) for pair in pairs):
            return {}
        names, values = ["".join(names_in(name)) for name, _ in pairs], [value for _, value in pairs]
    found = dict(zip(names, values, strict=False))
    return found if len(found) == len(names) == len(values) else {}


def equation_sides(text: str) -> list[str]:
    """Return the sides of a chain of equalities; [] if the text has any other relation, or is a list."""
    shape = read_shape(text)
    if shape.kind != "relation" or set(shape.marks) != {"="}:
        return []
    return list(split_outside_brackets(text, _SIGN))


def split_outside_brackets(text: str, separator: re.Pattern[str]) -> Iterator[str]:
    """Split a text at separators outside brackets."""
    start = 0
    for match in _separators(text, separator):
        yield text[start : match.start()].strip()
        start = match.end()
    yield text[start:].strip()


def _separators(text: str, separator: re.Pattern[str]) -> Iterator[re.Match[str]]:
    depth = position = 0
    while position < len(text):
        if depth == 0 and (match := separator.match(text, position)) and (position or separator is _SIGN):
            yield match
            position = match.end()
            continue
        letter = text[position]
        depth += (letter in "([{") - (letter in ")]}")
        # skip the letter after a backslash, so that no separator is found inside a command name
        position += 2 if letter == "\\" and text[position + 1 : position + 2] not in ("{", "}") else 1


def _rows(match: re.Match[str]) -> list[str]:
    rows = (match["rows"] or match["lines"] or "").split("\\\\")
    return [row.strip(" ,;&").replace("&", "") for row in rows if row.strip()]


def _read_any(text: str) -> Shape:
    text = text.strip()
    if _EMPTY.fullmatch(text):
        return Shape("empty")
    if _REALS.fullmatch(text):
        return Shape("reals")
    if match := _MATRIX.fullmatch(text):
        return _matrix(match["rows"])
    if (match := _SCALED.fullmatch(text)) and (inner := _MATRIX.fullmatch(match["matrix"])):
        return _matrix(inner["rows"], "-1" if match["factor"] == "-" else match["factor"])
    if match := _CASES.fullmatch(text):
        return Shape("list", tuple(map(_read_any, _rows(match))), marks=(",",))
    if (match := _BUILDER.fullmatch(text)) and _SIGN.search(match["right"]) and _encloses(text):
        return Shape("builder", (_read_any(match["left"]), _read_any(match["right"])))
    # a list binds weakest: "x = 1, x = 2" is a list of relations, not a relation with a list
    parts = list(split_outside_brackets(text, _COMMA))
    if len(parts) > 1 and all(parts):
        marks = "and" if _BOTH.search(text) else "or" if _EITHER.search(text) else ","
        return Shape("list", _flatten(map(_read_any, parts)), marks=(marks,))
    if "\\pm" in text and (text[0] == "(" or ("=" in text and not is_name(text.partition("=")[0]))) and _is_whole(text):
        return Shape("list", tuple(map(_read_any, _with_signs(text))), marks=("pm",))  # two points, or two lines
    if shape := _relation(text) or _sets(text) or _group(text):
        return shape
    if "\\pm" not in text:
        return Shape("formula", text=text)
    return Shape("list", tuple(Shape("formula", text=signed) for signed in _with_signs(text)), marks=("pm",))


def _relation(text: str) -> Shape | None:
    parts = list(split_outside_brackets(text, _SIGN))
    if len(parts) < 2:
        return None
    if not all(parts):
        return Shape("formula", text=text)
    signs = tuple(_SIGNS[match[0]] for match in _separators(text, _SIGN))
    return Shape("relation", tuple(map(_read_any, parts)), text=text, marks=signs)


def _sets(text: str) -> Shape | None:
    if _CUP.search(text):
        parts = list(split_outside_brackets(text, _CUP))
        if len(parts) == 1 and not _encloses(text):  # "[2,5[" has unbalanced brackets
            parts = [part.strip() for part in _CUP.split(text)]
        if len(parts) == 1:
            return None
        return Shape("union", tuple(map(_read_any, parts))) if all(parts) else Shape("formula", text=text)
    parts = [part.strip() for part in _MINUS.split(text)]
    if len(parts) == 2 and all(parts):
        return Shape("minus", tuple(map(_read_any, parts)))
    return None


def _group(text: str) -> Shape | None:
    if match := _TRANSPOSED.search(text):
        inner = _read_any(text[: match.start()])
        rows = inner.items if inner.kind == "matrix" else (inner,)
        if inner.kind in ("matrix", "tuple", "square") and len({len(row.items) for row in rows}) == 1:
            columns = zip(*(row.items for row in rows), strict=True)
            return Shape("matrix", tuple(Shape("row", column) for column in columns))
    if match := _PYTHON_INTERVAL.fullmatch(text):
        marks = {None: ("[", "]"), "open": ("(", ")"), "Lopen": ("(", "]"), "Ropen": ("[", ")")}[match["ends"]]
        return Shape("interval", (_read_any(match["low"]), _read_any(match["high"])), marks=marks)
    if (match := _FRENCH.fullmatch(text)) and (match["left"], match["right"]) != ("[", "]"):
        marks = ("[" if match["left"] == "[" else "(", "]" if match["right"] == "]" else ")")
        return Shape("interval", (_read_any(match["low"]), _read_any(match["high"])), marks=marks)
    if match := re.fullmatch(r"(?:Matrix|FiniteSet|Tuple|Union)\((.*)\)", text, re.DOTALL):
        return _read_python_call(text.partition("(")[0], match[1])
    opening = "\\{" if text.startswith("\\{") else text[:1]
    closing = "\\}" if text.endswith("\\}") else text[-1:]
    if opening not in ("(", "[", "{", "\\{") or closing not in (")", "]", "}", "\\}") or not _encloses(text):
        return None
    inside = text[len(opening) : -len(closing)]
    parts = list(split_outside_brackets(inside, re.compile("[,;]")))
    if len(parts) == 1:
        curly = opening in ("{", "\\{") and closing in ("}", "\\}")
        inner = _read_any(parts[0])
        if curly or (opening == "(" and closing == ")"):
            return Shape("set", _flatten([inner])) if opening == "\\{" else inner if inner.kind != "formula" else None
        return Shape("square", (inner,)) if opening == "[" and closing == "]" else None
    if not all(parts):
        return None
    items = tuple(map(_read_any, parts))
    # "(2, 3)" may be a point or an interval; it is read as an interval only if its ends leave no other choice
    if len(items) == 2 and (
        (opening, closing) in (("(", "]"), ("[", ")")) or (opening in "([" and _INFINITE.search(inside))
    ):
        return Shape("interval", items, marks=(opening, closing))
    kind = {("(", ")"): "tuple", ("[", "]"): "square", ("{", "}"): "set", ("\\{", "\\}"): "set"}.get((opening, closing))
    if kind is None:
        return None
    # nested Python lists are the rows of a matrix
    if kind == "square" and all(item.kind == "square" for item in items):
        return Shape("matrix", tuple(Shape("row", item.items) for item in items))
    return Shape(kind, _flatten(items) if kind == "set" else items)


def _read_python_call(name: str, inside: str) -> Shape:
    if name == "Matrix":  # the inside is read once: read twice, nested ones would take exponential time
        inner = _read_any(inside)
        if (inner.kind == "square" and len(inner.items) == 1) or inner.kind == "matrix":
            return inner if inner.kind == "matrix" else Shape("matrix", (Shape("row", inner.items[0].items),))
        return Shape("matrix", tuple(Shape("row", (item,)) for item in inner.items))
    parts = tuple(map(_read_any, split_outside_brackets(inside, re.compile(","))))
    return Shape({"FiniteSet": "set", "Tuple": "tuple", "Union": "union"}[name], parts)


def _matrix(rows: str, factor: str = "") -> Shape:
    cells = [row.split("&") for row in re.split(r"\\\\|\\cr(?![a-z])", rows.replace("\\hline", "")) if row.strip()]
    rows_ = (tuple(_read_any(_scaled_cell(factor, cell) if factor else cell) for cell in row) for row in cells)
    return Shape("matrix", tuple(Shape("row", row) for row in rows_))


def _scaled_cell(factor: str, cell: str) -> str:
    one, other = as_value(factor), as_value(cell.strip())
    if one is None or other is None or one.base or other.base:
        return f"({factor})({cell})"
    return str(one.number * other.number)


def _with_signs(text: str) -> tuple[str, str]:
    # \mp takes the opposite sign of \pm
    upper = re.sub(r"(^|[(,=])\s*\+", r"\1", text.replace("\\pm", "+").replace("\\mp", "-"))
    return upper, text.replace("\\pm", "-").replace("\\mp", "+")


def _is_whole(text: str) -> bool:
    """Return whether a text is one equation, or one point with two or more coordinates."""
    return text.count("=") == 1 if text[0] != "(" else _encloses(text) and "," in text and "=" not in text


def _flatten(items: object) -> tuple[Shape, ...]:
    r"""Flatten the lists that \pm creates inside a list; "x = \pm 2" is a list of two relations."""
    found: list[Shape] = []
    for item in items:  # type: ignore[attr-defined]
        found += item.items if item.kind == "list" and item.marks == ("pm",) else [item]
    return tuple(found)


def _encloses(text: str) -> bool:
    """Return whether the first bracket is closed by the last one."""
    return closing_place(text) == len(text) - 1 >= 0


def closing_place(text: str, start: int = 0, brackets: str = "([{)]}") -> int:
    """Return the place of the bracket that closes the first one from `start` on, or -1."""
    half, depth = len(brackets) // 2, 0
    for place in range(start, len(text)):
        depth += (text[place] in brackets[:half]) - (text[place] in brackets[half:])
        if depth == 0 and text[place] in brackets[half:]:
            return place
    return -1


# Recognises names of quantities longer than a letter: "\cos C", "|z|", "AF^2", "\frac{BM}{MC}", "P \cap M".
#
# On one side of "=", such a name says what is measured, and the other side is the value. A formula in lower-case
# letters is not a name: "x^2 = 9" is an equation, and 9 is not its solution.

_POINTS = r"(?:\\(?:overline|overrightarrow|vec|widehat)\s*)?\{?\s*\|?\s*[A-Z]'?\s*[A-Z]'?\s*\|?\s*\}?"
_SEGMENT = rf"(?:{_POINTS}|\|\s*{_POINTS}\s*\|)"
_ANGLE = r"\(?\s*(?:\\angle\s*)?\{?\s*(?:[A-Z]{1,3}|\\(?:alpha|beta|gamma|theta|phi)|\\angle\s*\d)\s*\}?\s*\)?"
_LETTER = r"(?:\\(?:vec|mathbf|overline|bar|hat)\s*)?\{?\s*[A-Za-z]\s*\}?"
_VECTOR = (
    r"(?:(?:\\(?:vec|mathbf|overrightarrow|bar)\s*\{?\s*[A-Za-z]{1,2}\s*\}?)|[A-Z]{1,2}|(?<![A-Za-z])[a-z](?![A-Za-z]))"
)
_ALWAYS = (
    rf"\\?(?:sin|cos|tan|cot|sec|csc)\s*{_ANGLE}",
    rf"\\frac\s*\{{\s*{_SEGMENT}\s*\}}\s*\{{\s*{_SEGMENT}\s*\}}|{_SEGMENT}\s*/\s*{_SEGMENT}",
    rf"(?:\|\s*|\\\|\s*)\d?{_LETTER}(?:\s*[-+]\s*\d?{_LETTER})+(?:\s*\||\s*\\\|)",
    rf"{_VECTOR}(?:\s*(?:\\times|\\cdot|[-+])\s*{_VECTOR})+",
    r"(?:\(?\\complement_?[A-Z]?\s*)?\(?[A-Z]\)?(?:\s*\\(?:cap|cup|setminus)\s*\(?(?:\\complement_?\{?[A-Z]?\}?\s*)?[A-Z]\)?)+",
    r"\\?(?:gcd|lcm|det|deg|arg|dim|rank|Var|tr|Pr)\s*(?:\(|\s)\s*[^=<>()]{1,40}\)?",
    r"\\?(?:det|rank|dim|tr)",
    r"\\(?:sum|prod|int|lim)(?![a-z])\s*[_^][^=<>]*(?:=[^=<>{}]*\})?[^=<>]*",
    r"[CPA]\s*_\s*\{?\d+\}?\s*\^\s*\{?\d+\}?|\{\}_\{?\d+\}?\s*[CP]_\{?\d+\}?",
    r"[EPV](?:ar)?\s*[(\[][^=<>]{1,30}[)\]]",
    rf"{_SEGMENT}\s*:\s*{_SEGMENT}",
    r"\\frac\s*\{\s*d\s*[a-z]?\s*\}\s*\{\s*d\s*[a-z]\s*\}",
    rf"{_SEGMENT}(?:\s*\+\s*{_SEGMENT})+",
)
_GOLD = (
    rf"\|\s*{_LETTER}\s*\|",
    rf"{_SEGMENT}\s*\^\s*\{{?2\}}?(?:\s*[-+]\s*{_SEGMENT}\s*\^\s*\{{?2\}}?)*",
    rf"{_SEGMENT}(?:\s*(?:\\cdot|\\times)\s*{_SEGMENT})+",
    r"\\?log_\{?\w+\}?\s*\(?\w+\)?",
)
_MEASURE = re.compile("|".join(_ALWAYS))
_OF_GOLD = re.compile("|".join((*_ALWAYS, *_GOLD)))


def is_measure(text: str, gold: bool = False) -> bool:
    r"""Return whether a side of an equation names a quantity; in a gold answer, AF^2 = 5 is not AF = \sqrt{5}."""
    text = text.strip()
    if len(text) > 100:
        return False
    return is_name(text) or (_OF_GOLD if gold else _MEASURE).fullmatch(text) is not None


# Strict parser of formulas in LaTeX ("3\sqrt{13}") or Python notation ("3*sqrt(13)"): `read_expression`.


class Unreadable(ValueError):
    """Raised for a text that is not a formula."""


@dataclass(frozen=True)
class Node:
    """A node of a formula's tree."""

    name: str  # "number", "symbol", an operator ("+", "*", "/", "^", "negative", "!") or a function
    parts: tuple[Node, ...] = ()
    value: Fraction = Fraction(0)  # of a number
    symbol: str = ""
    decimals: int = 0  # digits after the point of a decimal number


_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?|\.\d+)|(?P<command>\\[a-zA-Z]+|\\%)|(?P<word>[A-Za-z]+)|(?P<sign>\*\*|[-+*/^!|()\[\]{}_'%,]))"
)
_GREEK_LETTERS = listed("greek letters")
_TRIGONOMETRY = ("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh")
_FUNCTIONS = {name: name for name in _TRIGONOMETRY} | {f"a{name}": f"a{name}" for name in _TRIGONOMETRY}
_FUNCTIONS |= {f"arc{name}": f"a{name}" for name in _TRIGONOMETRY}
_FUNCTIONS |= {"ln": "ln", "log": "ln", "lg": "lg", "exp": "exp", "tg": "tan", "ctg": "cot", "arctg": "atan"}
_CALLED = _FUNCTIONS | {name: name for name in word_set("sqrt cbrt abs floor ceiling binomial max min gcd lcm")}
_CALLED |= {"Abs": "abs", "ceil": "ceiling", "factorial": "!", "binom": "binomial", "Rational": "/", "Fraction": "/"}
_ARGUMENTS = {"binomial": (2,), "/": (2,), "max": (2, 3, 4), "min": (2, 3, 4), "gcd": (2,), "lcm": (2,), "ln": (1, 2)}
_CONSTANTS = frozenset(("pi", "e", "i"))
_CLOSERS = {"(": ")", "[": "]", "{": "}", "|": "|", "\\lfloor": "\\rfloor", "\\lceil": "\\rceil"}
_TIMES = frozenset(("*", "\\cdot", "\\times", "\\ast"))
_OVER = frozenset(("/", "\\div"))


def read_expression(text: str, fold: bool = True) -> Node:
    """Parse a formula into a tree, with `fold` in lower case; raise Unreadable for what is not a formula."""
    reader = _Reader(_tokens(text, fold))
    node = reader.sum()
    reader.expect("")
    return node


def symbols(node: Node) -> set[str]:
    """Return the unknowns in a formula."""
    return ({node.symbol} if node.name == "symbol" else set()).union(*map(symbols, node.parts))


def leaves(node: Node) -> list[str]:
    """Return the numbers, unknowns and functions in a formula, in unspecified order."""
    own = {"number": str(node.value), "symbol": node.symbol}.get(
        node.name, "" if node.name in ("+", "*", "/", "^", "negative") else node.name
    )
    return [leaf for leaf in (own, *(leaf for part in node.parts for leaf in leaves(part))) if leaf]


def _tokens(text: str, fold: bool) -> list[str]:
    text = re.sub(r"\\(?:left|right|,|;|!|quad)(?![a-zA-Z])|\\thinspace", " ", text).strip()
    found, position = [], 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise Unreadable(f"{text[position : position + 20]!r} is not part of a formula")
        if word := match["word"]:
            found += _split_word(word, text[match.end() :].lstrip()[:1] == "(", fold)
        else:
            found.append(match[match.lastgroup or 0])
        position = match.end()
    return found


def _split_word(word: str, called: bool, fold: bool) -> list[str]:
    """Split adjacent letters into factors, unless they spell a constant or a function."""
    if word in _FUNCTIONS or word in ("pi", "sqrt") or word in _GREEK_LETTERS or (called and word in _CALLED):
        return ["\\" + word]
    # longer runs of letters are words that would otherwise become products
    if len(word) > 4:
        raise Unreadable(f"{word!r} is a word")
    return list(word.lower() if fold else word)


class _Reader:
    """A recursive descent parser."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens, self.position = tokens, 0

    @property
    def next(self) -> str:
        return self.tokens[self.position] if self.position < len(self.tokens) else ""

    def take(self) -> str:
        token = self.next
        self.position += 1
        return token

    def expect(self, token: str) -> None:
        if self.next != token:
            raise Unreadable(f"{self.next!r} where {token!r} should be")
        self.position += 1

    def sum(self) -> Node:
        node = self.signed()
        while self.next in ("+", "-"):
            minus = self.take() == "-"
            term = self.product() if minus else self.signed()
            node = Node("+", (node, Node("negative", (term,)) if minus else term))
        return node

    def signed(self) -> Node:
        if self.next in ("+", "-"):
            return Node("negative", (self.product(),)) if self.take() == "-" else self.product()
        return self.product()

    def product(self) -> Node:
        node, bare = self.factor()
        while True:
            if self.next in _TIMES:
                self.take()
                right, bare = self.signed_factor()
                node = Node("*", (node, right))
            elif self.next in _OVER:
                self.take()
                node, bare = self.quotient(node)
            elif self.starts_factor(bare) or (node.name == "i" and self.next[:1].isdigit()):
                right, bare = self.factor()
                node = _mixed(node, right) or Node("*", (node, right))
            else:
                return node

    def quotient(self, top: Node) -> tuple[Node, bool]:
        """Parse a denominator after a slash: "a/2b" is a/(2b), but "1/2 b" with two numbers is half of b."""
        bottom, bare = self.signed_factor()
        # "1/2 b" is a fraction times b
        whole = top.name == "number" and bottom.name == "number"
        while not whole and self.starts_factor(bare) and self.next != "(":
            right, bare = self.factor()
            bottom = Node("*", (bottom, right))
        return Node("/", (top, bottom)), bare and not whole

    def signed_factor(self) -> tuple[Node, bool]:
        if self.next in ("-", "+"):
            minus = self.take() == "-"
            node, bare = self.factor()
            return (Node("negative", (node,)) if minus else node), bare
        return self.factor()

    def starts_factor(self, after_number: bool) -> bool:
        token = self.next
        if not token or token in _TIMES or token in _OVER:
            return False
        if token[0].isdigit() or token[0] == ".":
            return False  # "2 3" is not a product
        return token in ("(", "[", "{") or (token[0] == "\\" and token not in _CLOSERS.values()) or token.isalpha()

    def factor(self) -> tuple[Node, bool]:
        """Parse a factor with its powers; the second value says whether it is a bare number."""
        start = self.position
        node = self.postfix(self.atom())
        if self.next in ("^", "**"):
            self.take()
            node = self.postfix(Node("^", (node, self.exponent())))
        return node, node.name == "number" and self.position == start + 1

    def exponent(self) -> Node:
        if self.next == "{":
            return self.bracket("{")
        if self.next in ("-", "+"):
            return Node("negative", (self.exponent(),)) if self.take() == "-" else self.exponent()
        return self.factor()[0]

    def postfix(self, node: Node) -> Node:
        while self.next in ("!", "%", "\\%"):
            factorial = self.take() == "!"
            node = Node("!", (node,)) if factorial else Node("/", (node, Node("number", value=Fraction(100))))
        for sign in (["^", "\\circ"], ["^", "{", "\\circ", "}"]):
            if self.tokens[self.position : self.position + len(sign)] == sign:
                self.position += len(sign)
                return Node("/", (Node("*", (node, Node("pi"))), Node("number", value=Fraction(180))))
        return node

    def bracket(self, opening: str) -> Node:
        self.expect(opening)
        node = self.sum()
        self.expect(_CLOSERS[opening])
        return node

    def atom(self) -> Node:
        token = self.next
        if token[:1].isdigit() or token[:1] == ".":
            self.take()
            return Node("number", value=Fraction(token), decimals=len(token.partition(".")[2]))
        if token in _CLOSERS:
            node = self.bracket(token)
            names = {"|": "abs", "\\lfloor": "floor", "\\lceil": "ceiling"}
            return Node(names[token], (node,)) if token in names else node
        if token.isalpha():
            return self.symbol(self.take())
        if token[:1] == "\\" and len(token) > 1:
            return self.command(self.take()[1:])
        raise Unreadable(f"{token!r} where a number or a letter should be")

    def symbol(self, name: str) -> Node:
        if self.next == "_":
            self.take()
            name += "_" + self.subscript()
        while self.next == "'":
            name += self.take()
        return Node("symbol", symbol=name) if name not in _CONSTANTS else Node(name)

    def subscript(self) -> str:
        if self.next != "{":
            return self.take().lstrip("\\")
        end = self.tokens.index("}", self.position) if "}" in self.tokens[self.position :] else len(self.tokens)
        inside = self.tokens[self.position + 1 : end]
        self.position = end + 1
        return "".join(inside).replace("\\", "")

    def command(self, name: str) -> Node:
        match name:
            case "frac" | "dfrac" | "tfrac" | "cfrac":
                return Node("/", (self.argument(), self.argument()))
            case "binom" | "dbinom" | "tbinom" if self.next == "{":
                return Node("binomial", (self.argument(), self.argument()))
            case "sqrt" if self.next == "[":
                degree = self.bracket("[")
                return Node("root", (self.argument(), degree))
            case "sqrt" if self.next != "(":
                return Node("sqrt", (self.atom() if self.next[:1].isdigit() else self.argument(),))
            case "pi":
                return Node("pi")
            case "lvert" | "vert":
                node = self.sum()
                self.position += self.next in ("\\rvert", "\\vert")
                return Node("abs", (node,))
        if name in _FUNCTIONS:
            return self.function(_FUNCTIONS[name], plain_log=name == "log")
        if name in _CALLED and self.next == "(":
            return self.call(_CALLED[name])
        if name in _GREEK_LETTERS:
            return self.symbol(name)
        raise Unreadable(f"\\{name} is not part of a formula")

    def argument(self) -> Node:
        """Parse {...}, or a single digit or letter, as LaTeX does."""
        if self.next == "{":
            return self.bracket("{")
        if (len(self.next) == 1 and self.next.isalnum()) or self.next == "\\pi":
            return self.atom()
        raise Unreadable(f"{self.next!r} where {{ should be")

    def call(self, name: str) -> Node:
        self.expect("(")
        parts = [self.sum()]
        while self.next == ",":
            self.take()
            parts.append(self.sum())
        self.expect(")")
        if len(parts) not in _ARGUMENTS.get(name, (1,)):
            raise Unreadable(f"{name} of {len(parts)} arguments")
        if name == "ln" and len(parts) == 2:
            return Node("/", tuple(Node("ln", (part,)) for part in parts))
        return Node(name, tuple(parts))

    def function(self, name: str, plain_log: bool = False) -> Node:
        base: Node | None = None
        if plain_log and self.next == "_":
            self.take()
            base = self.bracket("{") if self.next == "{" else self.atom()
        power: Node | None = None
        if self.next in ("^", "**"):
            self.take()
            power = self.exponent()
        node = self.call(name) if self.next == "(" else Node(name, (self.operand(),))
        if base is not None:
            # ln 0 and ln 1 would be the divisor
            if base.name == "number" and base.value in (0, 1):
                raise Unreadable("no such logarithm")
            node = Node("/", (node, Node("ln", (base,))))
        if power is None:
            return node
        # \sin^{-1} is the inverse function, while other powers apply to the value
        if power == Node("negative", (Node("number", value=Fraction(1)),)) and name in _TRIGONOMETRY:
            return Node("a" + name, node.parts)
        return Node("^", (node, power))

    def operand(self) -> Node:
        r"""Parse the operand of a function without brackets: "\sin 2x\cos x" is a product of two functions."""
        node, bare = self.factor()
        following = self.tokens[self.position + 1 : self.position + 2]
        if self.next == "/" and node.name == "number" and following and following[0].lstrip("\\") not in _FUNCTIONS:
            self.take()
            right, bare = self.factor()
            node = Node("/", (node, right))
        while self.starts_factor(bare) and self.next not in ("(", "[") and self.next.lstrip("\\") not in _FUNCTIONS:
            right, bare = self.factor()
            node = Node("*", (node, right))
        return node


def _mixed(whole: Node, part: Node) -> Node | None:
    r"""Read "1\frac{4}{5}" as 1 + 4/5; the fraction of a mixed number is a proper one."""
    if whole.name != "number" or whole.decimals or part.name != "/":
        return None
    top, bottom = part.parts
    if top.name != "number" or bottom.name != "number":
        return None
    if top.value >= bottom.value or top.decimals or bottom.decimals:
        raise Unreadable("a number before an improper fraction")
    return Node("+", (whole, part))


# Recognises answers that are too expensive to evaluate: towers of powers, factorials, long sums, deep nesting.
#
# Policies find such answers. Beside an ordinary gold answer they are wrong without evaluation, which would cost a
# process its whole time limit each. The check takes linear time.

LONGEST = 200  # characters of a prepared answer, unless the gold answer itself is longer
_DEPTH = 6
_SLASHES = 12
_POWER = 100  # maximum exponent of a variable
_SUM_POWER = 20  # maximum exponent of a bracket that is not a number
_TERMS = 300  # maximum terms of such brackets when expanded
_DIGITS = 1000  # maximum digits of the result for a numeric base
_EXPONENT = re.compile(
    r"(?P<base>(?<![\w.])[\w.]*+|(?<=[\w.])|[)}\]])\s*(?:\^|\*\*)\s*(?P<power>\{|\(|[-+]?[\w.]+|\\[a-z]+)"
)
_LITERAL = re.compile(r"[-+({\[]*(?:\d++(?:\.\d++|\s*/\s*\d++)?|\.\d++|\\frac\{\d+\}\{\d+\})[)}\]]*")
_OPERATORS = re.compile(
    r"\\(?:sum|prod|int|iint|oint|lim|Gamma|uparrow|underbrace|overbrace|bigcup|bigcap|zeta)(?![a-z])|∑|∏|∫"
    r"|\b(?:sum|prod|product|summation|factorial|gamma|integrate|limit|zeta|primorial|bell|fibonacci)\s*\(",
    re.IGNORECASE,
)
_NO_VARIABLES = re.compile(
    r"\\[a-zA-Z]+(?:\{p?b?matrix\}|\{array\})?|arc(?:sin|cos|tan)|a?(?:sin|cos|tan)h?|sec|csc|cot|ln|log|exp|sqrt|cbrt|pi|oo|inf"
    r"(?:inity)?|abs|mod|alpha|beta|gamma|delta|epsilon|theta|lambda|omega|sigma|Rational|Matrix|Interval|Union|FiniteSet|Tuple|Eq|[LR]?open|and|or|(?<![A-Za-z])[eEiI](?![A-Za-z])",
    re.IGNORECASE,
)
_BINOMIAL = re.compile(r"\\[dt]?binom|\\choose|\bbinom(?:ial)?\s*\(|\\atop")


def is_too_expensive(text: str) -> bool:
    """Return whether evaluating a prepared answer may not terminate in reasonable time."""
    return (
        max(accumulate((letter in "([{") - (letter in ")]}") for letter in text), default=0) > _DEPTH
        or max(text.count("/"), text.count("|")) > _SLASHES
        or any(len(digits) > _DIGITS for digits in re.findall(r"\d+", text))
        or _OPERATORS.search(text) is not None
        or _has_huge_factorial(text)
        or (_BINOMIAL.search(text) is not None and re.search(r"\d{4}|\^|\*\*", text) is not None)
        or _has_huge_power(text)
    )


def variables(text: str) -> set[str]:
    """Return the letters of a prepared answer that are variables, in lower case; words count letter by letter."""
    return set(_NO_VARIABLES.sub("", text).lower()) & set("abcdefghijklmnopqrstuvwxyz")


def _has_huge_factorial(text: str) -> bool:
    found = re.findall(r"(?<!\d)(\d*+)\s*(!+)(?!=)", text)
    return any(not number or len(number) > 3 or int(number) > 200 or marks != "!" for number, marks in found)


def _has_huge_power(text: str) -> bool:
    """Return whether a power is too large; the sizes of expanded sums multiply."""
    sums = 1
    for match in _EXPONENT.finditer(text):
        power = _exponent_at(text, match.start("power"))
        # a tower of powers
        if re.search(r"\^|\*\*|!", power):
            return True
        size = _size(power)
        base = match["base"] if match["base"] not in (")", "}", "]") else _group_before(text, match.end("base"))
        if _LITERAL.fullmatch(base):
            # the product bounds the number of digits of the power
            if size * len(base) > _DIGITS:
                return True
        elif size > (_POWER if base.isalnum() else _SUM_POWER):
            return True
        elif not base.isalnum():
            sums *= _expanded_terms(base, size)
    return sums > _TERMS


def _expanded_terms(base: str, power: int) -> int:
    """Return the number of terms of the expanded power of a sum."""
    terms = 1 + len(re.findall(r"(?<=[\w)}\]])\s*[-+]", base))
    return math.comb(power + terms - 1, terms - 1)


def _size(power: str) -> int:
    """Return the product of the integers in an exponent, an upper bound of its value."""
    numbers = re.findall(r"\d+", power)
    return math.prod(max(int(number), 1) if len(number) <= 6 else 10**6 for number in numbers)


def _group_before(text: str, end: int) -> str:
    """Return the group that ends at `end`, including the command before it."""
    if (place := closing_place(text[:end][::-1], 0, ")]}([{")) < 0:
        return text[:end]
    start = end - 1 - place
    return re.search(r"(?:\\frac\{\d+\}|\\[a-z]+)?$", text[:start])[0] + text[start:end]  # type: ignore[index]


def _exponent_at(text: str, start: int) -> str:
    r"""Return the exponent that begins at `start`: a group, or a run of letters and digits."""
    opening = text[start]
    if opening not in "{(":
        rest = re.match(r"[-+]?\\?[\w.]+(?:\s*(?:\^|\*\*)\s*\S)?", text[start:])
        return rest[0] if rest else ""
    if (end := closing_place(text, start, opening + _CLOSERS[opening]) + 1) == 0:
        return text[start:]
    return text[start:end] + re.match(r"\s*(?:\^|\*\*)?", text[end:])[0]  # type: ignore[index]
