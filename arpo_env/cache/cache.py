"""Record and replay: what searches, pages, models and MCP servers answered, in one file, so that runs can be repeated.

    cache = Cache("run.sqlite")                      # looks up, else calls and records
    cache = Cache("run.sqlite", mode="replay")       # looks up, else fails: no network, no cost

Failures are never served again, but for a page that could not be read, which a replay repeats (`Cache.note`). A replay
does not look at the age of a record. It is not for secrets: requests are stored
as they are. `arpo_env.cache.import_export` imports and exports.
"""

from __future__ import annotations

import asyncio
import dataclasses
import difflib
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
from arpo_env.text.normalize import fold

__all__ = ["KINDS", "MODES", "Cache", "CacheError", "CacheMiss", "normalise_query"]

KINDS = ("search", "page", "summary", "judge", "chat", "mcp")
MODES = ("live", "record", "replay")
NEGATIVE_SECONDS = 3600.0
SERVER = "server"  # field of a request: the address that answered
_DIGESTS = ("prompt", "history")  # fields of requests that tell a reader nothing
_FIRST = ("query", "url", "tool", "question")  # fields that tell most
_LONGEST = 200  # characters of a field that an error shows

_PREFIX = re.compile(r"(?:search query: ?)+")  # of the published prompt's example; policies copy it
_QUOTES = {'"': '"', "'": "'", "`": "`", "“": "”", "‘": "’", "«": "»", "「": "」", "『": "』"}


class CacheMiss(CacheError):
    """Raised when a replay meets a request that was not recorded.

    Attributes:
        kind, provider, request: what was asked for.
    """

    def __init__(self, path: str | Path, kind: str, provider: str, version: str, request: Any, held: str = "") -> None:
        super().__init__(
            f"the replay of {path} holds no {kind} of {provider} (version {version}) for {_readable(request)}. {held}"
            f'Record it with mode="record", or import a recording: `arpo cache import {path} SOURCE`'
        )
        self.kind, self.provider, self.request = kind, provider, request


def _readable(request: Any) -> str:
    """Return a request as an error shows it: what was asked for first, then what else decides the answer."""
    if not isinstance(request, Mapping):
        return repr(request)[:_LONGEST]
    names = sorted((name for name in request if name not in _DIGESTS), key=lambda name: (name not in _FIRST, name))
    return ", ".join(f"{name} {_short(repr(request[name]))}" for name in names)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


class Cache:
    """A cache in a file. Share one among all episodes of a process; processes may share the file.

    Args:
        path: of the file; made at first use, unless it is replayed. While it is written, FILE-wal beside it belongs
            to it: copy a cache after `close`, or export it. On a network file system there is no FILE-wal, and writing
            is slower.
        mode: "live" (neither reads nor writes), "record" or "replay".
        ttl: seconds that records of a kind count, None for ever; "negative" is for those that found nothing. What is
            not named keeps its default: for ever, and an hour for "negative".

    Raises:
        ValueError: no such mode, or kind in `ttl`.
    """

    def __init__(
        self, path: str | os.PathLike[str], mode: str = "record", ttl: Mapping[str, float | None] | None = None
    ) -> None:
        _one_of(mode, MODES, "mode")
        for kind in ttl or {}:
            _one_of(kind, (*KINDS, "negative"), "ttl: kind")
        self.path, self.mode = Path(path), mode
        self.ttl: dict[str, float | None] = {"negative": NEGATIVE_SECONDS, **(ttl or {})}
        self.store = Store(self.path, read_only=mode == "replay")
        self._held: dict[str, str] = {}
        self._begin()
        _caches.add(self)
        if mode == "replay":
            checkpoint(self.path)  # of what this process recorded; whoever replays does not write

    def _begin(self) -> None:
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
        """Return what is recorded, or else what `call` returns, which then is recorded.

        Equal requests at the same time make one call, whichever thread or event loop of the process they come from;
        if it fails all of them see its error, and the next request calls again.

        Args:
            kind: one of KINDS.
            provider: who answers.
            version: of the adapter or prompt: answers of another version do not count.
            request: JSON of all that decides the answer.
            call: gets the answer, as JSON.
            negative: says of an answer that it found nothing, so that it is kept a short time only.
            always: when recording, make each call, since it may change something there; the last answer is kept.

        Raises:
            CacheMiss: it is a replay, and nothing is recorded.
            CacheError: the file can not be used.
            ValueError: no such kind.
            Exception: what `call` raised; that is never stored.
        """
        _one_of(kind, KINDS, "kind")
        if self.mode == "live":
            return await call()
        asked = Record(kind, provider, str(version), canonical(request), b"", 0.0)
        if always and self.mode == "record":
            return self.store.unpack(await self._again(asked, call, negative))
        found = self._fresh(asked)
        if found is None and self.mode == "replay":
            found = self._of_any_server(asked, request)
        if found is None:
            found = await self._flights.do(asked.key, lambda: self._call(asked, call, negative))
        return self.store.unpack(found)

    def _of_any_server(self, asked: Record, request: Any) -> Record:
        """Return what was recorded when requests to models did not name their server.

        Raises:
            CacheMiss: there is no such record either.
        """
        if isinstance(request, Mapping) and SERVER in request:
            rest = canonical({name: value for name, value in request.items() if name != SERVER})
            found = self.store.get(dataclasses.replace(asked, request=rest).key)
            if found is not None:
                warnings.warn(
                    f"{self.path} holds records of an earlier version, which do not name the server that answered: "
                    f"they are replayed for any server of {asked.provider}, also for {request[SERVER]}",
                    RuntimeWarning,
                    stacklevel=2,
                )
                return found
        if asked.kind not in self._held:  # counted once: it takes a look at every record
            self._held[asked.kind] = _held(self.store.known(asked.kind))
        raise CacheMiss(self.path, asked.kind, asked.provider, asked.version, request, self._held[asked.kind])

    def _fresh(self, asked: Record) -> Record | None:
        found = self.store.get(asked.key)
        if found is None or self.mode == "replay" or found.expires is None or found.expires > time.time():
            return found
        return None

    async def _call(
        self, asked: Record, call: Callable[[], Awaitable[Any]], negative: Callable[[Any], bool] | None
    ) -> Record:
        if (found := self._fresh(asked)) is not None:  # another call ended since we looked
            return found
        return await self._answer(asked, call, negative)

    async def _again(
        self, asked: Record, call: Callable[[], Awaitable[Any]], negative: Callable[[Any], bool] | None
    ) -> Record:
        before, after = self.store.get(asked.key), await self._answer(asked, call, negative)
        if before is not None and before.value != after.value:
            warnings.warn(
                f"{asked.provider} answers the same {asked.kind} request differently from what {self.path} held: the "
                "last answer is kept, and a replay gives it to all who ask the same",
                RuntimeWarning,
                stacklevel=2,
            )
        return after

    async def _answer(
        self, asked: Record, call: Callable[[], Awaitable[Any]], negative: Callable[[Any], bool] | None
    ) -> Record:
        value = await call()
        record = self.record(
            asked.kind, asked.provider, asked.version, json.loads(asked.request), value,
            nothing=negative is not None and negative(value),
        )  # fmt: skip
        await self._write(record)
        return record

    async def note(self, kind: str, provider: str, version: object, request: Any, value: Any) -> None:
        """Record a failure that belongs to the run, so that a replay repeats it; recording, it never counts.

        It replaces nothing, and the first answer replaces it. In the other modes nothing is done.
        """
        if self.mode == "record":
            record = self.record(kind, provider, version, request, value, nothing=True)
            await self._write(dataclasses.replace(record, expires=record.created), replace=False)

    async def _write(self, record: Record, replace: bool = True) -> None:
        await asyncio.get_running_loop().run_in_executor(self._writer, self.store.put, [record], replace)

    def record(
        self, kind: str, provider: str, version: object, request: Any, value: Any, *, nothing: bool = False
    ) -> Record:
        """Return a record as of now, for `store.put`."""
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
        """Return a row for each kind, provider and version: records, nothing, expired, bytes, oldest, newest."""
        return self.store.count()

    def close(self) -> None:
        """Close the file; may be called twice, and the next use opens it again."""
        self.store.close()


_caches: weakref.WeakSet[Cache] = weakref.WeakSet()


def _after_fork() -> None:
    for cache in list(_caches):
        cache._begin()  # threads and calls of the parent are not here


os.register_at_fork(after_in_child=_after_fork)


def _held(known: Sequence[tuple[str, str, str | None, int]]) -> str:
    """Say what a file holds of a kind: who recorded with other settings sees the difference."""
    rows = [
        f"{count} of {provider} (version {version}{f', {SERVER} {server!r}' if server else ''})"
        for provider, version, server, count in known
    ]
    same = " (the same model_url is needed)" if any(server for _, _, server, _ in known) else ""
    return f"Of that kind it holds: {'; '.join(rows) or 'nothing'}{same}. "


def normalise_query(text: str) -> str:
    """Return what equal searches have in common: they then share a record.

    Width, case and white space are levelled, and quotes around the whole and a leading "search query:" dropped.
    Punctuation stays: "C++ history" is not "C history", nor 3.14 the same as 314. Doing it again changes nothing.
    """
    query = fold(text)
    while True:
        match = _PREFIX.match(query)
        bare = query[match.end() :].strip() if match else query
        if len(bare) > 1 and _QUOTES.get(bare[0]) == bare[-1] and not set(bare[1:-1]) & {bare[0], bare[-1]}:
            bare = bare[1:-1].strip()
        if bare == query:
            return query
        query = bare


def _one_of(given: str, known: Sequence[str], what: str) -> None:
    if given not in known:
        near = difflib.get_close_matches(given, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"{what} {given!r}: there are {', '.join(known)}{hint}")
