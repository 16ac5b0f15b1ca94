r"""Recognises names of quantities longer than a letter: "\cos C", "|z|", "AF^2", "\frac{BM}{MC}", "P \cap M".

On one side of "=", such a name says what is measured, and the other side is the value. A formula in lower-case letters
is not a name: "x^2 = 9" is an equation, and 9 is not its solution.
"""

from __future__ import annotations

import re

from arpo_env.grading.math_check.answer_shapes import is_name

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
_NAME = re.compile("|".join(_ALWAYS))
_OF_GOLD = re.compile("|".join((*_ALWAYS, *_GOLD)))


def is_measure(text: str, gold: bool = False) -> bool:
    r"""Return whether a text names a quantity.

    Args:
        text: one side of an equation, prepared.
        gold: whether it is in the gold answer, where "AF^2 = 5" certainly does not mean "AF = \sqrt{5}".
    """
    text = text.strip()
    if len(text) > 100:
        return False
    return is_name(text) or (_OF_GOLD if gold else _NAME).fullmatch(text) is not None
