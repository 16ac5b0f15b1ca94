r"""Strict parser of formulas in LaTeX ("3\sqrt{13}") or Python notation ("3*sqrt(13)"): `read_expression`.

It accepts numbers, letters, the four operations, powers, roots, factorials, binomials, absolute values, floors and
elementary functions. Relations, lists, set operations and unknown words raise `Unreadable`, as does any remaining text.
Nothing is evaluated.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction


class Unreadable(ValueError):
    """Raised for a text that is not a formula."""


@dataclass(frozen=True)
class Node:
    """A node of a formula's tree.

    Attributes:
        name: "number", "symbol", an operator ("+", "*", "/", "^", "negative", "!") or a function.
        parts: the operands.
        value: value of a number.
        symbol: name of a symbol.
        decimals: digits after the point of a decimal number.
    """

    name: str
    parts: tuple[Node, ...] = ()
    value: Fraction = Fraction(0)
    symbol: str = ""
    decimals: int = 0


_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?|\.\d+)|(?P<command>\\[a-zA-Z]+|\\%)|(?P<word>[A-Za-z]+)|(?P<sign>\*\*|[-+*/^!|()\[\]{}_'%,]))"
)
_GREEK_LIST = """
    alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho sigma tau
    upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Sigma Phi Psi Omega ell hbar
    """
_GREEK = frozenset(_GREEK_LIST.split())
_TRIGONOMETRY = ("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh")
_FUNCTIONS = {name: name for name in _TRIGONOMETRY} | {f"a{name}": f"a{name}" for name in _TRIGONOMETRY}
_FUNCTIONS |= {f"arc{name}": f"a{name}" for name in _TRIGONOMETRY}
_FUNCTIONS |= {"ln": "ln", "log": "ln", "lg": "lg", "exp": "exp", "tg": "tan", "ctg": "cot", "arctg": "atan"}
_CALLED = _FUNCTIONS | {"sqrt": "sqrt", "cbrt": "cbrt", "abs": "abs", "Abs": "abs", "floor": "floor", "ceil": "ceiling"}
_CALLED |= {
    "ceiling": "ceiling",
    "factorial": "!",
    "binomial": "binomial",
    "binom": "binomial",
    "Rational": "/",
    "Fraction": "/",
}
_CALLED |= {"max": "max", "min": "min", "gcd": "gcd", "lcm": "lcm"}
_ARGUMENTS = {"binomial": (2,), "/": (2,), "max": (2, 3, 4), "min": (2, 3, 4), "gcd": (2,), "lcm": (2,), "ln": (1, 2)}
_CONSTANTS = frozenset(("pi", "e", "i"))
_CLOSERS = {"(": ")", "[": "]", "{": "}", "|": "|", "\\lfloor": "\\rfloor", "\\lceil": "\\rceil"}
_TIMES = frozenset(("*", "\\cdot", "\\times", "\\ast"))
_OVER = frozenset(("/", "\\div"))


def read_expression(text: str, fold: bool = True) -> Node:
    """Parse a formula into a tree.

    Args:
        text: the formula.
        fold: treat capital letters as lower-case letters.

    Raises:
        Unreadable: the text is not a formula.
    """
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
    if word in _FUNCTIONS or word in ("pi", "sqrt") or word in _GREEK or (called and word in _CALLED):
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
        node = self.postfix(self.atom())
        if self.next in ("^", "**"):
            self.take()
            node = Node("^", (node, self.exponent()))
        return node

    def postfix(self, node: Node) -> Node:
        while self.next in ("!", "%", "\\%"):
            factorial = self.take() == "!"
            node = Node("!", (node,)) if factorial else Node("/", (node, Node("number", value=Fraction(100))))
        if self.tokens[self.position : self.position + 2] == ["^", "\\circ"]:
            self.position += 2
            node = _degrees(node)
        elif self.tokens[self.position : self.position + 4] == ["^", "{", "\\circ", "}"]:
            self.position += 4
            node = _degrees(node)
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
            case "sqrt" if self.next[:1].isdigit():
                return Node("sqrt", (self.atom(),))
            case "sqrt" if self.next != "(":
                return Node("sqrt", (self.argument(),))
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
        if name in _GREEK:
            return self.symbol(name)
        raise Unreadable(f"\\{name} is not part of a formula")

    def argument(self) -> Node:
        """Parse {...}, or a single digit or letter, as LaTeX does."""
        if self.next == "{":
            return self.bracket("{")
        if len(self.next) == 1 and (self.next.isdigit() or self.next.isalpha()):
            return self.atom()
        if self.next == "\\pi":
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


def _degrees(node: Node) -> Node:
    return Node("/", (Node("*", (node, Node("pi"))), Node("number", value=Fraction(180))))
