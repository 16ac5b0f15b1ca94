r"""Tool calls as the models' own chat templates write them: `Hermes` (Qwen2.5, Qwen3, Hermes) and `Llama3`.

The template shows the tools and carries the results; the model's end token ends a turn. A turn with calls runs them
all, or none if one of them cannot be read. A turn without a call ends the episode: its answer is the last `\boxed{}`
after the thoughts, or else all the text there. What stands in a thought is neither a call nor an answer; text before a
`</think>` that was never opened is a thought too, since some templates open it in the prompt.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar

from arpo_env.protocols.parse_tool_calls import UnreadableCall, checked_call, read_object
from arpo_env.protocols.protocol import (
    Action,
    Answer,
    Language,
    Malformed,
    Nothing,
    Style,
    ToolCall,
    ToolCalls,
    last_boxed,
)
from arpo_env.protocols.system_prompts import native_prompt
from arpo_env.tools.json_schema import JsonSchema

_THINK = re.compile(r"<think>|</think>")
_END_TOKENS = re.compile(r"(?:<\|im_end\|>|<\|eot_id\|>|<\|eom_id\|>|<\|endoftext\|>)\Z")


class _Native:
    """What the two have in common: thoughts, answers, and calls between an opening and a closing mark."""

    native = True
    _opening: ClassVar[str]
    _closing: ClassVar[str]
    _result: ClassVar[str]  # how a result begins
    _keys: ClassVar[tuple[str, ...]]  # of a call: the name's, the arguments', and others that are ignored
    _marks: ClassVar[re.Pattern[str]]
    _dangerous: ClassVar[re.Pattern[str]]

    def system_prompt(self, tools: Sequence[JsonSchema], language: Language = "en", style: Style = "short") -> str:
        """Return the instructions; the tools and the form of a call come from the chat template."""
        return native_prompt(tools, language, style)

    def stop_strings(self, tools: Sequence[JsonSchema]) -> list[str]:
        """Return nothing: the model's end token ends its turn."""
        return []

    def parse(self, text: str, tools: Sequence[JsonSchema]) -> Action:
        """Read all calls of the turn, or its answer; an end token at the end is no part of it."""
        try:
            return self._read(_END_TOKENS.sub("", text[-20:]).join((text[:-20], "")), tools)
        except UnreadableCall as fault:
            return Malformed(str(fault))

    def defuse(self, text: str, tools: Sequence[JsonSchema] = ()) -> str:
        """Return the text with the `<` of every delimiter of the templates, in whatever spelling, as `&lt;`."""
        return self._dangerous.sub("&lt;", text)

    def well_formed(self, turns: Sequence[str]) -> bool:
        """Every thought is closed, and the model wrote no result of its own."""
        return all(self._turn_well_formed(turn) for turn in turns)

    def _read(self, text: str, tools: Sequence[JsonSchema]) -> Action:
        calls: list[ToolCall] = []
        visible = position = _prompted_thought_end(text)
        while True:
            if not calls and position == visible and (call := self._bare(text, position, tools)):
                return ToolCalls((call,))
            mark = self._marks.search(text, position)
            if mark is None:
                break
            position = mark.end()
            if mark[0] == "<think>":
                visible = position = self._thought_end(text, position)
            elif mark[0] == self._opening:
                read, position = self._call(text, position, tools)
                calls.append(read)
            else:
                raise UnreadableCall("a call was closed but not opened; write its opening tag first")
        return ToolCalls(tuple(calls)) if calls else _answer(text[visible:].strip())

    def _thought_end(self, text: str, position: int) -> int:
        end = text.find("</think>", position)
        if end >= 0:
            return end + len("</think>")
        if text.find(self._opening, position) >= 0:
            raise UnreadableCall("a call stands inside a thought; close the thought first")
        return len(text)

    def _call(self, text: str, position: int, tools: Sequence[JsonSchema]) -> tuple[ToolCall, int]:
        value, end = read_object(text, position)
        if not text.startswith(self._closing, end):
            raise UnreadableCall("the call was not closed; write its closing tag after the JSON object")
        return self._checked(value, tools), end + len(self._closing)

    def _checked(self, value: dict[str, Any], tools: Sequence[JsonSchema]) -> ToolCall:
        name, arguments = self._keys[:2]
        if name not in value or not set(value) <= set(self._keys):
            keys = ", ".join(repr(key[:64]) for key in list(value)[:5]) or "none"
            raise UnreadableCall(f'a call is {{"{name}": ..., "{arguments}": {{...}}}}, this has the keys: {keys}')
        return checked_call(value[name], value.get(arguments, {}), tools)

    def _bare(self, text: str, position: int, tools: Sequence[JsonSchema]) -> ToolCall | None:
        """Return the call that the rest of the turn is, without marks."""
        return None

    def _turn_well_formed(self, turn: str) -> bool:
        position = _prompted_thought_end(turn)
        while tag := _THINK.search(turn, position):
            end = turn.find("</think>", tag.end()) if tag[0] == "<think>" else -1
            if end < 0 or turn.find(self._result, position, tag.start()) >= 0:
                return False
            position = end + len("</think>")
        return turn.find(self._result, position) < 0


class Hermes(_Native):
    """`<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, several a turn; results in `<tool_response>`."""

    name = "hermes"
    _opening, _closing, _result = "<tool_call>", "</tool_call>", "<tool_response>"
    _keys = ("name", "arguments")
    _marks = re.compile(r"<think>|<tool_call>|</tool_call>")
    _dangerous = re.compile(
        r"<(?=\s*+/?+\s*+(?:tool_response|tool_call|tools|think)\b|\|(?:im_start|im_end|endoftext)\|>)", re.IGNORECASE
    )

    def render_result(self, texts: Sequence[str], tools: Sequence[JsonSchema] = ()) -> str:
        """Return each text as the templates show it, defused."""
        return "".join(f"\n<tool_response>\n{self.defuse(text)}\n</tool_response>" for text in texts)


class Llama3(_Native):
    """`<|python_tag|>{"name": ..., "parameters": {...}}`, or that JSON alone as the whole turn."""

    name = "llama3"
    _opening, _closing, _result = "<|python_tag|>", "", "<|start_header_id|>"
    _keys = ("name", "parameters", "type")
    _marks = re.compile(r"<think>|<\|python_tag\|>")
    _dangerous = re.compile(
        r"<(?=\s*+/?+\s*+think\b|\|(?:python_tag|eot_id|eom_id|start_header_id|end_header_id|begin_of_text)\|>)",
        re.IGNORECASE,
    )

    def render_result(self, texts: Sequence[str], tools: Sequence[JsonSchema] = ()) -> str:
        """Return the texts, defused; the template marks them by special tokens only."""
        return "\n".join(self.defuse(text) for text in texts)

    def _bare(self, text: str, position: int, tools: Sequence[JsonSchema]) -> ToolCall | None:
        if not _LOOKS_LIKE_A_CALL.match(text, position):
            return None
        value, end = read_object(text, position)
        if not {"name", "parameters"} <= set(value):
            return None
        if end < len(text):
            raise UnreadableCall("write nothing after the JSON object of a call")
        return self._checked(value, tools)


_LOOKS_LIKE_A_CALL = re.compile(r'\s*+\{\s*+"(?:name|type|parameters)"')


def _prompted_thought_end(text: str) -> int:
    """Return where a thought ends that was opened in the prompt; 0 if there is none."""
    first = _THINK.search(text)
    return first.end() if first and first[0] == "</think>" else 0


def _answer(visible: str) -> Action:
    if not visible:
        return Nothing()
    box = last_boxed(visible)
    return Answer(visible if box is None else box, boxed=box is not None)
