r"""Checks a trace turn by turn: tags, calls, results and the answer. A fault is a `DroppedRow` with its cause.

The turns are parsed by the protocol that a rollout would parse them by, so that nothing is taught that a rollout would
refuse.

    checked_turns(trace, make_protocol("arpo-tags"), tools)
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from arpo_env.protocols.protocol import (
    Answer,
    Malformed,
    Nothing,
    Protocol,
    ToolCall,
    ToolCalls,
    UnreadableCall,
    checked_call,
    tool_names,
)
from arpo_env.tools.tool import JsonSchema
from arpo_trainer.sft.found_tools import found_schemas, is_fold, with_found
from arpo_trainer.sft.plain_trace import DroppedRow, ModelTurn, ToolResults, Trace

STREAM_TAGS = ("tool_call", "tool_search", "fold_thought", "tool_call_result")
"""Tags of the protocol "deepagent"."""


@dataclass(frozen=True)
class CheckedTurn:
    """A turn of the model that has been read.

    Attributes:
        lead: the text before the calls or the answer.
        action: its calls or its answer.
        content: the text of the answer, as it is written; "" for calls.
        apart: whether the format holds the calls apart from the text.
        tools: schemas of the tools that could be called, those that were found before included.
    """

    lead: str
    action: ToolCalls | Answer
    content: str = ""
    apart: bool = False
    tools: Sequence[JsonSchema] = ()


def checked_turns(trace: Trace, protocol: Protocol, tools: Sequence[JsonSchema]) -> list[CheckedTurn | ToolResults]:
    """Return the turns of a trace as they are read by the protocol that they are written in.

    Args:
        trace: the trace.
        protocol: what parses its texts.
        tools: schemas of the tools that may be called from the start; those that a search finds are added.

    Raises:
        DroppedRow: something is wrong with it.
    """
    tools = with_found(tools, trace.found)
    if not any(isinstance(turn, ModelTurn) for turn in trace.turns):
        raise DroppedRow("no model turn")
    checked: list[CheckedTurn | ToolResults] = []
    for number, turn in enumerate(trace.turns):
        last = number == len(trace.turns) - 1
        before = checked[-1] if checked else None
        if isinstance(turn, ToolResults):
            calls = _check_results(turn, before)
            tools = with_found(tools, found_schemas(calls, turn.texts))
            checked.append(turn)
            continue
        if isinstance(before, CheckedTurn):
            cause = "call without result" if isinstance(before.action, ToolCalls) else "answer before the end"
            raise DroppedRow(cause)
        read = replace(_read(turn, protocol, tools, last), tools=tools)
        if isinstance(read.action, Answer) and not last:
            raise DroppedRow("answer before the end")
        checked.append(read)
    if trace.cut and protocol.native:  # any text is an answer there
        raise DroppedRow("cut off", "the last turn reached the limit of tokens")
    end = checked[-1]
    # after a fold the episode goes on from a new prompt, which is a trace of its own
    if isinstance(end, ToolResults) or (isinstance(end.action, ToolCalls) and not is_fold(end.action)):
        raise DroppedRow("cut off", "it ends with a call or its result")
    return checked


def _check_results(results: ToolResults, before: CheckedTurn | ToolResults | None) -> Sequence[ToolCall]:
    calls = before.action.calls if isinstance(before, CheckedTurn) and isinstance(before.action, ToolCalls) else ()
    if not calls:
        raise DroppedRow("result without call")
    if len(results.texts) != len(calls):
        cause = "call without result" if len(results.texts) < len(calls) else "result without call"
        raise DroppedRow(cause, f"{len(calls)} calls and {len(results.texts)} results")
    return calls


def _read(turn: ModelTurn, protocol: Protocol, tools: Sequence[JsonSchema], last: bool) -> CheckedTurn:
    text = turn.text.strip()
    if turn.calls:
        _check_balance(text, ("think",), False)
        return CheckedTurn(text, read_calls(turn.calls, tools), apart=True)
    streamed = protocol.name == "deepagent"  # its calls count inside thoughts, too
    tags = ("think",) if protocol.native else ("think", "answer", "result", *tool_names(tools))
    tags = STREAM_TAGS if streamed else tags
    _check_balance(text, tags, last)
    action = protocol.parse(text, tools)
    if isinstance(action, Malformed):
        raise DroppedRow("call cannot be parsed", action.reason)
    if isinstance(action, Nothing) or (isinstance(action, Answer) and not action.value.strip()):
        raise DroppedRow("no answer" if last else "result without call", f"the turn reads {text[-200:]!r}")
    if streamed:
        lead, content = _stream_parts(text, action)
    else:
        lead, content = _native_parts(text, action) if protocol.native else _tag_parts(text, action, tools)
    return CheckedTurn(lead, action, content)


def _check_balance(text: str, names: Sequence[str], last: bool) -> None:
    """Check that every tag outside others is closed; what lies inside a tag, such as code, is not read."""
    opened = ""
    for tag in re.finditer(rf"<(/?)({'|'.join(map(re.escape, names))})>", text):
        if not opened and tag[1]:
            # a template may have opened the thought in the prompt
            if tag[2] == "think" and not text[: tag.start()].count("<"):
                continue
            raise DroppedRow("tags do not balance", f"</{tag[2]}> closes nothing")
        if not opened:
            opened = tag[2]
        elif tag[1] and tag[2] == opened:
            opened = ""
        if tag[0] == "<result>" and opened == "result":
            raise DroppedRow("result without call", "a result stands where nothing was called")
    if opened:
        raise DroppedRow("cut off" if last else "tags do not balance", f"<{opened}> is not closed")


def _tag_parts(text: str, action: ToolCalls | Answer, tools: Sequence[JsonSchema]) -> tuple[str, str]:
    """Return what stands before the call or the answer, and the answer's text.

    Raises:
        DroppedRow: text follows the closing tag; a rollout would have stopped there.
    """
    name = "answer" if isinstance(action, Answer) else action.calls[0].name
    # the first closing tag ends a turn, whatever it closes
    ends = "|".join(map(re.escape, (*tool_names(tools), "answer")))
    closing = re.search(rf"</(?:{ends})>", text)
    if closing is None or closing.end() < len(text):
        cause = "answer before the end" if name == "answer" else "call without result"
        raise DroppedRow(cause, f"after </{name}> the text goes on: {text[closing.end() if closing else 0 :][:80]!r}")
    begin = text.rindex(f"<{name}>", 0, closing.start())
    content = text[begin + len(name) + 2 : closing.start()].strip() if name == "answer" else ""
    return text[:begin], content


def _stream_parts(text: str, action: ToolCalls | Answer) -> tuple[str, str]:
    """Return what stands before the call or the answer of the protocol "deepagent", and the answer's text.

    Raises:
        DroppedRow: text follows the closing tag, or the model wrote a result itself.
    """
    if "<tool_call_result>" in text:
        raise DroppedRow("result without call", "a result stands where nothing was called")
    if isinstance(action, Answer):
        return _native_parts(text, action)
    closing = re.search(rf"</({'|'.join(STREAM_TAGS)})>", text)
    if closing is None or closing.end() < len(text):
        raise DroppedRow("call without result", f"after the call the text goes on: {text[-80:]!r}")
    return text[: text.rfind(f"<{closing[1]}>")], ""


def _native_parts(text: str, action: ToolCalls | Answer) -> tuple[str, str]:
    visible = text.rfind("</think>") + len("</think>") if "</think>" in text else 0
    if isinstance(action, Answer):
        return text[:visible], text[visible:].strip()
    # Llama's calls may stand without a mark
    places = (text.find(mark, visible) for mark in ("<tool_call>", "<|python_tag|>", "{"))
    return text[: next((place for place in places if place >= 0), visible)], ""


def read_calls(calls: Sequence[tuple[str, Any]], tools: Sequence[JsonSchema]) -> ToolCalls:
    """Return calls that a format holds apart from the text, checked against the tools.

    Raises:
        DroppedRow: a tool or an argument does not exist, or the arguments are no JSON object.
    """
    try:
        return ToolCalls(tuple(checked_call(name, _arguments(given), tools) for name, given in calls))
    except UnreadableCall as fault:
        raise DroppedRow("call cannot be parsed", str(fault)) from fault


def _arguments(given: Any) -> Any:
    if isinstance(given, str):
        try:
            return json.loads(given or "{}")
        except ValueError as error:
            raise UnreadableCall(f"the arguments are no JSON ({error})") from error
    return {} if given is None else given
