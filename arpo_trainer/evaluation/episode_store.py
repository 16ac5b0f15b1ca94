"""Stores the episodes of an evaluation: each is appended at once, and a run that was killed goes on from what is there.

A folder has `traces.jsonl` with the trees and `episodes.jsonl` with a short row for each (`UnitRow`). A tree is written
before its row, so that a row is there only if its tree is complete. What a killed process left behind the last row is
removed when the folder is opened for writing again, and that unit is played again. A row whose tree is lost, as in a
folder that was copied while it was written, gets an empty place, and its unit is played again as a new attempt.

    with EpisodeStore("evals/gsm8k") as store:
        store.add(UnitKey("smollm2", "GSM8K", task.id), 0, tree)

    run = load_eval_run("evals/gsm8k")
    run.rows[0].episodes[0].reward, run.tree(run.rows[0])
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from arpo_trainer.evaluation.unit_row import UnitKey, UnitRow, unit_row
from arpo_trainer.folder_lock import lock_folder
from arpo_trainer.report.run_data import read_facts
from arpo_trainer.tree import RolloutTree

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
            self._attempts: dict[UnitKey, int] = {}
            self._repair()
            self._traces, self._lines = (self._append_to(name) for name in (TRACES, ROWS))
        except BaseException:
            self._lock.close()
            raise

    def add(self, key: UnitKey, index: int, tree: RolloutTree) -> UnitRow:
        """Append a unit, and return its row.

        Args:
            key: of the unit.
            index: the task's position in its environment.
            tree: what was played.
        """
        row = unit_row(key, index, self._attempts.get(key, 0) + 1, tree)
        tree.meta["unit"] = {"env": key.env, "model": key.model, "sample": key.sample, "attempt": row.attempt}
        row.trace = self._write(self._traces, _encoded(tree.to_json()))
        self._write(self._lines, _line(row))
        self._keep(row)
        return row

    def copy(self, row: UnitRow, line: str) -> None:
        """Append a unit of another folder.

        Args:
            row: its row there.
            line: its line of traces.jsonl there.
        """
        self._keep(replace(row, trace=self._write(self._traces, _encoded(line.removesuffix("\n")))))
        self._write(self._lines, _line(self.rows[row.key]))

    def close(self) -> None:
        """Close the files and let other processes have the folder. May be called twice."""
        for file in (self._traces, self._lines, self._lock):
            file.close()

    def __enter__(self) -> EpisodeStore:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _append_to(self, name: str) -> IO[bytes]:
        return (self.folder / name).open("ab")

    @staticmethod
    def _write(file: IO[bytes], line: bytes) -> tuple[int, int]:
        start = file.seek(0, os.SEEK_END)
        file.write(line)
        file.flush()  # from here on the line survives the end of this process
        return start, len(line)

    def _keep(self, row: UnitRow) -> None:
        self.rows[row.key], self._attempts[row.key] = row, row.attempt

    def _repair(self) -> None:
        """Read the rows, and remove what a killed process left unfinished at the end of the two files."""
        path, traces = self.folder / ROWS, self.folder / TRACES
        size = traces.stat().st_size if traces.exists() else 0
        rows = list(rows_of(path))
        lost = [row for row in rows if sum(row.trace) > size]
        for row in lost:
            row.trace = (0, 0)
        for row in rows:
            self._keep(row)
        self.rows = {key: row for key, row in self.rows.items() if row.trace[1]}
        if lost:
            logger.warning("%s was cut off: %d episodes whose trees are lost are played again", traces, len(lost))
            # at once: when the file has grown, their places would be those of other trees
            scratch = path.with_name(f"{ROWS}.unfinished")
            scratch.write_bytes(b"".join(map(_line, rows)))
            scratch.replace(path)
        _cut(path, _whole_lines(path))
        _cut(traces, max((sum(row.trace) for row in rows), default=0))


@dataclass
class EvalRun:
    """A stored evaluation.

    Attributes:
        folder: where it is.
        facts: run.json.
        rows: the last attempt of each unit, ordered by model, environment, task and sample.
        attempts: all rows in the order in which they were written.
    """

    folder: Path
    facts: dict[str, Any]
    rows: list[UnitRow]
    attempts: list[UnitRow]

    def tree(self, row: UnitRow) -> RolloutTree:
        """Return the full record of a unit.

        Raises:
            ValueError: traces.jsonl is missing, or was changed.
        """
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


def in_order(facts: dict[str, Any], attempts: list[UnitRow]) -> list[UnitRow]:
    """Return the last attempt of each unit, ordered by model, environment, task and sample."""
    models, envs = (list(facts.get(name, ())) for name in ("models", "environments"))

    def place(row: UnitRow) -> tuple[Any, ...]:
        unlisted = (len(models), len(envs))
        model = models.index(row.model) if row.model in models else unlisted[0]
        env = envs.index(row.env) if row.env in envs else unlisted[1]
        return model, row.model, env, row.env, row.index, row.task, row.sample

    return sorted({row.key: row for row in attempts}.values(), key=place)


def rows_of(path: Path) -> Iterator[UnitRow]:
    """Yield the rows of an episodes.jsonl; a last line without an end is left out.

    Raises:
        ValueError: a line is not a row; names the file and the line.
    """
    if not path.is_file():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            try:
                yield UnitRow.from_dict(json.loads(line))
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(f"{path}, line {number}: not an episode ({error}); delete the line") from error


def _line(row: UnitRow) -> bytes:
    return _encoded(json.dumps(row.as_dict(), ensure_ascii=False, separators=(",", ":")))


def _encoded(text: str) -> bytes:
    # a model may write half of a surrogate pair, which UTF-8 cannot encode
    return text.encode("utf-8", errors="replace") + b"\n"


def _whole_lines(path: Path) -> int:
    """Return the size of a file up to the end of its last complete line, in bytes."""
    if not path.is_file():
        return 0
    with path.open("rb") as file:
        end = position = file.seek(0, os.SEEK_END)
        while position > 0:
            step = min(position, 1 << 20)
            position = file.seek(position - step)
            if (found := file.read(step).rfind(b"\n")) >= 0:
                return position + found + 1
    return 0 if end else end


def _cut(path: Path, size: int) -> None:
    if path.is_file() and path.stat().st_size > size:
        os.truncate(path, size)


def _is_written(folder: Path) -> bool:
    """Return whether a process has the folder open for writing."""
    try:
        lock_folder(folder).close()
    except BlockingIOError:
        return True
    except OSError:  # a folder that may only be read says nothing
        return False
    return False
