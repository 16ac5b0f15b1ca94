"""The interface of search: `SearchBackend`, which returns `Hit`s; recorded searches; prices of providers."""

from __future__ import annotations

import json
import os
import re
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from arpo_env.cache import NOTHING_SECONDS, Cache, Record
from arpo_env.errors import ServiceError
from arpo_env.text import normalise_unicode


@dataclass(frozen=True)
class Hit:
    """One search result.

    Attributes:
        title: of the page or passage.
        url: its address, or the id of a passage from a corpus without addresses.
        snippet: a short text for the result list.
        date: as the source wrote it, or "".
        text: the whole passage or page, if the backend returns it; else "".
        score: of the backend, higher is better; None if it has none.
    """

    title: str = ""
    url: str = ""
    snippet: str = ""
    date: str = ""
    text: str = ""
    score: float | None = None


class SearchBackend(ABC):
    """Something that can be searched. Many episodes share one, so it keeps no state of an episode.

    Attributes:
        name: "tantivy", "serper", ...
        version: of the adapter; a cached result of another version is not used.
    """

    name: str
    version: int = 1

    @property
    def parameters(self) -> dict[str, Any]:
        """What determines the result besides query and k (index, language, ...), as JSON; part of the cache's key."""
        return {}

    @abstractmethod
    async def search(self, query: str, k: int) -> list[Hit]:
        """Return at most k hits, best first.

        Raises:
            ServiceError: the service failed.
        """

    async def close(self) -> None:  # noqa: B027  (most backends hold no resources)
        """Release connections and files; may be called twice."""


_PREFIX = re.compile(r"(?:\s*search\s+query\s*[:：]\s*)+", re.IGNORECASE)
_QUOTES = ('""', "''", "``", "“”", "‘’", "«»", "「」", "『』", "《》")


def bare_query(text: str) -> str:
    """Return a query without "search query:", which policies copy from the published prompt, and quotes around it."""
    text = text.strip()
    while True:  # they may be nested: "search query: 'search query: x'"
        match = _PREFIX.match(text)
        inner = text[match.end() :].strip() if match else text
        if len(inner) > 1 and inner[0] + inner[-1] in _QUOTES and not set(inner[1:-1]) & {inner[0], inner[-1]}:
            inner = inner[1:-1].strip()
        if inner == text:
            return text
        text = inner


def normalise_query(text: str) -> str:
    """Return the normal form of a query; equal normal forms share a record.

    Width, case and white space are normalised. Punctuation is kept: "C++ history" is not "C history", and 3.14 is not
    314. Applying it twice changes nothing.
    """
    return bare_query(normalise_unicode(text))


# Searches that are recorded and replayed: `CachedSearch` wraps any backend, `RecordedSearch` stands in for one.


class RecordedSearch(SearchBackend):
    """Stands in for a provider whose answers were recorded, so that no key and no network is needed.

    Wrap it in `CachedSearch`; without a cache it finds nothing. `provider` is the name that the records have, such as
    "bing-arpo"; they hold `ARPO_RESULTS` hits for each query.
    """

    def __init__(self, provider: str) -> None:
        self.name, self.provider = f"recorded:{provider}", provider

    async def search(self, query: str, k: int) -> list[Hit]:
        """Fail, since there is no live backend."""
        raise ServiceError(
            self.name,
            f"{query[:300]!r} was not recorded, and there is no live backend to ask: give the cache that has it "
            "(cache=FILE, or CachedSearch), or record it with a live backend",
        )


class CachedSearch(SearchBackend):
    """A backend whose answers go through a cache.

    Queries that are equal after `normalise_query` share the answer to the first of them. A blank query finds nothing.
    """

    def __init__(self, backend: SearchBackend, cache: Cache) -> None:
        self.backend, self.cache = backend, cache
        self.name, self.version = backend.name, backend.version

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of the backend."""
        return self.backend.parameters

    async def search(self, query: str, k: int) -> list[Hit]:
        """Return the recorded hits, or those of the backend."""
        normal = normalise_query(query)
        if not normal:
            return []
        # A recording is found under the name and k of the backend that made it, whoever replays it.
        recorded = self.backend if isinstance(self.backend, RecordedSearch) else None
        provider = recorded.provider if recorded else self.name
        asked = ARPO_RESULTS if recorded else k
        found = await self.cache.through(
            "search",
            provider,
            self.version,
            {"query": normal, "k": asked, "parameters": self.parameters},
            lambda: self._ask(query, k),
            lifetime=lambda hits: None if hits else NOTHING_SECONDS,
        )
        # A recording may hold more hits than are asked for now.
        return [Hit(**hit) for hit in found[:k]]

    async def _ask(self, query: str, k: int) -> list[dict[str, Any]]:
        return [asdict(hit) for hit in await self.backend.search(query, k)]

    async def close(self) -> None:
        """Close the backend."""
        await self.backend.close()


# ARPO's published search cache as recorded searches: one JSON object {query: text}. Each text contains the snippets of
# the hits, one per line, as "Page 1: ...".

ARPO_PROVIDER = "bing-arpo"
ARPO_RESULTS = 10  # the published tool kept the first ten
_NOTHING = "No search results found."
_LINE = re.compile(r"Page \d+: (.*)")


@dataclass(frozen=True)
class ArpoImport:
    """Counts of an imported published cache."""

    entries: int  # entries in the file
    records: int  # records written; fewer if queries are equal after normalisation
    collisions: int  # entries whose normalised query was already present; the first one is kept


def import_arpo_json(cache: Cache, path: str | os.PathLike[str]) -> ArpoImport:
    """Record a published {query: text} cache as searches of `ARPO_PROVIDER` that never expire.

    `CachedSearch(RecordedSearch(ARPO_PROVIDER), Cache(file, mode="replay"))` then answers from it.
    """
    entries = _read_entries(Path(path))
    found: dict[str, list[Hit]] = {}
    for query, text in entries.items():
        # The first entry of a normalised query wins, so that an import always gives the same records.
        found.setdefault(normalise_query(query), _hits(text))
    records = (
        _permanent(cache, {"query": query, "k": ARPO_RESULTS, "parameters": {}}, [asdict(hit) for hit in hits])
        for query, hits in found.items()
    )
    return ArpoImport(
        entries=len(entries),
        records=cache.store.put(records),
        collisions=len(entries) - len(found),
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


def _permanent(cache: Cache, request: dict[str, Any], hits: list[dict[str, Any]]) -> Record:
    # The recorded service cannot be asked again, so that even "nothing found" must not expire.
    return replace(cache.record("search", ARPO_PROVIDER, 1, request, hits), status="found" if hits else "nothing")


# List prices of web searches, with their source and the month in which they were read.
#
# Prices are those of the smallest paid plan, for up to ten results per search; larger plans cost less. They change: a
# run that has to keep to a budget sets `search_price`. A price that is not listed here is not known; none is estimated.


@dataclass(frozen=True)
class SearchPrice:
    """The price of a provider."""

    usd: float  # US dollars for 1,000 searches
    source: str  # page that names the price
    read: str  # the month it was read, as in "2026-11"


PRICES = {
    "brave": SearchPrice(5.0, "https://api-dashboard.search.brave.com/app/plans", "2026-11"),
    "exa": SearchPrice(7.0, "https://exa.ai/docs/reference/pricing", "2026-11"),
    "serper": SearchPrice(1.0, "https://serper.dev", "2026-08"),
    "tavily": SearchPrice(8.0, "https://docs.tavily.com/documentation/api-credits", "2026-11"),
}
# Backends that the user runs, that need no key, or that replay a recording.
UNPAID = frozenset(
    ["ddgs", "elasticsearch", "flashrag", "local", "opensearch", "recorded", "search-r1", "searxng", "world"]
)


def search_price(backend: str) -> SearchPrice | None:
    """Return the price of a backend's searches, or None if it is not known. Backends that the user runs cost 0."""
    return SearchPrice(0.0, "your own", "") if backend in UNPAID else PRICES.get(backend)
