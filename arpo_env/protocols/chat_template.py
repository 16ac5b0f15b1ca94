r"""Tool calls in the format of the models' own chat templates: `Hermes` (Qwen2.5, Qwen3, Hermes) and `Llama3`.

The template shows the tools and carries the results; the model's end token ends a turn. If a turn has several calls,
all are executed, or none if one of them cannot be parsed. A turn without a call ends the episode; its answer is the
last `\boxed{}` after the thoughts, or else all the text after them. Text inside a thought is neither a call nor an
answer. Text before an unopened `</think>` is a thought too, since some templates open it in the prompt.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from arpo_env.protocols.protocol import (
    Action,
    Answer,
    Language,
    Malformed,
    Nothing,
    Style,
    ToolCall,
    ToolCalls,
    UnreadableCall,
    boxed_answer,
    object_call,
    read_object,
)
from arpo_env.protocols.system_prompts import native_prompt
from arpo_env.tools.tool import JsonSchema

_THINK = re.compile(r"<think>|</think>")
_END_TOKENS = re.compile(r"(?:<\|im_end\|>|<\|eot_id\|>|<\|eom_id\|>|<\|endoftext\|>)\Z")


def _starts(tags: str, marks: str) -> re.Pattern[str]:
    """Return what finds the `<` of these tags, in any spelling, and of these marks, such as <|im_end|>."""
    return re.compile(rf"<(?=\s*+/?+\s*+(?:{tags})\b|\|(?:{marks})\|>)", re.IGNORECASE)


class _ChatTemplate:
    """Common parts of both protocols: thoughts, answers, and calls between an opening and a closing mark."""

    native = True
    _opening: ClassVar[str]
    _closing: ClassVar[str]
    _result: ClassVar[str]  # beginning of a tool result
    _keys: ClassVar[tuple[str, ...]]  # keys of a call: name, arguments, and ignored ones
    _marks: ClassVar[re.Pattern[str]]
    _delimiters: re.Pattern[str]

    def system_prompt(self, tools: Sequence[JsonSchema], language: Language = "en", style: Style = "short") -> str:
        """Return the instructions; the chat template adds the tools and the format of a call."""
        return native_prompt(tools, language, style)

    def stop_strings(self, tools: Sequence[JsonSchema]) -> list[str]:
        """Return no strings, since the model's end token ends its turn."""
        return []

    def parse(self, text: str, tools: Sequence[JsonSchema]) -> Action:
        """Parse all calls of the turn, or its answer; a final end token is ignored."""
        try:
            return self._read(text, tools)[0]
        except UnreadableCall as fault:
            return Malformed(str(fault))

    def defuse(self, text: str, tools: Sequence[JsonSchema] = ()) -> str:
        """Return the text with the `<` of every delimiter of the templates, in any spelling, replaced by `&lt;`."""
        return self._delimiters.sub("&lt;", text)

    def write_calls(self, text: str, calls: Sequence[tuple[Any, Any]]) -> str:
        """Return a turn with these calls, for a server that has parsed them out of the model's text.

        Marks of calls in the text before them are quotations. Arguments as JSON text pass unchanged, valid or not.
        """
        name_key, arguments_key = self._keys[:2]
        for mark in filter(None, (self._opening, self._closing)):
            text = text.replace(mark, "&lt;" + mark[1:])
        turn = [text]
        for name, arguments in calls:
            written = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
            head = f'{{"{name_key}": {json.dumps(name)}, "{arguments_key}": {written or "{}"}}}'
            turn.append(f"{self._opening}{head}{self._closing}")
        return "".join(turn)

    def read_calls(self, text: str) -> tuple[str, list[tuple[str, dict[str, Any]]]] | None:
        """Return the text before the calls, and name and arguments of each; None if there is no call, or a faulty one.

        Whether there are such tools is not asked.
        """
        try:
            action, start = self._read(text, None)
        except UnreadableCall:
            return None
        if not isinstance(action, ToolCalls):
            return None
        return text[:start], [(call.name, call.arguments) for call in action.calls]

    def well_formed(self, turns: Sequence[str]) -> bool:
        """Return whether every thought is closed and the model wrote no tool result itself."""
        for turn in turns:
            position = _prompted_thought_end(turn)
            while tag := _THINK.search(turn, position):
                end = turn.find("</think>", tag.end()) if tag[0] == "<think>" else -1
                if end < 0 or turn.find(self._result, position, tag.start()) >= 0:
                    return False
                position = end + len("</think>")
            if turn.find(self._result, position) >= 0:
                return False
        return True

    def _read(self, text: str, tools: Sequence[JsonSchema] | None) -> tuple[Action, int]:
        """Return the action, and where its calls begin; without `tools` any name and any arguments are a call."""
        text = text[:-20] + _END_TOKENS.sub("", text[-20:])
        calls: list[ToolCall] = []
        start = len(text)
        # `visible` is where the text after the last thought begins; only that can be the answer.
        visible = position = _prompted_thought_end(text)
        while True:
            # a call without marks must begin right after the thoughts, or it is only quoted JSON
            if not calls and position == visible and (call := self._unmarked_call(text, position, tools)):
                return ToolCalls((call,)), position
            mark = self._marks.search(text, position)
            if mark is None:
                break
            position = mark.end()
            if mark[0] == "<think>":
                visible = position = self._thought_end(text, position)
            elif mark[0] == self._opening:
                read, position = self._call(text, position, tools)
                start = start if calls else mark.start()
                calls.append(read)
            else:
                raise UnreadableCall("a call was closed but not opened; write its opening tag first")
        if calls:
            return ToolCalls(tuple(calls)), start
        rest = text[visible:].strip()
        return boxed_answer(rest) if rest else Nothing(), start

    def _thought_end(self, text: str, position: int) -> int:
        end = text.find("</think>", position)
        if end >= 0:
            return end + len("</think>")
        # an unclosed thought that contains a call is an error rather than an answer
        if text.find(self._opening, position) >= 0:
            raise UnreadableCall("a call stands inside a thought; close the thought first")
        return len(text)

    def _call(self, text: str, position: int, tools: Sequence[JsonSchema] | None) -> tuple[ToolCall, int]:
        value, end = read_object(text, position)
        if not text.startswith(self._closing, end):
            raise UnreadableCall("the call was not closed; write its closing tag after the JSON object")
        return self._checked(value, tools), end + len(self._closing)

    def _checked(self, value: dict[str, Any], tools: Sequence[JsonSchema] | None) -> ToolCall:
        name, arguments = self._keys[:2]
        if tools is None and isinstance(value.get(name), str) and isinstance(value.get(arguments, {}), dict):
            return ToolCall(value[name], value.get(arguments, {}))
        return object_call(value, tools or (), self._keys)

    def _unmarked_call(self, text: str, position: int, tools: Sequence[JsonSchema] | None) -> ToolCall | None:
        """Return the call if the rest of the turn is a call without marks."""
        return None


class Hermes(_ChatTemplate):
    """`<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, several per turn; results in `<tool_response>`."""

    name = "hermes"
    _opening, _closing, _result = "<tool_call>", "</tool_call>", "<tool_response>"
    _keys = ("name", "arguments")
    _marks = re.compile(r"<think>|<tool_call>|</tool_call>")
    _delimiters = _starts("tool_response|tool_call|tools|think", "im_start|im_end|endoftext")

    def render_result(self, texts: Sequence[str], tools: Sequence[JsonSchema] = ()) -> str:
        """Return each text in the format of the templates, defused."""
        return "".join(f"\n<tool_response>\n{self.defuse(text)}\n</tool_response>" for text in texts)


class Native(Hermes):
    """The model's own tool calls, whatever its family; texts outside a model have the form of `Hermes`.

    Where there is a tokenizer (`arpo_trainer.rollout.native`), a turn is what the model wrote, read by the response
    template of its family. An endpoint parses calls itself, and hands them over by `write_calls`.
    """

    name = "native"


class Llama3(_ChatTemplate):
    """`<|python_tag|>{"name": ..., "parameters": {...}}`, or only that JSON as the whole turn."""

    name = "llama3"
    _opening, _closing, _result = "<|python_tag|>", "", "<|start_header_id|>"
    _keys = ("name", "parameters", "type")
    _marks = re.compile(r"<think>|<\|python_tag\|>")
    _delimiters = _starts("think", "python_tag|eot_id|eom_id|start_header_id|end_header_id|begin_of_text")

    def render_result(self, texts: Sequence[str], tools: Sequence[JsonSchema] = ()) -> str:
        """Return the defused texts; the template marks results by special tokens only."""
        return "\n".join(self.defuse(text) for text in texts)

    def _unmarked_call(self, text: str, position: int, tools: Sequence[JsonSchema] | None) -> ToolCall | None:
        if not _LOOKS_LIKE_A_CALL.match(text, position):
            return None
        value, end = read_object(text, position)
        if not {"name", "parameters"} <= set(value):
            return None
        if end < len(text):
            raise UnreadableCall("write nothing after the JSON object of a call")
        return self._checked(value, tools)


# other JSON at the start of a turn is an answer, not a faulty call
_LOOKS_LIKE_A_CALL = re.compile(r'\s*+\{\s*+"(?:name|type|parameters)"')


def _prompted_thought_end(text: str) -> int:
    """Return the end of a thought that was opened in the prompt; 0 if there is none."""
    first = _THINK.search(text)
    return first.end() if first and first[0] == "</think>" else 0


# `WebSailor`: the format of the WebSailor checkpoints (arXiv 2507.02592): Hermes calls, `<answer>` for the answer.
#
#     from arpo_env.protocols import make_protocol
#     make_protocol("websailor").parse("<think>I know it.</think>\n<answer>Lima</answer>", tools)
#
# Their chat template does not show the tools: the opening message of the user does, before the question. One search
# takes several queries at once; here each query becomes a call of its own, so that it is recorded, limited and counted
# as such. The prompts say what the published ones say, in our words and in English only. The published ones end the
# instructions with today's date; it is left out, since it would change the prompt of a repeated run.

_THOUGHT = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
_ROLE = (
    "You are an expert at finding information on the web. Search the internet thoroughly and answer questions "
    "accurately. However intricate a question is, keep going until you have found what it asks for.\n\n"
    "Keep to these principles:\n\n"
    "1. **Keep acting**: take as many steps as it needs, and look at every side of the topic before you settle.\n\n"
    "2. **Verify again**: before you answer, check what you found against other sources.\n\n"
    "3. **Mind the details**: make sure that each source is current, relevant and credible."
)
_TASK = (
    "This is a conversation between a user and an assistant. The user asks a question, and the assistant solves it by "
    "calling one or more of these tools:\n<tools>\n{tools}\n</tools>\n\n"
    "The assistant goes through cycles of thinking, calling a tool and reading its response, and ends by thinking "
    "about the answer and giving it. Thoughts, calls, responses and the answer stand inside their tags; there may be "
    "several of each.\n\nExample of a response:\n"
    "<think> thoughts </think>\n"
    '<tool_call>\n{{"name": "name of a tool", "arguments": {{"name of a parameter": value, ...}}}}\n</tool_call>\n'
    "<tool_response>\nwhat the tool returned\n</tool_response>\n"
    "(further thoughts, calls and responses)\n"
    "<think> thoughts </think>\n<answer> the answer </answer>\n\nUser: {question}"
)


class WebSailor(Hermes):
    """Calls and results as in `Hermes`; tools in the question's message; an answer inside `<answer>` tags."""

    name = "websailor"
    template_shows_tools = False
    _delimiters = _starts("tool_response|tool_call|tools|think|answer", "im_start|im_end|endoftext")

    def system_prompt(self, tools: Sequence[JsonSchema], language: Language = "en", style: Style = "short") -> str:
        """Return the role and its principles, in English whatever the language is."""
        return _ROLE

    def user_message(self, question: str, tools: Sequence[JsonSchema]) -> str:
        """Return the opening message of the user: the tools, the format, and the question."""
        shown = ",\n".join(json.dumps(_batched(tool)["function"], indent=2, ensure_ascii=False) for tool in tools)
        return _TASK.format(tools=shown, question=question)

    def stop_strings(self, tools: Sequence[JsonSchema]) -> list[str]:
        """Return the beginning of a result, which the model must not write itself."""
        return [self._result]

    def parse(self, text: str, tools: Sequence[JsonSchema]) -> Action:
        """Parse a turn: an answer, or else calls; a turn with neither is nothing."""
        text = text.partition(self._result)[0] if text.endswith(self._result) else text
        first, closed, rest = text.partition("</think>")
        visible = _THOUGHT.sub("", rest if closed and "<think>" not in first else text)
        if (content := _tagged_answer(visible)) is not None:
            return replace(boxed_answer(content), boxed=True) if content else Nothing()
        action = super().parse(text, [_batched(tool) for tool in tools])
        if isinstance(action, ToolCalls):
            return _one_query_each(action)
        return Nothing() if isinstance(action, Answer) else action

    def well_formed(self, turns: Sequence[str]) -> bool:
        """Return whether every thought is closed, no turn holds a result, and the last one has the answer."""
        return super().well_formed(turns) and bool(turns) and _tagged_answer(_THOUGHT.sub("", turns[-1])) is not None


def _tagged_answer(visible: str) -> str | None:
    """Return what stands between the first answer tags, or None if there is no answer."""
    start = visible.find("<answer>")
    end = visible.find("</answer>", start)
    return None if min(start, end) < 0 else visible[start + len("<answer>") : end].strip()


def _batched(tool: JsonSchema) -> JsonSchema:
    """Return the schema of a search that takes several queries; other tools as they are."""
    properties: dict[str, Any] = (tool["function"].get("parameters") or {}).get("properties") or {}
    if tool["function"]["name"] != "search" or properties.get("query", {}).get("type") != "string":
        return tool
    made = copy.deepcopy(tool)
    query = made["function"]["parameters"]["properties"]["query"]
    query |= {"type": ["array", "string"], "items": {"type": "string"}}
    query["description"] = "one or several queries, which are searched one after the other"
    return made


def _one_query_each(action: ToolCalls) -> Action:
    calls: list[ToolCall] = []
    for call in action.calls:
        queries = call.arguments.get("query")
        if call.name != "search" or not isinstance(queries, list):
            calls.append(call)
            continue
        if not queries:
            return Malformed("search needs at least one query")
        calls += [ToolCall(call.name, {**call.arguments, "query": query}) for query in queries]
    return ToolCalls(tuple(calls))
