r"""`DeepAgentTags`: the tags of DeepAgent (arXiv 2510.21618), for tools that are found while an episode runs.

The whole episode is one stream of reasoning. The model searches with `<tool_search> what the tool should do
</tool_search>` and calls any tool, found or given, with `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`. It
reads what comes back in `<tool_call_result>` and answers in `\boxed{}` without a call. Calls count inside thoughts as
well, since the published system acts while it thinks. The published code marks the result of a search with a tag of its
own, `<tool_search_result>`; here all results have the same one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from arpo_env.protocols.protocol import (
    Action,
    Answer,
    Language,
    Malformed,
    Nothing,
    Style,
    ToolCalls,
    UnreadableCall,
    last_boxed,
    object_call,
    read_object,
    tagged_call,
    tool_names,
)
from arpo_env.protocols.system_prompts import check_wording
from arpo_env.tools.tool import JsonSchema

_SEARCH = "tool_search"
_RESULT = "<tool_call_result>"
_CLOSING = re.compile(r"</(tool_search|tool_call|fold_thought)>")
_TAGGED = (_SEARCH, "fold_thought")  # tools with a tag of their own, which are called by name as well
_TAG_STARTS = re.compile(
    r"<(?=\s*+/?+\s*+(?:tool_search|tool_call|tool_search_result|tool_call_result|fold_thought|think)(?!\w))",
    re.IGNORECASE,
)
_END_TOKENS = re.compile(r"(?:<\|im_end\|>|<\|eot_id\|>|<\|endoftext\|>)\Z")

_INTRO = "Solve the task step by step. You can find tools and call them."
_FIND = "Find tools with <tool_search> what the tool should do </tool_search>."
_CALL = (
    'Call a tool with <tool_call>{"name": "...", "arguments": {...}}</tool_call>. What comes back stands in '
    "<tool_call_result> </tool_call_result>; never write that yourself."
)
_PATTERN = (
    "A solution looks like this: I need a tool for ... <tool_search> ... </tool_search> "
    '<tool_call_result> [{"name": "...", "description": "...", "parameters": {...}}] </tool_call_result> Now I can '
    'call it. <tool_call>{"name": "...", "arguments": {"...": "..."}}</tool_call> <tool_call_result> ... '
    "</tool_call_result> I know enough: \\boxed{...}"
)
_BOX = "When you know enough, answer in \\boxed{} and stop."


class DeepAgentTags:
    r"""The tags tool_search, tool_call and tool_call_result, and a final `\boxed{}`."""

    name = "deepagent"
    native = False

    def system_prompt(self, tools: Sequence[JsonSchema], language: Language = "en", style: Style = "short") -> str:
        """Return the instructions, in English only, with the documents of the tools that are there from the start."""
        check_wording(language, style)
        given = [tool for tool in tools if tool["function"]["name"] != _SEARCH]
        lines = [_INTRO, _FIND] if len(given) < len(tools) else [_INTRO]
        lines += [_CALL] if tools else []
        lines += [_PATTERN] if tools and style == "paper" else []
        shown = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in given)
        opening = " ".join([*lines, _BOX])
        return f"{opening}\nThese tools are there from the start:\n{shown}" if given else opening

    def stop_strings(self, tools: Sequence[JsonSchema]) -> list[str]:
        """Return the closing tags of calls and searches."""
        return ["</tool_call>", *(f"</{name}>" for name in _TAGGED if name in tool_names(tools))]

    def parse(self, text: str, tools: Sequence[JsonSchema]) -> Action:
        """Parse the first call or search that is closed; a turn without one is the answer, or nothing."""
        try:
            return _read(_END_TOKENS.sub("", text), tools)
        except UnreadableCall as fault:
            return Malformed(str(fault))

    def defuse(self, text: str, tools: Sequence[JsonSchema] = ()) -> str:
        """Return the text with the `<` of every tag of the protocol, in any spelling, replaced by `&lt;`."""
        return _TAG_STARTS.sub("&lt;", text)

    def render_result(self, texts: Sequence[str], tools: Sequence[JsonSchema] = ()) -> str:
        """Return each text between result tags, defused."""
        return "".join(f"\n<tool_call_result>\n{self.defuse(text, tools)}\n</tool_call_result>\n" for text in texts)

    def well_formed(self, turns: Sequence[str]) -> bool:
        """Return whether the model wrote no result itself and the last turn has a box."""
        return bool(turns) and last_boxed(turns[-1]) is not None and not any(_RESULT in turn for turn in turns)


def _read(text: str, tools: Sequence[JsonSchema]) -> Action:
    names = ("tool_call", *tool_names(tools))
    closing = next((tag for tag in _CLOSING.finditer(text) if tag[1] in names), None)
    if closing is None:
        return _answer(text)
    name = closing[1]
    # the nearest one: a tag that is only mentioned in a thought opens nothing
    start = text.rfind(f"<{name}>", 0, closing.start())
    if start < 0:
        raise UnreadableCall(f"{name} was closed but not opened; write its opening tag first")
    content = text[start + len(name) + 2 : closing.start()]
    if name in _TAGGED:
        return ToolCalls((tagged_call(name, content.strip(), tools, optional=("fold_thought",)),))
    value, end = read_object(content, 0)
    if end < len(content):
        raise UnreadableCall("write nothing but one JSON object between the tags of tool_call")
    return ToolCalls((object_call(value, tools, ("name", "arguments")),))


def _answer(text: str) -> Action:
    """Return the last box after the thoughts, or of the whole text; else the text after the thoughts."""
    visible = text.rpartition("</think>")[2].strip()
    for part in (visible, text):
        if (box := last_boxed(part)) is not None:
            return Answer(box, boxed=True)
    return Answer(visible, boxed=False) if visible and "<think>" not in visible else Nothing()
