"""Rows of training files: a kept sample as sharegpt, alpaca or messages, and a hard question as a row of data.

The rows are read by `arpo sft` and by LLaMA-Factory, for which `dataset_info` describes the file. Each written row is
read back by the reader of `arpo sft`, and has to give the same turns.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from arpo_env.protocols.protocol import Protocol
from arpo_env.tools.tool import JsonSchema
from arpo_trainer.sft.plain_trace import DroppedRow, ModelTurn, ToolResults, Trace
from arpo_trainer.sft.to_protocol import as_messages, rewritten
from arpo_trainer.sft.trace_formats import read_row
from arpo_trainer.synthesis.sample_checks import DroppedSample, turn_texts

_OF_SFT = frozenset({"python", "search"})  # the tools that `arpo sft` knows without a schema
Row = dict[str, Any]


def training_row(trace: Trace, form: str, protocol: Protocol, tools: Sequence[JsonSchema]) -> Row:
    """Return a trace as a row that reads back as it is.

    Args:
        trace: a checked trace whose turns are texts in the protocol.
        form: a key of `WRITERS`.
        protocol: of the trace.
        tools: that may be called.

    Raises:
        DroppedSample: the row does not read back.
    """
    row = WRITERS[form](trace, protocol, tools)
    names = {tool["function"]["name"] for tool in tools}
    if protocol.native or not names <= _OF_SFT:
        row["tools"] = list(tools) if form == "messages" else json.dumps([tool["function"] for tool in tools])
    try:
        (read,) = read_row(row)
        same = turn_texts(rewritten(read, protocol, tools)) == turn_texts(trace)
    except DroppedRow as fault:
        raise DroppedSample("does not read back", str(fault)) from fault
    if not same or (read.system, read.question) != (trace.system, trace.question):
        raise DroppedSample("does not read back", "its turns differ")
    return row


def check_format(form: str, protocol: Protocol) -> None:
    """Refuse a format that cannot hold the turns of a protocol.

    Raises:
        ValueError: it is alpaca, and the protocol writes results as messages.
    """
    if form == "alpaca" and protocol.native:
        raise ValueError(
            f"alpaca has one text for a whole episode, and protocol {protocol.name!r} has messages: take sharegpt"
        )


def dataset_info(name: str, file: str, form: str, protocol: Protocol) -> dict[str, Any]:
    """Return the entry of LLaMA-Factory's dataset_info.json for a file."""
    if form == "alpaca":
        columns = {"prompt": "instruction", "query": "input", "response": "output", "system": "system"}
        return {name: {"file_name": file, "formatting": "alpaca", "columns": columns}}
    shown = {"tools": "tools"} if protocol.native else {}
    if form == "sharegpt":
        return {name: {"file_name": file, "formatting": "sharegpt", "columns": {
            "messages": "conversations", "system": "system", **shown}}}  # fmt: skip
    tags = {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant",
            "observation_tag": "tool", "system_tag": "system"}  # fmt: skip
    # calls beside the text are OpenAI's form
    formatting = "openai" if protocol.native else "sharegpt"
    return {
        name: {"file_name": file, "formatting": formatting, "columns": {"messages": "messages", **shown}, "tags": tags}
    }


def hard_row(task: Mapping[str, Any], index: int) -> Row:
    """Return a task as a row that its environment reads with `data`; generated tasks are found by their index."""
    answers = list(task["answers"])
    return {
        "id": task["id"],
        "index": index,
        "question": task["question"],
        "answer": answers[0],
        "golden_answers": answers,
        "kind": task["kind"],
        "level": task["level"],
        "category": task["category"],
    }


def _sharegpt(trace: Trace, protocol: Protocol, tools: Sequence[JsonSchema]) -> Row:
    if not protocol.native:
        turns = [{"from": "gpt", "value": _one_text(trace, protocol, tools)}]
    else:
        turns = [
            {"from": "gpt", "value": turn.text}
            if isinstance(turn, ModelTurn)
            else {"from": "observation", "value": _shown(turn)}
            for turn in trace.turns
        ]
    return {"conversations": [{"from": "human", "value": trace.question}, *turns], "system": trace.system}


def _alpaca(trace: Trace, protocol: Protocol, tools: Sequence[JsonSchema]) -> Row:
    output = _one_text(trace, protocol, tools)
    return {"instruction": trace.question, "input": "", "output": output, "system": trace.system}


def _one_text(trace: Trace, protocol: Protocol, tools: Sequence[JsonSchema]) -> str:
    text: str = as_messages(trace, protocol, tools)["messages"][-1]["content"]
    return text


def _shown(results: ToolResults) -> str:
    # LLaMA-Factory's templates write the outer tags
    return "\n</tool_response>\n<tool_response>\n".join(results.texts)


WRITERS: dict[str, Callable[[Trace, Protocol, Sequence[JsonSchema]], Row]] = {
    "sharegpt": _sharegpt,
    "alpaca": _alpaca,
    "messages": as_messages,
}
