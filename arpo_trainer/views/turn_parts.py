"""Splits the text of a turn into thoughts, calls, answers and plain text, for people who read it.

This reads any protocol's text and never fails: a tag that is not closed lasts to the end of the turn. It decides
nothing: what counted as a call or as an answer is recorded in the tree.

    parts = turn_parts("<think>Two calls.</think><python>print(1)</python>")
    [(part.kind, part.label) for part in parts]     # [("thought", ""), ("call", "python")]
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

PartKind = Literal["thought", "call", "result", "answer", "text"]

_THOUGHTS = ("think", "thinking", "thought", "reasoning")
_ANSWERS = ("answer", "final_answer")
_RESULTS = ("result", "tool_response", "observation", "information")
# tags around a call that is JSON or of a form of its own; other tags of calls name the tool
_WRAPPERS = ("tool_call", "function_call", "call", "tool")
_CALLS = (*_WRAPPERS, "python", "search", "code", "browser", "browse", "visit", "fetch", "execute")
_KINDS: dict[str, PartKind] = {
    **dict.fromkeys(_THOUGHTS, "thought"),
    **dict.fromkeys(_ANSWERS, "answer"),
    **dict.fromkeys(_RESULTS, "result"),
    **dict.fromkeys(_CALLS, "call"),
}
_TAGS = "|".join(sorted(_KINDS, key=len, reverse=True))
_OPEN = re.compile(
    rf"<(?P<tag>{_TAGS})>|<(?P<form>function)=(?P<name>[\w.-]{{1,64}})>|(?P<mark><\|python_tag\|>|\[TOOL_CALLS\])"
)
_END_OF_THOUGHT = re.compile(rf"</(?:{'|'.join(_THOUGHTS)})>")
_NAME = re.compile(r'"name"\s*:\s*"([\w.-]{1,64})"|<function=([\w.-]{1,64})>')


@dataclass(frozen=True)
class TurnPart:
    """A piece of a turn.

    Attributes:
        kind: "thought", "call", "result", "answer" or "text".
        label: the tool of a call; "" for others, or where the call does not name it.
        start: where its text begins, without its tags.
        end: where its text ends.
    """

    kind: PartKind
    label: str
    start: int
    end: int


def turn_parts(text: str) -> list[TurnPart]:
    """Return the parts of a turn in order; blank text between tags is left out."""
    parts = []
    for part in _all_parts(text):
        body = text[part.start : part.end]
        start = part.start + len(body) - len(body.lstrip())
        end = part.end - (len(body) - len(body.rstrip()))
        if start < end or part.kind != "text":
            # an empty call or answer is worth showing; blank text is not
            parts.append(TurnPart(part.kind, part.label, min(start, end), end))
    return parts


def _all_parts(text: str) -> Iterator[TurnPart]:
    position = 0
    first, ends = _OPEN.search(text), _END_OF_THOUGHT.search(text)
    # some templates open the thought in the prompt, so that the turn holds only its end
    if ends and (first is None or ends.start() < first.start()):
        yield TurnPart("thought", "", 0, ends.start())
        position = ends.end()
    while found := _OPEN.search(text, position):
        yield TurnPart("text", "", position, found.start())
        begin = found.end()
        closing = f"</{found['tag'] or found['form']}>" if not found["mark"] else ""
        # what lies inside belongs to the outer tag, such as an answer's tag within code
        end = text.find(closing, begin) if closing else -1
        position = end + len(closing) if end >= 0 else len(text)
        body = slice(begin, end if end >= 0 else len(text))
        kind: PartKind = _KINDS[found["tag"]] if found["tag"] else "call"
        yield TurnPart(kind, _label(found, text[body]) if kind == "call" else "", body.start, body.stop)
    yield TurnPart("text", "", position, len(text))


def _label(found: re.Match[str], body: str) -> str:
    if found["name"]:
        return found["name"]
    if found["tag"] and found["tag"] not in _WRAPPERS:
        return found["tag"]
    try:
        call = json.loads(body)
        name = call.get("name") if isinstance(call, dict) else None
    except (ValueError, RecursionError):
        name = None
    if isinstance(name, str):
        return name
    inside = _NAME.search(body)  # a call that is not quite JSON still names its tool
    return (inside[1] or inside[2]) if inside else ""
