"""Records the answers of searches, pages, models and MCP servers in one file, so that runs can be repeated.

    cache = Cache("run.sqlite")                      # looks up, else calls and records
    cache = Cache("run.sqlite", mode="replay")       # looks up, else fails: no network, no cost

Failures are not served again, except that a replay repeats those that were part of a run. It ignores the age of
records. Do not send secrets through it: requests are stored in plain text.
"""

from __future__ import annotations

import asyncio
import atexit
import hashlib
import json
import os
import re
import sqlite3
import threading
import time
import warnings
import weakref
import zlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Generic, TypeVar

from arpo_env.errors import ServiceError
from envs_registry.nearest_name import nearest_hint

T = TypeVar("T")
KINDS = ("search", "page", "summary", "judge", "chat", "mcp", "generation", "embedding")
MODES = ("live", "record", "replay")
STATUSES = ("found", "nothing")
NOTHING_SECONDS = 3600.0  # for which an answer without results is served
SERVER = "server"  # field of a request: the address that answered
_DIGESTS = ("prompt", "history")  # fields of requests that are hashes, not shown in errors
_FIRST = ("query", "url", "tool", "question")  # fields that errors show first
_LONGEST = 200  # characters of a field that an error shows


class CacheError(ServiceError):
    """Raised when the cache file cannot be used."""

    def __init__(self, message: str) -> None:
        super().__init__("cache", message)


class CacheMiss(CacheError):
    """Raised when a replay needs a request that was not recorded."""

    def __init__(self, path: str | Path, kind: str, provider: str, version: str, request: Any, held: str = "") -> None:
        super().__init__(
            f"the replay of {path} has no {kind} of {provider} (version {version}) for {_readable(request)}. {held}"
            f'Record it with mode="record", or import a recording with `arpo cache import {path} SOURCE`'
        )


def _readable(request: Any) -> str:
    """Return a request for an error message: the query first, then the other fields that decide the answer."""
    if not isinstance(request, Mapping):
        return repr(request)[:_LONGEST]
    names = sorted((name for name in request if name not in _DIGESTS), key=lambda name: (name not in _FIRST, name))
    return ", ".join(f"{name} {request[name]!r:.{_LONGEST}}" for name in names)


@dataclass(frozen=True)
class Record:
    """A request and its answer; `request` is canonical JSON, `value` JSON compressed with zlib, times since 1970."""

    kind: str
    provider: str
    version: str
    request: str
    value: bytes
    created: float
    expires: float | None = None
    status: str = "found"

    @property
    def key(self) -> bytes:
        """SHA-256 of what identifies the request."""
        identity = canonical([self.kind, self.provider, self.version, self.request])
        return hashlib.sha256(identity.encode()).digest()


def canonical(request: Any) -> str:
    """Return JSON that is equal for equal data."""
    return json.dumps(request, sort_keys=True, separators=(",", ":"), allow_nan=False)


class Cache:
    """A cache in a file. Share one among all episodes of a process; processes may share the file.

    Args:
        path: path of the file; created at first use, except in replay mode. While it is written, FILE-wal beside it is
            part of it, so copy a cache only after `close`, or export it.
        mode: "live" (neither reads nor writes), "record" or "replay".
    """

    def __init__(self, path: str | os.PathLike[str], mode: str = "record") -> None:
        if mode not in MODES:
            raise ValueError(f"unknown mode {mode!r}; available: {', '.join(MODES)}{nearest_hint(mode, MODES)}")
        self.path, self.mode = Path(path), mode
        self.store = Store(self.path, read_only=mode == "replay")
        self._held: dict[str, str] = {}  # kind -> what the file has of it
        self._flights: SingleFlight[Record] = SingleFlight()

    def __reduce__(self) -> tuple[Any, ...]:
        return Cache, (self.path, self.mode)

    async def through(
        self,
        kind: str,
        provider: str,
        version: object,
        request: Any,
        call: Callable[[], Awaitable[Any]],
        *,
        lifetime: Callable[[Any], float | None] = lambda value: None,
        always: bool = False,
    ) -> Any:
        """Return the recorded answer, or else call `call` and record what it returns.

        Equal requests at the same time are merged into one call of the event loop. If it fails, all callers get the
        error, and the next request calls again.

        Args:
            kind: one of KINDS.
            provider: who answers.
            version: version of the adapter or prompt; answers of other versions are ignored.
            request: JSON of everything that decides the answer.
            call: returns the answer as JSON.
            lifetime: returns for how many seconds an answer is served; None is forever. A failure that is part of the
                run has 0: only replays repeat it, and it never replaces an answer.
            always: in record mode, always call, since calls may have side effects; the last answer is kept.

        Raises:
            CacheMiss: the cache is in replay mode and nothing was recorded.
            CacheError: the file cannot be used.
            Exception: raised by `call`; never recorded.
        """
        if self.mode == "live":
            return await call()
        asked = Record(kind, provider, str(version), canonical(request), b"", 0.0)

        async def call_and_record() -> Record:
            value = await call()
            record = self.record(kind, provider, version, request, value, lifetime(value))
            await asyncio.to_thread(self.store.put, [record], record.expires != record.created)
            return record

        again = always and self.mode == "record"
        before = self.store.get(asked.key) if again else None
        found = await call_and_record() if again else self._look_up(asked)
        if before is not None and found is not None and before.value != found.value:
            warnings.warn(
                f"{provider} answered a repeated {kind} request differently from {self.path}; the last answer is kept, "
                "and a replay returns it for all equal requests",
                RuntimeWarning,
                stacklevel=2,
            )
        if found is None and self.mode == "replay":
            if kind not in self._held:  # counted once, since it scans all records
                self._held[kind] = self.store.held(kind)
            raise CacheMiss(self.path, kind, provider, asked.version, request, self._held[kind])
        if found is None:
            found = await self._flights.do(asked.key, call_and_record)
        return self.store.unpack(found)

    def _look_up(self, asked: Record) -> Record | None:
        found = self.store.get(asked.key)
        if found is None or self.mode == "replay" or found.expires is None or found.expires > time.time():
            return found
        return None

    def record(
        self, kind: str, provider: str, version: object, request: Any, value: Any, seconds: float | None = None
    ) -> Record:
        """Create a record with the current time, for `store.put`."""
        now = time.time()
        packed = zlib.compress(json.dumps(value, allow_nan=False).encode())
        expires, status = (None, "found") if seconds is None else (now + seconds, "nothing")
        return Record(kind, provider, str(version), canonical(request), packed, now, expires, status)

    def close(self) -> None:
        """Close the file; may be called twice, and the next use opens it again."""
        self.store.close()


class SingleFlight(Generic[T]):
    """Merges equal calls that are made at the same time on one event loop into one.

    If the call fails, all callers get its error, since services retry by themselves. If the first caller is cancelled,
    another one calls anew. Results are not kept.
    """

    def __init__(self) -> None:
        self._running: dict[tuple[asyncio.AbstractEventLoop, bytes], asyncio.Future[T]] = {}

    async def do(self, key: bytes, call: Callable[[], Awaitable[T]]) -> T:
        """Return the result of `call`, or of the running call of another caller with the same key."""
        loop = asyncio.get_running_loop()
        while running := self._running.get((loop, key)):
            await asyncio.wait({running})
            if not running.cancelled():
                return running.result()
        mine: asyncio.Future[T] = loop.create_future()
        self._running[loop, key] = mine
        try:
            mine.set_result(await call())
        except Exception as error:
            mine.set_exception(error)
        finally:
            del self._running[loop, key]
            mine.cancel()  # has an effect only where there is neither a result nor an error
        return mine.result()


# The storage: an SQLite database with a write-ahead log (FILE-wal), which processes and threads read and write
# concurrently. SQLite moves the log into the file from time to time and when the last connection is closed.

FORMAT = 1
_BUSY_SECONDS = 60.0
_OURS = 0x4152504F  # "ARPO", in the file's header
_COLUMNS = "kind, provider, version, request, value, created, expires, status"
_SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS records (
    key BLOB PRIMARY KEY, kind TEXT NOT NULL, provider TEXT NOT NULL, version TEXT NOT NULL, request TEXT NOT NULL,
    value BLOB NOT NULL, created REAL NOT NULL, expires REAL, status TEXT NOT NULL
);
PRAGMA application_id = {_OURS};
PRAGMA user_version = {FORMAT};
COMMIT;
"""
_NETWORK = re.compile(r"nfs|cifs|smb|9p|afs|ceph|lustre|gpfs|beegfs|gluster|ocfs|gfs2|fuse\.|fuseblk")
_CURE = "Nothing was deleted; move the file away (mv {path} {path}.damaged) and record again, or import an export"
_FORBIDDEN = ("unable to open", "readonly")  # WAL mode writes beside the file even to read it


class Store:
    """The database; opened at first use. `read_only` works on a read-only file system."""

    def __init__(self, path: Path, read_only: bool = False) -> None:
        self.path = path
        # two, so that a look-up does not wait for a write
        self._reader, self._writer = _Connection(path, read_only), _Connection(path, read_only)

    def get(self, key: bytes) -> Record | None:
        """Return a record, even if it has expired."""
        with self._reader.use() as connection:
            # fetch all rows, so that the statement ends and releases its snapshot of the file
            rows = connection.execute(f"SELECT {_COLUMNS} FROM records WHERE key = ?", (key,)).fetchall()
        return Record(*rows[0]) if rows else None

    def put(self, records: Iterable[Record], replace: bool = True) -> int:
        """Write records in one transaction; return the number of written records."""
        verb = "REPLACE" if replace else "IGNORE"
        statement = f"INSERT OR {verb} INTO records (key, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
        rows = [(record.key, *astuple(record)) for record in records]
        with self._writer.use() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                written = connection.executemany(statement, rows).rowcount
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        return written

    def records(self) -> Iterator[Record]:
        """Iterate over all records in insertion order, in batches of 1,000."""
        last = 0
        while True:
            with self._reader.use() as connection:
                statement = f"SELECT rowid, {_COLUMNS} FROM records WHERE rowid > ? ORDER BY rowid LIMIT 1000"
                rows = connection.execute(statement, (last,)).fetchall()
            if not rows:
                return
            last = rows[-1][0]
            yield from (Record(*row[1:]) for row in rows)

    def stats(self) -> list[dict[str, Any]]:
        """Return a row per kind, provider and version: records, nothing, expired, bytes, oldest, newest."""
        statement = (
            "SELECT kind, provider, version, count(*) AS records, sum(status = 'nothing') AS 'nothing',"
            " sum(coalesce(expires <= ?, 0)) AS expired, sum(length(value)) AS bytes,"
            " min(created) AS oldest, max(created) AS newest"
            " FROM records GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
        )
        with self._reader.use() as connection:
            cursor = connection.execute(statement, (time.time(),))
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def held(self, kind: str) -> str:
        """Say what the file has of a kind, which shows differences in settings after a miss."""
        statement = (
            "SELECT provider, version, json_extract(request, '$.server') AS server, count(*) FROM records"
            " WHERE kind = ? GROUP BY 1, 2, 3 ORDER BY 4 DESC, 1, 2, 3 LIMIT 3"
        )
        with self._reader.use() as connection:
            known = connection.execute(statement, (kind,)).fetchall()
        rows = [
            f"{count} of {provider} (version {version}{f', {SERVER} {server!r}' if server else ''})"
            for provider, version, server, count in known
        ]
        same = " (use the same model_url)" if any(server for _, _, server, _ in known) else ""
        return f"Records of that kind: {'; '.join(rows) or 'nothing'}{same}. "

    def unpack(self, record: Record) -> Any:
        """Return the value of a record."""
        try:
            return json.loads(zlib.decompress(record.value))
        except (zlib.error, ValueError) as error:
            raise CacheError(
                f"a record in {self.path} is damaged ({error}; request {record.request[:200]}). "
                f"{_CURE.format(path=self.path)}"
            ) from error

    def close(self) -> None:
        """Close the connections; the next use opens them again."""
        for connection in (self._reader, self._writer):
            with connection.lock:
                connection.close()


class _Connection:
    """A connection that threads use in turn; opened at first use, and again after a fork."""

    def __init__(self, path: Path, read_only: bool) -> None:
        self.lock = threading.Lock()
        self._path, self.read_only = path, read_only
        self._open: sqlite3.Connection | None = None
        with _registry:
            _connections.add(self)

    @contextmanager
    def use(self) -> Iterator[sqlite3.Connection]:
        with self.lock:
            try:
                if self._open is None:
                    self._open = _open_read_only(self._path) if self.read_only else _open_to_write(self._path)
                yield self._open
            except sqlite3.Error as error:
                raise _explained(error, self._path) from error

    def close(self) -> None:
        """Close it; the caller holds the lock."""
        opened, self._open = self._open, None
        if opened is not None:
            opened.close()

    def __del__(self) -> None:
        # at once, not when the garbage collector comes to it, and not while another thread forks
        with _registry:
            self.close()


# All connections are closed before a fork: SQLite keeps its lock state in the memory of the process, and a forked copy
# of that state is wrong.
_connections: weakref.WeakSet[_Connection] = weakref.WeakSet()
_registry = threading.RLock()  # reentrant, since garbage collection may delete connections on the same thread


_locked: list[_Connection] = []


def _before_fork() -> None:
    _registry.acquire()
    for connection in list(_connections):
        connection.lock.acquire()
        _locked.append(connection)
        connection.close()


def _after_fork() -> None:
    while _locked:
        _locked.pop().lock.release()
    _registry.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


def _close_all() -> None:
    """Close the connections of this process, writers last: a reader cannot move the log into the file."""
    with _registry:
        known = sorted(_connections, key=lambda connection: not connection.read_only)
    for connection in known:
        with connection.lock:
            connection.close()


atexit.register(_close_all)


def _connect(where: str | Path, path: Path, check: Callable[[sqlite3.Connection], None]) -> sqlite3.Connection:
    connection = sqlite3.connect(
        where, uri=isinstance(where, str), timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    try:
        check(connection)
        return connection
    except BaseException:
        connection.close()
        raise


def _open_to_write(path: Path) -> sqlite3.Connection:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CacheError(f"{path.parent} cannot be created ({error.strerror}); choose another folder") from error

    def prepare(connection: sqlite3.Connection) -> None:
        if _is_new(connection, path):
            connection.executescript(_SCHEMA)  # before WAL mode, so that the file alone is a valid cache from now on
        _set_journal_mode(connection, path)

    return _connect(path, path, prepare)


def _open_read_only(path: Path) -> sqlite3.Connection:
    """Open a file that others may be writing, or that is on a read-only file system."""
    if not path.is_file():
        raise CacheError(
            f'there is no file {path} to replay; record one with mode="record", or `arpo cache import {path} SOURCE`'
        )

    def check(connection: sqlite3.Connection) -> None:
        if _is_new(connection, path):
            raise CacheError(f"{path} is empty; record it again, or copy it together with {path.name}-wal")

    address = path.resolve().as_uri()
    try:
        return _connect(f"{address}?mode=ro", path, check)
    except sqlite3.OperationalError as error:
        if not any(word in str(error) for word in _FORBIDDEN):
            raise
        log = path.with_name(path.name + "-wal")
        if log.exists() and log.stat().st_size:
            raise CacheError(
                f"{path} has recent records in {log.name}, which cannot be read on a read-only file system; copy both "
                "files to a writable folder, or export the original with `arpo cache export`"
            ) from error
        # immutable skips locks and the log; safe, since the log is empty and nobody can write here
        return _connect(f"{address}?mode=ro&immutable=1", path, check)


def _is_new(connection: sqlite3.Connection, path: Path) -> bool:
    """Return whether the file is empty; refuse one that is not a cache of this format."""
    connection.execute("BEGIN")  # read a consistent state; another process may be creating the file
    owner, version = _pragma(connection, "application_id"), _pragma(connection, "user_version")
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchall()[0][0]
    connection.execute("COMMIT")
    if not owner and not version and not tables:
        return True
    if owner != _OURS:
        raise CacheError(f"{path} is an SQLite file of another application, not a cache; choose another file")
    if version != FORMAT:
        raise CacheError(
            f"{path} has format {version}, but this version of arpo reads format {FORMAT}; choose another file, or "
            "export it with the version of arpo that wrote it and import that export"
        )
    return False


def _set_journal_mode(connection: sqlite3.Connection, path: Path) -> None:
    """Choose a write-ahead log, or a rollback journal on network file systems, which have no shared memory."""
    wanted = "delete" if _on_network(path) else "wal"
    end = time.monotonic() + _BUSY_SECONDS
    while _pragma(connection, "journal_mode") != wanted:
        try:
            if _pragma(connection, f"journal_mode = {wanted}") != wanted:
                wanted = "delete"  # no shared memory on this file system
        except sqlite3.OperationalError as error:  # the busy timeout does not apply to changes of the journal mode
            if "locked" not in str(error) or time.monotonic() > end:
                raise
            time.sleep(0.02)
    connection.execute(f"PRAGMA synchronous = {'NORMAL' if wanted == 'wal' else 'FULL'}")


def _on_network(path: Path) -> bool:
    """Return whether a file is on a network file system; False if unknown."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    folder, best, kind = path.resolve().parent, -1, ""
    for line in mounts:
        fields, _, source = line.partition(" - ")
        point = Path(re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), fields.split()[4]))
        # a later mount hides an earlier one at the same place
        if folder.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), source.split()[0]
    return bool(_NETWORK.match(kind))


def _pragma(connection: sqlite3.Connection, text: str) -> Any:
    return connection.execute(f"PRAGMA {text}").fetchall()[0][0]


def _explained(error: sqlite3.Error, path: Path) -> CacheError:
    """Turn an SQLite error into a `CacheError` that names the file and the cure."""
    text = str(error)
    if "not a database" in text:
        return CacheError(f"{path} is not a cache ({text}); nothing was deleted; choose another file")
    if any(word in text for word in ("malformed", "no such table", "no such column")):
        return CacheError(f"{path} is damaged or not a cache ({text}). {_CURE.format(path=path)}")
    if "disk is full" in text:
        return CacheError(f"{path} cannot grow because the disk is full. Free some space; no record has been lost")
    if any(word in text for word in _FORBIDDEN):
        return CacheError(f'{path} cannot be written ({text}); choose another file, or use mode="replay"')
    return CacheError(f"{path}: {text}")


# Exports and imports the records of a cache as JSON Lines, one record per line.


def export_jsonl(cache: Cache, path: str | os.PathLike[str]) -> int:
    """Write all records to a file, one JSON object per line; return the number of records.

    The file appears under its name only when it is complete, and replaces an existing file.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"the folder {target.parent} for {target.name} does not exist; create it first")
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    count = 0
    try:
        with open(part, "w", encoding="utf-8") as file:
            for record in cache.store.records():
                fields = asdict(record) | {"request": json.loads(record.request), "value": cache.store.unpack(record)}
                file.write(json.dumps(fields) + "\n")
                count += 1
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)
    return count


def import_jsonl(cache: Cache, path: str | os.PathLike[str]) -> int:
    """Add the records of an exported file that are not there yet; return the number of added records."""
    added = 0
    with open(path, "rb") as file:
        lines = (_record(line, f"{path}, line {number}") for number, line in enumerate(file, 1) if line.strip())
        while chunk := list(islice(lines, 1000)):
            added += cache.store.put(chunk, replace=False)
    return added


def _record(line: bytes, place: str) -> Record:
    try:
        fields = json.loads(line)
        packed = zlib.compress(json.dumps(fields.pop("value")).encode())
        record = Record(**fields | {"request": canonical(fields["request"]), "value": packed})
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{place}: not a cache record ({error!r}); write it with `arpo cache export`") from error
    if record.kind not in KINDS or record.status not in STATUSES:
        raise ValueError(f"{place}: not a cache record ({record.kind!r:.80}, {record.status!r:.80})")
    return record
