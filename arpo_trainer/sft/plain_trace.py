"""`Trace`: one solved task as plain text, turn by turn; how it is checked, and written in another protocol.

    trace = Trace("You are ...", "What is 2 + 2?", (ModelTurn("<python>2 + 2</python>"), ToolResults(("4",)), ...))
    rewritten(trace, make_protocol("hermes"), tools)      # arpo sft --to-protocol hermes

Each piece of text is known to be the model's or the environment's. A row that is not trained on is a `DroppedRow`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from arpo_env.episode import FOLD
from arpo_env.memory_folding import fold_schema
from arpo_env.protocols import make_protocol
from arpo_env.protocols.chat_template import Native
from arpo_env.protocols.protocol import (
    Answer,
    Malformed,
    Nothing,
    Protocol,
    ToolCall,
    ToolCalls,
    UnreadableCall,
    checked_call,
    find_tool,
    tag_parameter,
    tool_names,
)
from arpo_env.tools.tool import JsonSchema, function_schema
from arpo_env.tools.tool_search import NAME as TOOL_SEARCH
from arpo_env.tools.tool_search import as_document, tool_search

CAUSES = {
    "not a row": "the line is no JSON object, or its fields have other types than the format says",
    "unknown role": "a message of a role that the format does not have",
    "no question": "no message of the user before the model's first turn",
    "second question": "the user speaks again; an episode has one question",
    "no model turn": "the model says nothing",
    "tags do not balance": "a tag is closed without being opened, or opened and not closed",
    "call cannot be parsed": "the protocol cannot read a call, or the tool or an argument does not exist",
    "call without result": "the model goes on after a call, and no result is shown",
    "result without call": "a result stands where nothing was called; the model may have written it itself",
    "cut off": "the last turn ends in the middle, or with a call",
    "no answer": "the last turn holds no answer",
    "answer before the end": "a turn that is not the last one answers",
    "too long": "more tokens than max_length",
    "other protocol": "the turns cannot be written in the protocol without changing their calls or the answer",
    "pictures seen": "an answer that needed pictures cannot be learnt from text alone",
    "reward too low": "a trajectory that scored less than min_reward, or that failed",
    "duplicate": "the same turns for the same task as in a row before",
    "enough of this task": "more than max_per_task trajectories of a task",
}


class DroppedRow(ValueError):
    """Raised for a row that is not trained on."""

    def __init__(self, cause: str, detail: str = "") -> None:
        self.cause, self.detail = cause, detail or CAUSES[cause]
        super().__init__(f"{cause}: {self.detail}")


@dataclass(frozen=True)
class ModelTurn:
    """What the model wrote up to a result or to the end."""

    text: str  # the text; it contains the calls where the format writes them as text
    # calls that the format holds apart from the text: name, and arguments as an object or as JSON text
    calls: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class ToolResults:
    """The results of one turn's calls, one text per call, without tags."""

    texts: tuple[str, ...]


Turn = ModelTurn | ToolResults


@dataclass(frozen=True)
class SampledIds:
    """The token ids of a trace that was sampled here."""

    prompt: tuple[int, ...]  # ids of the prompt
    turns: tuple[tuple[int, ...], ...]  # ids of each turn, in the order of `Trace.turns`
    texts: tuple[str | None, ...]  # what the ids of each turn decoded to; another tokenizer is recognised by it


@dataclass(frozen=True)
class Trace:
    """One solved task, or the part of it between two folds of the history."""

    system: str | None  # the system prompt, or None if the row has none
    question: str  # the question; after a fold, with the memories behind it
    turns: tuple[Turn, ...]  # the turns of the model and the results, in order
    protocol: str = ""  # the protocol that the texts of the turns are written in; "" if nothing in them tells
    tools: tuple[JsonSchema, ...] | None = None  # schemas of the tools, if the row has them
    ids: SampledIds | None = None  # the sampled ids, if the trace comes from a rollout
    reward: float | None = None  # what the trajectory earned, if the trace comes from a rollout; None if it failed
    cut: bool = False  # whether the last turn of a rollout ended at its limit of tokens
    pictures: bool = False  # whether the model was shown pictures on the way
    # schemas of the environment's own actions that a rollout used: `tool_search`, `fold_thought`
    actions: tuple[JsonSchema, ...] = ()
    # schemas of tools that were found before the history was folded; nothing in the turns shows them
    found: tuple[JsonSchema, ...] = ()
    # id and question of the task, if the trace comes from a rollout: several tasks may have one question
    task: str = field(default="", compare=False)
    # what the parts of one trajectory share, and no other one has
    trajectory: object = field(default=None, compare=False)

    @property
    def messages(self) -> list[dict[str, str]]:
        """The messages that open the episode."""
        system = [] if self.system is None else [{"role": "system", "content": self.system}]
        return [*system, {"role": "user", "content": self.question}]


# Tools that an episode finds on its way, read back from the documents that its results show, so that the calls that
# follow can be checked as a rollout would check them; and the actions of the environment itself.

SEARCH_SCHEMA: JsonSchema = function_schema(tool_search)


def shown_schemas(text: str) -> list[JsonSchema]:
    """Return the schemas of the documents in the result of a search; one that cannot be read is left out."""
    try:
        rows, _ = json.JSONDecoder().raw_decode(text.strip())  # a note may follow
    except (ValueError, RecursionError):  # nothing was found, or the only document was too long
        return []
    schemas = []
    for row in rows if isinstance(rows, list) else []:
        try:
            schemas.append(as_document(row).schema)
        except ValueError:
            continue
    return schemas


def with_found(tools: Sequence[JsonSchema], found: Iterable[JsonSchema]) -> list[JsonSchema]:
    """Return tools and those found that are not among them; a found tool cannot take the name of another."""
    known = {name: schema for name, schema in zip(tool_names(tools), tools, strict=True)}
    for schema in found:
        known.setdefault(schema["function"]["name"], schema)
    return list(known.values())


def action_schemas(names: Iterable[str], text: str) -> tuple[JsonSchema, ...]:
    """Return the schemas of the environment's own actions among the called names: `tool_search` and `fold_thought`.

    What the model wrote tells whether the policy wrote the memories of its folds, or another model.
    """
    used = set(names)
    fold = [fold_schema(by_model='"episodic"' not in text)] if FOLD in used else []
    return (*([SEARCH_SCHEMA] if TOOL_SEARCH in used else []), *fold)


# Checks: tags, calls, results and the answer. The turns are parsed by the protocol that a rollout would parse them
# by, so that nothing is taught that a rollout would refuse.

_STREAM = "deepagent"  # one stream of reasoning, with JSON calls in tags
_HERMES = {"hermes", "native"}  # without a model's tokenizer the second is written as the first
_STREAM_TAGS = ("tool_call", "tool_search", "fold_thought", "tool_call_result")


@dataclass(frozen=True)
class CheckedTurn:
    """A turn of the model that has been read."""

    lead: str  # the text before the calls or the answer
    action: ToolCalls | Answer
    content: str = ""  # the text of the answer, as it is written
    apart: bool = False  # whether the format holds the calls apart from the text
    tools: Sequence[JsonSchema] = ()  # schemas of the tools that could be called, those that were found before included

    @property
    def calls(self) -> Sequence[ToolCall]:
        """Its calls; an answer has none."""
        return self.action.calls if isinstance(self.action, ToolCalls) else ()


def checked_turns(trace: Trace, protocol: Protocol, tools: Sequence[JsonSchema]) -> list[CheckedTurn | ToolResults]:
    """Return the turns of a trace as they are read by the protocol that they are written in."""
    tools = with_found(tools, trace.found)
    if not any(isinstance(turn, ModelTurn) for turn in trace.turns):
        raise DroppedRow("no model turn")
    checked: list[CheckedTurn | ToolResults] = []
    for number, turn in enumerate(trace.turns):
        last = number == len(trace.turns) - 1
        before = checked[-1] if checked else None
        if isinstance(turn, ToolResults):
            calls = _check_results(turn, before)
            searched = [text for call, text in zip(calls, turn.texts, strict=False) if call.name == TOOL_SEARCH]
            tools = with_found(tools, (schema for text in searched for schema in shown_schemas(text)))
            checked.append(turn)
            continue
        if isinstance(before, CheckedTurn):
            raise DroppedRow("call without result" if before.calls else "answer before the end")
        read = replace(_read(turn, protocol, tools, last), tools=tools)
        if isinstance(read.action, Answer) and not last:
            raise DroppedRow("answer before the end")
        checked.append(read)
    if trace.cut and protocol.native:  # any text is an answer there
        raise DroppedRow("cut off", "the last turn reached the limit of tokens")
    end = checked[-1]
    # after a fold the episode goes on from a new prompt, which is a trace of its own
    if isinstance(end, ToolResults) or (end.calls and [call.name for call in end.calls] != [FOLD]):
        raise DroppedRow("cut off", "it ends with a call or its result")
    return checked


def _check_results(results: ToolResults, before: CheckedTurn | ToolResults | None) -> Sequence[ToolCall]:
    calls = before.calls if isinstance(before, CheckedTurn) else ()
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
        return CheckedTurn(text, _calls_apart(turn.calls, tools), apart=True)
    streamed = protocol.name == _STREAM  # its calls count inside thoughts, too
    tags = ("think",) if protocol.native else ("think", "answer", "result", *tool_names(tools))
    tags = _STREAM_TAGS if streamed else tags
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
    """Return what stands before the call or the answer, and the answer's text."""
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
    """Return what stands before the call or the answer of the protocol "deepagent", and the answer's text."""
    if "<tool_call_result>" in text:
        raise DroppedRow("result without call", "a result stands where nothing was called")
    if isinstance(action, Answer):
        return _native_parts(text, action)
    closing = re.search(rf"</({'|'.join(_STREAM_TAGS)})>", text)
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


def _calls_apart(calls: Sequence[tuple[str, Any]], tools: Sequence[JsonSchema]) -> ToolCalls:
    """Return calls that a format holds apart from the text, checked against the tools."""
    checked = []
    for name, given in calls:
        try:
            given = "{}" if given in (None, "") else given
            arguments = json.loads(given) if isinstance(given, str) else given
            checked.append(checked_call(name, arguments, tools))
        except (UnreadableCall, ValueError) as fault:
            raise DroppedRow("call cannot be parsed", str(fault)) from fault
    return ToolCalls(tuple(checked))


# Rewriting: tags become native tool calls, and native calls become tags. The rewritten turn is parsed again and must
# have the same calls or the same answer; otherwise the row is dropped.


def _of_model(protocol: Protocol) -> bool:
    """Return whether the protocol is "native" for a model whose tokenizer is known."""
    return isinstance(protocol, Native) and type(protocol) is not Native


def rewritten(trace: Trace, protocol: Protocol, tools: Sequence[JsonSchema]) -> Trace:
    """Return a checked trace whose turns are texts in a protocol.

    Turns that are in it already stay as they are, with their ids.
    """
    source = protocol if trace.protocol in ("", protocol.name) else make_protocol(trace.protocol)
    try:
        # marks such as <tool_call> do not tell the form of Hermes from that of the model's own family
        source = protocol if trace.protocol in _HERMES and _of_model(protocol) else source
        turns = checked_turns(trace, source, tools)
    except DroppedRow:
        if source is not protocol or trace.protocol in ("", protocol.name):
            raise
        source = make_protocol(trace.protocol)
        turns = checked_turns(trace, source, tools)
    # all protocols with tags have the same ones, but for the stream
    tags = not (source.native or protocol.native) and (source.name == _STREAM) == (protocol.name == _STREAM)
    hermes = {trace.protocol, protocol.name} <= _HERMES and not _of_model(protocol)
    same = source is protocol or trace.protocol == protocol.name or tags or hermes
    if same and not any(isinstance(turn, CheckedTurn) and turn.apart for turn in turns):
        return replace(trace, protocol=protocol.name)
    written: list[Turn] = []
    for turn in turns:
        written.append(ModelTurn(_write(turn, protocol, tools)) if isinstance(turn, CheckedTurn) else turn)
    return replace(trace, turns=tuple(written), protocol=protocol.name, ids=None)


def _write(turn: CheckedTurn, protocol: Protocol, tools: Sequence[JsonSchema]) -> str:
    action, streamed = turn.action, protocol.name == _STREAM
    if isinstance(action, ToolCalls):
        try:
            forms = [(_native_calls if protocol.native else _tag_call)(turn.lead, action, protocol, tools)]
        except UnreadableCall as fault:
            raise DroppedRow("other protocol", str(fault)) from fault
    elif protocol.native or streamed:
        forms = [_joined(turn.lead, turn.content), _joined(turn.lead, f"\\boxed{{{action.value}}}")]
    else:
        forms = [f"{turn.lead}<answer>{turn.content}</answer>"]
    # with tags of their own, only the tools of the beginning can be called
    callable_tools = turn.tools if protocol.native or streamed else tools
    for text in forms:
        read = protocol.parse(text, callable_tools)
        if isinstance(action, Answer) and isinstance(read, Answer) and read.value == action.value:
            return text
        if isinstance(action, ToolCalls) and read == action:
            return text
    raise DroppedRow("other protocol", f"in {protocol.name} the turn would read otherwise: {forms[0][-200:]!r}")


def _joined(lead: str, content: str) -> str:
    return f"{lead.rstrip()}\n\n{content}" if lead.strip() else content


def _native_calls(lead: str, action: ToolCalls, protocol: Any, tools: Sequence[JsonSchema]) -> str:
    lead = lead.rstrip()
    if protocol.name not in _HERMES or _of_model(protocol):
        text: str = protocol.write_calls(lead, [(call.name, call.arguments) for call in action.calls])
        return text
    # with the line breaks of the chat templates of Qwen and Hermes, which the models know
    calls = [f"<tool_call>\n{_as_json(call)}\n</tool_call>" for call in action.calls]
    return "\n".join([*([lead] if lead else []), *calls])


def _as_json(call: ToolCall) -> str:
    return json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False)


def _tag_call(lead: str, action: ToolCalls, protocol: Protocol, tools: Sequence[JsonSchema]) -> str:
    """Return a call in tags of its own; in the stream other calls are JSON."""
    if len(action.calls) > 1:
        raise DroppedRow("other protocol", "a turn with tags holds one call, and this one has several")
    (call,) = action.calls
    if protocol.name == _STREAM and call.name not in _STREAM_TAGS:
        return f"{lead}<tool_call>{_as_json(call)}</tool_call>"
    if protocol.name != _STREAM and call.name not in tool_names(tools):
        raise DroppedRow("other protocol", f"{call.name} was found on the way, and so it has no tags")
    parameter = tag_parameter(find_tool(call.name, tools))
    content = json.dumps(call.arguments, ensure_ascii=False)
    if parameter is not None and set(call.arguments) == {parameter}:
        content = str(call.arguments[parameter])
    return f"{lead}<{call.name}>{content}</{call.name}>"


def as_messages(trace: Trace, protocol: Protocol, tools: Sequence[JsonSchema]) -> dict[str, Any]:
    """Return a rewritten trace as a row of messages, the form that `arpo sft --rows-only FILE` writes.

    Calls of a native protocol are `tool_calls` with arguments as an object, as chat templates take them. With tags the
    whole episode is one message of the assistant.
    """
    messages: list[dict[str, Any]] = [*trace.messages]
    if not protocol.native:
        pieces = [
            turn.text if isinstance(turn, ModelTurn) else protocol.render_result(turn.texts, tools)
            for turn in trace.turns
        ]
        return {"messages": [*messages, {"role": "assistant", "content": "".join(pieces)}]}
    for turn, given in zip(checked_turns(trace, protocol, tools), trace.turns, strict=True):
        if isinstance(turn, ToolResults):
            messages += [{"role": "tool", "content": text} for text in turn.texts]
        elif isinstance(turn.action, ToolCalls):
            called = [{"name": call.name, "arguments": call.arguments} for call in turn.action.calls]
            calls = [{"type": "function", "function": function} for function in called]
            messages.append({"role": "assistant", "content": turn.lead.strip(), "tool_calls": calls})
        else:
            messages.append({"role": "assistant", "content": given.text if isinstance(given, ModelTurn) else ""})
    return {"messages": messages, "tools": list(tools)}
