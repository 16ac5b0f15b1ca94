"""The storage of a cache: one SQLite database in WAL mode that processes and threads read and write concurrently.

It stores records by key. `arpo_env.cache` decides what is looked up and stored.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import multiprocessing
import os
import re
import sqlite3
import threading
import time
import warnings
import weakref
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

from arpo_env.errors import ServiceError

# Opens a cache file: creates or checks it, chooses a journal that suits its file system, and explains errors.
#
# An unusable file is named in a `CacheError` and never deleted.

BUSY_SECONDS = 60.0
FORMAT = 1
_OURS = 0x4152504F  # "ARPO", in the file's header
_NETWORK = re.compile(r"nfs|cifs|smb|9p|afs|ceph|lustre|gpfs|beegfs|gluster|ocfs|gfs2|fuse\.|fuseblk")
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


class CacheError(ServiceError):
    """Raised when the cache file cannot be used."""

    def __init__(self, message: str) -> None:
        super().__init__("cache", message)


def open_to_write(path: Path) -> sqlite3.Connection:
    """Open a file for writing; creates it if necessary."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CacheError(f"{path.parent} cannot be created ({error.strerror}); choose another folder") from error
    _check_wal(path)
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        _check_format(connection, path, new=True)
        if not _pragma(connection, "user_version"):
            connection.executescript(_SCHEMA)  # before WAL mode, so that the file alone is a valid cache from now on
        _set_journal_mode(connection, path)
        return connection
    except BaseException:
        connection.close()
        raise


def open_read_only(path: Path) -> sqlite3.Connection:
    """Open a file that others may be writing, or that is on a read-only file system."""
    _check_wal(path)
    if not path.is_file():
        raise CacheError(
            f'there is no file {path} to replay; record one with mode="record", or `arpo cache import {path} SOURCE`'
        )
    address = path.resolve().as_uri()
    try:
        return _open_checked(f"{address}?mode=ro", path)
    except sqlite3.OperationalError as error:
        if not any(word in str(error) for word in _FORBIDDEN):
            raise
        log = wal_path(path)
        if file_size(log):
            raise CacheError(
                f"{path} has recent records in {log.name}, which cannot be read on a read-only file system; copy both "
                "files to a writable folder, or export the original with `arpo cache export`"
            ) from error
        # immutable skips locks and the log; safe, since the log is empty and nobody can write here
        return _open_checked(f"{address}?mode=ro&immutable=1", path)


def close_without_checkpoint(connection: sqlite3.Connection, path: Path) -> None:
    """Close a connection but keep the log, which SQLite would checkpoint when the last connection is closed."""
    # a second, read-only connection is then the last one, and it cannot checkpoint
    last = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, check_same_thread=False)
    try:
        last.execute("SELECT count(*) FROM sqlite_master").fetchall()
        connection.close()
    finally:
        last.close()


def _open_checked(address: str, path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        _check_format(connection, path, new=False)
        return connection
    except BaseException:
        connection.close()
        raise


def _check_format(connection: sqlite3.Connection, path: Path, new: bool) -> None:
    """Check that the file is a cache of the current format."""
    connection.execute("BEGIN")  # read a consistent state; another process may be creating the file
    owner, version = _pragma(connection, "application_id"), _pragma(connection, "user_version")
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchall()[0][0]
    connection.execute("COMMIT")
    if new and not owner and not version and not tables:
        return
    if not owner and not version and not tables:
        raise CacheError(
            f"{path} is empty. If it was copied while it was being recorded, its records are still in {path.name}-wal "
            "beside the original; close the recorder and copy again, or copy both files"
        )
    if owner != _OURS:
        raise CacheError(f"{path} is an SQLite file of another application, not a cache; choose another file")
    if version != FORMAT:
        raise CacheError(
            f"{path} has format {version}, but this version of arpo reads format {FORMAT}; choose another file, or "
            "export it with the version of arpo that wrote it and import that export"
        )


def _set_journal_mode(connection: sqlite3.Connection, path: Path) -> None:
    """Choose the journal mode: a write-ahead log, which allows reading while writing, or a rollback journal.

    WAL needs shared memory between all processes that use the file, which network file systems do not provide.
    """
    wanted = "delete" if on_network(path) else "wal"
    end = time.monotonic() + BUSY_SECONDS
    while _pragma(connection, "journal_mode") != wanted:
        try:
            if _pragma(connection, f"journal_mode = {wanted}") != wanted:
                wanted = "delete"  # no shared memory on this file system
        except sqlite3.OperationalError as error:  # the busy timeout does not apply to changes of the journal mode
            if "locked" not in str(error) or time.monotonic() > end:
                raise
            time.sleep(0.02)
    connection.execute(f"PRAGMA synchronous = {'NORMAL' if wanted == 'wal' else 'FULL'}")
    connection.execute("PRAGMA wal_autocheckpoint = 0")  # `Connection` checkpoints, after checking the free disk space


def on_network(path: Path) -> bool:
    """Return whether a file is on a network file system; False if unknown."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    folder = path.resolve().parent
    best, kind = -1, ""
    for line in mounts:
        fields, _, source = line.partition(" - ")
        point = Path(re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), fields.split()[4]))
        # a later mount hides an earlier one at the same place
        if folder.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), source.split()[0]
    return bool(_NETWORK.match(kind))


def wal_path(path: Path) -> Path:
    """Return the path of SQLite's write-ahead log."""
    return path.with_name(path.name + "-wal")


def file_size(path: Path) -> int:
    """Return the size of a file in bytes; 0 if it does not exist."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _check_wal(path: Path) -> None:
    """Raise if a log exists without its file, because SQLite would delete the log."""
    log = wal_path(path)
    if file_size(log) and not file_size(path):
        raise CacheError(
            f"{log.name} is in {path.parent} without its file {path.name}, and both are needed. Copy {path.name} there "
            f"as well, or move {log.name} away if it is not needed"
        )


def _pragma(connection: sqlite3.Connection, text: str) -> Any:
    return connection.execute(f"PRAGMA {text}").fetchall()[0][0]


CURE = "Nothing was deleted; move the file away (mv {path} {path}.damaged) and record again, or import an export"
_DAMAGED = ("malformed", "no such table", "no such column")
_FORBIDDEN = ("unable to open", "readonly")  # WAL mode writes beside the file even to read it


def explain_error(error: sqlite3.Error, path: Path) -> CacheError:
    """Turn an SQLite error into a `CacheError` that names the file and the cure."""
    text = str(error)
    if "not a database" in text:
        return CacheError(f"{path} is not a cache ({text}); nothing was deleted; choose another file")
    if any(word in text for word in _DAMAGED):
        return CacheError(f"{path} is damaged or not a cache ({text}). {CURE.format(path=path)}")
    if "disk is full" in text:
        return CacheError(
            f"{path} cannot grow because the disk is full. Free some space, or continue with a copy of it and of "
            f"{path.name}-wal on another disk; no record has been lost"
        )
    if "locked" in text:
        return CacheError(f"{path} was locked by other processes for more than {BUSY_SECONDS:g} s")
    if any(word in text for word in _FORBIDDEN):
        return CacheError(f'{path} cannot be written ({text}); choose another file, or use mode="replay"')
    return CacheError(f"{path}: {text}")


# Connections to a cache file: shared by threads, closed before a fork, and checkpointed into the file.
#
# A process has one connection for reading and one for writing, each behind a lock. Both are closed before a fork,
# because SQLite keeps its lock state in process memory and a forked copy of that state is wrong.
#
# SQLite appends new records to FILE-wal (the write-ahead log). They are moved into FILE (a checkpoint) one second after
# they were written and whenever a connection is closed: by `close`, before a fork, and at the end of the process. FILE
# alone is therefore complete once its writers are closed; a killed writer loses at most the last second from FILE.

CHECKPOINT_SECONDS = 1.0
PATIENCE = 2.0  # seconds that closing waits for locks of other processes


class Connection:
    """A connection that threads use in turn; opened at first use, and again after a fork.

    Args:
        path: path of the file.
        read_only: never write or create the file.
    """

    def __init__(self, path: Path, read_only: bool) -> None:
        self.lock = threading.Lock()
        self.path, self.read_only = path, read_only
        self._open: sqlite3.Connection | None = None
        self._timer: threading.Timer | None = None
        with _registry:
            _connections.add(self)

    @contextmanager
    def use(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection under its lock.

        Raises:
            CacheError: the file cannot be used.
        """
        with self.lock:
            try:
                if self._open is None:
                    self._open = open_read_only(self.path) if self.read_only else open_to_write(self.path)
                    _close_at_exit()
                yield self._open
            except sqlite3.Error as error:
                raise explain_error(error, self.path) from error

    def checkpoint_soon(self) -> None:
        """Schedule a checkpoint in one second; the caller holds the lock."""
        if self._timer is None:
            self._timer = threading.Timer(CHECKPOINT_SECONDS, self._checkpoint_now)
            self._timer.daemon = True
            self._timer.start()

    def _checkpoint_now(self) -> None:
        with self.lock:
            self._timer = None
            if self._open is not None and not _checkpoint(self._open, self.path, patience=0.0):
                self.checkpoint_soon()

    def checkpoint(self) -> None:
        """Checkpoint now, unless other processes hold locks for too long."""
        with self.lock:
            if self._open is not None and not self.read_only:
                _checkpoint(self._open, self.path, PATIENCE)

    def close(self, patience: float = 0.0) -> None:
        """Close the connection; the caller holds the lock.

        Args:
            patience: seconds to wait for locks of other processes, so that new records reach the file itself. Records
                that do not remain in FILE-wal.
        """
        if self._open is None:
            return
        connection, self._open = self._open, None
        if self.read_only or _has_room(self.path):
            if not self.read_only:
                _checkpoint(connection, self.path, patience)
            connection.close()
        else:
            close_without_checkpoint(connection, self.path)
            warnings.warn(
                f"the disk of {self.path} is full: the latest records are in {wal_path(self.path).name}, not in "
                "the file itself. Free some space and open the cache again to record, or copy both files",
                RuntimeWarning,
                stacklevel=2,
            )

    def forget_timer(self) -> None:
        """Drop the timer, whose thread does not exist after a fork."""
        self._timer = None

    def __del__(self) -> None:
        # The garbage collector may run this on any thread, even while another thread forks; `_closing` excludes that.
        with self.lock, _closing:
            self.close()


def checkpoint(path: Path) -> None:
    """Move all records that this process wrote to a cache into the file itself."""
    with _registry:
        known = list(_connections)
    for connection in known:
        if _same(connection.path, path):
            connection.checkpoint()


def _same(one: Path, other: Path) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _has_room(path: Path) -> bool:
    """Return whether the log fits on the disk; a partial checkpoint would leave the file alone inconsistent."""
    try:
        disk = os.statvfs(path.parent)
    except OSError:
        return True
    return file_size(wal_path(path)) <= disk.f_bavail * disk.f_frsize


def _checkpoint(connection: sqlite3.Connection, path: Path, patience: float) -> bool:
    """Move the log into the file and truncate it if nobody reads from it; return whether everything was moved.

    A failure (a lock, a full disk) loses nothing, since the log remains.
    """
    if not _has_room(path):
        return False
    end = time.monotonic() + patience
    with contextlib.suppress(sqlite3.Error):
        # otherwise SQLite blocks other writers while it waits for readers
        connection.execute("PRAGMA busy_timeout = 0")
        try:
            while True:
                busy, length, moved = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0]
                if not busy or time.monotonic() >= end:
                    # (busy, frames in the log, frames moved): busy readers only prevent the truncation of the log
                    return not busy or 0 <= length == moved
                time.sleep(0.01)
        finally:
            connection.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000:.0f}")
    return False


_connections: weakref.WeakSet[Connection] = weakref.WeakSet()
_registry = threading.Lock()
_closing = threading.RLock()  # taken last; reentrant, since garbage collection may close connections on the same thread
_held: list[Connection] = []


def _before_fork() -> None:
    _registry.acquire()
    for connection in list(_connections):
        connection.lock.acquire()
        _held.append(connection)
        connection.close()
    _closing.acquire()


def _after_fork() -> None:
    _closing.release()
    while _held:
        connection = _held.pop()  # keep a reference, or `__del__` would run while its lock is held
        connection.lock.release()
    _registry.release()


def _after_fork_in_child() -> None:
    for connection in _held:
        connection.forget_timer()
    _after_fork()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)


def _close_all() -> None:
    """Close the connections of this process, writers last, so that SQLite can remove the log with the last one."""
    with _registry:
        known = sorted(_connections, key=lambda connection: not connection.read_only)
    for connection in known:
        with connection.lock:
            connection.close(PATIENCE)


atexit.register(_close_all)
_finalizers: dict[int, Finalize] = {}  # by process id


def _close_at_exit() -> None:
    """Close the connections of forked `multiprocessing` children as well, which exit without running `atexit`."""
    if os.getpid() not in _finalizers and multiprocessing.parent_process() is not None:
        _finalizers[os.getpid()] = Finalize(None, _close_all, exitpriority=1)


STATUSES = ("found", "nothing")
_COLUMNS = "kind, provider, version, request, value, created, expires, status"


@dataclass(frozen=True)
class Record:
    """A request and its answer.

    Attributes:
        kind: "search", "page", ...
        provider: who answered.
        version: version of the adapter or prompt.
        request: canonical JSON.
        value: JSON, compressed with zlib.
        created: seconds since 1970.
        expires: seconds since 1970, or None.
        status: "found" or "nothing".
    """

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
        """Hash of the request."""
        return key_of(self.kind, self.provider, self.version, self.request)


def canonical(request: Any) -> str:
    """Return JSON that is equal for equal data.

    Raises:
        TypeError: the data contains a value that JSON does not have.
        ValueError: the data contains nan or infinity.
    """
    return json.dumps(request, sort_keys=True, separators=(",", ":"), allow_nan=False)


def key_of(kind: str, provider: str, version: str, request: str) -> bytes:
    """Return the SHA-256 key of a record; `request` is canonical JSON."""
    return hashlib.sha256(canonical([kind, provider, version, request]).encode()).digest()


class Store:
    """The database; opened at first use.

    Args:
        path: path of the file.
        read_only: never write or create the file; works on a read-only file system.
    """

    def __init__(self, path: Path, read_only: bool = False) -> None:
        self.path, self.read_only = path, read_only
        self._reader, self._writer = Connection(path, read_only), Connection(path, read_only)

    def get(self, key: bytes) -> Record | None:
        """Return a record, even if it has expired."""
        with self._reader.use() as connection:
            # fetch all rows, so that the statement ends and releases its snapshot of the file
            rows = connection.execute(f"SELECT {_COLUMNS} FROM records WHERE key = ?", (key,)).fetchall()
        return Record(*rows[0]) if rows else None

    def put(self, records: Iterable[Record], replace: bool = True) -> int:
        """Write records in one durable transaction; return the number of written records."""
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
            self._writer.checkpoint_soon()
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

    def count(self) -> list[dict[str, Any]]:
        """Return a row per kind, provider and version: number of records, bytes, status counts and dates."""
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

    def known(self, kind: str) -> list[tuple[str, str, str | None, int]]:
        """Return provider, version, server and count of the three largest groups of records of a kind."""
        statement = (
            "SELECT provider, version, json_extract(request, '$.server') AS server, count(*) FROM records"
            " WHERE kind = ? GROUP BY 1, 2, 3 ORDER BY 4 DESC, 1, 2, 3 LIMIT 3"
        )
        with self._reader.use() as connection:
            return connection.execute(statement, (kind,)).fetchall()

    def unpack(self, record: Record) -> Any:
        """Return the value of a record.

        Raises:
            CacheError: the value is damaged.
        """
        try:
            return json.loads(zlib.decompress(record.value))
        except (zlib.error, ValueError) as error:
            raise CacheError(
                f"a record in {self.path} is damaged ({error}; request {record.request[:200]}). "
                f"{CURE.format(path=self.path)}"
            ) from error

    def close(self) -> None:
        """Close the connections; the next use opens them again."""
        for connection in (self._reader, self._writer):
            with connection.lock:
                connection.close(PATIENCE)
