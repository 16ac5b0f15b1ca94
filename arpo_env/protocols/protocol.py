r"""The interface of a protocol, which parses turns and renders results: `Protocol` and the actions of a turn.

The protocols themselves are in `arpo_env.protocols`. They parse only what the model wrote in this one turn, so that a
tag in the example of a prompt or in a tool result is neither executed nor counted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from typing import Protocol as TypingProtocol

from arpo_env.tools.function_schema import JsonSchema

Language = Literal["en", "zh"]
Style = Literal["short", "paper"]


@dataclass(frozen=True)
class ToolCall:
    """One call whose arguments match the tool's schema."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ToolCalls:
    """The turn calls tools: one or more calls, in the order they were written."""

    calls: tuple[ToolCall, ...]


@dataclass(frozen=True)
class Answer:
    """The turn ends the episode with an answer: `value` is scored, `boxed` says whether it was in a box."""

    value: str
    boxed: bool


@dataclass(frozen=True)
class Malformed:
    """The turn attempts an action that cannot be parsed. `reason` is shown to the model, so it contains no tags."""

    reason: str


@dataclass(frozen=True)
class Nothing:
    """The turn contains no action; the model stopped without one."""


Action = ToolCalls | Answer | Malformed | Nothing


class Protocol(TypingProtocol):
    """The format in which an episode is written.

    Attributes:
        name: name for `make_protocol`.
        native: True if the model's own chat template shows the tools and carries results as messages of the role
            "tool", and the model's end token ends a turn. False if the whole episode is one assistant message.

    A protocol may have two more members. `user_message(question, tools)` returns the opening message of the user, if it
    is not the question alone. `template_shows_tools` is False where a native protocol shows the tools itself.
    """

    name: str
    native: bool

    def system_prompt(self, tools: Sequence[JsonSchema], language: Language = "en", style: Style = "short") -> str:
        """Return the instructions for the given tool schemas."""

    def stop_strings(self, tools: Sequence[JsonSchema]) -> list[str]:
        """Return the strings that end the model's turn; empty if only its end token does."""

    def parse(self, text: str, tools: Sequence[JsonSchema]) -> Action:
        """Parse one turn of the model; never raises, whatever the text is."""

    def defuse(self, text: str, tools: Sequence[JsonSchema] = ()) -> str:
        """Return a tool result in which nothing looks like a delimiter of this protocol or a call of these tools."""

    def render_result(self, texts: Sequence[str], tools: Sequence[JsonSchema] = ()) -> str:
        """Return the results of one turn's calls as the model sees them, defused."""

    def well_formed(self, turns: Sequence[str]) -> bool:
        """Return whether the model's turns, taken together, follow the format."""


class NativeProtocol(Protocol, TypingProtocol):
    """A protocol with `native` True that can write calls, and read them back."""

    def write_calls(self, text: str, calls: Sequence[tuple[Any, Any]]) -> str:
        """Return a turn with a text and these calls: name, and arguments as an object or as JSON text."""

    def read_calls(self, text: str) -> tuple[str, list[tuple[str, dict[str, Any]]]] | None:
        """Return what `write_calls` took, whatever tools there are; None for a turn without calls that can be read."""


_BOX_OR_BRACE = re.compile(r"\\boxed\s*\{|[{}]")


def last_boxed(text: str) -> str | None:
    r"""Return the content of the last `\boxed{...}` with balanced braces; None if there is none."""
    # A stack of open braces gives the matching pairs in one pass; of nested boxes the innermost last one counts.
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
