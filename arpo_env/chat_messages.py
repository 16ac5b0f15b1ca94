"""Turns as chat messages, both ways: what a server answered becomes a turn's text, and turns become what it is asked.

    message = reply_message(choice["message"])           # checked: text, and calls where the server has read them
    env.step(turn_text(message, env.protocol))
    messages = conversation(env)                         # what the next request sends, with `request_tools(env)`

Everything that plays against an OpenAI-compatible endpoint does it by these functions. With a native protocol, such as
"hermes", calls are `tool_calls` and results are messages of the role "tool"; otherwise both are text.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from arpo_env.episode import Turn
from arpo_env.protocols.protocol import NativeProtocol, Protocol
from arpo_env.tools.tool import JsonSchema, usable_schemas

if TYPE_CHECKING:
    from arpo_env.env import ToolEnv

Message = dict[str, Any]
_PICTURES = "The attached pictures of the results above."
# what a refusal says in lower case: vLLM, llama.cpp, Ollama and OpenRouter, OpenAI, Mistral
TOOL_REFUSALS = ("tool choice", "--jinja", "support tool", "tools is not", "tools' is not", "function calling is not")
TOOL_CURE = (
    "Let the endpoint take tools (vLLM: --enable-auto-tool-choice --tool-call-parser NAME; llama.cpp: --jinja), or let "
    "them be called in the text, with protocol=arpo-tags"
)


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
    kept = {name: given[name] for name in ("reasoning_content", "reasoning") if isinstance(given.get(name), str)}
    return {"role": "assistant", "content": content, **kept, **({"tool_calls": calls} if calls else {})}


def turn_text(message: Mapping[str, Any], protocol: Protocol) -> str:
    """Return an assistant's message as the turn that the protocol parses: thoughts, text, calls."""
    text = text_of(message.get("content"))
    thought = message.get("reasoning_content") or message.get("reasoning") or ""
    if thought and "</think>" not in text:
        text = f"<think>{thought}</think>{text}"
    functions = [call.get("function") or {} for call in message.get("tool_calls") or ()]
    if not (functions and protocol.native):
        return text
    calls = [(each.get("name"), each.get("arguments")) for each in functions]
    return cast("NativeProtocol", protocol).write_calls(text, calls)


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
