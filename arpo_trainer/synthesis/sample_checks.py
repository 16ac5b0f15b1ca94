"""The quality of one sample: each check has a name, and the first one that fails drops the sample (a `DroppedSample`).

Format is checked by the reader of `arpo sft` (`arpo_trainer.sft.trace_checks`), with the causes that it names: what it
would refuse is not written. The others are Tool-Star's quality normalisation (sec. 3.2): budget of calls, repeated
calls, code that runs.

    checks = SampleChecks(settings, env.protocol, env.schemas, env.rewards.counts_format)
    checks.trace(sample, messages)
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from arpo_env.protocols.protocol import Protocol, ToolCalls
from arpo_env.tools.tool import JsonSchema
from arpo_trainer.evaluation.unit_row import EpisodeEntry, UnitRow
from arpo_trainer.sft.own_traces import tree_traces
from arpo_trainer.sft.plain_trace import CAUSES as FORMAT_CAUSES
from arpo_trainer.sft.plain_trace import DroppedRow, ModelTurn, ToolResults, Trace
from arpo_trainer.sft.trace_checks import CheckedTurn, checked_turns
from arpo_trainer.synthesis.stages import DIRECT, stage_of
from arpo_trainer.synthesis.synth_settings import SynthSettings
from arpo_trainer.tree import RolloutTree, Span

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


class DroppedSample(DroppedRow):
    """Raised for a sample that is not kept.

    Args:
        cause: a key of `CAUSES`.
        detail: what was found.
    """

    def __init__(self, cause: str, detail: str = "") -> None:
        super().__init__(cause, detail or CAUSES[cause])


@dataclass(frozen=True)
class Sample:
    """One sample: its row, its tree, and what the tree says as text.

    Attributes:
        row: of the store.
        tree: the full record.
    """

    row: UnitRow
    tree: RolloutTree

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


def refuses(sample: Sample) -> bool:
    """Return whether a sample declines to answer."""
    return not sample.entry.answer and _REFUSAL.search(sample.text) is not None


@dataclass(frozen=True)
class SampleChecks:
    """Checks samples one by one.

    Attributes:
        settings: the limits.
        protocol: of the environment with tools.
        schemas: of its tools.
        counts_format: whether the reward depends on the format; else an answer without a thought is as good.
    """

    settings: SynthSettings
    protocol: Protocol
    schemas: Sequence[JsonSchema]
    counts_format: bool = True

    def trace(self, sample: Sample, messages: Sequence[dict[str, str]]) -> Trace:
        """Return a sample that passes all checks as a trace.

        Args:
            sample: the sample.
            messages: what opens an episode of its question with tools; samples without tools get the same.

        Raises:
            DroppedSample: a check failed.
            DroppedRow: a check of the format failed.
        """
        if sample.entry.reward is None:
            raise DroppedSample("broken", sample.entry.error or "")
        if refuses(sample):
            raise DroppedSample("refusal", sample.text[:200])
        (read,) = tree_traces(sample.tree)
        system, user = messages[0]["content"], messages[-1]["content"]
        trace = replace(read, system=system, question=user, protocol=self.protocol.name)
        turns = checked_turns(trace, self.protocol, self.schemas)
        calls = [turn.action for turn in turns if isinstance(turn, CheckedTurn) and isinstance(turn.action, ToolCalls)]
        if self.counts_format and not sample.entry.components.get("format", 1.0):
            raise DroppedSample("not well formed", sample.text[:200])
        for check in _CHECKS:
            check(self.settings, sample, [call for action in calls for call in action.calls])
        return trace


def _called(settings: SynthSettings, sample: Sample, calls: Sequence[Any]) -> None:
    if sample.stage != DIRECT and not calls:
        raise DroppedSample("no call")
    if len(calls) > settings.max_calls:
        raise DroppedSample("too many calls", f"{len(calls)}, max_calls={settings.max_calls}")


def _shown(settings: SynthSettings, sample: Sample, calls: Sequence[Any]) -> None:
    results = [span for span in sample.path if span.kind == "environment"]
    for span in results:
        if span.tool is None or span.tool.get("status") == "refused":
            raise DroppedSample("call was refused", span.text.strip()[:200])
        if span.tool.get("withheld"):
            raise DroppedSample("result left out")


def _not_repeated(settings: SynthSettings, sample: Sample, calls: Sequence[Any]) -> None:
    seen = Counter((call.name, repr(sorted(call.arguments.items()))) for call in calls)
    for (name, arguments), count in seen.items():
        if count > 1:
            raise DroppedSample("repeated call", f"{name} {count} times with {arguments[:200]}")


def _runs(settings: SynthSettings, sample: Sample, calls: Sequence[Any]) -> None:
    results = [span.tool for span in sample.path if span.tool]
    code = [tool for tool in results if "python" in tool["name"].split("+")]
    if code and code[-1]["status"] != "ok":
        raise DroppedSample("last code fails", code[-1]["status"])
    failed = sum(tool["status"] != "ok" for tool in results)
    if failed > settings.max_failed:
        raise DroppedSample("failed calls", f"{failed}, max_failed={settings.max_failed}")


def _says_it_once(settings: SynthSettings, sample: Sample, calls: Sequence[Any]) -> None:
    text, count = next(iter(Counter(_sentences(sample)).most_common(1)), ("", 0))
    if count > _MOST_REPEATS:
        raise DroppedSample("repeats itself", f"{count} times: {text[:200]}")


def _sentences(sample: Sample) -> Iterator[str]:
    for match in _SENTENCE.finditer(sample.text):
        yield " ".join(match[0].split())


def _short(settings: SynthSettings, sample: Sample, calls: Sequence[Any]) -> None:
    length = sum(len(span.ids) for span in sample.path)
    if settings.max_tokens and length > settings.max_tokens:
        raise DroppedSample("too long", f"{length:,} tokens, max_tokens={settings.max_tokens:,}")


def _right(settings: SynthSettings, sample: Sample, calls: Sequence[Any]) -> None:
    if not solved(sample.entry, settings.min_score):
        raise DroppedSample("wrong answer", f"{sample.entry.answer!r:.100}, expected {sample.row.answers[0]!r:.100}")


Check = Callable[[SynthSettings, Sample, Sequence[Any]], None]
_CHECKS: tuple[Check, ...] = (_called, _shown, _not_repeated, _runs, _says_it_once, _short, _right)


def turn_texts(trace: Trace) -> list[tuple[str, ...]]:
    """Return the texts of a trace's turns without the white space around them, for comparisons."""
    return [
        (turn.text.strip(),) if isinstance(turn, ModelTurn) else tuple(text.strip() for text in turn.texts)
        for turn in trace.turns
        if isinstance(turn, ModelTurn | ToolResults)
    ]
