"""How a turn of text is read, and how a tool's result is written: the `Protocol`.

`ArpoTags` is the tag protocol of the ARPO papers: one assistant message goes on and on; the model writes
`<python> code </python>`, the environment appends `<result> ... </result>`, the model goes on until `<answer>`.
Only text that the model wrote in this turn is ever read: a tag in the prompt's own words or in a tool's result can
be neither executed nor counted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from typing import Protocol as TypingProtocol

from arpo_env.schema import JsonSchema


@dataclass(frozen=True)
class ToolCall:
    """The turn asks for a tool."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """The turn ends the episode with an answer; `value` is what is scored, `boxed` whether it stood in a box."""

    value: str
    boxed: bool


@dataclass(frozen=True)
class Malformed:
    """The turn tries something that cannot be read; `reason` is told to the model."""

    reason: str


@dataclass(frozen=True)
class Nothing:
    """The turn holds no action at all: the model just stopped."""


Action = ToolCall | Answer | Malformed | Nothing


class Protocol(TypingProtocol):
    """The way an episode is written."""

    def system_prompt(self, tools: Sequence[JsonSchema]) -> str:
        """Return the instructions, given the tools' schemas."""

    def stop_strings(self, tools: Sequence[JsonSchema]) -> list[str]:
        """Return the strings after which the model's turn is over."""

    def parse(self, text: str, tools: Sequence[JsonSchema]) -> Action:
        """Read what one turn of the model asks for."""

    def render_result(self, text: str) -> str:
        """Return what is appended to the conversation for a tool's result."""

    def well_formed(self, turns: Sequence[str]) -> bool:
        """Say whether the model's turns, taken together, keep to the format."""


_TOOL_LINES = {
    "python": "Run Python in <python> </python>; variables stay alive.",
    "search": "Search with <search> query </search>.",
}


_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)
_CALL = re.compile(r"<(?!think>|answer>|result>)(\w+)>.*?</\1>", re.DOTALL)


class ArpoTags:
    r"""The tags of the ARPO papers: think, python, search, result, answer, and `\boxed{}` around the answer."""

    def system_prompt(self, tools: Sequence[JsonSchema]) -> str:
        """Return the instructions for these tools."""
        lines = ["Think in <think> </think>."]
        lines += [_TOOL_LINES.get(name, f"Call {name} in <{name}> </{name}>.") for name in _names(tools)]
        if tools:
            lines.append("The output comes in <result> </result>.")
        lines.append("Answer in <answer> \\boxed{} </answer>.")
        return " ".join(lines)

    def stop_strings(self, tools: Sequence[JsonSchema]) -> list[str]:
        """Return the closing tag of each tool, and of the answer."""
        return [f"</{name}>" for name in (*_names(tools), "answer")]

    def parse(self, text: str, tools: Sequence[JsonSchema]) -> Action:
        """Read the first closing tag that ends a turn, with the opening tag before it."""
        ends = [(text.find(stop), stop[2:-1]) for stop in self.stop_strings(tools) if stop in text]
        if not ends:
            return Nothing()
        end, name = min(ends)
        start = text.rfind(f"<{name}>", 0, end)
        if start < 0:
            return Malformed(f"</{name}> closes a tag that was not opened; write <{name}> before it")
        inside = [tag for tag in (*_names(tools), "answer") if f"<{tag}>" in _THOUGHT.sub("", text[:start])]
        if inside:
            return Malformed(f"<{name}> stands inside <{inside[0]}>; close that first")
        content = text[start + len(name) + 2 : end].strip()
        if name == "answer":
            box = last_boxed(content)
            return Answer(content if box is None else box, boxed=box is not None)
        if not content:
            return Malformed(f"<{name}> was empty; write something between <{name}> and </{name}>")
        schema = next(tool for tool in tools if tool["function"]["name"] == name)
        return ToolCall(name, {next(iter(schema["function"]["parameters"]["properties"])): content})

    def render_result(self, text: str) -> str:
        """Return the text between result tags; a closing result tag inside it is defused."""
        return f"\n<result>\n{text.replace('</result>', '</ result>')}\n</result>\n"

    def well_formed(self, turns: Sequence[str]) -> bool:
        """Every turn that thinks closes its thought, at least one thinks, and there is exactly one answer.

        A result that the model wrote itself is malformed. What stands inside a tool call is the tool's business and is
        not looked at.
        """
        rests = [_CALL.sub("", _THOUGHT.sub("", turn)) for turn in turns]
        stray = any(tag in rest for rest in rests for tag in ("<think>", "</think>", "<result>"))
        thinks = any(_THOUGHT.search(turn) for turn in turns)
        return thinks and not stray and sum(rest.count("<answer>") for rest in rests) == 1


def _names(tools: Sequence[JsonSchema]) -> list[str]:
    return [tool["function"]["name"] for tool in tools]


def last_boxed(text: str) -> str | None:
    r"""Return what stands in the last `\boxed{...}`, braces balanced; None if there is none."""
    for match in reversed(list(re.finditer(r"\\boxed\s*\{", text))):
        depth = 1
        for position in range(match.end(), len(text)):
            depth += {"{": 1, "}": -1}.get(text[position], 0)
            if depth == 0:
                return text[match.end() : position].strip()
    return None
