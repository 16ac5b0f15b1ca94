"""Rows of local files (JSON Lines, JSON, CSV, Parquet), and the files of a data set. Errors name file, line and column.

`ARPO_DATA` names a folder with one file or folder per set.
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envs_registry.install_line import install_line
from envs_registry.task import Task

Row = dict[str, Any]
Rows = list[tuple[str, Row]]  # place in the file ("line 3") and content
_ENCODING = "utf-8-sig"  # accepts files with a byte order mark


class DataFileError(ValueError):
    """Raised when a data file cannot be read; the message names the file, the line and the column."""


def read_rows(path: str | Path) -> Rows:
    """Return the rows of a .jsonl, .json, .csv or .parquet file, each with its place in the file."""
    file = Path(path).expanduser()
    if not file.is_file():
        raise FileNotFoundError(f"data file {str(path)!r} does not exist; give a .jsonl, .json, .csv or .parquet file")
    if file.suffix not in READERS:
        raise DataFileError(f"{file}: cannot read {file.suffix or 'a file without ending'}; use {', '.join(READERS)}")
    try:
        rows = READERS[file.suffix](file)
    except UnicodeDecodeError as error:
        line = file.read_bytes()[: error.start].count(b"\n") + 1
        raise DataFileError(f"{file}, line {line}: not UTF-8 ({error.reason})") from error
    if not rows:
        raise DataFileError(f"{file}: holds no rows")
    return rows


def column(row: Row, names: tuple[str, ...], where: str) -> str:
    """Return the first of the named columns as text; "info.level" is the field `level` of the column `info`."""
    for name in names:
        value = field(row, name)
        if value is not None and str(value).strip():
            return str(value)
        # A blank in the preferred column is a fault of the row; the next column may mean something else.
        if name in row:
            raise DataFileError(f"{where}, column {name!r}: is blank")
    raise DataFileError(f"{where}: no column {' or '.join(map(repr, names))}; it has {', '.join(map(repr, row))}")


def field(row: Row, name: str) -> Any:
    """Return a column, or for "column.name" a field of a record column; None if it is missing."""
    # A column whose own name has a dot comes before a field of a record.
    if name in row or "." not in name:
        return row.get(name)
    head, _, rest = name.partition(".")
    inner = row.get(head)
    return field(inner, rest) if isinstance(inner, dict) else None


def _read_jsonl(file: Path) -> Rows:
    rows: Rows = []
    # Not splitlines(), which also splits at characters that JSON allows within a string, such as U+2028.
    for number, line in enumerate(file.read_text(encoding=_ENCODING).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except json.JSONDecodeError as error:
            raise DataFileError(f"{file}, line {number}, column {error.colno}: {error.msg}") from error
        if not isinstance(value, dict):
            raise DataFileError(f"{file}, line {number}, column 1: expected an object, got {type(value).__name__}")
        rows.append((f"line {number}", value))
    return rows


def _read_json(file: Path) -> Rows:
    try:
        value = json.loads(file.read_text(encoding=_ENCODING))
    except json.JSONDecodeError as error:
        # A second value on a later line: JSON Lines under the name .json.
        if error.msg == "Extra data" and error.lineno > 1:
            return _read_jsonl(file)
        raise DataFileError(f"{file}, line {error.lineno}, column {error.colno}: {error.msg}") from error
    if isinstance(value, dict):
        value = [value]
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise DataFileError(f"{file}, line 1, column 1: expected a list of objects")
    return [(f"row {number}", row) for number, row in enumerate(value, start=1)]


def _read_csv(file: Path) -> Rows:
    # newline="" leaves line ends to the csv module, since a quoted cell may contain some.
    with file.open(encoding=_ENCODING, newline="") as handle:
        reader = csv.DictReader(handle, strict=True)
        rows: Rows = []
        try:
            for row in reader:
                # DictReader puts surplus cells under the key None, and the value None where cells are missing.
                if None in row or None in row.values():
                    got, wanted = sum(value is not None for value in row.values()), len(reader.fieldnames or ())
                    raise DataFileError(f"{file}, line {reader.line_num}, column {got}: expected {wanted} columns")
                rows.append((f"line {reader.line_num}", dict(row)))
        except csv.Error as error:
            raise DataFileError(f"{file}, line {reader.line_num}, column 1: {error}") from error
    return rows


def _read_parquet(file: Path) -> Rows:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise DataFileError(f"{file}: reading Parquet needs pyarrow: {install_line('data')}") from error
    rows = pyarrow.parquet.read_table(file).to_pylist()
    return [(f"row {number}", row) for number, row in enumerate(rows, start=1)]


READERS: dict[str, Callable[[Path], Rows]] = {
    ".jsonl": _read_jsonl,
    ".json": _read_json,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
}


ROOT_VARIABLE = "ARPO_DATA"
_BEGINNINGS = {"validation": ("valid", "dev")}  # accepted beginnings of file names per split


def place_of(source: str, data: str | Path | None) -> Path | None:
    """Return the file or folder of a set: what the caller gave, else that of its name in `ARPO_DATA`, else None."""
    if data is not None:
        if not str(data).strip():  # which happens with an unset shell variable
            raise ValueError("data is blank; name a file or a folder, or leave it out")
        place = Path(data).expanduser()
        if not place.exists():
            raise FileNotFoundError(
                f"data={str(data)!r} does not exist; give a file ({', '.join(READERS)}) or a folder"
            )
        return place
    root = os.environ.get(ROOT_VARIABLE)
    found = sorted(Path(root).expanduser().iterdir()) if root else []
    # Something of the right name but of another type, such as an archive, is passed over.
    found = [path for path in found if path.is_dir() or path.suffix in READERS]
    return next((path for path in found if source in (path.name.casefold(), path.stem.casefold())), None)


def files_of(place: Path, split: str, splits: Sequence[str]) -> list[Path]:
    """Return the files of a split: the configured file, or those of a folder that begin with the split's name.

    A folder with attached files may instead have the file "metadata" in a folder that is named after the split, as
    GAIA's repository has it. A single data file is used unless it is named after another split.
    """
    if place.is_file():
        return [place]
    files = sorted(path for path in place.rglob("*") if path.suffix in READERS and path.is_file())
    mine = [path for path in files if _begins(path, split)]
    # A split may consist of several files, as the shards of the hub do.
    if mine:
        return mine
    # Attached files may be data files as well; "metadata" is the hub's name for the file that lists the others.
    tables = [path for path in files if path.stem == "metadata" and path.parent.name.casefold() == split]
    if tables:
        return tables[:1]
    if len(files) == 1 and not any(_begins(files[0], other) for other in splits):
        return files
    listed = ", ".join(str(path.relative_to(place)) for path in files[:9]) or "none"
    raise DataFileError(
        f"{place}: no file for split {split!r}. Name a file {split}.jsonl, or give a file's path; data files: {listed}"
    )


def split_of(file: Path, splits: Sequence[str]) -> str | None:
    """Return the split after which a file is named, as in "test.jsonl" or "dev_2.csv"; None if it is named otherwise.

    A ValueError says that the set has several splits, and not the one of the name.
    """
    word = re.split("[^a-z]", file.name.casefold())[0]
    names = {"train": "train", "test": "test"} | dict.fromkeys(("validation", "valid", "val", "dev"), "validation")
    split = names.get(word)
    if split is not None and split not in splits and len(splits) > 1:
        raise ValueError(f"{file} is named {split}, and the set has {', '.join(splits)}: say which it is, with split=")
    return split if split in splits else None


def _begins(path: Path, split: str) -> bool:
    return path.name.casefold().startswith((split, *_BEGINNINGS.get(split, ())))


# Tasks of an endless source that a data file names, as `arpo synth` writes it for hard questions.


@dataclass(frozen=True)
class ChosenTasks:
    """Some tasks of an endless source, by their place in it; numbers are taken modulo the size."""

    tasks: Any  # the whole source, with its world
    indices: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of tasks."""
        return len(self.indices)

    @property
    def solution_tool(self) -> Any:
        """The tool of the solutions."""
        return self.tasks.solution_tool

    @property
    def solution_protocol(self) -> Any:
        """The protocol of the solutions, an attribute that only sources have whose tasks take several tools."""
        return self.tasks.solution_protocol

    def task(self, index: int) -> Task:
        """Return task number `index`."""
        found: Task = self.tasks.task(self.indices[index % self.size])
        return found

    def solution(self, index: int) -> Any:
        """Return the calls that solve task number `index`."""
        return self.tasks.solution(self.indices[index % self.size])


def chosen_tasks(source: Any, data: str | Path) -> ChosenTasks:
    """Return the tasks that a file names by `index`; a DataFileError if one has another question there."""
    indices = []
    for where, row in read_rows(data):
        index = row.get("index")
        if type(index) is not int or index < 0:
            raise DataFileError(f"{data}, {where}, column 'index': expected the number of a generated task")
        if source.task(index).question != row.get("question"):
            raise DataFileError(
                f"{data}, {where}: task {index} has another question here; give the options with which the file was "
                "made, such as level, seed and split"
            )
        indices.append(index)
    return ChosenTasks(source, tuple(indices))
