r"""Repairs known faults of published data files while rows are read, and counts each kind of repair.

Repairs of texts: a `\frac` that a JSON reader turned into a form feed and "rac", invisible characters, `<br/>`,
surrounding white space. Repairs of answers: a list written as text, blank or repeated aliases, a sentence around
`\boxed{}`. Repairs for a single set are in that set's row. No repair can change the question or the right answer.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

Repairs = Counter[str]

# Control character that a JSON or Python reader makes of a LaTeX command -> its first letter and what must follow.
_COMMANDS = {
    "\a": ("a", r"lpha|ngle|pprox|st\b|rc"),
    "\b": ("b", r"oxed|eta\b|inom|ar\b|egin\{|mod|ot\b|ig|ullet|ecause|f\b"),
    "\f": ("f", r"rac|orall|box|lat\b"),
    "\n": ("n", r"eq\b|abla|otin"),
    "\r": ("r", r"ight|angle|floor|ceil|ho\b"),
    "\t": ("t", r"riangle|imes|heta|ext(?:bf|it|rm)?\{|frac|binom|ilde\{|au\b"),
    "\v": ("v", r"ec\b|ert|dots|arepsilon|arphi|arnothing|ee\b"),
}
_READ_WRONGLY = re.compile("|".join(f"{control}(?={rest})" for control, (_, rest) in _COMMANDS.items()))
# In this order: a carriage return is a line break, the other control characters mean nothing.
_CHANGES = (
    (re.compile(r"\r\n?"), "\n", "carriage return"),
    (re.compile(r"[\x00-\x08\x0b-\x1f\x7f]"), "", "control character"),
    (re.compile("[\u200b\u200e\u200f\u2060\ufeff]"), "", "invisible character"),
    (re.compile(r"<br ?/?>"), "\n", "<br> for a new line"),
)


def clean(text: str, repairs: Repairs) -> str:
    """Return the repaired text and count the repairs."""
    # Before the other changes, which delete the control characters that mark the damaged commands.
    mended = _READ_WRONGLY.sub(lambda match: "\\" + _COMMANDS[match[0]][0], text)
    repairs["backslash read as a control character"] += mended != text
    for pattern, replacement, name in _CHANGES:
        mended, count = pattern.subn(replacement, mended)
        repairs[name] += count > 0
    repairs["white space around a text"] += mended != mended.strip()
    return mended.strip()


def answers(values: Iterable[Any], kind: str, repairs: Repairs) -> tuple[str, ...]:
    """Return the accepted answers of one or several columns, without blanks and repetitions."""
    found: list[str] = []
    for part in itertools.chain.from_iterable(_parts(value, repairs) for value in values):
        text = clean(_text(part), repairs)
        if kind == "math":
            text = _bare(text, repairs)
        if text and text not in found:
            found.append(text)
        else:
            repairs["repeated alias" if text else "blank alias"] += 1
    return tuple(found)


def boxed(text: str) -> str | None:
    r"""Return the content of the last `\boxed{...}`, `\fbox{...}` or `\boxed 2` of a text, or None."""
    start = max(text.rfind("\\boxed"), text.rfind("\\fbox"))
    if start < 0:
        return None
    rest = text[start:].split("box", 1)[1].removeprefix("ed")
    # TeX needs no braces around a single token; the end is then a space, a dollar sign or a full stop.
    if not rest.lstrip().startswith("{"):
        return re.split(r"[\s$.]", rest.strip(), maxsplit=1)[0] or None
    depth, body = 0, rest.lstrip()
    for position, letter in enumerate(body):
        depth += (letter == "{") - (letter == "}")
        if depth == 0:
            return body[1:position]
    return None


def cut_off(answer: str) -> bool:
    r"""Return whether the brackets of a formula do not match, as in "1}^N"."""
    # Round and square brackets are counted together: the interval [0, 1) is whole.
    braces = answer.count("{") - answer.count("}")
    return braces != 0 or sum(map(answer.count, "([")) != sum(map(answer.count, ")]"))


def _parts(value: Any, repairs: Repairs) -> list[Any]:
    if isinstance(value, list | tuple):
        return list(value)
    # Only a list of quoted texts: [1, 2] may itself be the answer.
    if isinstance(value, str) and re.fullmatch(r"\s*\[\s*(['\"]).*\1\s*\]\s*", value, re.DOTALL):
        try:
            parts = ast.literal_eval(value.strip())
        except (ValueError, SyntaxError):
            return [value]
        if all(isinstance(part, str) for part in parts):
            repairs["list written as text"] += 1
            return list(parts)
    return [] if value is None else [value]


def _text(value: Any) -> str:
    # Columns of numbers may be stored as floats; the answer 5.0 means 5.
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _bare(text: str, repairs: Repairs) -> str:
    inside = boxed(text)
    if inside is not None:
        repairs["sentence around a \\boxed answer"] += 1
        text = inside.strip()
    # "$x$ and $y$" are two formulas, not one between dollar signs.
    if len(text) > 2 and text[0] == text[-1] == "$" and "$" not in text[1:-1]:
        repairs["$ around an answer"] += 1
        text = text[1:-1].strip()
    return text
