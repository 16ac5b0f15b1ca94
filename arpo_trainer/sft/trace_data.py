"""Files of rows -> checked traces in one protocol, with a count of what was dropped and why -> token ids and labels.

| format | rows | published sets |
|---|---|---|
| `sharegpt` | `conversations` of {"from", "value"}, `system`, `tools` | ARPO-SFT-54K (`final_5w4_still.jsonl`) |
| `tool-star` | `instruction` (the system prompt), `input`, `output` | Tool-Star-SFT-54K (`final_sft_edition9*.json`) |
| `alpaca` | `instruction` and `input` (the question), `output`, `system` | LLaMA-Factory's own form |
| `messages` | `messages` of {"role", "content", "tool_calls"}, `tools` | OpenAI's and Hugging Face's form |
| `traces` | a rollout tree of traces.jsonl | |

Where a format has one text of the model for a whole episode, it is cut at each `<result> ... </result>` (DeepAgent:
`<tool_call_result>`) that follows the closing tag of a call. Results inside it are the environment's.

    data = read_trace_files(["final_5w4_still.jsonl"], TraceSettings(protocol="hermes"))
    data.traces, data.dropped            # Counter({"tags do not balance": 12, ...})
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from arpo_env.episode import FOLD
from arpo_env.memory_folding import check_memory, fold_schema, memory_text
from arpo_env.protocols import make_protocol
from arpo_env.protocols.protocol import Protocol
from arpo_env.tools.python import PythonTool
from arpo_env.tools.search_tool import SearchTool
from arpo_env.tools.tool import JsonSchema
from arpo_env.tools.tool_search import NAME as TOOL_SEARCH
from arpo_trainer.rollout.native import ModelCalls
from arpo_trainer.rollout.rendering import Renderer
from arpo_trainer.sft.plain_trace import (
    CAUSES,
    SEARCH_SCHEMA,
    DroppedRow,
    ModelTurn,
    SampledIds,
    ToolResults,
    Trace,
    Turn,
    action_schemas,
    rewritten,
    shown_schemas,
    with_found,
)
from arpo_trainer.tree import RolloutTree, Span
from arpo_trainer.validation import check_name
from envs_registry.datasets.rows import read_rows

Row = Mapping[str, Any]
IGNORED = -100
Example = dict[str, list[int]]

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


def _read_tree(row: Row) -> Iterator[Trace]:
    """Yield the traces of a row of traces.jsonl, as `tree_traces` does."""
    try:
        tree = RolloutTree.from_json(json.dumps(row))
        sound = isinstance(tree.task, dict) and all(
            # a parent that comes later would make the way to the prompt endless
            span.index == place and (span.parent is None or 0 <= span.parent < place)
            and isinstance(span.text, str) and isinstance(span.ids, list) and isinstance(span.tool, dict | None)
            for place, span in enumerate(tree.spans)
        ) and all(
            0 <= trajectory.leaf < len(tree.spans) and isinstance(trajectory.reward, int | float | None)
            for trajectory in tree.trajectories
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DroppedRow("not a row", f"not a rollout tree ({error})") from error
    if not sound:
        raise DroppedRow("not a row", "a rollout tree with spans out of order")
    yield from tree_traces(tree)


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
        written = "".join(span.text for span in path if span.kind == "model")
        one = Trace(
            None,
            question,
            (),
            _protocol_of(path, written),
            reward=trajectory.reward,
            pictures=any((span.tool or {}).get("images") for span in path),
            actions=action_schemas((name for span in path for name in _called(span)), written),
            task=f"{tree.task.get('id', '')}\n{question}",
            trajectory=object(),
        )
        for prompt, text, spans in segments:
            texts = tuple(span.text if span.kind == "model" else None for span in spans)
            ids = SampledIds(tuple(prompt), tuple(tuple(span.ids) for span in spans), texts)
            cut = bool(spans) and spans[-1].finish == "length"
            yield replace(one, question=text, turns=tuple(map(_turn, spans)), ids=ids, cut=cut)
            one = replace(one, found=one.found + tuple(schema for span in spans for schema in _found(span)))
    if faults:
        raise faults[0]


def _segments(prompt: list[int], question: str, path: list[Span]) -> list[tuple[list[int], str, list[Span]]]:
    """Return what was written after each prompt, up to a fold or to the end: the prompt, the question, the spans."""
    segments: list[tuple[list[int], str, list[Span]]] = [(prompt, question, [])]
    for span in path:
        if span.kind != "fold":
            segments[-1][2].append(span)
            continue
        try:
            memories = memory_text(check_memory((span.tool or {})["memory"]))
        except (KeyError, TypeError, ValueError) as error:
            raise DroppedRow("not a row", f"a fold whose memories cannot be read ({error})") from error
        segments.append((span.ids, f"{question}\n\n{memories}", []))
    return segments


def _found(span: Span) -> list[JsonSchema]:
    turn = _turn(span)
    searched = span.kind == "environment" and TOOL_SEARCH in _called(span)
    return [schema for text in turn.texts for schema in shown_schemas(text)] if searched else []  # type: ignore[union-attr]


def _called(span: Span) -> list[str]:
    """Return the names of the calls that a span answers; several are joined by "+"."""
    return str((span.tool or {}).get("name") or "").split("+")


def _turn(span: Span) -> Turn:
    if span.kind != "model":
        texts = tuple(match[2] for match in _RESULTS.finditer(span.text))
        return ToolResults(texts or (span.text,))
    text = _END.sub("", span.text)
    # a template that opens the thought in the prompt leaves only its end in the ids
    closed, opened = text.find("</think>"), text.find("<think>")
    return ModelTurn(f"<think>{text}" if closed >= 0 and not 0 <= opened < closed else text)


def _protocol_of(path: list[Span], written: str) -> str:
    # a result may show the marks of any protocol, but for its first characters
    results = "".join(span.text[:20] for span in path if span.kind == "environment")
    if "<tool_search>" in written or "\n<tool_call_result>\n" in results:
        return "deepagent"
    if "<tool_call>" in written:
        return "hermes"
    tags = "</answer>" in written or "\n<result>\n" in results
    return "llama3" if "<|python_tag|>" in written else "arpo-tags" if tags else ""


# Published formats.

# a result follows the closing tag of a call; one that stands elsewhere was not the environment's
_RESULT = re.compile(r"(</(?!think>|answer>|result>|tool_call_result>)[\w.-]+>)\s*<(result|tool_call_result)>")
# LLaMA-Factory's form of several results in one message, whose templates write the outer tags
_NEXT_RESULT = re.compile(r"</tool_response>\s*<tool_response>")
_WRAPPED = re.compile(r"<(result|tool_response)>(.*?)</\1>", re.DOTALL)
_ROLES = {
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("user", "human"), "user"),
    **dict.fromkeys(("assistant", "gpt", "model", "bot", "function_call"), "model"),
    **dict.fromkeys(("tool", "observation", "function", "ipython", "function_response"), "result"),
}


def read_row(row: Any, form: str = "auto") -> Iterator[Trace]:
    """Yield the traces of a row in a format, a key of `FORMATS` or "auto": one, or those of a rollout tree."""
    if isinstance(row, DroppedRow):
        raise row
    if not isinstance(row, Mapping):
        raise DroppedRow("not a row", f"expected an object, got {type(row).__name__}")
    yield from FORMATS[_format_of(row) if form == "auto" else form](row)


def _format_of(row: Row) -> str:
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
    messages = []
    for item in _objects(row.get("conversations"), "conversations"):
        # some sets of this form have "role" and "content" instead
        message = {"role": item.get("from", item.get("role")), "content": item.get("value", item.get("content"))}
        if message["role"] == "function_call":
            message |= {"content": "", "tool_calls": _loaded(message["content"], "a function_call")}
        messages.append(message)
    yield _from_messages(messages, _text(row, "system") or None, _tools(row))


def _messages(row: Row) -> Iterator[Trace]:
    yield _from_messages(_objects(row.get("messages"), "messages"), None, _tools(row))


def _tool_star(row: Row) -> Iterator[Trace]:
    yield _trace(
        _text(row, "instruction") or None, _text(row, "input"), split_at_results(_text(row, "output")), _tools(row)
    )


def _alpaca(row: Row) -> Iterator[Trace]:
    if row.get("history"):
        raise DroppedRow("second question", "the row has a history")
    question = "\n".join(filter(None, (_text(row, "instruction"), _text(row, "input"))))
    yield _trace(_text(row, "system") or None, question, split_at_results(_text(row, "output")), _tools(row))


def _text(row: Row, name: str) -> str:
    """Return a text field of a row; "" if it is missing or null."""
    value = row.get(name)
    if not isinstance(value, str | None):
        raise DroppedRow("not a row", f"{name!r} holds {type(value).__name__}, not text")
    return value or ""


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
            thought = message.get("reasoning_content") or message.get("reasoning")
            shown = f"<think>{thought}</think>\n" if isinstance(thought, str) and thought.strip() else ""
            _add_model(turns, shown + content, _calls(message))
        # some sets show results as the user's
        elif role == "result" or (turns and _WRAPPED.fullmatch(content.strip())):
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
    wrapped = content.strip() and not _WRAPPED.sub("", content).strip()  # nothing stands beside the tags
    parts = [match[2] for match in _WRAPPED.finditer(content)] if wrapped else _NEXT_RESULT.split(content)
    texts = tuple(part.strip() for part in parts) if wrapped or len(parts) > 1 else (content,)
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
    if not row.get("tools"):
        return None
    entries = _objects(_loaded(row["tools"], "tools") or [], "tools")
    # LLaMA-Factory writes the function alone
    tools = tuple(entry if "function" in entry else {"type": "function", "function": entry} for entry in entries)
    functions: list[Any] = [tool["function"] for tool in tools]
    for function in functions:
        named = isinstance(function, Mapping) and isinstance(function.get("name"), str)
        parameters = (function.get("parameters") or {}) if named else None
        properties = (parameters.get("properties") or {}) if isinstance(parameters, Mapping) else None
        if not isinstance(properties, Mapping) or not all(isinstance(one, Mapping) for one in properties.values()):
            raise DroppedRow("not a row", "'tools' holds an entry that is no schema of a function with a name")
    return tools


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
    "traces": _read_tree,
}


# The traces of files.

PROMPTS = ("rows", "short", "paper")
_SCHEMAS = {
    "python": PythonTool.schema,
    "search": SearchTool.schema,
    "tool_search": SEARCH_SCHEMA,
    FOLD: fold_schema(by_model=False),
}


@dataclass
class TraceSettings:
    """How rows are read.

    Attributes:
        protocol: protocol of the policy; traces in another one are rewritten.
        tools: tools that may be called: python, search, tool_search, fold_thought. A row that has schemas of its own
            takes those. Traces of rollouts that found tools or folded have the last two by themselves.
        prompt: "rows" keeps the rows' system prompts; "short" or "paper" puts that of the environments in their place,
            so that reinforcement learning begins with the prompt that was learnt.
        data_format: sharegpt (ARPO-SFT-54K), tool-star (Tool-Star-SFT-54K), alpaca, messages, traces (our rollouts), or
            auto, which looks at each row.
        min_reward: least reward of a trajectory from a rollout.
        max_per_task: maximum number of trajectories of one task from rollouts; 0 is any number.
    """

    protocol: str = "arpo-tags"
    tools: Sequence[str] = ("python", "search")
    prompt: str = "rows"
    data_format: str = "auto"
    min_reward: float = 1.0
    max_per_task: int = 4

    def __post_init__(self) -> None:
        check_name("data_format", self.data_format, ("auto", *FORMATS))
        check_name("prompt", self.prompt, PROMPTS)
        for name in self.tools:
            check_name("tools", name, _SCHEMAS)

    def schemas(self, trace: Trace | None = None) -> list[JsonSchema]:
        """Return the schemas of the tools that a trace begins with."""
        own = list(trace.tools) if trace and trace.tools else [_SCHEMAS[name] for name in self.tools]
        return with_found(trace.actions, own) if trace and trace.actions else own


@dataclass
class TraceData:
    """Checked traces, and what was dropped."""

    settings: TraceSettings  # how they were read
    written: Protocol | None = None  # that of a model, where a tokenizer is known
    traces: list[Trace] = field(default_factory=list)  # the traces that are left, in the order of the rows
    rows: int = 0  # rows and trajectories that were read
    dropped: Counter[str] = field(default_factory=Counter)  # dropped ones by cause, a key of `CAUSES`
    # for each cause the place of the first such row, and what was found there
    examples_of: dict[str, str] = field(default_factory=dict)

    @property
    def protocol(self) -> Protocol:
        """The protocol that the traces are written in."""
        return self.written or make_protocol(self.settings.protocol)

    def drop(self, fault: DroppedRow, where: str) -> None:
        """Count a dropped row."""
        self.dropped[fault.cause] += 1
        self.examples_of.setdefault(fault.cause, f"{where}: {fault.detail}")

    def table(self) -> list[tuple[str, str, str]]:
        """Return the table of dropped rows: cause, count, and the first one."""
        kept = self.rows - self.dropped.total()
        lines = [("ROWS", f"{self.rows:,}", ""), ("kept", f"{kept:,}", "")]
        causes = [cause for cause in CAUSES if self.dropped[cause]]
        return lines + [(f"dropped: {name}", f"{self.dropped[name]:,}", self.examples_of[name]) for name in causes]

    def require(self, strict: bool = False) -> None:
        """Check that something is left to train on."""
        causes = "; ".join(f"{count:,} {name} ({self.examples_of[name]})" for name, count in self.dropped.most_common())
        if self.rows == self.dropped.total():
            cure = (
                "Check the data: name the format with data_format, and the policy's protocol and tools with these names"
            )
            if set(self.dropped) == {"reward too low"}:
                cure = "Lower min_reward, or take traces of a model that solves some of the tasks"
            raise ValueError(f"none of {self.rows:,} rows is left to train on: {causes or 'no rows'}. {cure}")
        if strict and self.dropped:
            raise ValueError(f"strict: {self.dropped.total():,} of {self.rows:,} rows cannot be used: {causes}")


def read_trace_files(
    paths: Iterable[str | Path], settings: TraceSettings, protocol: Protocol | None = None
) -> TraceData:
    """Return the checked traces of files, in their order; single faulty rows are dropped and counted.

    Args:
        paths: the files.
        settings: how they are read.
        protocol: of the policy, if it belongs to a tokenizer; by default the one that the settings name.
    """
    return read_traces_of((entry for path in paths for entry in _rows(Path(path).expanduser())), settings, protocol)


def read_traces_of(
    rows: Iterable[tuple[str, Any]], settings: TraceSettings, protocol: Protocol | None = None
) -> TraceData:
    """Return the checked traces of rows, each given with its place."""
    data = TraceData(settings, protocol)
    sampling = RejectionSampling(settings.min_reward, settings.max_per_task)
    for where, row in rows:
        try:
            for trace in read_row(row, settings.data_format):
                data.rows += 1
                try:
                    data.traces.append(_checked(trace, data.protocol, settings, sampling))
                except DroppedRow as fault:
                    data.drop(fault, where)
        except DroppedRow as fault:
            data.rows += 1
            data.drop(fault, where)
    return data


def _checked(trace: Trace, protocol: Protocol, settings: TraceSettings, sampling: RejectionSampling) -> Trace:
    tools = settings.schemas(trace)
    if trace.ids is not None:
        sampling.check(trace)  # cheap, and most trajectories of a run fail it
    done = rewritten(trace, protocol, tools)
    if trace.ids is not None:
        sampling.keep(trace)
    # a prompt that explains tags does not fit a trace that was rewritten into native calls
    fits = not trace.protocol or make_protocol(trace.protocol).native == protocol.native
    if settings.prompt == "rows" and fits and done.system is not None:
        return done
    style: Any = "paper" if settings.prompt == "paper" else "short"
    # sampled ids begin with the prompt that they were sampled after; its text is needed for another tokenizer
    ids = done.ids if settings.prompt == "rows" else None
    return replace(done, system=protocol.system_prompt(tools, "en", style), ids=ids)


def _rows(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the rows of a file with their places; a line of JSON Lines that cannot be read is a `DroppedRow`."""
    if path.suffix != ".jsonl":
        yield from ((f"{path.name}, {where}", row) for where, row in read_rows(path))
        return
    if not path.is_file():
        raise FileNotFoundError(f"data file {str(path)!r} does not exist; give a .jsonl, .json, .csv or .parquet file")
    with path.open(encoding="utf-8-sig", errors="replace", newline="\n") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                row: Any = json.loads(line)
            except (ValueError, RecursionError) as error:
                row = DroppedRow("not a row", f"no JSON ({error})")
            yield f"{path.name}, line {number}", row


def examples_of(data: TraceData, renderer: Renderer, max_length: int | None, end_token: bool = True) -> list[Example]:
    """Return the ids and labels of the traces; those that are too long are dropped and counted."""
    examples, kept = [], []
    for trace in data.traces:
        example = tokenised(trace, renderer, data.settings.schemas(trace), end_token)
        if max_length and len(example["input_ids"]) > max_length:
            detail = f"{len(example['input_ids']):,} tokens, max_length={max_length:,}"
            data.drop(DroppedRow("too long", detail), f"question {trace.question[:60]!r}")
            continue
        examples.append(example)
        kept.append(trace)
    data.traces = kept
    return examples


def learnt_tokens(examples: Sequence[Example]) -> int:
    """Return the number of tokens that are learnt in one pass over the examples."""
    # the first token of a row is never predicted
    return sum(label != IGNORED for example in examples for label in example["labels"][1:])


# Traces as token ids and labels. Turns and results are tokenised one by one by the `Renderer` of a rollout, so that
# reinforcement learning later meets the ids that were learnt here.


def tokenised(trace: Trace, renderer: Renderer, tools: Sequence[JsonSchema], end_token: bool = True) -> Example:
    """Return {"input_ids", "labels"} of a trace, both of shape (n,); labels are -100 outside the model's own turns.

    Args:
        trace: a trace whose turns are texts in the renderer's protocol.
        renderer: of the model and the protocol.
        tools: schemas of the tools, which a native protocol shows in the prompt.
        end_token: whether the last turn ends with the template's end token if the protocol does not need it. A rollout
            with tags stops at `</answer>`, so it never sees that token.
    """
    native = renderer.protocol.native
    if (ids := trace.ids) is not None and _same_tokenizer(ids, renderer):
        example: Example = {"input_ids": list(ids.prompt), "labels": [IGNORED] * len(ids.prompt)}
        for turn, own in zip(trace.turns, ids.turns, strict=True):
            _append(example, own, isinstance(turn, ModelTurn))
        return example
    prompt = renderer.prompt_ids(trace.messages, tools)
    example = {"input_ids": list(prompt), "labels": [IGNORED] * len(prompt)}
    called: list[str] = []
    for number, turn in enumerate(trace.turns):
        if isinstance(turn, ModelTurn):
            if isinstance(renderer.protocol, ModelCalls):  # some templates name the tool of a result
                calls = renderer.protocol.read_calls(turn.text)
                called = [name for name, _ in calls[1]] if calls else []
            last = number == len(trace.turns) - 1
            # a rollout with tags stops at the closing tag of a fold
            ended = native or (end_token and last and not turn.text.rstrip().endswith(f"</{FOLD}>"))
            _append(example, renderer.turn_ids(turn.text, number == 0, ended), True)
        else:
            names = called if len(called) == len(turn.texts) else ()
            _append(example, renderer.result_ids(turn.texts, native, tools, names), False)
    return example


def _append(example: Example, ids: Sequence[int], learnt: bool) -> None:
    example["input_ids"] += ids
    example["labels"] += ids if learnt else [IGNORED] * len(ids)


def _same_tokenizer(ids: SampledIds, renderer: Renderer) -> bool:
    """Return whether sampled ids decode to the texts that they had when they were sampled."""
    try:
        return all(
            text is None or renderer.tokenizer.decode(list(own)) == text
            for own, text in zip(ids.turns, ids.texts, strict=True)
        )
    except (IndexError, OverflowError, TypeError):  # ids beyond the vocabulary
        return False
