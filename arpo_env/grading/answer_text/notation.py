r"""Notations that LaTeX, Unicode and plain text have for the same thing: `rewrite`, and `rewrite_raw` for raw text.

Each is a pattern and what it becomes: "{n \choose k}" and "C_n^k" are binomials, "90^o" is in degrees, and the spacing
in "\\[2pt]" goes. Nothing here changes a value.
"""

from __future__ import annotations

import re

_ARGUMENT = r"\{((?:[^{}]|\{[^{}]*\})*)\}"
_BASES = "two|three|four|five|six|seven|eight|nine|ten"
_RAW = (
    (r"\\\\\s*\[\s*-?[\d.]+\s*(?:pt|em|ex|mm|cm)\s*\]", r"\\\\"),  # space between rows
    (r"\\(?:Bigg?|bigg?)(?=[\s()\[\]{}|/])", " "),
    (r"\\(?:lbrack|rbrack)(?![a-zA-Z])", lambda match: "[" if match[0][1] == "l" else "]"),
    (r"\\nicefrac(?![a-zA-Z])|\\sfrac(?![a-zA-Z])", r"\\frac"),
    (r"\\operatorname\*?\s*\{\s*(?:lcm|LCM)\s*\}", r"\\lcm"),
    (r"\\var(phi|epsilon|theta|rho|sigma|pi)(?![a-zA-Z])", r"\\\1"),
    (r"\\bigcirc(?![a-zA-Z])", r"\\circ"),
)
_PLAIN = (
    (r"\\frac\s*([0-9a-zA-Z])", r"\\frac{\1}"),
    (rf"\\frac\s*{_ARGUMENT}\s*([0-9a-zA-Z])", r"\\frac{\1}{\2}"),
    (r"\{\s*([\w+\- ]+?)\s*\\choose\s+([\w+\- ]+?)\s*\}", r"\\binom{\1}{\2}"),
    (r"(?<=[\d})])\s*\^\s*\{?\s*(?:\\mathrm|\\text)?\s*\{?\s*o\s*\}?\s*\}?(?![A-Za-z])", r"^\\circ"),
    (r"\\sqrt\s*\[\s*2\s*\]", r"\\sqrt"),
    (r"^([A-Z])\s*(?=\(\s*[^()A-Za-z]+,[^()A-Za-z]+\)\s*$)", r"\1 = "),  # the point D(0,2)
    (rf"(?<=\d)\s*\(?\s*(?:in\s+)?base[\s-]+(\d+|{_BASES})\s*\)?$", r"_{\1}"),
)  # fmt: skip
_RAW_RULES = tuple((re.compile(pattern), replacement) for pattern, replacement in _RAW)
_PLAIN_RULES = tuple((re.compile(pattern), replacement) for pattern, replacement in _PLAIN)


def rewrite_raw(text: str) -> str:
    """Rewrite an answer as it was written, before its typesetting is taken off."""
    for pattern, replacement in _RAW_RULES:
        text = pattern.sub(replacement, text)
    return text


def rewrite(text: str) -> str:
    """Rewrite an answer without its typesetting."""
    for pattern, replacement in _PLAIN_RULES:
        text = pattern.sub(replacement, text)
    return text
