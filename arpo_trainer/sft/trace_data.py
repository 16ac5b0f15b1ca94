"""Files of traces -> checked traces in one protocol, with a count of the rows that were dropped and why.

data = read_trace_files(["final_5w4_still.jsonl"], TraceSettings(protocol="hermes"))
data.traces, data.dropped            # Counter({"tags do not balance": 12, ...})
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from arpo_env.episode import FOLD
from arpo_env.memory_folding import fold_schema
from arpo_env.protocols import make_protocol
from arpo_env.protocols.protocol import Protocol
from arpo_env.tools.python import PythonTool
from arpo_env.tools.search_tool import SearchTool
from arpo_env.tools.tool import JsonSchema
from arpo_trainer.rollout.rendering import Renderer
from arpo_trainer.sft.plain_trace import CAUSES, SEARCH_SCHEMA, DroppedRow, ModelTurn, Trace, rewritten, with_found
from arpo_trainer.sft.trace_formats import FORMATS, RejectionSampling, read_row
from arpo_trainer.validation import check_name
from envs_registry.datasets.rows import read_rows

# Traces as token ids and labels. Turns and results are tokenised one by one by the `Renderer` of a rollout, so that
# reinforcement learning later meets the ids that were learnt here.

IGNORED = -100
Example = dict[str, list[int]]


def tokenised(trace: Trace, renderer: Renderer, tools: Sequence[JsonSchema], end_token: bool = True) -> Example:
    """Return the ids and labels of a trace.

    Args:
        trace: a trace whose turns are texts in the renderer's protocol.
        renderer: of the model and the protocol.
        tools: schemas of the tools, which a native protocol shows in the prompt.
        end_token: whether the last turn ends with the template's end token if the protocol does not need it. A rollout
            with tags stops at `</answer>`, so it never sees that token.

    Returns:
        {"input_ids", "labels"}, both of shape (n,); labels are -100 outside the model's own turns.
    """
    native = renderer.protocol.native
    if (ids := trace.ids) is not None and _same_tokenizer(trace, renderer):
        example: Example = {"input_ids": list(ids.prompt), "labels": [IGNORED] * len(ids.prompt)}
        for turn, own in zip(trace.turns, ids.turns, strict=True):
            _append(example, own, isinstance(turn, ModelTurn))
        return example
    prompt = renderer.prompt_ids(trace.messages, tools)
    example = {"input_ids": list(prompt), "labels": [IGNORED] * len(prompt)}
    for number, turn in enumerate(trace.turns):
        if isinstance(turn, ModelTurn):
            last = number == len(trace.turns) - 1
            # a rollout with tags stops at the closing tag of a fold
            ended = native or (end_token and last and not turn.text.rstrip().endswith(f"</{FOLD}>"))
            _append(example, renderer.turn_ids(turn.text, number == 0, ended), True)
        else:
            _append(example, renderer.result_ids(turn.texts, native, tools), False)
    return example


def _append(example: Example, ids: Sequence[int], learnt: bool) -> None:
    example["input_ids"] += ids
    example["labels"] += ids if learnt else [IGNORED] * len(ids)


def _same_tokenizer(trace: Trace, renderer: Renderer) -> bool:
    """Return whether the ids of a trace decode to the texts that they had when they were sampled."""
    if trace.ids is None:
        return False
    try:
        return all(
            text is None or renderer.tokenizer.decode(list(own)) == text
            for own, text in zip(trace.ids.turns, trace.ids.texts, strict=True)
        )
    except (IndexError, OverflowError, TypeError):  # ids beyond the vocabulary
        return False


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
        limit: maximum number of traces; 0 is any number.
    """

    protocol: str = "arpo-tags"
    tools: Sequence[str] = ("python", "search")
    prompt: str = "rows"
    data_format: str = "auto"
    min_reward: float = 1.0
    max_per_task: int = 4
    limit: int = 0

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
    traces: list[Trace] = field(default_factory=list)  # the traces that are left, in the order of the rows
    rows: int = 0  # rows and trajectories that were read
    dropped: Counter[str] = field(default_factory=Counter)  # dropped ones by cause, a key of `CAUSES`
    # for each cause the place of the first such row, and what was found there
    examples_of: dict[str, str] = field(default_factory=dict)

    @property
    def protocol(self) -> Protocol:
        """The protocol that the traces are written in."""
        return make_protocol(self.settings.protocol)

    def drop(self, fault: DroppedRow, where: str) -> None:
        """Count a dropped row."""
        self.dropped[fault.cause] += 1
        self.examples_of.setdefault(fault.cause, f"{where}: {str(fault).removeprefix(f'{fault.cause}: ')}")

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
            cure = "name the format with data_format, and the policy's protocol and tools with protocol and tools"
            raise ValueError(
                f"none of {self.rows:,} rows is left to train on: {causes or 'no rows'}. Check the data: {cure}"
            )
        if strict and self.dropped:
            raise ValueError(f"strict: {self.dropped.total():,} of {self.rows:,} rows cannot be used: {causes}")


def read_trace_files(paths: Iterable[str | Path], settings: TraceSettings) -> TraceData:
    """Return the checked traces of files, in the order of the files.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: a file cannot be read at all. Single faulty rows are dropped and counted.
    """
    return read_traces_of((entry for path in paths for entry in _rows(Path(path).expanduser())), settings)


def read_traces_of(rows: Iterable[tuple[str, Any]], settings: TraceSettings) -> TraceData:
    """Return the checked traces of rows, each given with its place."""
    data = TraceData(settings)
    sampling = RejectionSampling(settings.min_reward, settings.max_per_task)
    for where, row in rows:
        try:
            for trace in _read(row, settings.data_format):
                data.rows += 1
                try:
                    data.traces.append(_checked(trace, data.protocol, settings, sampling))
                except DroppedRow as fault:
                    data.drop(fault, where)
        except DroppedRow as fault:
            data.rows += 1
            data.drop(fault, where)
        if settings.limit and len(data.traces) >= settings.limit:
            break
    return data


def _read(row: Any, form: str) -> Iterator[Trace]:
    if isinstance(row, DroppedRow):
        raise row
    yield from read_row(row, form)


def _checked(trace: Trace, protocol: Protocol, settings: TraceSettings, sampling: RejectionSampling) -> Trace:
    tools = settings.schemas(trace)
    done = rewritten(trace, protocol, tools) if trace.ids is None else None
    if done is None:
        sampling.check(trace)  # cheap, and most trajectories of a run fail it
        done = rewritten(trace, protocol, tools)
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
    """Yield the rows of a file; a line of JSON Lines that cannot be read is a `DroppedRow`."""
    if path.suffix != ".jsonl":
        yield from ((f"{path.name}, {where}", row) for where, row in read_rows(path))
        return
    if not path.is_file():
        raise FileNotFoundError(f"data file {str(path)!r} does not exist; give a .jsonl, .json, .csv or .parquet file")
    with path.open(encoding="utf-8-sig", errors="replace", newline="\n") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield f"{path.name}, line {number}", _loaded(line)


def _loaded(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        return DroppedRow("not a row", f"no JSON ({error})")


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
