r"""Reads the shape of an answer: a formula, list, point, interval, matrix or relation: `read_shape`.

Only the outer structure is read; formulas remain text. Nothing is dropped: text that is not part of a shape remains in
a formula, which then cannot be parsed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from arpo_env.grading.answer_text.exact_numbers import as_value

_SIGNS = {
    "=": "=",
    "==": "=",
    "<": "<",
    "\\lt": "<",
    ">": ">",
    "\\gt": ">",
    "<=": "<=",
    "\\le": "<=",
    "\\leq": "<=",
    "\\leqslant": "<=",
    ">=": ">=",
    "\\ge": ">=",
    "\\geq": ">=",
    "\\geqslant": ">=",
    "\\ne": "!=",
    "\\neq": "!=",
    "!=": "!=",
    "\\in": "in",
    "\\approx": "~",
    "\\simeq": "~",
    "\\doteq": "~",
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
    """A text with its outer structure.

    Attributes:
        kind: "formula", "list", "set", "tuple", "square" (brackets), "interval", "union", "minus", "matrix", "row" (of
            a matrix), "relation", "builder", "empty" or "reals".
        items: the parts; the sides of a relation.
        text: the text of a formula.
        marks: the brackets of an interval; the signs of a relation; "and", "or" or "," of a list.
    """

    kind: str
    items: tuple[Shape, ...] = ()
    text: str = ""
    marks: tuple[str, ...] = ()


def read_shape(text: str) -> Shape:
    """Return the shape of a prepared answer."""
    text = text.replace("\\langle", "(").replace("\\rangle", ")").replace("\\lbrace", "\\{").replace("\\rbrace", "\\}")
    text = text.replace("\\colon", ":").replace("\\lvert", "|").replace("\\rvert", "|").replace("\\vert", "|")
    return _read_any(re.sub(r"\+/-|\+-", r"\\pm ", text))


def is_name(text: str) -> bool:
    """Return whether a text names a quantity: "x", "f(2)", "AB", "m+n", "S_{20}"; neither "2x" nor "|x|"."""
    text = text.strip()
    return _NAME.fullmatch(text) is not None or _NAMES.fullmatch(text) is not None


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
    start = depth = position = 0
    while position < len(text):
        if depth == 0 and (match := separator.match(text, position)) and (position or separator is _SIGN):
            yield text[start:position].strip()
            start = position = match.end()
            continue
        letter = text[position]
        depth += (letter in "([{") - (letter in ")]}")
        # skip the letter after a backslash, so that no separator is found inside a command name
        position += 2 if letter == "\\" and text[position + 1 : position + 2] not in ("{", "}") else 1
    yield text[start:].strip()


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
        return _of_both_signs(text)  # two points, or two lines
    return _relation(text) or _sets(text) or _group(text) or _formula(text)


def _relation(text: str) -> Shape | None:
    parts = list(split_outside_brackets(text, _SIGN))
    if len(parts) < 2:
        return None
    if not all(parts):
        return Shape("formula", text=text)
    signs, rest = [], text
    for part in parts[:-1]:
        rest = rest.lstrip()[len(part) :].lstrip()
        match = _SIGN.match(rest)
        assert match is not None
        signs.append(_SIGNS[match[0]])
        rest = rest[match.end() :]
    return Shape("relation", tuple(map(_read_any, parts)), text=text, marks=tuple(signs))


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


def _formula(text: str) -> Shape:
    r"""Read a formula; with \pm it is two formulas."""
    # \mp takes the opposite sign of \pm
    if "\\pm" not in text:
        return Shape("formula", text=text)
    return Shape("list", tuple(Shape("formula", text=signed) for signed in _with_signs(text)), marks=("pm",))


def _with_signs(text: str) -> tuple[str, str]:
    upper = re.sub(r"(^|[(,=])\s*\+", r"\1", text.replace("\\pm", "+").replace("\\mp", "-"))
    return upper, text.replace("\\pm", "-").replace("\\mp", "+")


def _is_whole(text: str) -> bool:
    """Return whether a text is one equation, or one point with two or more coordinates."""
    return text.count("=") == 1 if text[0] != "(" else _encloses(text) and "," in text and "=" not in text


def _of_both_signs(text: str) -> Shape:
    return Shape("list", tuple(map(_read_any, _with_signs(text))), marks=("pm",))


def _flatten(items: object) -> tuple[Shape, ...]:
    r"""Flatten the lists that \pm creates inside a list; "x = \pm 2" is a list of two relations."""
    found: list[Shape] = []
    for item in items:  # type: ignore[attr-defined]
        found += item.items if item.kind == "list" and item.marks == ("pm",) else [item]
    return tuple(found)


def _encloses(text: str) -> bool:
    """Return whether the first bracket is closed by the last one."""
    depth = 0
    for position, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if depth == 0 and letter in ")]}":
            return position == len(text) - 1
    return False
