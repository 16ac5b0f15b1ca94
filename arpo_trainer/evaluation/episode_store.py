"""Stores the episodes of an evaluation: each is appended at once, and a run that was killed goes on from what is there.

A folder has `traces.jsonl` with the trees and `episodes.jsonl` with a short row for each (`UnitRow`). A *unit* is what
is played and stored as a whole: one sample of one task by one model, or one tree of samples. A tree is written before
its row, so that a row is there only if its tree is complete.

    with EpisodeStore("evals/gsm8k") as store:
        store.add(UnitKey("smollm2", "GSM8K", task.id), 0, tree)

    run = load_eval_run("evals/gsm8k")
    run.rows[0].episodes[0].reward, run.tree(run.rows[0])
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from arpo_env.episode import FOLD
from arpo_trainer.folder_lock import lock_folder
from arpo_trainer.report.run_data import JsonLines, cut_half_line, json_line, lines_of, read_facts, write_whole
from arpo_trainer.tree import FAILED, WORKED, RolloutTree, Span

HELPER_TOKENS = ("context", "cached", "tokens")
# by the name of the error's class; what is not listed has its own name as its cause
_CAUSES = {
    **dict.fromkeys(("SandboxError", "SandboxUnavailable", "SandboxFull", "PythonExiting"), "sandbox"),
    **dict.fromkeys(("SessionLost", "ForkError", "SessionEnded", "ReplayError"), "sandbox"),
    **dict.fromkeys(("ServiceError", "CacheMiss", "CacheError", "ConnectionLost"), "search"),
    "GradingError": "judge",
    "GenerationError": "model",
}


@dataclass(frozen=True, order=True)
class UnitKey:
    """What identifies a unit: labels of model and environment, the task's id, the number of the sample."""

    model: str
    env: str
    task: str
    sample: int = 0


@dataclass
class EpisodeEntry:
    """One trajectory of a unit."""

    reward: float | None  # of the environment; None if the episode broke, so that it has no score
    components: dict[str, float] = field(default_factory=dict)  # the reward's named parts, such as accuracy, em and f1
    outcome: str = ""  # "answered", "no answer", "truncated" or "failed"
    error: str | None = None  # what broke
    answer: str | None = None
    calls: dict[str, int] = field(default_factory=dict)  # executed calls by tool
    turns: int = 0
    tokens: int = 0  # that the model generated along the path
    context: int = 0  # tokens of context that its requests had, those from a cache included
    cached: int = 0  # of them, tokens that came from a cache
    seconds: float = 0.0
    # uses of tools at inference time by name, and failures of them, as in "debugger failed"
    inference: dict[str, int] = field(default_factory=dict)
    # of the model that helps these tools: "requests", and tokens as "context", "cached" (of it) and "tokens"
    helper: dict[str, int] = field(default_factory=dict)
    # whether it is an independent sample (`RolloutTree.samples`): branches and top-ups are in no score and no mean
    counted: bool = True

    @property
    def cause(self) -> str:
        """What broke it: "sandbox", "search", "judge", "model" or the name of the error; "" if nothing did."""
        if self.reward is not None:
            return ""
        name = match[0] if (match := re.match(r"\w{1,40}(?=:)", self.error or "")) else "unscored"
        return _CAUSES.get(name, name)


@dataclass
class UnitRow:
    """One line of episodes.jsonl: what metrics, tables and views read of a unit."""

    model: str
    env: str
    task: str
    sample: int
    index: int  # the task's position in its environment
    attempt: int  # 1 for the first; a unit that broke may be played again, and the last attempt counts
    question: str
    answers: list[str]  # that are accepted
    level: str
    episodes: list[EpisodeEntry]  # one for each trajectory
    generated: int = 0  # tokens that the model generated for the unit, shared ones once
    category: str = ""
    trace: tuple[int, int] = (0, 0)  # offset and length of the tree's line in traces.jsonl, in bytes

    @property
    def key(self) -> UnitKey:
        """The unit's key."""
        return UnitKey(self.model, self.env, self.task, self.sample)

    @property
    def broken(self) -> bool:
        """Whether an episode of the unit has no score."""
        return any(episode.reward is None for episode in self.episodes)

    @property
    def scored(self) -> list[EpisodeEntry]:
        """Its independent samples that have a score: all that scores and means are of."""
        return [episode for episode in self.episodes if episode.counted and episode.reward is not None]

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> UnitRow:
        """Read back what was stored as plain data."""
        episodes = [EpisodeEntry(**entry) for entry in data["episodes"]]
        offset, length = data["trace"]
        return cls(**{**data, "episodes": episodes, "trace": (offset, length)})


def unit_row(key: UnitKey, index: int, attempt: int, tree: RolloutTree) -> UnitRow:
    """Return the row of a unit that was played, without its place in traces.jsonl."""
    task = tree.task
    return UnitRow(
        **asdict(key),
        index=index,
        attempt=attempt,
        question=task.get("question", ""),
        answers=list(task.get("answers", ())),
        level=task.get("level", ""),
        episodes=[_entry(tree, number) for number in range(len(tree.trajectories))],
        category=task.get("category", ""),
        # what a turn was opened with was not generated
        generated=sum(len(span.ids) for span in tree.spans if span.sampled) - tree.meta.get("opening", 0),
    )


def broken_causes(rows: Sequence[UnitRow]) -> Counter[str]:
    """Count the episodes without a score by what failed."""
    return Counter(episode.cause for row in rows for episode in row.episodes if episode.reward is None)


def _entry(tree: RolloutTree, number: int) -> EpisodeEntry:
    trajectory, path = tree.trajectories[number], tree.path(number)
    turns = [span for span in path if span.kind == "model"]
    tools = [span.tool for span in path if span.tool and span.tool.get("status") != "refused"]
    calls = Counter(tool["name"] for tool in tools if tool["name"] != FOLD)  # a fold is no call of a tool
    # the requests of shared turns were made by the trajectory that it was forked from
    events = [event for event in tree.timeline if event.trajectory == number]
    requests, helper = ([event for event in events if event.kind == kind] for kind in ("generate", "helper"))
    helped = {name: sum(getattr(event, name) for event in helper) for name in HELPER_TOKENS} if helper else {}
    return EpisodeEntry(
        trajectory.reward,
        dict(trajectory.components),
        trajectory.outcome,
        trajectory.error,
        trajectory.answer,
        dict(sorted(calls.items())),
        len(turns),
        sum(len(span.ids) for span in turns),
        sum(event.context for event in requests),
        sum(event.cached for event in requests),
        round(max((e.end for e in events), default=0.0) - min((e.start for e in events), default=0.0), 3),
        _interventions(path),
        {"requests": len(helper), **helped} if helper else {},
        number in tree.samples(),
    )


def _interventions(path: Sequence[Span]) -> dict[str, int]:
    """Count what tools at inference time did along a path."""
    counts = Counter[str]()
    for mark in (mark for span in path for mark in span.interventions or ()):
        counts[mark["tool"]] += mark["outcome"] in (WORKED, FAILED)
        counts[f"{mark['tool']} failed"] += mark["outcome"] == FAILED
    return {name: count for name, count in sorted(counts.items()) if count}


logger = logging.getLogger(__name__)
KIND = "eval"
SYNTH = "synth"  # the samples of `arpo synth`, which are stored and read in the same way
FACTS, ROWS, TRACES, RESULTS, SCORES = "run.json", "episodes.jsonl", "traces.jsonl", "results.json", "scores"


class EpisodeStore:
    """The folder of an evaluation, opened for writing; only one process at a time may have it.

    Args:
        folder: the folder, which is created if it is missing.

    Attributes:
        rows: the last attempt of each unit.

    Raises:
        BlockingIOError: another process writes to the folder.
        ValueError: a line cannot be read; names the file and the line. Nothing is changed then.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = lock_folder(self.folder)
        try:
            self.rows: dict[UnitKey, UnitRow] = {}
            self._repair()
            self._traces, self._lines = JsonLines(self.folder / TRACES), JsonLines(self.folder / ROWS)
        except BaseException:
            self._lock.close()
            raise

    def add(self, key: UnitKey, index: int, tree: RolloutTree) -> UnitRow:
        """Append a unit, whose task has the position `index` in its environment, and return its row."""
        row = unit_row(key, index, self.rows[key].attempt + 1 if key in self.rows else 1, tree)
        tree.meta["unit"] = {"env": key.env, "model": key.model, "sample": key.sample, "attempt": row.attempt}
        return self.copy(row, tree.to_json())

    def copy(self, row: UnitRow, line: str) -> UnitRow:
        """Append a unit from its row and its line of traces.jsonl, and return its row here."""
        row = replace(row, trace=self._traces.add(line.removesuffix("\n")))
        self._lines.add(json_line(asdict(row)))
        self.rows[row.key] = row
        return row

    def close(self) -> None:
        """Close the files and let other processes have the folder. May be called twice."""
        for file in (self._traces, self._lines, self._lock):
            file.close()

    def __enter__(self) -> EpisodeStore:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _repair(self) -> None:
        """Read the rows, and remove what a killed process left unfinished at the end of the two files."""
        path, traces = self.folder / ROWS, self.folder / TRACES
        size = traces.stat().st_size if traces.exists() else 0
        stored = list(rows_of(path))
        rows = [row for row in stored if sum(row.trace) <= size]
        if len(rows) < len(stored):  # as in a folder that was copied while it was written
            logger.warning("%s was cut off: %d episodes are played again", traces, len(stored) - len(rows))
            write_whole(path, "".join(f"{json_line(asdict(row))}\n" for row in rows))
        cut_half_line(path)
        self.rows = {row.key: row for row in rows}
        if size > (end := max((sum(row.trace) for row in rows), default=0)):
            os.truncate(traces, end)  # a tree without its row


@dataclass
class EvalRun:
    """A stored evaluation."""

    folder: Path
    facts: dict[str, Any]  # run.json
    rows: list[UnitRow]  # the last attempt of each unit, ordered by model, environment, task and sample
    attempts: list[UnitRow]  # all rows in the order in which they were written

    def tree(self, row: UnitRow) -> RolloutTree:
        """Return the full record of a unit."""
        line = self.line(row)
        try:
            return RolloutTree.from_json(line)
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{self.folder / TRACES} has no tree at byte {row.trace[0]} ({error}): the file was changed or cut. "
                "`arpo eval --resume` plays what is lost again"
            ) from error

    def line(self, row: UnitRow) -> str:
        """Return the unit's line of traces.jsonl."""
        try:
            with (self.folder / TRACES).open("rb") as file:
                file.seek(row.trace[0])
                return file.read(row.trace[1]).decode("utf-8")
        except FileNotFoundError as error:
            raise ValueError(f"{self.folder} has no {TRACES}: only the scores are left") from error


def load_eval_run(folder: str | Path) -> EvalRun:
    """Read a stored evaluation, also one that is still running.

    Raises:
        FileNotFoundError: there is no such folder, or it is not of an evaluation.
        ValueError: a file cannot be read; names the file and the line.
    """
    folder = Path(folder)
    if not (folder / FACTS).is_file():
        raise FileNotFoundError(f"no evaluation in {str(folder)!r}; give the --output folder of `arpo eval`")
    facts = read_facts(folder / FACTS)
    if facts.get("kind") not in (KIND, SYNTH):
        raise FileNotFoundError(
            f"{str(folder)!r} holds no evaluation, but a {facts.get('kind') or 'training run'}; give the --output "
            "folder of `arpo eval` (`arpo report` shows training runs)"
        )
    if facts.get("status") == "running" and not _is_written(folder):
        facts["status"] = "stopped"  # the process was killed before it could say so
    attempts = list(rows_of(folder / ROWS))
    return EvalRun(folder, facts, in_order(facts, attempts), attempts)


def in_order(facts: Mapping[str, Any], attempts: list[UnitRow]) -> list[UnitRow]:
    """Return the last attempt of each unit, ordered by model, environment, task and sample."""
    models, envs = ({each: n for n, each in enumerate(facts.get(name, ()))} for name in ("models", "environments"))

    def place(row: UnitRow) -> tuple[Any, ...]:
        listed = models.get(row.model, len(models)), row.model, envs.get(row.env, len(envs)), row.env
        return *listed, row.index, row.task, row.sample

    return sorted({row.key: row for row in attempts}.values(), key=place)


def rows_of(path: Path) -> Iterator[UnitRow]:
    """Yield the rows of an episodes.jsonl; a last line without an end is left out."""
    for number, line in lines_of(path, running=True):
        try:
            yield UnitRow.from_dict(json.loads(line))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path}, line {number}: not an episode ({error}); delete the line") from error


def _is_written(folder: Path) -> bool:
    """Return whether a process has the folder open for writing."""
    try:
        lock_folder(folder).close()
    except BlockingIOError:
        return True
    except OSError:  # a folder that may only be read says nothing
        return False
    return False
