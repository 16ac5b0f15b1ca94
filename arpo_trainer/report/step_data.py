"""Reads the trees of one step of a run: `load_step`. For a sample of the trees of all steps see `run_data`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arpo_trainer.report.run_data import lines_of, parse_tree, read_facts, rows_of, step_of
from arpo_trainer.tree import RolloutTree


@dataclass
class StepData:
    """The trees of one step.

    Attributes:
        path: the traces.jsonl it was read from.
        step: the step.
        steps: all steps in the file.
        trees: its trees; the last ones if the step was repeated after a resume.
        facts: the run.json beside it, if there is one.
    """

    path: Path
    step: int
    steps: list[int]
    trees: list[RolloutTree]
    facts: dict[str, Any] = field(default_factory=dict)


def load_step(path: str | Path, step: int | None = None) -> StepData:
    """Read the trees of one step.

    Args:
        path: the folder of a run, or a traces.jsonl.
        step: the step; by default the last one.

    Raises:
        FileNotFoundError: there is no such path, or no traces in the folder.
        ValueError: there is no tree or no such step, or a line cannot be read (names file and line).
    """
    traces = _traces(Path(path))
    facts_path = traces.with_name("run.json")
    facts = read_facts(facts_path) if facts_path.is_file() else {}
    running = facts.get("status") == "running"
    steps = [step_of(row) for _, row in rows_of(traces, running)]
    if not steps:
        raise ValueError(f"{traces} holds no tree yet: wait for the first step, or roll one out with `arpo rollout`")
    wanted = max(steps) if step is None else step
    if wanted not in steps:
        raise ValueError(f"no trees of step {wanted} in {traces}; it has those of {_listed(steps)}")
    trees: dict[Any, RolloutTree] = {}
    # not strict: a run that goes on may have added lines since the steps were read
    for (number, line), of in zip(lines_of(traces, running), steps, strict=False):
        if of == wanted:
            tree = parse_tree(traces, number, line)
            # a later line replaces an earlier one of its group: the step was repeated after a resume
            trees[tree.meta.get("group", f"line {number}")] = tree
    return StepData(traces, wanted, sorted(set(steps)), list(trees.values()), facts)


def _traces(path: Path) -> Path:
    if path.is_file():
        return path
    if not path.is_dir():
        raise FileNotFoundError(
            f"no run folder and no traces file {str(path)!r}; give the output_dir of a run or its traces.jsonl, or "
            "make one: arpo rollout arpo/Arithmetic-v0 --model smollm2-135m-instruct --output DIR"
        )
    if not (path / "traces.jsonl").is_file():
        raise FileNotFoundError(
            f"no traces.jsonl in {str(path)!r}: the run wrote none; run it with trace_every: 1 (0 writes none)"
        )
    return path / "traces.jsonl"


def _listed(steps: Sequence[int]) -> str:
    """Return numbers in short form: 1-3, 7."""
    runs: list[str] = []
    # within a run of consecutive numbers, number minus position is constant
    for _, group in itertools.groupby(enumerate(sorted(set(steps))), key=lambda pair: pair[1] - pair[0]):
        numbers = [number for _, number in group]
        runs.append(str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}")
    return f"step{'s' if len(set(steps)) > 1 else ''} {', '.join(runs)}"
