"""What an episode earns: format and answer, as in the papers' hierarchical reward.

`paper_reward` is ARPO's eq. 8 on components; `grade` applies it to a finished episode. The answer check compares
numbers as numbers and everything else as normalised text. Symbolic comparison and partial credit (F1) are not here.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from envs_registry import Task

MULTI_TOOL_BONUS = 0.1


@dataclass(frozen=True)
class Grade:
    """A reward and what it is made of; all three components are in [0, 1]."""

    reward: float
    components: dict[str, float] = field(default_factory=dict)


def paper_reward(accuracy: float, format_ok: bool, multi_tool: bool) -> float:
    """Return ARPO's hierarchical reward (eq. 8).

    Args:
        accuracy: of the answer, 0 to 1.
        format_ok: whether the episode keeps to the format.
        multi_tool: whether search and python both really ran.

    Returns:
        -1 for a bad format; 0 for a wrong answer; else the accuracy, plus 0.1 if both tools were used.
    """
    if not format_ok:
        return -1.0
    if accuracy <= 0:
        return 0.0
    return accuracy + (MULTI_TOOL_BONUS if multi_tool else 0.0)


def grade(task: Task, answer: str | None, well_formed: bool, tools_used: Sequence[str]) -> Grade:
    """Score a finished episode.

    Args:
        task: with the gold answers.
        answer: the one that was given, or None.
        well_formed: whether the text keeps to the protocol.
        tools_used: names of the tools that ran.
    """
    format_ok = answer is not None and well_formed
    accuracy = float(answer is not None and is_correct(answer, task))
    multi = {"python", "search"} <= set(tools_used)
    components = {"format": float(format_ok), "accuracy": accuracy, "multi_tool": float(multi)}
    return Grade(paper_reward(accuracy, format_ok, multi), components)


def is_correct(answer: str, task: Task) -> bool:
    """Say whether an answer equals one of the gold answers."""
    if task.kind == "math":
        value = as_number(answer)
        if value is not None:
            return any(as_number(gold) == value for gold in task.answers)
    return any(_normal(answer) == _normal(gold) for gold in task.answers)


_LONGEST = 1000  # characters; nobody's answer is longer, and Python reads no number of over 4300 digits
_NUMBER = re.compile(r"(?P<sign>[-+]?)\$?(?P<body>\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d*\.?\d+|\d+\.|\d+/\d+)%?")


def as_number(text: str) -> Fraction | None:
    r"""Read a plain number exactly: "1,204", "-3.5", "7/8", "\$12", "20%" (as 20), "\frac{1}{2}"; else None."""
    if any(unicodedata.decomposition(letter).startswith(("<super>", "<sub>", "<fraction>")) for letter in text):
        return None
    plain = unicodedata.normalize("NFKC", text).strip().rstrip(".").replace("−", "-")
    plain = plain.replace("\\$", "$").replace("\\%", "%")
    plain = re.sub(r"^\$(.*)\$$", r"\1", plain)
    plain = re.sub(r"(?<=\d) (?=\d{3}\b)", "", plain).strip()
    plain = re.sub(r"^(-?)\\[dt]?frac\{(\d+)\}\{(\d+)\}$", r"\1\2/\3", plain)
    match = _NUMBER.fullmatch(plain) if len(plain) <= _LONGEST else None
    if match is None:
        return None
    body = match["body"].replace(",", "")
    if body.endswith("/0") or re.fullmatch(r"\d+/0+", body):
        return None
    return Fraction(body) * (-1 if match["sign"] == "-" else 1)


def _normal(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())
