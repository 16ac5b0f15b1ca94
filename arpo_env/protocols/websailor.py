r"""`WebSailor`: the format of the WebSailor checkpoints (arXiv 2507.02592): Hermes calls, `<answer>` for the answer.

    from arpo_env.protocols import make_protocol
    make_protocol("websailor").parse("<think>I know it.</think>\n<answer>Lima</answer>", tools)

Their chat template does not show the tools: the opening message of the user does, before the question. One search takes
several queries at once; here each query becomes a call of its own, so that it is recorded, limited and counted as such.
The prompts say what the published ones say, in our words and in English only. The published ones end the instructions
with today's date; it is left out, since it would change the prompt of a repeated run.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Sequence
from typing import Any

from arpo_env.protocols.chat_template import Hermes
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
from arpo_env.tools.function_schema import JsonSchema

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
    _delimiters = re.compile(
        r"<(?=\s*+/?+\s*+(?:tool_response|tool_call|tools|think|answer)\b|\|(?:im_start|im_end|endoftext)\|>)",
        re.IGNORECASE,
    )

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
        if (content := _answer(visible)) is not None:
            box = last_boxed(content)
            return Answer(content if box is None else box, boxed=True) if content else Nothing()
        action = super().parse(text, [_batched(tool) for tool in tools])
        if isinstance(action, ToolCalls):
            return _one_query_each(action)
        return Nothing() if isinstance(action, Answer) else action

    def well_formed(self, turns: Sequence[str]) -> bool:
        """Return whether every thought is closed, no turn holds a result, and the last one has the answer."""
        return super().well_formed(turns) and bool(turns) and _answer(_THOUGHT.sub("", turns[-1])) is not None


def _answer(visible: str) -> str | None:
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
