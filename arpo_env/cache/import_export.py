"""Exports and imports the records of a cache as JSON Lines, one record per line."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path

from arpo_env.cache.cache import KINDS, Cache
from arpo_env.cache.sqlite_store import STATUSES, Record, canonical


def export_jsonl(cache: Cache, path: str | os.PathLike[str]) -> int:
    """Write all records to a file, one JSON object per line; return the number of records.

    The file appears under its name only when it is complete, and replaces an existing file.

    Raises:
        FileNotFoundError: the folder does not exist.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"the folder {target.parent} for {target.name} does not exist; create it first")
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    count = 0
    try:
        with open(part, "w", encoding="utf-8") as file:
            for record in cache.store.records():
                file.write(_line(cache, record) + "\n")
                count += 1
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)
    return count


def _line(cache: Cache, record: Record) -> str:
    fields = asdict(record) | {"request": json.loads(record.request), "value": cache.store.unpack(record)}
    return json.dumps(fields)


def import_jsonl(cache: Cache, path: str | os.PathLike[str], replace_records: bool = False) -> int:
    """Add the records of an exported file; return the number of added records.

    Args:
        cache: the cache to add to.
        path: path of the exported file.
        replace_records: replace existing records with the same key.

    Raises:
        ValueError: a line is not a record; earlier batches of 1,000 lines have been added.
    """
    lines = _records(Path(path))
    added = 0
    while chunk := list(islice(lines, 1000)):
        added += cache.store.put(chunk, replace=replace_records)
    return added


def _records(path: Path) -> Iterator[Record]:
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield _record(line, f"{path}, line {number}")


def _record(line: bytes, place: str) -> Record:
    try:
        fields = json.loads(line)
        packed = zlib.compress(json.dumps(fields.pop("value")).encode())
        record = Record(**fields | {"request": canonical(fields["request"]), "value": packed})
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(
            f"{place}: not a cache record ({error!r}); write such files with `arpo cache export`"
        ) from error
    if record.kind not in KINDS:
        raise ValueError(f"{place}: unknown kind {record.kind!r}; the kinds are {', '.join(KINDS)}")
    if record.status not in STATUSES:
        raise ValueError(f"{place}: unknown status {record.status!r}; the statuses are {', '.join(STATUSES)}")
    for name, kind in (("provider", str), ("version", str), ("created", int | float), ("expires", int | float | None)):
        if not isinstance(getattr(record, name), kind):
            raise ValueError(f"{place}: {name} cannot be {getattr(record, name)!r:.80}")
    return record
