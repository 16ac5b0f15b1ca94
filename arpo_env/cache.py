"""Records the answers of searches, pages, models and MCP servers in one file, so that runs can be repeated.

    cache = Cache("run.sqlite")                      # looks up, else calls and records
    cache = Cache("run.sqlite", mode="replay")       # looks up, else fails: no network, no cost

Failures are not served again, except that a replay repeats pages that could not be read (`Cache.note`). A replay
ignores the age of records. Do not send secrets through it: requests are stored in plain text.
`arpo_env.cache` exports and imports records.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import re
import threading
import time
import warnings
import weakref
import zlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Generic, TypeVar

from arpo_env.sqlite_store import STATUSES, CacheError, Record, Store, canonical, checkpoint
from arpo_env.text import normalise_unicode
from envs_registry.nearest_name import nearest_hint

__all__ = ["Cache", "CacheError", "CacheMiss", "KINDS", "MODES", "normalise_query"]


# Merges equal calls that are made at the same time, from any thread or event loop, into one.
#
# Results are not kept after the call has ended; that is the task of the cache.

T = TypeVar("T")

_CHECK_SECONDS = 0.5  # seconds between checks whether the event loop of the call is still running


@dataclass(frozen=True)
class _Outcome(Generic[T]):
    """The outcome of a call: one value, an error, or neither if it was cancelled."""

    values: tuple[T, ...] = ()
    error: Exception | None = None


@dataclass(eq=False)
class _SharedCall(Generic[T]):
    loop: asyncio.AbstractEventLoop
    finished: Future[_Outcome[T]] = field(default_factory=Future)
    waiting: int = 0
    task: asyncio.Task[None] | None = None


class _NoResult(Exception):
    """Another caller's call ended without a result."""


class SingleFlight(Generic[T]):
    """Merges equal calls.

    The call runs as a separate task on the loop of the first caller. A cancelled caller does not affect the others; the
    call itself is cancelled when its last caller has left. If the call fails, all callers get its error, without
    another attempt, since services retry by themselves. If the first caller's loop stops, another caller starts anew.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: dict[bytes, _SharedCall[T]] = {}

    async def do(self, key: bytes, call: Callable[[], Awaitable[T]]) -> T:
        """Return the result of `call`, or of the running call of another caller with the same key."""
        while True:
            shared, mine = self._join(key, call)
            try:
                return await _wait_for(shared)
            except _NoResult:
                if mine:  # the caller's own task was cancelled, so this caller is too
                    raise asyncio.CancelledError from None
            finally:
                self._leave(key, shared)

    def _join(self, key: bytes, call: Callable[[], Awaitable[T]]) -> tuple[_SharedCall[T], bool]:
        with self._lock:
            shared = self._calls.get(key)
            # a loop that has stopped will never finish its call, so the next caller takes over
            mine = shared is None or not shared.loop.is_running()
            if shared is None or mine:
                shared = self._calls[key] = _SharedCall(asyncio.get_running_loop())
                shared.task = shared.loop.create_task(self._run(key, shared, call))
            shared.waiting += 1
            return shared, mine

    def _leave(self, key: bytes, shared: _SharedCall[T]) -> None:
        with self._lock:
            shared.waiting -= 1
            abandoned = shared.waiting == 0 and not shared.finished.done()
            if abandoned:
                self._remove(key, shared)
        if abandoned and shared.task is not None and not shared.loop.is_closed():
            shared.loop.call_soon_threadsafe(shared.task.cancel)

    async def _run(self, key: bytes, shared: _SharedCall[T], call: Callable[[], Awaitable[T]]) -> None:
        outcome: _Outcome[T] = _Outcome()
        try:
            outcome = _Outcome((await call(),))
        except Exception as error:
            outcome = _Outcome(error=error)
        finally:
            with self._lock:
                self._remove(key, shared)
            shared.finished.set_result(outcome)

    def _remove(self, key: bytes, shared: _SharedCall[T]) -> None:
        if self._calls.get(key) is shared:
            del self._calls[key]


async def _wait_for(shared: _SharedCall[T]) -> T:
    finished = asyncio.wrap_future(shared.finished)
    here = asyncio.get_running_loop()
    while not shared.finished.done():
        # the future does not report that its loop has died, so callers on other loops check from time to time
        await asyncio.wait({finished}, timeout=None if shared.loop is here else _CHECK_SECONDS)
        if not shared.finished.done() and not shared.loop.is_running():
            raise _NoResult
    outcome = shared.finished.result()
    if outcome.error is not None:
        raise outcome.error
    if not outcome.values:
        raise _NoResult
    return outcome.values[0]


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


# Exports and imports the records of a cache as JSON Lines, one record per line.


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
