r"""Rewrites traces in another protocol: tags become native tool calls, and native calls become tags.

A turn is parsed in the protocol that it is written in, and its calls or its answer are written in the other one. The
rewritten turn is parsed again and must have the same calls or the same answer; otherwise the row is dropped.

    rewritten(trace, make_protocol("hermes"), tools)      # arpo sft --to-protocol hermes
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from arpo_env.protocols import make_protocol
from arpo_env.protocols.protocol import (
    Action,
    Answer,
    Protocol,
    ToolCall,
    ToolCalls,
    find_tool,
    tag_parameter,
    tool_names,
)
from arpo_env.tools.tool import JsonSchema
from arpo_trainer.sft.plain_trace import (
    STREAM_TAGS,
    CheckedTurn,
    DroppedRow,
    ModelTurn,
    ToolResults,
    Trace,
    Turn,
    checked_turns,
)

_STREAM = "deepagent"  # one stream of reasoning, with JSON calls in tags


def rewritten(trace: Trace, protocol: Protocol, tools: Sequence[JsonSchema]) -> Trace:
    """Return a checked trace whose turns are texts in a protocol.

    Turns that are in it already stay as they are, with their ids.

    Raises:
        DroppedRow: the trace has a fault, or it cannot be written in the protocol.
    """
    source = make_protocol(trace.protocol) if trace.protocol else protocol
    turns = checked_turns(trace, source, tools)
    same = trace.protocol in ("", protocol.name) or _alike(source, protocol)
    if same and not any(isinstance(turn, CheckedTurn) and turn.apart for turn in turns):
        return _with_turns(trace, protocol, trace.turns, trace.ids is not None)
    written: list[Turn] = []
    for turn in turns:
        written.append(ModelTurn(_write(turn, protocol, tools)) if isinstance(turn, CheckedTurn) else turn)
    return _with_turns(trace, protocol, tuple(written), False)


def _alike(source: Protocol, protocol: Protocol) -> bool:
    """Return whether both have tags, and those of the same kind."""
    return not (source.native or protocol.native) and (source.name == _STREAM) == (protocol.name == _STREAM)


def _with_turns(trace: Trace, protocol: Protocol, turns: tuple[Turn, ...], keep_ids: bool) -> Trace:
    ids = trace.ids if keep_ids else None
    return replace(trace, turns=turns, protocol=protocol.name, ids=ids)


def _write(turn: CheckedTurn, protocol: Protocol, tools: Sequence[JsonSchema]) -> str:
    action = turn.action
    if isinstance(action, ToolCalls):
        if protocol.native:
            forms = [_native_calls(turn.lead, action, protocol)]
        else:
            forms = [(_stream_calls if protocol.name == _STREAM else _tag_calls)(turn.lead, action, tools)]
    elif protocol.native or protocol.name == _STREAM:
        forms = [_joined(turn.lead, turn.content), _joined(turn.lead, f"\\boxed{{{action.value}}}")]
    else:
        forms = [f"{turn.lead}<answer>{turn.content}</answer>"]
    # with tags of their own, only the tools of the beginning can be called
    callable_tools = turn.tools if protocol.native or protocol.name == _STREAM else tools
    for text in forms:
        if _same(protocol.parse(text, callable_tools), action):
            return text
    raise DroppedRow("other protocol", f"in {protocol.name} the turn would read otherwise: {forms[0][-200:]!r}")


def _same(read: Action, meant: Action) -> bool:
    if isinstance(meant, Answer):
        return isinstance(read, Answer) and read.value == meant.value
    return read == meant


def _joined(lead: str, content: str) -> str:
    return f"{lead.rstrip()}\n\n{content}" if lead.strip() else content


def _native_calls(lead: str, action: ToolCalls, protocol: Any) -> str:
    lead = lead.rstrip()
    if protocol.name != "hermes":
        text: str = protocol.write_calls(lead, [(call.name, call.arguments) for call in action.calls])
        return text
    # with the line breaks of the chat templates of Qwen and Hermes, which the models know
    calls = [json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False) for call in action.calls]
    return "\n".join([*([lead] if lead else []), *(f"<tool_call>\n{call}\n</tool_call>" for call in calls)])


def _tag_calls(lead: str, action: ToolCalls, tools: Sequence[JsonSchema]) -> str:
    call = _one_call(action)
    if call.name not in tool_names(tools):
        raise DroppedRow("other protocol", f"{call.name} was found on the way, and so it has no tags")
    return f"{lead}<{call.name}>{_tag_content(call, tools)}</{call.name}>"


def _stream_calls(lead: str, action: ToolCalls, tools: Sequence[JsonSchema]) -> str:
    """Return a call in the protocol "deepagent": in tags of its own, or as JSON."""
    call = _one_call(action)
    if call.name in STREAM_TAGS:
        return f"{lead}<{call.name}>{_tag_content(call, tools)}</{call.name}>"
    written = json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False)
    return f"{lead}<tool_call>{written}</tool_call>"


def _one_call(action: ToolCalls) -> ToolCall:
    if len(action.calls) > 1:
        raise DroppedRow("other protocol", "a turn with tags holds one call, and this one has several")
    return action.calls[0]


def _tag_content(call: ToolCall, tools: Sequence[JsonSchema]) -> str:
    parameter = tag_parameter(find_tool(call.name, tools))
    if parameter is not None and set(call.arguments) == {parameter}:
        return str(call.arguments[parameter])
    return json.dumps(call.arguments, ensure_ascii=False)


def as_messages(trace: Trace, protocol: Protocol, tools: Sequence[JsonSchema]) -> dict[str, Any]:
    """Return a rewritten trace as a row of messages, the form that `arpo sft --rows-only FILE` writes.

    Calls of a native protocol are `tool_calls` with arguments as an object, as chat templates take them. With tags the
    whole episode is one message of the assistant.
    """
    if not protocol.native:
        pieces = [
            turn.text if isinstance(turn, ModelTurn) else protocol.render_result(turn.texts, tools)
            for turn in trace.turns
        ]
        return {"messages": [*trace.messages, {"role": "assistant", "content": "".join(pieces)}]}
    messages: list[dict[str, Any]] = [*trace.messages]
    for turn, given in zip(checked_turns(trace, protocol, tools), trace.turns, strict=True):
        if isinstance(turn, ToolResults):
            messages += [{"role": "tool", "content": text} for text in turn.texts]
        elif isinstance(turn.action, ToolCalls):
            calls = [_as_object(call) for call in turn.action.calls]
            messages.append({"role": "assistant", "content": turn.lead.strip(), "tool_calls": calls})
        else:
            messages.append({"role": "assistant", "content": given.text if isinstance(given, ModelTurn) else ""})
    return {"messages": messages, "tools": list(tools)}


def _as_object(call: ToolCall) -> dict[str, Any]:
    return {"type": "function", "function": {"name": call.name, "arguments": call.arguments}}
