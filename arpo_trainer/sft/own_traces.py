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
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from arpo_trainer.sft.plain_trace import DroppedRow, ModelTurn, SampledIds, ToolResults, Trace, Turn
from arpo_trainer.tree import RolloutTree, Span

_END = re.compile(r"(?:<\|(?:im_end|eot_id|eom_id|endoftext|end_of_text)\|>|</s>)\s*\Z")
_RESULTS = re.compile(r"<(result|tool_response)>\n(.*?)\n</\1>", re.DOTALL)


@dataclass
class RejectionSampling:
    """Which trajectories are kept: those that scored enough, not twice, and not too many of one task.

    Attributes:
        min_reward: the least reward.
        max_per_task: the most trajectories of one task; 0 is any number.
    """

    min_reward: float = 1.0
    max_per_task: int = 4
    _seen: set[tuple[str, str, tuple[Turn, ...]]] = field(default_factory=set)
    _count: Counter[tuple[str, str]] = field(default_factory=Counter)

    def check(self, trace: Trace) -> None:
        """Check a trajectory against those that are kept already.

        Raises:
            DroppedRow: it scored too little or failed, was folded, saw pictures, is a duplicate, or its task has enough
                of them.
        """
        if trace.reward is None or trace.reward < self.min_reward:
            raise DroppedRow("reward too low", f"{trace.reward} is less than min_reward={self.min_reward}")
        if trace.folded:
            raise DroppedRow("memory folded")
        if trace.pictures:
            raise DroppedRow("pictures seen")
        if (trace.task, trace.question, trace.turns) in self._seen:
            raise DroppedRow("duplicate")
        if self.max_per_task and self._count[trace.task, trace.question] >= self.max_per_task:
            raise DroppedRow("enough of this task", f"max_per_task={self.max_per_task}")

    def keep(self, trace: Trace) -> None:
        """Count a trajectory that is kept."""
        self._seen.add((trace.task, trace.question, trace.turns))
        self._count[trace.task, trace.question] += 1


def tree_of(row: Mapping[str, Any]) -> RolloutTree:
    """Return the tree of a row of traces.jsonl.

    Raises:
        DroppedRow: it is none.
    """
    try:
        tree = RolloutTree.from_json(json.dumps(row))
        sound = all(span.index == place and _is_sound(span) for place, span in enumerate(tree.spans))
        leaves = all(0 <= trajectory.leaf < len(tree.spans) for trajectory in tree.trajectories)
        if sound and leaves and isinstance(tree.task, dict):
            return tree
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DroppedRow("not a row", f"not a rollout tree ({error})") from error
    raise DroppedRow("not a row", "a rollout tree with spans out of order")


def _is_sound(span: Span) -> bool:
    # a parent that comes later would make the way to the prompt endless
    follows = span.parent is None or 0 <= span.parent < span.index
    return follows and isinstance(span.text, str) and isinstance(span.ids, list)


def read_tree(row: Mapping[str, Any]) -> Iterator[Trace]:
    """Yield one trace per trajectory of a tree, with its reward.

    Raises:
        DroppedRow: the row is not a tree, or its task has no question.
    """
    yield from tree_traces(tree_of(row))


def tree_traces(tree: RolloutTree) -> Iterator[Trace]:
    """Yield one trace per trajectory of a tree, with its reward.

    Raises:
        DroppedRow: its task has no question.
    """
    question = tree.task.get("question")
    if not isinstance(question, str):
        raise DroppedRow("no question", "the tree's task has none")
    for number, trajectory in enumerate(tree.trajectories):
        path = tree.path(number)
        texts = tuple(span.text if span.kind == "model" else None for span in path)
        ids = SampledIds(tuple(tree.prompt_ids), tuple(tuple(span.ids) for span in path), texts)
        turns = tuple(_turn(span) for span in path)
        cut = bool(path) and path[-1].finish == "length"
        folded, task = tree.folds(number) > 0, str(tree.task.get("id", ""))
        seen = any((span.tool or {}).get("images") for span in path)
        yield Trace(None, question, turns, _protocol_of(path), None, ids, trajectory.reward, cut, folded, seen, task)


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
    if "<tool_call>" in text:
        return "hermes"
    shown = any(span.text.startswith("\n<result>\n") for span in path if span.kind == "environment")
    return "llama3" if "<|python_tag|>" in text else "arpo-tags" if "</answer>" in text or shown else ""
