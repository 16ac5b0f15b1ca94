"""Rows of evaluations as tests need them, without playing."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from arpo_trainer.evaluation.episode_store import EpisodeEntry, EpisodeStore, UnitKey, UnitRow
from arpo_trainer.tree import RolloutTree, Trajectory

FACTS: dict[str, Any] = {
    "kind": "eval",
    "models": {"a": {"kind": "endpoint", "name": "a"}},
    "environments": {"GSM8K": {"id": "arpo/GSM8K-v0", "metric": "accuracy", "tasks": 500}},
}


def entry(value: float | None, **fields: Any) -> EpisodeEntry:
    """An episode that was graded so; None is one that broke."""
    if value is None:
        return EpisodeEntry(None, **{"error": "SandboxFull: no session", "outcome": "failed", **fields})
    made = {"components": {"accuracy": value, "em": float(value >= 1), "f1": value}, "answer": "x", **fields}
    return EpisodeEntry(value, **{"outcome": "answered", **made})


def row(task: str, values: Iterable[float | None], sample: int = 0, **fields: Any) -> UnitRow:
    """A unit with one episode for each value."""
    made = {"model": "a", "env": "GSM8K", "index": int(task.removeprefix("t")), "attempt": 1, "level": "", **fields}
    entries = made.pop("episodes", None) or [entry(value) for value in values]
    return UnitRow(task=task, sample=sample, question=f"question {task}?", answers=["12"], episodes=entries, **made)


def rows_of_values(values: Mapping[str, Iterable[float | None]], **fields: Any) -> list[UnitRow]:
    """One unit for each sample: task -> the values of its samples."""
    return [row(task, [value], n, **fields) for task, each in values.items() for n, value in enumerate(each)]


def play(
    folder: Path,
    answers: Mapping[str, list[tuple[str | None, float | None]]],
    env: str = "GSM8K",
    model: str = "a",
    facts: Mapping[str, Any] = FACTS,
) -> Path:
    """Write a run: task -> (answer, score) of each sample; the gold answer is 12."""
    folder.mkdir(exist_ok=True)
    (folder / "run.json").write_text(json.dumps({**facts, "status": "finished"}))
    with EpisodeStore(folder) as store:
        for index, (task, samples) in enumerate(answers.items()):
            for sample, (answer, score) in enumerate(samples):
                store.add(UnitKey(model, env, task, sample), index, tree(task, answer, score))
    return folder


def tree(task: str, answer: str | None, score: float | None) -> RolloutTree:
    """A tree of one trajectory: a call of python, its result, and an answer in the papers' format."""
    about = {"id": task, "question": f"What is {task}?", "answers": ["12"], "kind": "qa", "level": "1"}
    grown = RolloutTree([1, 2], task=about, prompt="You may call python.")
    texts = ("<think>I compute.</think><python>6 + 6</python>", f"<think>So.</think><answer>{answer}</answer>")
    call = grown.add_span(None, "model", [3, 4], logprobs=[0, 0], entropies=[0, 0], text=texts[0])
    tool = {"name": "python", "status": "ok", "seconds": 0.1}
    result = grown.add_span(call.index, "environment", [5], text="\n<result>\n12\n</result>\n", tool=tool)
    leaf = grown.add_span(result.index, "model", [6], logprobs=[0], entropies=[0], text=texts[1])
    parts = {} if score is None else {"format": 1.0, "accuracy": score, "multi_tool": 0.0, "em": float(score >= 1)}
    error = "GradingError: the judge gave no verdict" if score is None else None
    outcome = "failed" if score is None else "answered" if answer is not None else "no answer"
    end = Trajectory(leaf.index, reward=score, components=parts, answer=answer, error=error, outcome=outcome)
    grown.trajectories.append(end)
    return grown


def until_full(rows: int) -> Any:
    """`EpisodeStore.add` on a disk that has room for so many rows."""
    add, left = EpisodeStore.add, iter(range(rows))

    def added(store: EpisodeStore, *row: Any) -> Any:
        if next(left, None) is None:
            raise OSError("the disk is full")
        return add(store, *row)

    return added
