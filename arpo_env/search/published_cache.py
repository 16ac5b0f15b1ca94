"""Imports the published search cache of ARPO into a `Cache`, as recorded searches.

The published cache is one JSON object {query: text}. Each text contains the snippets of the hits, one per line, as
"Page 1: ...".
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from arpo_env.cache import Cache, Record, normalise_query
from arpo_env.search.search_backend import Hit, search_request

ARPO_PROVIDER = "bing-arpo"
ARPO_RESULTS = 10  # the published tool kept the first ten
_NOTHING = "No search results found."
_LINE = re.compile(r"Page \d+: (.*)")
_LEAK = re.compile(r"</?(search|result|think|python|answer|query)>|<\|")


@dataclass(frozen=True)
class ArpoImport:
    """Counts of an imported published cache."""

    entries: int  # entries in the file
    records: int  # records written; fewer if queries are equal after normalisation
    collisions: int  # entries whose normalised query was already present; the first one is kept
    prefixed: int  # queries that begin with "search query:"
    leaked: int  # queries that contain tags, that is model text after the end of the query; they are kept unchanged
    nothing: int  # entries without results


def import_arpo_json(cache: Cache, path: str | os.PathLike[str], provider: str = ARPO_PROVIDER) -> ArpoImport:
    """Record a published {query: text} cache as searches of `provider` that never expire.

    `CachedSearch(RecordedSearch(provider), Cache(file, mode="replay"))` then answers from it.
    """
    entries = _read_entries(Path(path))
    found: dict[str, list[Hit]] = {}
    for query, text in entries.items():
        # The first entry of a normalised query wins, so that an import always gives the same records.
        found.setdefault(normalise_query(query), _hits(text))
    records = (
        _permanent(cache, provider, search_request(query, ARPO_RESULTS, {}), [hit.as_dict() for hit in hits])
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


def _read_entries(path: Path) -> dict[str, str]:
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not valid JSON ({error}); expected one object {{query: text}}") from error
    if not isinstance(entries, dict) or not all(isinstance(text, str) for text in entries.values()):
        raise ValueError(f"{path} is not an object {{query: text}}, the format of ARPO's search cache")
    return entries


def _hits(text: str) -> list[Hit]:
    """Parse "Page 1: ..." lines; a line without this prefix continues the snippet above it."""
    snippets: list[str] = []
    for line in () if text == _NOTHING else text.splitlines():
        match = _LINE.fullmatch(line)
        # A snippet may contain line breaks; a first line without the prefix still begins a snippet.
        if match or not snippets:
            snippets.append(match[1] if match else line)
        else:
            snippets[-1] += "\n" + line
    return [Hit(snippet=snippet) for snippet in snippets if snippet.strip()]


def _permanent(cache: Cache, provider: str, request: dict[str, Any], hits: list[dict[str, Any]]) -> Record:
    # The recorded service cannot be asked again, so that even "nothing found" must not expire.
    return replace(cache.record("search", provider, 1, request, hits, nothing=not hits), expires=None)
