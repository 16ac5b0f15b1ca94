"""What a run directory holds, read for the report: `load_run` returns a `RunData`.

A run that still goes on, or that lacks files, is read as far as it goes; `notes` says what is missing. Traces can be
large, so they are read line by line, and only a sample of the trees, even over the steps, is kept. What this module
does not do: draw (see `report`).

    data = load_run("runs/arithmetic-cpu")
    data.evaluations[-1]["accuracy"]
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arpo_trainer.tree import RolloutTree

TREES = 48
_FILES = {
    "run.json": "what was run is not known",
    "metrics.jsonl": "no training step has been logged",
    "eval.jsonl": "nothing has been evaluated",
    "traces.jsonl": "no trees have been written",
}
_TRAINING = ("metrics.jsonl", "eval.jsonl")  # a rollout without training need not have them


@dataclass
class RunData:
    """A run, as its directory tells it.

    Attributes:
        folder: the run directory.
        facts: run.json: name, env, model, algorithm, settings, status and the like; any may be missing.
        metrics: metrics.jsonl, one entry a training step.
        evaluations: eval.jsonl, one entry an evaluation, in order.
        trees: the trees kept, in the order they were written.
        tree_total: trees in traces.jsonl.
        tree_steps: different steps those are from.
        trace_bytes: size of traces.jsonl.
        notes: what is missing, in sentences for the reader.
    """

    folder: Path
    facts: dict[str, Any] = field(default_factory=dict)
    metrics: list[dict[str, Any]] = field(default_factory=list)
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    trees: list[RolloutTree] = field(default_factory=list)
    tree_total: int = 0
    tree_steps: int = 0
    trace_bytes: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def running(self) -> bool:
        """Whether the run was still going when it was read."""
        return self.facts.get("status") == "running"


def require_run(folder: Path) -> None:
    """Refuse a directory in which there is nothing of a run, such as the one above it.

    Raises:
        FileNotFoundError: it holds no file of a run.
    """
    if folder.is_dir() and not any((folder / name).exists() for name in _FILES):
        raise FileNotFoundError(f"{str(folder)!r} holds no run ({', '.join(_FILES)}); give the output_dir of a run")


def load_run(run_dir: str | Path, *, trees: int = TREES) -> RunData:
    """Read a run directory.

    Args:
        run_dir: the run's output directory.
        trees: at most this many trees are kept.

    Raises:
        FileNotFoundError: there is no such directory.
        ValueError: a line is broken (names file and line), or `trees` is below 1.
    """
    if trees < 1:
        raise ValueError(f"trees must be at least 1, got {trees}")
    run_dir = Path(run_dir)
    if not run_dir.is_dir():
        raise FileNotFoundError(
            f"no run directory {str(run_dir)!r}; give the output_dir of a run (it holds run.json), "
            "or make one with: arpo train --recipe arithmetic-cpu"
        )
    data = RunData(run_dir)
    if (run_dir / "run.json").is_file():
        data.facts = read_facts(run_dir / "run.json")
    data.metrics = [row for _, row in rows_of(run_dir / "metrics.jsonl", data.running)]
    data.evaluations = [row for _, row in rows_of(run_dir / "eval.jsonl", data.running)]
    _read_trees(data, trees)
    wanted = [name for name in _FILES if name not in _TRAINING or data.facts.get("kind") != "rollout"]
    data.notes = [f"{name} is missing: {_FILES[name]}." for name in wanted if not (run_dir / name).is_file()]
    return data


def choose_trees(steps: Sequence[int], count: int) -> list[int]:
    """Return the positions of at most `count` trees, as even over the steps as can be.

    Every step gives its first tree, then every step its second, and so on. When the last round would be too much,
    it takes steps evenly spaced; the first and the last step are always among them (with one tree, the last).

    Args:
        steps: of each tree the step it was made at.
        count: how many may be chosen.
    """
    by_step: dict[int, list[int]] = {}
    for position, step in enumerate(steps):
        by_step.setdefault(step, []).append(position)
    queues = [by_step[step] for step in sorted(by_step)]
    chosen: list[int] = []
    for turn in range(max(map(len, queues), default=0)):
        ready = [queue[turn] for queue in queues if len(queue) > turn]
        left = count - len(chosen)
        if len(ready) > left:
            return sorted(chosen + [ready[index] for index in _spread(len(ready), left)])
        chosen += ready
    return sorted(chosen)


def _spread(size: int, count: int) -> list[int]:
    """Return `count` < `size` positions in `range(size)`, evenly spaced, both ends included."""
    if count < 2:
        return [size - 1][:count]
    return [round(index * (size - 1) / (count - 1)) for index in range(count)]


def read_facts(path: Path) -> dict[str, Any]:
    """Read a run.json."""
    try:
        return _object(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}, line {error.lineno}: broken JSON ({error.msg}); mend or delete the file") from error
    except ValueError as error:
        raise ValueError(f"{path}, line 1: {error}; mend or delete the file") from error


def _read_trees(data: RunData, count: int) -> None:
    path = data.folder / "traces.jsonl"
    steps = [step_of(row) for _, row in rows_of(path, data.running)]
    chosen = set(choose_trees(steps, count))
    data.tree_total, data.tree_steps = len(steps), len(set(steps))
    data.trace_bytes = path.stat().st_size if path.is_file() else 0
    for position, (number, line) in enumerate(lines_of(path, data.running)):
        if position in chosen:
            try:
                data.trees.append(RolloutTree.from_json(line))
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(f"{path}, line {number}: not a rollout tree ({error}); delete the line") from error


def step_of(tree: dict[str, Any]) -> int:
    """Return the step of a tree as read from JSON, 0 where it has none."""
    meta = tree.get("meta")
    step = meta.get("step") if isinstance(meta, dict) else None
    return int(step) if isinstance(step, (int, float)) else 0


def rows_of(path: Path, running: bool) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a JSONL file with their line numbers."""
    for number, line in lines_of(path, running):
        try:
            yield number, _object(line)
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: broken line ({error}); mend or delete it") from error


def lines_of(path: Path, running: bool) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not blank, numbered; of a running run not a last one still being written."""
    if not path.is_file():
        return
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            if running and not line.endswith("\n"):
                return
            if line.strip():
                yield number, line


def _object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object, got {type(value).__name__}")
    return value
