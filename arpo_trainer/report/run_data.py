"""Reads a run directory for the report: `load_run` returns a `RunData`.

A run that is still running or lacks files is read as far as possible; `notes` says what is missing. Traces can be
large, so they are read line by line, and only a sample of the trees, spread evenly over the steps, is kept.

    data = load_run("runs/arithmetic-cpu")
    data.evaluations[-1]["accuracy"]
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arpo_env.net import redact_urls
from arpo_trainer.tree import RolloutTree

TREES = 48
_FILES = {
    "run.json": "what was run is not known",
    "metrics.jsonl": "no training step has been logged",
    "eval.jsonl": "nothing has been evaluated",
    "traces.jsonl": "no trees have been written",
}
_TRAINING = ("metrics.jsonl", "eval.jsonl")  # a rollout without training may lack them


@dataclass
class RunData:
    """What a run directory contains.

    Attributes:
        folder: the run directory.
        facts: run.json: name, env, model, algorithm, settings, status and the like; any may be missing.
        metrics: metrics.jsonl, one entry per training step.
        evaluations: eval.jsonl, one entry per evaluation, in order.
        trees: the sampled trees, in the order in which they were written.
        tree_total: number of trees in traces.jsonl.
        tree_steps: number of different steps that they are from.
        trace_bytes: size of traces.jsonl.
        notes: sentences about what is missing.
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
        """Whether the run was still running when it was read."""
        return self.facts.get("status") == "running"


def require_run(folder: Path) -> None:
    """Refuse a directory that is not of a run, such as its parent directory.

    Raises:
        FileNotFoundError: it contains no file of a run.
    """
    if folder.is_dir() and not any((folder / name).exists() for name in _FILES):
        raise FileNotFoundError(f"{str(folder)!r} holds no run ({', '.join(_FILES)}); give the output_dir of a run")


def load_run(run_dir: str | Path, *, trees: int = TREES) -> RunData:
    """Read a run directory.

    Args:
        run_dir: the output directory of the run.
        trees: most trees to keep.

    Raises:
        FileNotFoundError: there is no such directory.
        ValueError: a line cannot be read (names file and line), or `trees` is below 1.
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
    # first of all: it says whether the run goes on, and whether a last line may be half written
    if (run_dir / "run.json").is_file():
        data.facts = read_facts(run_dir / "run.json")
    data.metrics = [row for _, row in rows_of(run_dir / "metrics.jsonl", data.running)]
    data.evaluations = [row for _, row in rows_of(run_dir / "eval.jsonl", data.running)]
    _read_trees(data, trees)
    wanted = [name for name in _FILES if name not in _TRAINING or data.facts.get("kind") != "rollout"]
    data.notes = [f"{name} is missing: {_FILES[name]}." for name in wanted if not (run_dir / name).is_file()]
    return data


def choose_trees(steps: Sequence[int], count: int) -> list[int]:
    """Return the positions of at most `count` trees, spread as evenly over the steps as possible.

    Every step contributes its first tree, then every step its second, and so on. In the last round steps are evenly
    spaced if not all fit; the first and the last step are always among them (with one tree, the last).

    Args:
        steps: the step of each tree.
        count: most trees to choose.
    """
    by_step: dict[int, list[int]] = {}
    for position, step in enumerate(steps):
        by_step.setdefault(step, []).append(position)
    queues = [by_step[step] for step in sorted(by_step)]
    chosen: list[int] = []
    for turn in range(max(map(len, queues), default=0)):
        # steps may have different numbers of trees, and short ones run out first
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


def write_facts(path: Path, facts: Mapping[str, Any]) -> None:
    """Write what is known of a run as JSON, without the passwords and keys of URLs: the file is meant to be shown."""
    scratch = path.with_name(f"{path.name}.unfinished")
    text = redact_urls(json.dumps(facts, indent=2, ensure_ascii=False, default=str))
    scratch.write_text(text + "\n", encoding="utf-8")
    scratch.replace(path)  # a reader sees the old file or the new one


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
    # two passes over the file: the steps of all trees first, then only the chosen trees in memory
    chosen = set(choose_trees(steps, count))
    data.tree_total, data.tree_steps = len(steps), len(set(steps))
    data.trace_bytes = path.stat().st_size if path.is_file() else 0
    for position, (number, line) in enumerate(lines_of(path, data.running)):
        if position in chosen:
            data.trees.append(parse_tree(path, number, line))


def parse_tree(path: Path, number: int, line: str) -> RolloutTree:
    """Return the tree of a line of traces.jsonl.

    Raises:
        ValueError: it is not a tree; names file and line.
    """
    try:
        return RolloutTree.from_json(line)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}, line {number}: not a rollout tree ({error}); delete the line") from error


def step_of(tree: dict[str, Any]) -> int:
    """Return the step of a tree as read from JSON, or 0."""
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
    """Yield the numbered lines that are not blank, without a last one that a running run is still writing."""
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
