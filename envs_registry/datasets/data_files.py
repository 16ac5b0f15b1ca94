"""Reads rows from local files: JSON Lines, JSON, CSV or Parquet. Errors name the file, line and column."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from envs_registry.install_line import install_line

Row = dict[str, Any]
Rows = list[tuple[str, Row]]  # place in the file ("line 3") and content
_ENCODING = "utf-8-sig"  # accepts files with a byte order mark


class DataFileError(ValueError):
    """Raised when a data file cannot be read; the message names the file, the line and the column."""


def read_rows(path: str | Path) -> Rows:
    """Return the rows of a .jsonl, .json, .csv or .parquet file, each with its place in the file.

    Raises:
        FileNotFoundError: the file does not exist.
        DataFileError: the file is empty, broken, or of an unsupported type.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        raise FileNotFoundError(f"data file {str(path)!r} does not exist; give a .jsonl, .json, .csv or .parquet file")
    if file.suffix not in READERS:
        raise DataFileError(f"{file}: cannot read {file.suffix or 'a file without ending'}; use {', '.join(READERS)}")
    try:
        rows = READERS[file.suffix](file)
    except UnicodeDecodeError as error:
        line, column = _position(file.read_bytes()[: error.start])
        raise DataFileError(f"{file}, line {line}, column {column}: not UTF-8 ({error.reason})") from error
    if not rows:
        raise DataFileError(f"{file}: holds no rows")
    return rows


def column(row: Row, names: tuple[str, ...], where: str) -> str:
    """Return the first of the named columns as text; "info.level" is the field `level` of the column `info`.

    Raises:
        DataFileError: the row has none of the columns, or the column is blank; `where` names the row.
    """
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
        if line.strip():
            rows.append((f"line {number}", _object(file, line, number)))
    return rows


def _object(file: Path, text: str, number: int) -> Row:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise DataFileError(f"{file}, line {number}, column {error.colno}: {error.msg}") from error
    if not isinstance(value, dict):
        raise DataFileError(f"{file}, line {number}, column 1: expected an object, got {type(value).__name__}")
    return value


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
    try:
        rows = pyarrow.parquet.read_table(file).to_pylist()
    except (OSError, ValueError) as error:
        raise DataFileError(f"{file}: not a Parquet file ({error})") from error
    return [(f"row {number}", row) for number, row in enumerate(rows, start=1)]


def _position(before: bytes) -> tuple[int, int]:
    return before.count(b"\n") + 1, len(before) - (before.rfind(b"\n") + 1) + 1


READERS: dict[str, Callable[[Path], Rows]] = {
    ".jsonl": _read_jsonl,
    ".json": _read_json,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
}
