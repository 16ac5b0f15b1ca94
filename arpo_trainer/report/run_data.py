"""The files of a run: run.json, and JSON lines that are appended at once and read while they are written.

    data = load_run("runs/arithmetic-cpu")
    data.evaluations[-1]["accuracy"], data.notes      # what is missing is noted

Traces can be large, so they are read line by line, and only a sample of the trees, spread over the steps, is kept.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator, Mapping
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
    """What a run directory contains."""

    folder: Path
    facts: dict[str, Any] = field(default_factory=dict)  # run.json: name, env, model, status and the like, if there
    metrics: list[dict[str, Any]] = field(default_factory=list)  # metrics.jsonl, one entry per training step
    evaluations: list[dict[str, Any]] = field(default_factory=list)  # eval.jsonl, one entry per evaluation, in order
    trees: list[RolloutTree] = field(default_factory=list)  # a sample, in the order in which they were written
    tree_total: int = 0  # number of trees in traces.jsonl
    tree_steps: int = 0  # number of different steps that they are from
    trace_bytes: int = 0  # size of traces.jsonl
    notes: list[str] = field(default_factory=list)  # sentences about what is missing

    @property
    def running(self) -> bool:
        """Whether the run was still running when it was read."""
        return self.facts.get("status") == "running"


def require_run(folder: Path) -> None:
    """Refuse a directory that is not of a run, such as its parent directory."""
    if folder.is_dir() and not any((folder / name).exists() for name in _FILES):
        raise FileNotFoundError(f"{str(folder)!r} holds no run ({', '.join(_FILES)}); give the output_dir of a run")


def load_run(run_dir: str | Path) -> RunData:
    """Read a run directory with at most `TREES` trees; ValueError names the line that cannot be read."""
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
    path = run_dir / "traces.jsonl"
    steps = [step_of(row) for _, row in rows_of(path, data.running)]
    # two passes over the file: the steps of all trees first, then only the chosen trees in memory, spread evenly
    last = len(steps) - 1
    chosen = {round(number * last / (TREES - 1)) for number in range(TREES)} if last >= TREES else set(range(last + 1))
    data.tree_total, data.tree_steps = len(steps), len(set(steps))
    data.trace_bytes = path.stat().st_size if path.is_file() else 0
    for position, (number, line) in enumerate(lines_of(path, data.running)):
        if position in chosen:
            data.trees.append(parse_tree(path, number, line))
    wanted = [name for name in _FILES if name not in _TRAINING or data.facts.get("kind") != "rollout"]
    data.notes = [f"{name} is missing: {_FILES[name]}." for name in wanted if not (run_dir / name).is_file()]
    return data


def write_facts(path: Path, facts: Mapping[str, Any]) -> None:
    """Write what is known of a run as JSON, without the passwords and keys of URLs: the file is meant to be shown."""
    write_whole(path, redact_urls(json.dumps(facts, indent=2, ensure_ascii=False, default=str)) + "\n")


def write_whole(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old one or the new one."""
    scratch = path.with_name(f"{path.name}.unfinished")
    # "replace": a model may write half of a surrogate pair, which UTF-8 cannot encode
    scratch.write_text(text, encoding="utf-8", errors="replace")
    scratch.replace(path)


@contextlib.contextmanager
def recorded(path: Path, facts: dict[str, Any], keep: bool = True) -> Iterator[None]:
    """Keep a record true: running, then how it ended and after how many seconds, those of before included.

    `facts` are what it says, with what is added within; without `keep`, as on higher ranks, nothing is written.
    """
    began, before, status = time.time(), float(facts.get("seconds", 0.0)), "failed"
    facts["status"] = "running"
    if keep:
        write_facts(path, facts)
    try:
        yield
        status = "finished"
    except KeyboardInterrupt:
        status = "interrupted"
        raise
    finally:
        facts |= {"status": status, "seconds": round(before + time.time() - began, 1)}
        if keep:
            write_facts(path, facts)


def read_facts(path: Path) -> dict[str, Any]:
    """Read a run.json."""
    try:
        return _object(path.read_text(encoding="utf-8"))
    except ValueError as error:
        line = error.lineno if isinstance(error, json.JSONDecodeError) else 1
        raise ValueError(f"{path}, line {line}: no facts of a run ({error}); mend or delete the file") from error


def parse_tree(path: Path, number: int, line: str) -> RolloutTree:
    """Return the tree of a line of traces.jsonl."""
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
    with path.open("rb") as file:  # a line that is being written may end within a character
        for number, line in enumerate(file, start=1):
            if running and not line.endswith(b"\n"):
                return
            if line.strip():
                yield number, line.decode("utf-8")


def _object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object, got {type(value).__name__}")
    return value


def json_line(data: Mapping[str, Any]) -> str:
    """Return data as a line of JSON, without its end."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


class JsonLines:
    """A file of JSON lines, opened for appending; each line survives the end of the process that wrote it."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("ab")

    def add(self, line: str) -> tuple[int, int]:
        """Append a line, and return its offset and its length in bytes."""
        start = self.file.seek(0, os.SEEK_END)
        # a model may write half of a surrogate pair, which UTF-8 cannot encode
        length = self.file.write(line.encode("utf-8", errors="replace") + b"\n")
        self.file.flush()
        return start, length

    def close(self) -> None:
        """Close the file; may be called twice."""
        self.file.close()


def cut_half_line(path: Path) -> None:
    """Remove what a killed process left unfinished at the end of a file of lines."""
    if path.is_file():
        with path.open("rb+") as file:
            end = position = file.seek(0, os.SEEK_END)
            while position > 0:
                position = file.seek(max(0, position - (1 << 20)))
                if (found := file.read(min(1 << 20, end - position)).rfind(b"\n")) >= 0:
                    break
            else:
                found = -1
            file.truncate(position + found + 1)
