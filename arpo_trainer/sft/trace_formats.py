"""Reads rows as traces: published formats, and the trees of our own rollouts.

| format | rows | published sets |
|---|---|---|
| `sharegpt` | `conversations` of {"from", "value"}, `system`, `tools` | ARPO-SFT-54K (`final_5w4_still.jsonl`) |
| `tool-star` | `instruction` (the system prompt), `input`, `output` | Tool-Star-SFT-54K (`final_sft_edition9*.json`) |
| `alpaca` | `instruction` and `input` (the question), `output`, `system` | LLaMA-Factory's own form |
| `messages` | `messages` of {"role", "content", "tool_calls"}, `tools` | OpenAI's and Hugging Face's form |
| `traces` | a rollout tree of traces.jsonl | |

Where a format has one text of the model for a whole episode, it is cut at each `<result> ... </result>` (DeepAgent:
`<tool_call_result>`) that follows the closing tag of a call. Results inside it are the environment's.

    next(read_row({"conversations": [...]}, "sharegpt")).turns
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from arpo_env.memory_folding import check_memory, memory_text
from arpo_env.tools.tool import JsonSchema
from arpo_env.tools.tool_search import NAME as TOOL_SEARCH
from arpo_trainer.sft.plain_trace import (
    DroppedRow,
    ModelTurn,
    SampledIds,
    ToolResults,
    Trace,
    Turn,
    action_schemas,
    shown_schemas,
    text_of,
)
from arpo_trainer.tree import RolloutTree, Span
from arpo_trainer.validation import check_name

# Our own rollouts: the sampled ids are kept, so that the policy is trained on exactly what it wrote; the text is read
# as well, for checks and for other tokenizers.

_END = re.compile(r"(?:<\|(?:im_end|eot_id|eom_id|endoftext|end_of_text)\|>|</s>)\s*\Z")
_RESULTS = re.compile(r"<(result|tool_response|tool_call_result)>\n(.*?)\n</\1>", re.DOTALL)


@dataclass
class RejectionSampling:
    """Which trajectories are kept: those that scored enough, not twice, and not too many of one task."""

    min_reward: float = 1.0  # the least reward
    max_per_task: int = 4  # the most trajectories of one task; 0 is any number. One that folded its history counts once
    _seen: set[tuple[str, str, tuple[Turn, ...]]] = field(default_factory=set)
    _kept: defaultdict[str, set[object]] = field(default_factory=lambda: defaultdict(set))

    def check(self, trace: Trace) -> None:
        """Check a trajectory against those that are kept already."""
        if trace.reward is None or trace.reward < self.min_reward:
            raise DroppedRow("reward too low", f"{trace.reward} is less than min_reward={self.min_reward}")
        if trace.pictures:
            raise DroppedRow("pictures seen")
        if (trace.task, trace.question, trace.turns) in self._seen:
            raise DroppedRow("duplicate")
        kept = self._kept[trace.task]
        if self.max_per_task and trace.trajectory not in kept and len(kept) >= self.max_per_task:
            raise DroppedRow("enough of this task", f"max_per_task={self.max_per_task}")

    def keep(self, trace: Trace) -> None:
        """Count a trajectory that is kept."""
        self._seen.add((trace.task, trace.question, trace.turns))
        self._kept[trace.task].add(trace.trajectory)


def tree_of(row: Mapping[str, Any]) -> RolloutTree:
    """Return the tree of a row of traces.jsonl."""
    try:
        tree = RolloutTree.from_json(json.dumps(row))
        sound = all(span.index == place and _is_sound(span) for place, span in enumerate(tree.spans))
        leaves = all(
            0 <= trajectory.leaf < len(tree.spans) and isinstance(trajectory.reward, int | float | None)
            for trajectory in tree.trajectories
        )
        if sound and leaves and isinstance(tree.task, dict):
            return tree
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DroppedRow("not a row", f"not a rollout tree ({error})") from error
    raise DroppedRow("not a row", "a rollout tree with spans out of order")


def _is_sound(span: Span) -> bool:
    # a parent that comes later would make the way to the prompt endless
    follows = span.parent is None or 0 <= span.parent < span.index
    return follows and isinstance(span.text, str) and isinstance(span.ids, list) and isinstance(span.tool, dict | None)


def read_tree(row: Mapping[str, Any]) -> Iterator[Trace]:
    """Yield the traces of a tree, as `tree_traces` does."""
    yield from tree_traces(tree_of(row))


def tree_traces(tree: RolloutTree) -> Iterator[Trace]:
    """Yield a trace per trajectory of a tree, with its reward; of one with k folds k + 1, each with its own prompt."""
    question = tree.task.get("question")
    if not isinstance(question, str):
        raise DroppedRow("no question", "the tree's task has none")
    faults: list[DroppedRow] = []
    for number, trajectory in enumerate(tree.trajectories):
        path = tree.path(number)
        try:
            segments = _segments(tree.prompt_ids, question, path)
        except DroppedRow as fault:
            faults.append(fault)
            continue
        seen = any((span.tool or {}).get("images") for span in path)
        protocol, actions = _protocol_of(path), _actions_of(path)
        found: tuple[JsonSchema, ...] = ()
        one = object()
        for segment in segments:
            spans = segment.spans
            texts = tuple(span.text if span.kind == "model" else None for span in spans)
            yield Trace(
                None,
                segment.question,
                tuple(map(_turn, spans)),
                protocol,
                ids=SampledIds(tuple(segment.prompt), tuple(tuple(span.ids) for span in spans), texts),
                reward=trajectory.reward,
                cut=bool(spans) and spans[-1].finish == "length",
                pictures=seen,
                actions=actions,
                found=found,
                task=f"{tree.task.get('id', '')}\n{question}",
                trajectory=one,
            )
            found += tuple(schema for span in spans for schema in _found(span))
    if faults:
        raise faults[0]


@dataclass
class _Segment:
    """What was written after one prompt: up to a fold, or to the end."""

    prompt: list[int]
    question: str
    spans: list[Span] = field(default_factory=list)


def _segments(prompt: list[int], question: str, path: list[Span]) -> list[_Segment]:
    segments = [_Segment(prompt, question)]
    for span in path:
        if span.kind == "fold":
            segments.append(_Segment(span.ids, f"{question}\n\n{_memories(span)}"))
        else:
            segments[-1].spans.append(span)
    return segments


def _memories(span: Span) -> str:
    """Return the text of the memories of a fold, which stands behind the question."""
    try:
        return memory_text(check_memory((span.tool or {})["memory"]))
    except (KeyError, TypeError, ValueError) as error:
        raise DroppedRow("not a row", f"a fold whose memories cannot be read ({error})") from error


def _found(span: Span) -> list[JsonSchema]:
    turn = _turn(span)
    searched = span.kind == "environment" and TOOL_SEARCH in _called(span)
    return [schema for text in turn.texts for schema in shown_schemas(text)] if searched else []  # type: ignore[union-attr]


def _called(span: Span) -> list[str]:
    """Return the names of the calls that a span answers; several are joined by "+"."""
    return str((span.tool or {}).get("name") or "").split("+")


def _actions_of(path: list[Span]) -> tuple[JsonSchema, ...]:
    text = "".join(span.text for span in path if span.kind == "model")
    return action_schemas((name for span in path for name in _called(span)), text)


def _turn(span: Span) -> Turn:
    if span.kind != "model":
        texts = tuple(match[2] for match in _RESULTS.finditer(span.text))
        return ToolResults(texts or (span.text,))
    text = _END.sub("", span.text)
    # a template that opens the thought in the prompt leaves only its end in the ids
    closed, opened = text.find("</think>"), text.find("<think>")
    return ModelTurn(f"<think>{text}" if closed >= 0 and not 0 <= opened < closed else text)


def _protocol_of(path: list[Span]) -> str:
    # a result may show the marks of any protocol
    text = "".join(span.text for span in path if span.kind == "model")
    results = "".join(span.text[:20] for span in path if span.kind == "environment")
    if "<tool_search>" in text or "\n<tool_call_result>\n" in results:
        return "deepagent"
    if "<tool_call>" in text:
        return "hermes"
    shown = "\n<result>\n" in results
    return "llama3" if "<|python_tag|>" in text else "arpo-tags" if "</answer>" in text or shown else ""


# Published formats.

Row = Mapping[str, Any]
# a result follows the closing tag of a call; one that stands elsewhere was not the environment's
_RESULT = re.compile(r"(</(?!think>|answer>|result>|tool_call_result>)[\w.-]+>)\s*<(result|tool_call_result)>")
# LLaMA-Factory's form of several results in one message, whose templates write the outer tags
_NEXT_RESULT = re.compile(r"\s*</tool_response>\s*<tool_response>\s*")
_WRAPPED = re.compile(r"\s*<(result|tool_response)>(.*?)</\1>\s*", re.DOTALL)
_ROLES = {
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("user", "human"), "user"),
    **dict.fromkeys(("assistant", "gpt", "model", "bot", "function_call"), "model"),
    **dict.fromkeys(("tool", "observation", "function", "ipython", "function_response"), "result"),
}


def read_row(row: Any, form: str = "auto") -> Iterator[Trace]:
    """Yield the traces of a row: one, or one per trajectory of a rollout tree.

    Args:
        row: the row as plain data.
        form: a key of `FORMATS`, or "auto".
    """
    if form != "auto":
        check_name("data_format", form, FORMATS)
    if not isinstance(row, Mapping):
        raise DroppedRow("not a row", f"expected an object, got {type(row).__name__}")
    yield from FORMATS[detect_format(row) if form == "auto" else form](row)


def detect_format(row: Row) -> str:
    """Return the format of a row by its columns."""
    if "spans" in row and "trajectories" in row:
        return "traces"
    for column, form in (("messages", "messages"), ("conversations", "sharegpt")):
        if isinstance(row.get(column), list):
            return form
    if "output" in row and ("input" in row or "instruction" in row):
        # Tool-Star's files hold the prompt of the tags as the instruction; LLaMA-Factory's hold the question there
        tagged = "<answer>" in str(row.get("instruction") or "") and bool(row.get("input"))
        return "tool-star" if tagged else "alpaca"
    raise DroppedRow("not a row", f"columns of no known format: {', '.join(map(str, row))}")


def _sharegpt(row: Row) -> Iterator[Trace]:
    items = row.get("conversations")
    yield _from_messages(_as_messages(items), text_of(row, "system") or None, _tools(row))


def _as_messages(items: Any) -> Iterator[dict[str, Any]]:
    for item in _objects(items, "conversations"):
        # some sets of this form have "role" and "content" instead
        role, value = item.get("from", item.get("role")), item.get("value", item.get("content"))
        if role == "function_call":
            yield {"role": role, "content": "", "tool_calls": _loaded(value, "a function_call")}
        else:
            yield {"role": role, "content": value}


def _messages(row: Row) -> Iterator[Trace]:
    yield _from_messages(_objects(row.get("messages"), "messages"), None, _tools(row))


def _tool_star(row: Row) -> Iterator[Trace]:
    turns = split_at_results(text_of(row, "output"))
    yield _trace(text_of(row, "instruction") or None, text_of(row, "input"), turns, _tools(row))


def _alpaca(row: Row) -> Iterator[Trace]:
    if row.get("history"):
        raise DroppedRow("second question", "the row has a history")
    question = "\n".join(filter(None, (text_of(row, "instruction"), text_of(row, "input"))))
    yield _trace(text_of(row, "system") or None, question, split_at_results(text_of(row, "output")), _tools(row))


def _from_messages(messages: Iterable[Row], system: str | None, tools: tuple[JsonSchema, ...] | None) -> Trace:
    turns: list[Turn] = []
    question = ""
    for message in messages:
        role = _ROLES.get(str(message.get("role")))
        content = _content(message.get("content"))
        if role is None:
            raise DroppedRow("unknown role", repr(message.get("role")))
        if role == "system":
            system = content if system is None else f"{system}\n{content}"
        elif role == "model":
            _add_model(turns, _thought(message) + content, _calls(message))
        elif role == "result" or (turns and _WRAPPED.fullmatch(content)):  # some sets show results as the user's
            _add_results(turns, content)
        elif turns or question:
            raise DroppedRow("second question")
        else:
            question = content
    return _trace(system, question, turns, tools)


def _add_model(turns: list[Turn], text: str, calls: tuple[tuple[str, Any], ...]) -> None:
    pieces = split_at_results(text)
    first = pieces[0] if pieces else ModelTurn("")
    if turns and isinstance(turns[-1], ModelTurn) and not turns[-1].calls and isinstance(first, ModelTurn):
        # a thought and the call after it may be two messages
        pieces = [ModelTurn(turns.pop().text + first.text), *pieces[1:]]  # type: ignore[union-attr]
    if calls:
        last = pieces.pop() if pieces and isinstance(pieces[-1], ModelTurn) else ModelTurn("")
        pieces.append(ModelTurn(last.text, calls))  # type: ignore[union-attr]
    turns += pieces


def _add_results(turns: list[Turn], content: str) -> None:
    wrapped = not _WRAPPED.sub("", content) and content.strip()  # nothing stands beside the tags
    texts = (
        tuple(match[2].strip() for match in _WRAPPED.finditer(content))
        if wrapped
        else tuple(_NEXT_RESULT.split(content))
    )
    if turns and isinstance(turns[-1], ToolResults):
        texts = (*turns.pop().texts, *texts)  # type: ignore[union-attr]
    turns.append(ToolResults(texts))


def split_at_results(text: str) -> list[Turn]:
    """Return the turns of a text that holds a whole episode, with its results.

    White space between a call, its result and the next turn is left out: the protocol writes its own.
    """
    turns: list[Turn] = []
    position = 0
    # the end is searched apart: one pattern for both would be quadratic where results are never closed
    while (match := _RESULT.search(text, position)) and (end := text.find(f"</{match[2]}>", match.end())) >= 0:
        turns += [ModelTurn(text[position : match.end(1)].strip()), ToolResults((text[match.end() : end].strip(),))]
        position = end + len(f"</{match[2]}>")
    rest = text[position:].strip()
    return [*turns, ModelTurn(rest)] if rest else turns


def _trace(system: str | None, question: str, turns: list[Turn], tools: tuple[JsonSchema, ...] | None) -> Trace:
    if not question.strip():
        raise DroppedRow("no question")
    if not any(isinstance(turn, ModelTurn) for turn in turns):
        raise DroppedRow("no model turn")
    return Trace(system, question, tuple(turns), _written_in(turns), tools)


def _written_in(turns: Sequence[Turn]) -> str:
    """Return the protocol that the turns' texts are written in, by its marks; "" if nothing tells."""
    text = "\n".join(turn.text for turn in turns if isinstance(turn, ModelTurn))
    marks: dict[str, tuple[str, ...]] = {"deepagent": ("<tool_search>",), "hermes": ("<tool_call>",)}
    marks["llama3"] = ("<|python_tag|>",)
    marks["arpo-tags"] = ("</python>", "</search>", "</answer>", "<answer>", "<python>", "<search>", "<result>")
    apart = any(isinstance(turn, ModelTurn) and turn.calls for turn in turns)  # calls beside the text are native
    return next((name for name, words in marks.items() if any(word in text for word in words)), "hermes" * apart)


def _content(content: Any) -> str:
    if content is None:
        return ""
    if isinstance(content, list):  # parts, as OpenAI has them
        parts = [part.get("text") if isinstance(part, dict) else None for part in content]
        content = "".join(part for part in parts if part) if all(isinstance(part, str) for part in parts) else None
    if not isinstance(content, str):
        raise DroppedRow("not a row", "the content of a message is not text")
    return content


def _thought(message: Row) -> str:
    thought = message.get("reasoning_content") or message.get("reasoning")
    return f"<think>{thought}</think>\n" if isinstance(thought, str) and thought.strip() else ""


def _calls(message: Row) -> tuple[tuple[str, Any], ...]:
    given = message.get("tool_calls") or []
    found = []
    for entry in _objects([given] if isinstance(given, dict) else given, "tool_calls"):
        call = entry.get("function", entry)
        if not isinstance(call, dict) or not isinstance(call.get("name"), str):
            raise DroppedRow("call cannot be parsed", "a tool call has no name")
        found.append((call["name"], call.get("arguments", call.get("parameters"))))
    return tuple(found)


def _tools(row: Row) -> tuple[JsonSchema, ...] | None:
    given = row.get("tools")
    if not given:
        return None
    entries = _objects(_loaded(given, "tools") or [], "tools")
    # LLaMA-Factory writes the function alone
    tools = tuple(entry if "function" in entry else {"type": "function", "function": entry} for entry in entries)
    for tool in tools:
        _check_schema(tool["function"])
    return tools


def _check_schema(function: Any) -> None:
    named = isinstance(function, Mapping) and isinstance(function.get("name"), str)
    parameters = (function.get("parameters") or {}) if named else None
    properties = (parameters.get("properties") or {}) if isinstance(parameters, Mapping) else None
    if not isinstance(properties, Mapping) or not all(isinstance(one, Mapping) for one in properties.values()):
        raise DroppedRow("not a row", "'tools' holds an entry that is no schema of a function with a name")


def _loaded(value: Any, what: str) -> Any:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError as error:
        cause = "not a row" if what == "tools" else "call cannot be parsed"
        raise DroppedRow(cause, f"{what} holds no JSON ({error})") from error


def _objects(value: Any, what: str) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise DroppedRow("not a row", f"{what!r} is not a list of objects")
    return value


FORMATS: dict[str, Callable[[Row], Iterator[Trace]]] = {
    "sharegpt": _sharegpt,
    "tool-star": _tool_star,
    "alpaca": _alpaca,
    "messages": _messages,
    "traces": read_tree,
}
