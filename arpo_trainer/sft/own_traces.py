"""Reads the trees of our own rollouts as traces, and keeps the good ones: rejection sampling.

A trajectory of `traces.jsonl` keeps its sampled ids, so that the policy is trained on exactly what it wrote. The text
is read as well, for checks and for other tokenizers.

    for trace in read_tree(row):
        sampling.check(trace)               # a `RejectionSampling`; raises `DroppedRow`
        sampling.keep(trace)                # once nothing else speaks against it
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
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
)
from arpo_trainer.tree import RolloutTree, Span

_END = re.compile(r"(?:<\|(?:im_end|eot_id|eom_id|endoftext|end_of_text)\|>|</s>)\s*\Z")
_RESULTS = re.compile(r"<(result|tool_response|tool_call_result)>\n(.*?)\n</\1>", re.DOTALL)


@dataclass
class RejectionSampling:
    """Which trajectories are kept: those that scored enough, not twice, and not too many of one task.

    Attributes:
        min_reward: the least reward.
        max_per_task: the most trajectories of one task; 0 is any number. One that folded its history counts once.
    """

    min_reward: float = 1.0
    max_per_task: int = 4
    _seen: set[tuple[str, str, tuple[Turn, ...]]] = field(default_factory=set)
    _kept: defaultdict[str, set[object]] = field(default_factory=lambda: defaultdict(set))

    def check(self, trace: Trace) -> None:
        """Check a trajectory against those that are kept already.

        Raises:
            DroppedRow: it scored too little or failed, saw pictures, is a duplicate, or its task has enough of them.
        """
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
    """Return the tree of a row of traces.jsonl.

    Raises:
        DroppedRow: it is none.
    """
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
    """Yield the traces of a tree, as `tree_traces` does.

    Raises:
        DroppedRow: the row is not a tree, or its task has no question.
    """
    yield from tree_traces(tree_of(row))


def tree_traces(tree: RolloutTree) -> Iterator[Trace]:
    """Yield one trace per trajectory of a tree, with its reward; of one with k folds, k + 1, each with its own prompt.

    Raises:
        DroppedRow: its task has no question, or a fold has no memories; the other trajectories come before.
    """
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
