"""What is kept of a synthesis: the quality of each sample, the class of each question, the rows of training files.

Format is checked by the reader of `arpo sft` (`arpo_trainer.sft.plain_trace`), with the causes that it names: what it
would refuse is not written. The other checks are Tool-Star's quality normalisation (arXiv 2505.16410, sec. 3.2): budget
of calls, repeated calls, code that runs. The first one that fails drops the sample (a `DroppedSample`).
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from arpo_env import ToolEnv
from arpo_env.protocols.protocol import Protocol, ToolCall
from arpo_env.tools.tool import JsonSchema
from arpo_trainer.evaluation.episode_store import EpisodeEntry, UnitRow
from arpo_trainer.sft import plain_trace
from arpo_trainer.sft.plain_trace import CAUSES as FORMAT_CAUSES
from arpo_trainer.sft.trace_data import read_row, tree_traces
from arpo_trainer.synthesis.synth_settings import DIRECT, SynthSettings, stage_of
from arpo_trainer.tree import RolloutTree, Span
from envs_registry import Task

CAUSES = {
    "broken": "the sandbox, a service, the grader or the model failed, so the sample has no score",
    "refusal": "the model declines to answer",
    "not well formed": "the environment's reward counts the format as wrong, such as an answer without a thought",
    "no call": "a sample with tools that called none",
    "too many calls": "more than max_calls",
    "call was refused": "the environment did not run a call: its budget was spent, or the call could not be read",
    "result left out": "a result did not fit and was not shown",
    "repeated call": "the same tool with the same arguments twice",
    "last code fails": "the last Python cell ends with an error",
    "failed calls": "more than max_failed calls end with an error",
    "repeats itself": "a long sentence stands three times in the model's turns",
    "wrong answer": "the score is below min_score",
    "needs no tools": "the question is answered without tools, so a direct answer is kept",
    "needs tools": "a direct answer was right by chance; the question is kept with tools",
    "hard question": "its question is kept for reinforcement learning",
    "contaminated": "its question is in an evaluation set",
    "does not read back": "the written row is not read as it was played",
    **FORMAT_CAUSES,
}
_REFUSAL = re.compile(
    r"\b(?:i(?: a|')?m sorry|i apologi[sz]e|i (?:can(?:no|')?t|am unable to|am not able to|won't|will not)"
    r" (?:help|assist|answer|provide|comply|do that|fulfil+)|as an ai)\b"
    r"|抱歉|对不起|我无法|我不能",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"[^.!?\n。！？]{40,}")
_MOST_REPEATS = 2


class DroppedSample(plain_trace.DroppedRow):
    """Raised for a sample that is not kept."""

    def __init__(self, cause: str, detail: str = "") -> None:
        super().__init__(cause, detail or CAUSES[cause])


@dataclass(frozen=True)
class Sample:
    """One sample: its row, its tree, and what the tree says as text."""

    row: UnitRow  # of the store
    tree: RolloutTree  # the full record

    @property
    def entry(self) -> EpisodeEntry:
        """The only trajectory of the row."""
        return self.row.episodes[0]

    @property
    def stage(self) -> str:
        """The stage that it was sampled in."""
        return stage_of(self.row.env)[1]

    @property
    def path(self) -> list[Span]:
        """Its spans."""
        return self.tree.path(0)

    @property
    def text(self) -> str:
        """What the model wrote."""
        return "\n".join(span.text for span in self.path if span.kind == "model")


def solved(entry: EpisodeEntry, min_score: float) -> bool:
    """Return whether an answer is right, whatever its format: this decides how hard a question is."""
    return entry.components.get("accuracy", entry.reward or 0.0) >= min_score


def sample_trace(sample: Sample, settings: SynthSettings, env: ToolEnv) -> plain_trace.Trace:
    """Return a sample that passes all checks as a trace, with the prompt of the environment with tools."""
    if sample.entry.reward is None:
        raise DroppedSample("broken", sample.entry.error or "")
    if not sample.entry.answer and _REFUSAL.search(sample.text):
        raise DroppedSample("refusal", sample.text[:200])
    (read,) = tree_traces(sample.tree)
    messages = env.messages(Task.from_dict(sample.tree.task))
    system, question = messages[0]["content"], messages[-1]["content"]
    trace = replace(read, system=system, question=question, protocol=env.protocol.name)
    turns = plain_trace.checked_turns(trace, env.protocol, env.schemas)
    calls = [call for turn in turns if isinstance(turn, plain_trace.CheckedTurn) for call in turn.calls]
    # where the reward does not depend on the format, an answer without a thought is as good
    if env.rewards.counts_format and not sample.entry.components.get("format", 1.0):
        raise DroppedSample("not well formed", sample.text[:200])
    for cause, detail in _faults(settings, sample, calls):
        raise DroppedSample(cause, detail)
    return trace


def _faults(settings: SynthSettings, sample: Sample, calls: Sequence[ToolCall]) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a sample that can be read: a key of `CAUSES`, and what was found."""
    if sample.stage != DIRECT and not calls:
        yield "no call", ""
    if len(calls) > settings.max_calls:
        yield "too many calls", f"{len(calls)}, max_calls={settings.max_calls}"
    results = [span.tool for span in sample.path if span.tool]
    for span in sample.path:
        if span.kind == "environment" and (span.tool is None or span.tool.get("status") == "refused"):
            yield "call was refused", span.text.strip()[:200]
        if (span.tool or {}).get("withheld"):
            yield "result left out", ""
    for (name, arguments), count in Counter(
        (call.name, repr(sorted(call.arguments.items()))) for call in calls
    ).items():
        if count > 1:
            yield "repeated call", f"{name} {count} times with {arguments[:200]}"
    code = [tool["status"] for tool in results if "python" in tool["name"].split("+")]
    if code and code[-1] != "ok":
        yield "last code fails", code[-1]
    failed = sum(tool["status"] != "ok" for tool in results)
    if failed > settings.max_failed:
        yield "failed calls", f"{failed}, max_failed={settings.max_failed}"
    sentences = Counter(" ".join(match[0].split()) for match in _SENTENCE.finditer(sample.text))
    for text, count in sentences.most_common(1):
        if count > _MOST_REPEATS:
            yield "repeats itself", f"{count} times: {text[:200]}"
    length = sum(len(span.ids) for span in sample.path)
    if settings.max_tokens and length > settings.max_tokens:
        yield "too long", f"{length:,} tokens, max_tokens={settings.max_tokens:,}"
    if not solved(sample.entry, settings.min_score):
        yield "wrong answer", f"{sample.entry.answer!r:.100}, expected {sample.row.answers[0]!r:.100}"


# Sorts questions by how often they are answered: without tools, with tools only, or not at all.
#
# Tool-Star (arXiv 2505.16410, sec. 3.3) sorts by one right or wrong answer of each kind; here the shares of several
# samples decide, with `easy` and `hard` as limits. A sample that broke does not count. A question to which no sample
# gives any answer is not hard: the teacher refused, or did not keep to the format.

Question = tuple[str, str]  # label of the environment, id of the task
CLASSES = {
    "direct": "answered without tools",
    "tir": "answered with tools",
    "hard": "not answered, for reinforcement learning",
    "unanswered": "no sample gives an answer: refusals or texts without the format",
    "broken": "no sample that decides was scored",
    "contaminated": "in an evaluation set",
}


@dataclass
class Attempts:
    """What happened to one question."""

    direct: list[EpisodeEntry] = field(default_factory=list)  # scored samples without tools
    tools: list[EpisodeEntry] = field(default_factory=list)  # scored samples with tools, those after hints included


def attempts(rows: Iterable[UnitRow]) -> dict[Question, Attempts]:
    """Return the scored samples of each question."""
    found: dict[Question, Attempts] = defaultdict(Attempts)
    for row in rows:
        env, stage = stage_of(row.env)
        tried = found[env, row.task]
        kind = tried.direct if stage == DIRECT else tried.tools
        kind.extend(entry for entry in row.episodes if entry.reward is not None)
    return dict(found)


def needs_tools(tried: Attempts, settings: SynthSettings) -> bool:
    """Return whether too few answers without tools are right."""
    rate = _rate(tried.direct, settings.min_score)
    return rate is None or not settings.easy or rate < settings.easy


def difficulty(tried: Attempts, settings: SynthSettings) -> str:
    """Return the class of a question, a key of `CLASSES`."""
    if not needs_tools(tried, settings):
        return "direct"
    rate = _rate(tried.tools, settings.min_score)
    if rate is None:
        return "broken"
    if rate > settings.hard:
        return "tir"
    answered = any(entry.answer for entry in (*tried.direct, *tried.tools))
    return "hard" if answered else "unanswered"


def _rate(entries: list[EpisodeEntry], min_score: float) -> float | None:
    return sum(solved(entry, min_score) for entry in entries) / len(entries) if entries else None


# Rows of training files, read by `arpo sft` and by LLaMA-Factory, and hard questions as rows of data.

_OF_SFT = frozenset({"python", "search"})  # the tools that `arpo sft` knows without a schema
Row = dict[str, Any]


def training_row(trace: plain_trace.Trace, form: str, protocol: Protocol, tools: Sequence[JsonSchema]) -> Row:
    """Return a trace as a row that reads back as it is."""
    row = WRITERS[form](trace, protocol, tools)
    names = {tool["function"]["name"] for tool in tools}
    if protocol.native or not names <= _OF_SFT:
        row["tools"] = list(tools) if form == "messages" else json.dumps([tool["function"] for tool in tools])
    try:
        (read,) = read_row(row)
        same = _texts(plain_trace.rewritten(read, protocol, tools)) == _texts(trace)
    except plain_trace.DroppedRow as fault:
        raise DroppedSample("does not read back", str(fault)) from fault
    if not same or (read.system, read.question) != (trace.system, trace.question):
        raise DroppedSample("does not read back", "its turns differ")
    return row


def _texts(trace: plain_trace.Trace) -> list[tuple[str, ...]]:
    """Return the texts of the turns without the white space around them, for comparisons."""
    texts = [(turn.text,) if isinstance(turn, plain_trace.ModelTurn) else turn.texts for turn in trace.turns]
    return [tuple(text.strip() for text in turn) for turn in texts]


def check_format(form: str, protocol: Protocol) -> None:
    """Refuse a format that cannot hold the turns of a protocol."""
    if form == "alpaca" and protocol.native:
        raise ValueError(
            f"alpaca has one text for a whole episode, and protocol {protocol.name!r} has messages: take sharegpt, or "
            "--env-set protocol=arpo-tags"
        )


def dataset_info(name: str, file: str, form: str, protocol: Protocol) -> dict[str, Any]:
    """Return the entry of LLaMA-Factory's dataset_info.json for a file."""
    shown = {"tools": "tools"} if protocol.native else {}
    columns = {
        "alpaca": {"prompt": "instruction", "query": "input", "response": "output", "system": "system"},
        "sharegpt": {"messages": "conversations", "system": "system", **shown},
        "messages": {"messages": "messages", **shown},
    }[form]
    info: dict[str, Any] = {"file_name": file, "formatting": form, "columns": columns}
    if form == "messages":
        # calls beside the text are OpenAI's form
        info["formatting"] = "openai" if protocol.native else "sharegpt"
        info["tags"] = {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant",
                        "observation_tag": "tool", "system_tag": "system"}  # fmt: skip
    return {name: info}


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


def _sharegpt(trace: plain_trace.Trace, protocol: Protocol, tools: Sequence[JsonSchema]) -> Row:
    turns = [{"from": "human", "value": trace.question}]
    if not protocol.native:
        turns.append({"from": "gpt", "value": _one_text(trace, protocol, tools)})
    for turn in trace.turns if protocol.native else ():
        if isinstance(turn, plain_trace.ModelTurn):
            turns.append({"from": "gpt", "value": turn.text})
        else:  # LLaMA-Factory's templates write the outer tags
            turns.append({"from": "observation", "value": "\n</tool_response>\n<tool_response>\n".join(turn.texts)})
    return {"conversations": turns, "system": trace.system}


def _alpaca(trace: plain_trace.Trace, protocol: Protocol, tools: Sequence[JsonSchema]) -> Row:
    output = _one_text(trace, protocol, tools)
    return {"instruction": trace.question, "input": "", "output": output, "system": trace.system}


def _one_text(trace: plain_trace.Trace, protocol: Protocol, tools: Sequence[JsonSchema]) -> str:
    text: str = plain_trace.as_messages(trace, protocol, tools)["messages"][-1]["content"]
    return text


WRITERS: dict[str, Callable[[plain_trace.Trace, Protocol, Sequence[JsonSchema]], Row]] = {
    "sharegpt": _sharegpt,
    "alpaca": _alpaca,
    "messages": plain_trace.as_messages,
}
