"""Records the answers of searches, pages, models and MCP servers in one file, so that runs can be repeated.

    cache = Cache("run.sqlite")                      # looks up, else calls and records
    cache = Cache("run.sqlite", mode="replay")       # looks up, else fails: no network, no cost

Failures are not served again, except that a replay repeats pages that could not be read (`Cache.note`). A replay
ignores the age of records. Do not send secrets through it: requests are stored in plain text.
`arpo_env.cache.import_export` exports and imports records.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import re
import time
import warnings
import weakref
import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from arpo_env.cache.single_flight import SingleFlight
from arpo_env.cache.sqlite_connections import checkpoint
from arpo_env.cache.sqlite_open import CacheError
from arpo_env.cache.sqlite_store import Record, Store, canonical
from arpo_env.text import normalise_unicode
from envs_registry.nearest_name import nearest_hint

__all__ = ["KINDS", "MODES", "Cache", "CacheError", "CacheMiss", "normalise_query"]

KINDS = ("search", "page", "summary", "judge", "chat", "mcp", "generation", "embedding")
MODES = ("live", "record", "replay")
NEGATIVE_SECONDS = 3600.0
SERVER = "server"  # field of a request: the address that answered
_DIGESTS = ("prompt", "history")  # fields of requests that are hashes, not shown in errors
_FIRST = ("query", "url", "tool", "question")  # fields that errors show first
_LONGEST = 200  # characters of a field that an error shows

_PREFIX = re.compile(r"(?:search query: ?)+")  # from the example in the published prompt; policies copy it
_QUOTES = {'"': '"', "'": "'", "`": "`", "“": "”", "‘": "’", "«": "»", "「": "」", "『": "』"}


class CacheMiss(CacheError):
    """Raised when a replay needs a request that was not recorded.

    Attributes:
        kind, provider, request: the request.
    """

    def __init__(self, path: str | Path, kind: str, provider: str, version: str, request: Any, held: str = "") -> None:
        super().__init__(
            f"the replay of {path} has no {kind} of {provider} (version {version}) for {_readable(request)}. {held}"
            f'Record it with mode="record", or import a recording with `arpo cache import {path} SOURCE`'
        )
        self.kind, self.provider, self.request = kind, provider, request


def _readable(request: Any) -> str:
    """Return a request for an error message: the query first, then the other fields that decide the answer."""
    if not isinstance(request, Mapping):
        return repr(request)[:_LONGEST]
    names = sorted((name for name in request if name not in _DIGESTS), key=lambda name: (name not in _FIRST, name))
    return ", ".join(f"{name} {_short(repr(request[name]))}" for name in names)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


class Cache:
    """A cache in a file. Share one among all episodes of a process; processes may share the file.

    Args:
        path: path of the file; created at first use, except in replay mode. While it is written, FILE-wal beside it is
            part of it, so copy a cache only after `close`, or export it. On a network file system there is no FILE-wal
            and writing is slower.
        mode: "live" (neither reads nor writes), "record" or "replay".
        ttl: lifetime in seconds per kind of record; None means unlimited. "negative" applies to answers without
            results. Defaults: unlimited, and one hour for "negative".

    Raises:
        ValueError: `mode` or a kind in `ttl` is unknown.
    """

    def __init__(
        self, path: str | os.PathLike[str], mode: str = "record", ttl: Mapping[str, float | None] | None = None
    ) -> None:
        _one_of(mode, MODES, "mode")
        for kind in ttl or {}:
            _one_of(kind, (*KINDS, "negative"), "kind in ttl:")
        self.path, self.mode = Path(path), mode
        self.ttl: dict[str, float | None] = {"negative": NEGATIVE_SECONDS, **(ttl or {})}
        self.store = Store(self.path, read_only=mode == "replay")
        self._known: dict[str, str] = {}
        self._start()
        _caches.add(self)
        if mode == "replay":
            checkpoint(self.path)  # records of this process; a replay opens the file read-only

    def _start(self) -> None:
        self._flights: SingleFlight[Record] = SingleFlight()
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="arpo-cache")

    def __reduce__(self) -> tuple[Any, ...]:
        return Cache, (self.path, self.mode, self.ttl)

    async def through(
        self,
        kind: str,
        provider: str,
        version: object,
        request: Any,
        call: Callable[[], Awaitable[Any]],
        *,
        negative: Callable[[Any], bool] | None = None,
        always: bool = False,
    ) -> Any:
        """Return the recorded answer, or else call `call` and record what it returns.

        Equal requests at the same time are merged into one call, across threads and event loops of the process. If it
        fails, all callers get the error, and the next request calls again.

        Args:
            kind: one of KINDS.
            provider: who answers.
            version: version of the adapter or prompt; answers of other versions are ignored.
            request: JSON of everything that decides the answer.
            call: returns the answer as JSON.
            negative: returns whether an answer has no results and is therefore kept for a short time only.
            always: in record mode, always call, since calls may have side effects; the last answer is kept.

        Raises:
            CacheMiss: the cache is in replay mode and nothing was recorded.
            CacheError: the file cannot be used.
            ValueError: `kind` is unknown.
            Exception: raised by `call`; never recorded.
        """
        _one_of(kind, KINDS, "kind")
        if self.mode == "live":
            return await call()
        asked = Record(kind, provider, str(version), canonical(request), b"", 0.0)
        if always and self.mode == "record":
            return self.store.unpack(await self._call_always(asked, call, negative))
        found = self._look_up(asked)
        if found is None and self.mode == "replay":
            if kind not in self._known:  # counted once, since it scans all records
                self._known[kind] = _known(self.store.known(kind))
            raise CacheMiss(self.path, kind, provider, asked.version, request, self._known[kind])
        if found is None:
            found = await self._flights.do(asked.key, lambda: self._call_once(asked, call, negative))
        return self.store.unpack(found)

    def _look_up(self, asked: Record) -> Record | None:
        found = self.store.get(asked.key)
        if found is None or self.mode == "replay" or found.expires is None or found.expires > time.time():
            return found
        return None

    async def _call_once(
        self, asked: Record, call: Callable[[], Awaitable[Any]], negative: Callable[[Any], bool] | None
    ) -> Record:
        if (found := self._look_up(asked)) is not None:  # another call ended after the first look-up
            return found
        return await self._call_and_record(asked, call, negative)

    async def _call_always(
        self, asked: Record, call: Callable[[], Awaitable[Any]], negative: Callable[[Any], bool] | None
    ) -> Record:
        before, after = self.store.get(asked.key), await self._call_and_record(asked, call, negative)
        if before is not None and before.value != after.value:
            warnings.warn(
                f"{asked.provider} answered a repeated {asked.kind} request differently from {self.path}; "
                "the last answer is kept, and a replay returns it for all equal requests",
                RuntimeWarning,
                stacklevel=2,
            )
        return after

    async def _call_and_record(
        self, asked: Record, call: Callable[[], Awaitable[Any]], negative: Callable[[Any], bool] | None
    ) -> Record:
        value = await call()
        nothing = negative is not None and negative(value)
        request = json.loads(asked.request)
        record = self.record(asked.kind, asked.provider, asked.version, request, value, nothing=nothing)
        await self._write(record)
        return record

    async def note(self, kind: str, provider: str, version: object, request: Any, value: Any) -> None:
        """Record a failure that is part of the run, so that a replay repeats it. Record mode never answers from it.

        It never replaces an answer, and the first answer replaces it. Other modes ignore it.
        """
        if self.mode == "record":
            record = self.record(kind, provider, version, request, value, nothing=True)
            await self._write(dataclasses.replace(record, expires=record.created), replace=False)

    async def _write(self, record: Record, replace: bool = True) -> None:
        await asyncio.get_running_loop().run_in_executor(self._writer, self.store.put, [record], replace)

    def record(
        self, kind: str, provider: str, version: object, request: Any, value: Any, *, nothing: bool = False
    ) -> Record:
        """Create a record with the current time, for `store.put`."""
        seconds = self.ttl.get(kind)
        if nothing:
            shortest = (s for s in (seconds, self.ttl["negative"]) if s is not None)
            seconds = min(shortest, default=None)
        now = time.time()
        expires = None if seconds is None else now + seconds
        status = "nothing" if nothing else "found"
        packed = zlib.compress(json.dumps(value, allow_nan=False).encode())
        return Record(kind, provider, str(version), canonical(request), packed, now, expires, status)

    def stats(self) -> list[dict[str, Any]]:
        """Return a row per kind, provider and version: records, nothing, expired, bytes, oldest, newest."""
        return self.store.count()

    def close(self) -> None:
        """Close the file; may be called twice, and the next use opens it again."""
        self.store.close()


_caches: weakref.WeakSet[Cache] = weakref.WeakSet()


def _after_fork() -> None:
    for cache in list(_caches):
        cache._start()  # threads and calls of the parent do not exist in the child


os.register_at_fork(after_in_child=_after_fork)


def _known(known: Sequence[tuple[str, str, str | None, int]]) -> str:
    """Summarise what a file has of a kind, which shows differences in settings after a miss."""
    rows = [
        f"{count} of {provider} (version {version}{f', {SERVER} {server!r}' if server else ''})"
        for provider, version, server, count in known
    ]
    same = " (use the same model_url)" if any(server for _, _, server, _ in known) else ""
    return f"Records of that kind: {'; '.join(rows) or 'nothing'}{same}. "


def normalise_query(text: str) -> str:
    """Return the normal form of a query; equal normal forms share a record.

    Width, case and white space are normalised; quotes around the whole query and a leading "search query:" are removed.
    Punctuation is kept: "C++ history" is not "C history", and 3.14 is not 314. Applying it twice changes nothing.
    """
    query = normalise_unicode(text)
    while True:  # prefixes and quotes may be nested: "search query: 'search query: x'"
        match = _PREFIX.match(query)
        inner = query[match.end() :].strip() if match else query
        if len(inner) > 1 and _QUOTES.get(inner[0]) == inner[-1] and not set(inner[1:-1]) & {inner[0], inner[-1]}:
            inner = inner[1:-1].strip()
        if inner == query:
            return query
        query = inner


def _one_of(given: str, known: Sequence[str], what: str) -> None:
    if given not in known:
        raise ValueError(f"unknown {what} {given!r}; available: {', '.join(known)}{nearest_hint(given, known)}")
