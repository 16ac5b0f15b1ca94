r"""What a turn can ask for (the actions), and what reads it and writes the results: the `Protocol`.

The protocols themselves are in `arpo_env.protocols`. All of them read only what the model wrote in this one turn: a
tag in the prompt's own example or in a tool's result can be neither executed nor counted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from typing import Protocol as TypingProtocol

from arpo_env.tools.json_schema import JsonSchema

Language = Literal["en", "zh"]
Style = Literal["short", "paper"]


@dataclass(frozen=True)
class ToolCall:
    """One call; its arguments fit the tool's schema."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ToolCalls:
    """The turn asks for tools: one or more calls, in the order they were written."""

    calls: tuple[ToolCall, ...]


@dataclass(frozen=True)
class Answer:
    """The turn ends the episode with an answer; `value` is what is scored, `boxed` whether it stood in a box."""

    value: str
    boxed: bool


@dataclass(frozen=True)
class Malformed:
    """The turn tries something that cannot be read; `reason` is told to the model, and so it spells no tags itself."""

    reason: str


@dataclass(frozen=True)
class Nothing:
    """The turn holds no action at all: the model just stopped."""


Action = ToolCalls | Answer | Malformed | Nothing


class Protocol(TypingProtocol):
    """The way an episode is written.

    Attributes:
        name: as `make_protocol` knows it.
        native: True if the model's own chat template shows the tools and carries the results, as messages of the
            role "tool", and the model's end token ends a turn. False if all of an episode is one assistant message.
    """

    name: str
    native: bool

    def system_prompt(self, tools: Sequence[JsonSchema], language: Language = "en", style: Style = "short") -> str:
        """Return the instructions, given the tools' schemas."""

    def stop_strings(self, tools: Sequence[JsonSchema]) -> list[str]:
        """Return the strings after which the model's turn is over; none if only its end token ends it."""

    def parse(self, text: str, tools: Sequence[JsonSchema]) -> Action:
        """Read what one turn of the model asks for; never raises, whatever the text is."""

    def defuse(self, text: str, tools: Sequence[JsonSchema] = ()) -> str:
        """Return a tool's result in which nothing looks like a delimiter of this protocol, or a call of these tools."""

    def render_result(self, texts: Sequence[str], tools: Sequence[JsonSchema] = ()) -> str:
        """Return the results of one turn's calls as they are shown, defused."""

    def well_formed(self, turns: Sequence[str]) -> bool:
        """Say whether the model's turns, taken together, keep to the format."""


_BOX_OR_BRACE = re.compile(r"\\boxed\s*\{|[{}]")


def last_boxed(text: str) -> str | None:
    r"""Return what stands in the last `\boxed{...}`, braces balanced; None if there is none."""
    open_braces: list[tuple[bool, int]] = []
    best: tuple[int, int] | None = None
    for match in _BOX_OR_BRACE.finditer(text):
        if match[0] != "}":
            open_braces.append((len(match[0]) > 1, match.end()))
        elif open_braces:
            is_box, start = open_braces.pop()
            if is_box and (best is None or start > best[0]):
                best = (start, match.start())
    return None if best is None else text[best[0] : best[1]].strip()
