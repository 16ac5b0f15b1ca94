"""Turns as chat messages, both ways: what a server answered becomes a turn's text, and turns become what it is asked.

    message = reply_message(choice["message"])           # checked: text, and calls where the server has read them
    env.step(turn_text(message, env.protocol))
    messages = conversation(env)                         # what the next request sends, with `request_tools(env)`

Everything that plays against an OpenAI-compatible endpoint does it by these functions. With a native protocol, such as
"native" or "hermes", calls are `tool_calls` and results are messages of the role "tool"; otherwise both are text.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from arpo_env.episode import Turn
from arpo_env.protocols.chat_template import Hermes, Llama3
from arpo_env.protocols.protocol import NativeProtocol, Protocol, ToolCalls, tool_names
from arpo_env.tools.tool import JsonSchema, usable_schemas

if TYPE_CHECKING:
    from arpo_env.env import ToolEnv

Message = dict[str, Any]
THOUGHTS = ("reasoning_content", "reasoning", "thinking")  # fields of a message in which servers and TRL return them
_PICTURES = "The attached pictures of the results above."
# what a refusal says in lower case: vLLM, llama.cpp, Ollama and OpenRouter, OpenAI, Mistral
TOOL_REFUSALS = ("tool choice", "--jinja", "support tool", "tools is not", "tools' is not", "function calling is not")
TOOL_CURE = (
    "Let the endpoint take tools (vLLM: --enable-auto-tool-choice --tool-call-parser NAME; llama.cpp: --jinja), or let "
    "them be called in the text, with protocol=arpo-tags"
)
# How families of models write a call, and the parser of each in vLLM: the beginning up to a tool's NAME, and an end.
# Marks that are special tokens are optional where the rest says enough: servers leave them out of a text.
CALL_FORMS = {
    "qwen3_coder": (r"<function=NAME>", "</function>"),  # Qwen3-Coder, Qwen3.5 and later, Nemotron 3
    "glm45 (GLM-4.7: glm47)": (r"<tool_call>\s*NAME\s*(?=<arg_key>|</tool_call>)", "</tool_call>"),
    "openai": (r"to=functions\.NAME(?=[^\w.-]|commentary)", "}"),  # gpt-oss
    "functiongemma": (r"<start_function_call>call:NAME\{", "}"),
    "gemma4": (r"\bcall:NAME\{", "}"),
    "lfm2": (r"<\|tool_call_start\|>\s*\[NAME\(", ")]"),
    "pythonic (LFM2: lfm2, Llama 4: llama4_pythonic)": (r"\A\s*\[NAME\(", ")]"),
    "muse_glimmer": (r'<atem:invoke name="(?:[\w-]{1,64}\.)?NAME">', "</atem:invoke>"),
    "deepseek_v3 (V3.1: deepseek_v31)": (
        r"<｜tool▁call▁begin｜>(?:function<｜tool▁sep｜>)?NAME(?=\s|<)",
        "<｜tool▁call▁end｜>",
    ),
    "mistral": (r'\[TOOL_CALLS\]\s*(?:\[\s*\{\s*"name":\s*")?NAME(?=["\[{])', "}"),
    "kimi_k2": (r"functions\.NAME:\d+(?:<\|tool_call_argument_begin\|>)?\s*\{", "}"),
    "minimax_m2": (r'<invoke name="NAME">', "</invoke>"),
}
_READ_HERE = {"hermes": Hermes(), "llama3_json": Llama3()}  # the forms that a protocol of ours reads, by vLLM's parser
_QUOTED = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)


def request_tools(env: ToolEnv) -> list[JsonSchema]:
    """Return what goes into the `tools` of a request, found tools and the fold included; none if calls are text."""
    folding = [env.folding.schema] if env.folding else []
    return [*usable_schemas(env.tools), *folding] if _by_server(env.protocol) else []


def _by_server(protocol: Protocol) -> bool:
    """Whether the server shows the tools and reads the calls; else both are text of the messages."""
    return protocol.native and getattr(protocol, "template_shows_tools", True)


def reply_message(given: Any) -> Message:
    """Return the assistant's message of a reply, with what is used of it."""
    content, calls = text_of(given.get("content")), given.get("tool_calls") or []
    if not isinstance(calls, list) or not all(isinstance(call["function"]["name"], str) for call in calls):
        raise TypeError("tool_calls is no list of calls of functions")
    if not isinstance(given.get("content"), str | list | None):
        raise TypeError("content is no text")
    kept = {name: given[name] for name in THOUGHTS if isinstance(given.get(name), str)}
    return {"role": "assistant", "content": content, **kept, **({"tool_calls": calls} if calls else {})}


def turn_text(message: Mapping[str, Any], protocol: Protocol) -> str:
    """Return an assistant's message as the turn that the protocol parses: thoughts, text, calls."""
    text = text_of(message.get("content"))
    thought = next((message[name] for name in THOUGHTS if message.get(name)), "")
    if thought and "</think>" not in text:
        # it ends where the server says it does: what it quotes is neither a call nor an answer
        text = f"<think>{thought.replace('</think>', '&lt;/think>')}</think>{text}"
    functions = [call.get("function") or {} for call in message.get("tool_calls") or ()]
    if not (functions and protocol.native):
        return text
    calls = [(each.get("name"), each.get("arguments")) for each in functions]
    return cast("NativeProtocol", protocol).write_calls(text, calls)


def unparsed_call(text: str, tools: Sequence[JsonSchema], protocol: Protocol) -> str:
    """Return vLLM's name for the parser of a call that a turn's text holds and the protocol does not read; "" if none.

    A call is whole, of one of the tools, and outside of thoughts and quoted code. What a model writes badly is its own
    fault, and the server's parser leaves that in the text, too.
    """
    if isinstance(protocol.parse(text, tools), ToolCalls):
        return ""
    names = frozenset(tool_names(tools))
    shown = _QUOTED.sub("", text.rpartition("</think>")[2].partition("<think>")[0])
    for parser, reader in _READ_HERE.items():
        read = None if isinstance(protocol, type(reader)) else reader.read_calls(shown)
        if read and names.issuperset(name for name, _ in read[1]):
            return parser
    for parser, (pattern, end) in _call_patterns(names).items():
        found = pattern.search(shown)
        if found and shown.find(end, found.end()) >= 0:
            return parser
    return ""


@functools.lru_cache(maxsize=64)
def _call_patterns(names: frozenset[str]) -> dict[str, tuple[re.Pattern[str], str]]:
    """Return the forms of calls of these tools."""
    name = f"(?:{'|'.join(map(re.escape, sorted(names)))})"
    return {parser: (re.compile(form.replace("NAME", name)), end) for parser, (form, end) in CALL_FORMS.items()}


def text_of(content: Any) -> str:
    """Return the text of a message's content, which may be None or a list of parts."""
    if isinstance(content, list):
        return "".join(part.get("text") or "" for part in content if isinstance(part, Mapping))
    return content if isinstance(content, str) else ""


def conversation(env: ToolEnv) -> list[Message]:
    """Return what the model goes on from: the question, or the memory of the last fold, and the turns after it."""
    messages: list[Message] = [*env.context()]
    for number, turn in enumerate(env.episode.since_fold, 1):
        messages += turn_messages(turn, (f"call_{number}_{place}" for place in itertools.count()), env.protocol)
    return messages


def turn_messages(turn: Turn, ids: Iterable[str], protocol: Protocol) -> list[Message]:
    """Return a turn as the assistant's message and those that answer it; its calls take the first of these ids."""
    read = cast("NativeProtocol", protocol).read_calls(turn.text) if _by_server(protocol) else None
    if read is not None:
        text, calls = read
        named: list[Message] = [
            {"id": each, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for (name, arguments), each in zip(calls, ids, strict=False)
        ]
        said: Message = {"role": "assistant", "content": text, "tool_calls": named}
        return [said, *result_messages(turn, [call["id"] for call in named], protocol)]
    # servers refuse arguments that are not JSON, so the model is shown such calls as the text that it wrote
    shown = "\n".join(map(protocol.defuse, turn.results)) if _by_server(protocol) else turn.result.strip("\n")
    return [{"role": "assistant", "content": turn.text}, {"role": "user", "content": turn.content(shown)}]


def result_messages(turn: Turn, ids: Sequence[str], protocol: Protocol) -> list[Message]:
    """Return the messages that answer a turn: one for each call, by the ids of the calls."""
    if not ids:
        return [{"role": "user", "content": turn.content(turn.result.strip("\n"))}]
    # one unreadable call spoils the whole turn, which then has a single text for all calls
    texts = turn.results if len(turn.results) == len(ids) else turn.results[:1] * len(ids)
    results: list[Message] = [
        {"role": "tool", "tool_call_id": each, "content": protocol.defuse(text)}
        for each, text in zip(ids, texts, strict=False)  # none after the last turn
    ]
    # OpenAI takes pictures in messages of the user alone
    return [*results, {"role": "user", "content": turn.content(_PICTURES)}] if turn.images else results
