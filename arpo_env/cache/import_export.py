"""Caches from and to other files: JSONL, a record a line, and the published search cache of ARPO.

The published cache is one JSON object {query: text}; its text has the snippets as "Page 1: ...", one a line.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from arpo_env.cache.cache import KINDS, Cache, normalise_query
from arpo_env.cache.sqlite_store import STATUSES, Record, canonical
from arpo_env.search.cached_search import search_request
from arpo_env.search.search_backend import Hit

ARPO_PROVIDER = "bing-arpo"
ARPO_RESULTS = 10  # the published tool kept the first ten
_NOTHING = "No search results found."
_LINE = re.compile(r"Page \d+: (.*)")
_LEAK = re.compile(r"</?(search|result|think|python|answer|query)>|<\|")


@dataclass(frozen=True)
class ArpoImport:
    """What was found in a published cache.

    Attributes:
        entries: in the file.
        records: written; fewer where queries became equal.
        collisions: entries whose query was there already after normalisation; the first one is kept.
        prefixed: queries that begin with "search query:".
        leaked: queries that hold tags, that is model text that ran on; kept as they are.
        nothing: entries that found nothing.
    """

    entries: int
    records: int
    collisions: int
    prefixed: int
    leaked: int
    nothing: int


def import_arpo_json(cache: Cache, path: str | os.PathLike[str], provider: str = ARPO_PROVIDER) -> ArpoImport:
    """Record a published {query: text} cache as the searches of `provider`, never to expire.

    `CachedSearch(RecordedSearch(provider), Cache(file, mode="replay"))` answers from it.

    Raises:
        ValueError: the file is something else.
    """
    entries = _read_arpo(Path(path))
    found: dict[str, list[Hit]] = {}
    for query, text in entries.items():
        found.setdefault(normalise_query(query), _hits(text))
    records = (
        _lasting(cache, provider, search_request(query, ARPO_RESULTS, {}), [hit.as_dict() for hit in hits])
        for query, hits in found.items()
    )
    return ArpoImport(
        entries=len(entries),
        records=cache.store.put(records),
        collisions=len(entries) - len(found),
        prefixed=sum(query.casefold().startswith("search query:") for query in entries),
        leaked=sum(bool(_LEAK.search(query)) for query in entries),
        nothing=sum(text == _NOTHING for text in entries.values()),
    )


def _read_arpo(path: Path) -> dict[str, str]:
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is no JSON ({error}); expected one object {{query: text}}") from error
    if not isinstance(entries, dict) or not all(isinstance(text, str) for text in entries.values()):
        raise ValueError(f"{path} is no object {{query: text}}, as ARPO's search cache is")
    return entries


def _hits(text: str) -> list[Hit]:
    """Read "Page 1: ..." lines; a line without that belongs to the snippet above it."""
    snippets: list[str] = []
    for line in () if text == _NOTHING else text.splitlines():
        match = _LINE.fullmatch(line)
        if match or not snippets:
            snippets.append(match[1] if match else line)
        else:
            snippets[-1] += "\n" + line
    return [Hit(snippet=snippet) for snippet in snippets if snippet.strip()]


def _lasting(cache: Cache, provider: str, request: dict[str, Any], hits: list[dict[str, Any]]) -> Record:
    return replace(cache.record("search", provider, 1, request, hits, nothing=not hits), expires=None)


def export_jsonl(cache: Cache, path: str | os.PathLike[str]) -> int:
    """Write all records to a file, a JSON object a line; return how many.

    The file appears when it is complete, and replaces one that was there.

    Raises:
        FileNotFoundError: there is no such folder.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {target.parent} for {target.name}: make it first")
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
    """Add the records of an exported file; return how many were added.

    Args:
        cache: to add to.
        path: of the file.
        replace_records: let the file win over records that are here already.

    Raises:
        ValueError: a line is no record; the lines before it, in thousands, are in.
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
            f"{place}: no record of a cache ({error!r}); write such files with `arpo cache export`"
        ) from error
    if record.kind not in KINDS:
        raise ValueError(f"{place}: kind {record.kind!r}: there are {', '.join(KINDS)}")
    if record.status not in STATUSES:
        raise ValueError(f"{place}: status {record.status!r}: there are {', '.join(STATUSES)}")
    for name, kind in (("provider", str), ("version", str), ("created", int | float), ("expires", int | float | None)):
        if not isinstance(getattr(record, name), kind):
            raise ValueError(f"{place}: {name} may not be {getattr(record, name)!r:.80}")
    return record
