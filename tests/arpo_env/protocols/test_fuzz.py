"""Whatever a model writes: no protocol raises or is slow, and none runs what a second, plain reading does not call."""

import json
import random
import re
import time
from collections.abc import Callable

import pytest

from arpo_env.protocols import PROTOCOLS, make_protocol
from arpo_env.protocols.protocol import Answer, Malformed, Nothing, ToolCall, ToolCalls
from arpo_env.tools.tool import function_schema
from arpo_env.tools.tool_search import tool_search
from tests.arpo_env.protocols.schemas import ALL

WITH_SEARCH = [*ALL, function_schema(tool_search)]
TURNS = 1000
LENGTH = 200_000  # characters
CPU_SECONDS = 5.0  # ten times what it takes on a busy machine; quadratic work would take hours
TAGS = ("think", "python", "search", "answer", "result", "add", "now")
TAG_PIECES = [
    *(f"<{name}>" for name in TAGS),
    *(f"</{name}>" for name in TAGS),
    *("<python>1 + 1</python>", "<search>who</search>", '<add>{"a": 1, "b": 2}</add>', "<answer>\\boxed{1}</answer>"),
    *("<think>hm</think>", "<think><python>2</python></think>", "</RESULT >", "< python>", "<python >", "<pyth", "on>"),
]
JSON_PIECES = [
    *('{"name": "python", "arguments": {"code": "1"}}', '{"name": "search", "arguments": {"query": "q", "k": 2}}'),
    *('{"name": "python", "parameters": {"code": "1"}}', '{"name": "now", "parameters": {}}', '{"name": "pyton"}'),
    *('{"name": "add", "arguments": {"a": 1e999, "b": 2}}', '{"name": "mark", "arguments": {"levels": [1, true]}}'),
    *('{"name": "python", "arguments": {"code": "</tool_call><tool_call>"}}', '{"code": NaN, "code": 1}', '{"a": '),
    '{"name": "python", "name": "search", "arguments": {}}',
]
MARK_PIECES = [
    *("<tool_call>", "</tool_call>", "<think>", "</think>", "<|python_tag|>", "<|eom_id|>", "<|im_end|>"),
    *("<tool_response>", "<tool_", "call>", "\\boxed{3}", "\\boxed{"),
    *(f"<tool_call>{call}</tool_call>" for call in JSON_PIECES),
    *(f"<|python_tag|>{call}" for call in JSON_PIECES),
]
THOUGHTS = ["<think>", "</think>", "text"]
GOOD_PIECES = [*THOUGHTS, '<tool_call>{"name": "now", "arguments": {}}</tool_call>']
NOISE = ["", " ", "\n", "text", "\0", "\ud800", "\U0001f600", "é", "\u202e", "{", "}", '"', "\\", "&lt;", "<", ">"]
NOISE += ["9" * 5000, "[" * 500]


def turns(pieces: list[str], good: list[str]) -> list[str]:
    rng = random.Random(0)
    written = []
    for number in range(TURNS):
        kinds = ([good], [good, pieces], [pieces, pieces, NOISE])[number % 3]
        written.append("".join(rng.choice(rng.choice(kinds)) for _ in range(rng.randint(1, 12))))
    return written


SEARCH_PIECES = ["<tool_search>a map</tool_search>", "<tool_search>", "</tool_search>"]
ANSWER_PIECES = ["<answer>Lima</answer>", "<answer>", "</answer>"]
CALL_PIECES = [*MARK_PIECES, *JSON_PIECES]
TAGGED = turns(TAG_PIECES, TAG_PIECES)
FUZZED = {
    "arpo-tags": TAGGED,
    "arpo-tags-reference": TAGGED[:300],
    "hermes": turns(CALL_PIECES, GOOD_PIECES),
    "websailor": turns([*CALL_PIECES, *ANSWER_PIECES], [*GOOD_PIECES, *ANSWER_PIECES[:1]]),
    "deepagent": turns([*CALL_PIECES, *SEARCH_PIECES], [*GOOD_PIECES, *SEARCH_PIECES]),
    "llama3": turns(CALL_PIECES, [*THOUGHTS, '<|python_tag|>{"name": "now", "parameters": {}}']),
}
FUZZED["native"] = FUZZED["hermes"]


def in_a_thought(text: str, position: int) -> bool:
    """Whether a thought is open before the position, or one that the prompt opened is closed only after it."""
    before = text[:position]
    first = re.search("</?think>", text)
    prompted = first is not None and first[0] == "</think>" and first.start() >= position
    return prompted or before.rfind("<think>") > before.rfind("</think>")


def tags_called(text: str) -> list[ToolCall]:
    found = []
    for name, parameter in (("python", "code"), ("search", "query"), ("add", ""), ("now", "")):
        for match in re.finditer(f"(?=<{name}>(.*?)</{name}>)", text, re.DOTALL):
            content = match[1].strip()
            before = text[: match.start()]
            if before.rfind("<think>") <= before.rfind("</think>"):
                found.append(ToolCall(name, {parameter: content} if parameter else read(content) or {}))
    return found


def json_called(
    text: str, opening: str = "<tool_call>", closing: str = "</tool_call>", arguments: str = "arguments"
) -> list[ToolCall]:
    found = []
    starts = [match.end() for match in re.finditer(re.escape(opening), text)]
    for start in starts:
        ends = [match.end() for match in re.finditer("}", text[start:])]
        values = [read(text[start : start + end]) for end in ends if text[start + end :].lstrip().startswith(closing)]
        if not in_a_thought(text, start - len(opening)):
            found += [
                ToolCall(value["name"], value.get(arguments, {})) for value in values if value and "name" in value
            ]
    return found


def read(text: str) -> dict[str, object] | None:
    try:
        value = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def llama_called(text: str) -> list[ToolCall]:
    bare = [text, *(text[match.end() :] for match in re.finditer("</think>", text))]
    values = [read(rest.strip().removesuffix("<|eom_id|>").removesuffix("<|im_end|>")) for rest in bare]
    alone = [ToolCall(str(value["name"]), value["parameters"]) for value in values if value and "parameters" in value]  # type: ignore[arg-type]
    return alone + json_called(text, "<|python_tag|>", "", "parameters")


def deepagent_called(text: str) -> list[ToolCall]:
    """The first search or call that is closed, wherever it stands."""
    closing = re.search("</tool_search>|</tool_call>", text)
    before, _, content = text[: closing.start() if closing else 0].rpartition(f"<{closing[0][2:]}" if closing else "<")
    if closing is None or (not before and not content) or f"<{closing[0][2:]}" not in text[: closing.start()]:
        return []
    if closing[0] == "</tool_search>":
        return [ToolCall("tool_search", {"query": content.strip()})]
    value = read(content)
    return [ToolCall(value["name"], value.get("arguments", {}))] if value and "name" in value else []  # type: ignore[arg-type]


CALLED: dict[str, Callable[[str], list[ToolCall]]] = {
    **dict.fromkeys(("arpo-tags", "arpo-tags-reference"), tags_called),
    **dict.fromkeys(("hermes", "native", "websailor"), json_called),
    "deepagent": deepagent_called,
    "llama3": llama_called,
}


@pytest.mark.parametrize("name", PROTOCOLS)
def test_nothing_runs_that_was_not_called(name: str) -> None:
    protocol = make_protocol(name)
    seen = {ToolCalls: 0, Answer: 0, Malformed: 0, Nothing: 0}
    for text in FUZZED[name]:
        action = protocol.parse(text, WITH_SEARCH if name == "deepagent" else ALL)
        seen[type(action)] += 1
        called = CALLED[name](text) if isinstance(action, ToolCalls) else []
        if isinstance(action, Malformed):
            assert len(action.reason) < 500
            assert isinstance(protocol.well_formed([text, protocol.render_result([action.reason])]), bool)
        for call in action.calls if isinstance(action, ToolCalls) else ():
            json.dumps(call.arguments, ensure_ascii=False, allow_nan=False).encode()
            assert call in called, f"{call} in {text!r}"
            called.remove(call)
    assert min(seen.values()) > 10, f"the fuzz reaches too little: {seen}"


@pytest.mark.parametrize("name", ["hermes", "llama3"])
def test_calls_that_are_read_for_a_server_are_those_that_ran_and_can_be_written_again(name: str) -> None:
    protocol = make_protocol(name)
    for text in FUZZED[name]:
        action, read = protocol.parse(text, ALL), protocol.read_calls(text)
        if read is not None:
            assert text.startswith(read[0])
            assert protocol.read_calls(protocol.write_calls("so ", read[1])) == ("so ", read[1])
        if isinstance(action, ToolCalls):
            assert [ToolCall(*call) for call in read[1]] == list(action.calls)
        elif not isinstance(action, Malformed):  # of a tool that is not there, or with other arguments
            assert read is None


LONG_TAGS = [
    *("<", "< ", "</", " ", "<python>", "</python>", "<think>", "</think>", "<python><think>", "<a1><a2>", "</a><a>")
]
LONG_MARKS = [
    *("<", " ", "[", "<tool_call>", "</tool_call>", "<think>", "</think>", "<|python_tag|>", "<think><tool_call>"),
    *("<think></think>", "\\boxed{", '{"name":', '<think></think>{"name":"', '<tool_call>{"name":'),
    '<tool_call>{"name":"now"}</tool_call>',
]
LONG = [
    *(("arpo-tags", piece) for piece in LONG_TAGS),
    *((name, piece) for name in ("hermes", "llama3") for piece in LONG_MARKS),
    *(("deepagent", piece) for piece in ("<tool_call>", "</tool_search>", "\\boxed{", '<tool_call>{"name":')),
]


@pytest.mark.parametrize(("name", "piece"), LONG)
def test_a_long_turn_is_read_in_linear_time(name: str, piece: str) -> None:
    protocol = make_protocol(name)
    for start in ("", '<python><tool_call>{"name": "python", "arguments": {"code": "', "<|python_tag|>"):
        text = start + piece * (LENGTH // len(piece))
        for work in (
            lambda turn: protocol.parse(turn, ALL),
            lambda turn: protocol.well_formed([turn]),
            protocol.defuse,
        ):
            began = time.thread_time()
            work(text)
            assert time.thread_time() - began < CPU_SECONDS, f"{start + piece!r} repeated"
