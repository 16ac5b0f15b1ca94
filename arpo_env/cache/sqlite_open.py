"""Opens a cache file: creates or checks it, chooses a journal that suits its file system, and explains errors.

An unusable file is named in a `CacheError` and never deleted.
"""

from __future__ import annotations

import re
import sqlite3
import time
from pathlib import Path
from typing import Any

from arpo_env.errors import ServiceError

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
