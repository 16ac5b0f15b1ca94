"""The folder of a comparison: grid.json says what belongs to it, runs.jsonl has one line for each finished run.

A line is written at once and synchronised to the disk. What a killed process left behind the last complete line is
removed when the folder is opened for writing again, and that run is made again. The last line of a run counts.

    with RunStore("lab/first") as store:
        store.extend(plan)
        store.add(record)
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from arpo_trainer.folder_lock import LOCK, lock_folder
from benchmarks.laboratory.grid_run import AXES, AlgorithmChoice, GridRun, make_specs

GRID, RUNS, WORK = "grid.json", "runs.jsonl", "runs"
KIND = "lab compare"
STATUSES = ("finished", "collapsed", "failed")

Record = dict[str, Any]
Key = tuple[str, str, int]


@dataclass(frozen=True)
class GridPlan:
    """What belongs to a comparison.

    Attributes:
        algorithms: the algorithms, in the order of tables.
        envs: names of environments.
        seeds: seeds of the runs.
        budget: total cost of each run by axis.
        settings: what all runs have in common.
    """

    algorithms: list[AlgorithmChoice]
    envs: list[str]
    seeds: list[int]
    budget: dict[str, int] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    def specs(self) -> list[GridRun]:
        """Return the runs.

        Raises:
            ValueError: a label, an environment or a seed is given twice.
        """
        return make_specs(self.algorithms, self.envs, self.seeds, self.budget, self.settings)

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as plain data."""
        return {"kind": KIND, **asdict(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> GridPlan:
        """Read back what `as_dict` wrote."""
        algorithms = [AlgorithmChoice(**each) for each in data["algorithms"]]
        return cls(algorithms, list(data["envs"]), list(data["seeds"]), dict(data["budget"]), dict(data["settings"]))

    def as_stored(self) -> GridPlan:
        """Return this plan as it is read back from a file: JSON has no tuples."""
        return GridPlan.from_dict(json.loads(json.dumps(self.as_dict())))

    def joined(self, more: GridPlan) -> GridPlan:
        """Return this plan with the algorithms, environments and seeds of another one added.

        Raises:
            ValueError: the settings or the budget differ, or an algorithm of the same label does; names what differs.
        """
        differing = [
            f"{what} {name} was {_shown(before.get(name))} and is {_shown(now.get(name))}"
            for what, before, now in (("setting", self.settings, more.settings), ("budget", self.budget, more.budget))
            for name in sorted(before.keys() | now.keys())
            if before.get(name) != now.get(name)
        ]
        known = {one.label: one for one in self.algorithms}
        for one in more.algorithms:
            before = known.setdefault(one.label, one)
            if before != one:
                differing.append(f"{one.label!r} was {_words(before)} and is {_words(one)}")
        if differing:
            raise ValueError(
                f"the folder has runs of other settings: {'; '.join(differing)}. Continue it with its own settings "
                "(without --set and --budget), name the algorithm otherwise (name=algorithm:settings), or give "
                "another folder with --output"
            )
        envs, seeds = list(dict.fromkeys([*self.envs, *more.envs])), sorted({*self.seeds, *more.seeds})
        return GridPlan(list(known.values()), envs, seeds, self.budget, self.settings)


class RunStore:
    """The folder of a comparison, opened for writing; only one process at a time may have it.

    Args:
        folder: the folder, which is created if it is missing.

    Attributes:
        plan: what belongs to the comparison, None in a new folder.
        records: the last record of each run.

    Raises:
        BlockingIOError: another process writes to the folder.
        ValueError: the folder holds something else, or a line cannot be read. Nothing is changed then.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        _refuse_file(self.folder)
        _refuse_foreign(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = lock_folder(self.folder)
        try:
            self.plan = stored_plan(self.folder)
            path = self.folder / RUNS
            self.records = {key_of(record): record for record in read_records(path)}
            if path.is_file():
                os.truncate(path, _whole_lines(path))
        except BaseException:
            self._lock.close()
            raise

    def extend(self, plan: GridPlan) -> GridPlan:
        """Add a plan to that of the folder, and return both together.

        Raises:
            ValueError: the settings differ; nothing is changed then.
        """
        plan = plan.as_stored()
        plan.specs()  # refuses what is given twice
        self.plan = self.plan.joined(plan) if self.plan else plan
        _write_whole(self.folder / GRID, json.dumps(self.plan.as_dict(), indent=1) + "\n")
        return self.plan

    def add(self, record: Record) -> None:
        """Append a record; when this returns, it survives a crash of the machine."""
        line = json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"
        with (self.folder / RUNS).open("ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        self.records[key_of(record)] = record

    def missing(self, specs: list[GridRun]) -> list[GridRun]:
        """Return the runs that have no record yet or have failed."""
        return [spec for spec in specs if self.records.get(spec.key, {"status": "failed"})["status"] == "failed"]

    def close(self) -> None:
        """Let other processes have the folder. May be called twice."""
        self._lock.close()

    def __enter__(self) -> RunStore:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def read_plan(folder: str | Path) -> GridPlan:
    """Read the plan of a comparison.

    Raises:
        FileNotFoundError: the folder holds no comparison.
        ValueError: its grid.json cannot be read.
    """
    path = Path(folder) / GRID
    if not path.is_file():
        raise FileNotFoundError(f"no comparison in {str(folder)!r}; give the --output folder of the action `compare`")
    try:
        return GridPlan.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} cannot be read ({error})") from error


def stored_plan(folder: str | Path) -> GridPlan | None:
    """Return the plan of a folder, None if it has none yet.

    Raises:
        ValueError: the folder is a file, or its grid.json cannot be read.
    """
    _refuse_file(Path(folder))
    return read_plan(folder) if (Path(folder) / GRID).is_file() else None


def read_records(path: Path) -> list[Record]:
    """Return the records of a runs.jsonl in the order in which they were written.

    A last line without an end is left out: a process is writing it, or was killed.

    Raises:
        ValueError: a line is not a record; names the file and the line.
    """
    if not path.is_file():
        return []
    found = []
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True), start=1):
        if not line.endswith(b"\n"):
            break
        try:
            record = json.loads(line)
            key_of(record)
            check_record(record)
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path}, line {number}: not a run ({error}); delete the line") from error
        found.append(record)
    return found


def load_comparison(folder: str | Path) -> tuple[GridPlan, list[Record]]:
    """Return the plan and the last record of each run, in the plan's order; also of a grid that still runs.

    Raises:
        FileNotFoundError: the folder holds no comparison.
        ValueError: a file cannot be read.
    """
    plan = read_plan(folder)
    records = {key_of(record): record for record in read_records(Path(folder) / RUNS)}
    return plan, [records[spec.key] for spec in plan.specs() if spec.key in records]


def check_record(record: Mapping[str, Any]) -> None:
    """Check that a record has what comparisons need.

    Raises:
        ValueError: its status is unknown, or a run that did not fail has no curve, or success that is no share.
        KeyError: something is missing.
    """
    if record["status"] not in STATUSES:
        raise ValueError(f"status {record['status']!r} is none of {', '.join(STATUSES)}")
    if record["status"] == "failed":
        return
    if not record["curve"]:
        raise ValueError("its curve is empty")
    before: Mapping[str, Any] = {}
    for point in record["curve"]:
        if not 0.0 <= point["success"] <= 1.0 or not point["episodes"] > 0:
            raise ValueError(f"success {point['success']!r} on {point['episodes']!r} episodes is not a share")
        for total in AXES.values():
            if not point[total] >= before.get(total, 0):
                raise ValueError(f"{total} are totals and cannot become less")
        before = point
    if not 0.0 <= record["final"].get("success", 0.0) <= 1.0:
        raise ValueError(f"final success {record['final']['success']!r} is not a share")


def key_of(record: Mapping[str, Any]) -> Key:
    """Return what tells the runs of a comparison apart: label, environment and seed."""
    return str(record["label"]), str(record["env"]), int(record["seed"])


def _refuse_file(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise ValueError(
            f"{str(folder)!r} is a file; give a folder with --output. (With --draw, --output may be a comparison.json)"
        )


def _refuse_foreign(folder: Path) -> None:
    if folder.is_dir() and not (folder / GRID).is_file():
        others = sorted(entry.name for entry in folder.iterdir() if entry.name != LOCK)
        if others:
            raise ValueError(
                f"{str(folder)!r} has no {GRID}, but {', '.join(others[:3])}: it is not the folder of a comparison. "
                "Give a new folder with --output; nothing was changed"
            )


def _whole_lines(path: Path) -> int:
    """Return the size of a file up to the end of its last complete line, in bytes."""
    return path.read_bytes().rfind(b"\n") + 1


def _write_whole(path: Path, text: str) -> None:
    unfinished = path.with_name(f"{path.name}.unfinished")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)


def _shown(value: Any) -> str:
    return "not set" if value is None else repr(value)


def _words(one: AlgorithmChoice) -> str:
    return f"{one.algorithm}:{','.join(f'{name}={value}' for name, value in one.settings.items())}".rstrip(":")
