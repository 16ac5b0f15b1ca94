"""Opening a cache's file: made or checked, with the journal that its file system bears, and faults put into words.

A file that can not be used is named in a `CacheError`, and never deleted.
"""

from __future__ import annotations

import re
import sqlite3
import time
from pathlib import Path
from typing import Any

from arpo_env.net.http import ServiceError

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
    """Raised when the cache's file can not be used."""

    def __init__(self, message: str) -> None:
        super().__init__("cache", message)


def open_to_write(path: Path) -> sqlite3.Connection:
    """Open a file, or make it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CacheError(f"{path.parent} can not be made ({error.strerror}): name a file elsewhere") from error
    _check_log(path)
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        _check(connection, path, new=True)
        if not _pragma(connection, "user_version"):
            connection.executescript(_SCHEMA)  # before there is a log: the file by itself is a cache from now on
        _use_log(connection, path)
        return connection
    except BaseException:
        connection.close()
        raise


def open_read_only(path: Path) -> sqlite3.Connection:
    """Open a file that others may be writing, or that lies where nothing can be written."""
    _check_log(path)
    if not path.is_file():
        raise CacheError(f'there is no file {path} to replay: record one with mode="record", or '
                         f"`arpo cache import {path} SOURCE`")  # fmt: skip
    address = path.resolve().as_uri()
    try:
        return _opened(f"{address}?mode=ro", path)
    except sqlite3.OperationalError as error:
        if not any(word in str(error) for word in _FORBIDDEN):
            raise
        log = log_of(path)
        if size_of(log):
            raise CacheError(
                f"{path} has fresh records in {log.name}, which can not be read where nothing can be written: "
                "copy both to where you can write, or export the original with `arpo cache export`"
            ) from error
        return _opened(f"{address}?mode=ro&immutable=1", path)


def close_without_checkpoint(connection: sqlite3.Connection, path: Path) -> None:
    """Close a connection and leave the log as it is, which SQLite would move into the file if this was the last one."""
    last = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, check_same_thread=False)
    try:
        last.execute("SELECT count(*) FROM sqlite_master").fetchall()
        connection.close()
    finally:
        last.close()  # it may not write


def _opened(address: str, path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        _check(connection, path, new=False)
        return connection
    except BaseException:
        connection.close()
        raise


def _check(connection: sqlite3.Connection, path: Path, new: bool) -> None:
    """Look whether the file is ours, and of this format."""
    connection.execute("BEGIN")  # one view of the file, which another process may be making just now
    owner, version = _pragma(connection, "application_id"), _pragma(connection, "user_version")
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchall()[0][0]
    connection.execute("COMMIT")
    if new and not owner and not version and not tables:
        return
    if not owner and not version and not tables:
        raise CacheError(
            f"{path} is empty. If it was copied while it was being recorded, its records are still in "
            f"{path.name}-wal beside the original: close the recorder and copy again, or copy both"
        )
    if owner != _OURS:
        raise CacheError(f"{path} is no cache, but an SQLite file of something else: name another file")
    if version != FORMAT:
        raise CacheError(f"{path} has format {version}, and this version of arpo reads format {FORMAT}: name another "
                         f"file, or export it with the arpo that wrote it and import that here")  # fmt: skip


def _use_log(connection: sqlite3.Connection, path: Path) -> None:
    """Choose how writes are made safe: by a log, which lets others read meanwhile, or by a journal on network disks.

    A log (WAL) needs memory that all its users share, which computers do not.
    """
    wanted = "delete" if on_network(path) else "wal"
    end = time.monotonic() + BUSY_SECONDS
    while _pragma(connection, "journal_mode") != wanted:
        try:
            if _pragma(connection, f"journal_mode = {wanted}") != wanted:
                wanted = "delete"  # there is no shared memory here
        except sqlite3.OperationalError as error:  # here SQLite does not wait for others by itself
            if "locked" not in str(error) or time.monotonic() > end:
                raise
            time.sleep(0.02)
    connection.execute(f"PRAGMA synchronous = {'NORMAL' if wanted == 'wal' else 'FULL'}")
    connection.execute("PRAGMA wal_autocheckpoint = 0")  # `Connection` does it, where there is room


def on_network(path: Path) -> bool:
    """Say whether a file lies on a network file system; False where that can not be known."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    folder = path.resolve().parent
    best, kind = -1, ""
    for line in mounts:
        fields, _, source = line.partition(" - ")
        point = Path(re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), fields.split()[4]))
        if folder.is_relative_to(point) and len(point.parts) >= best:  # a later mount hides an earlier one
            best, kind = len(point.parts), source.split()[0]
    return bool(_NETWORK.match(kind))


def log_of(path: Path) -> Path:
    """Return where SQLite puts what is not in the file itself yet."""
    return path.with_name(path.name + "-wal")


def size_of(path: Path) -> int:
    """Return the size of a file in bytes; 0 if there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _check_log(path: Path) -> None:
    """Refuse a log without its file: SQLite would delete it."""
    log = log_of(path)
    if size_of(log) and not size_of(path):
        raise CacheError(f"{log.name} lies in {path.parent} without its file {path.name}: records of both are needed. "
                         f"Copy {path.name} there, too, or move {log.name} away if it is not wanted")  # fmt: skip


def _pragma(connection: sqlite3.Connection, text: str) -> Any:
    return connection.execute(f"PRAGMA {text}").fetchall()[0][0]


CURE = "Nothing was deleted; move the file away (mv {path} {path}.damaged), then record again or import an export"
_DAMAGED = ("malformed", "no such table", "no such column")
_FORBIDDEN = ("unable to open", "readonly")  # WAL wants to write beside the file even to read it


def explained(error: sqlite3.Error, path: Path) -> CacheError:
    """Return an SQLite error with the file's name and what to do."""
    text = str(error)
    if "not a database" in text:
        return CacheError(f"{path} is no cache ({text}); nothing was deleted: name another file")
    if any(word in text for word in _DAMAGED):
        return CacheError(f"{path} is damaged, or no cache ({text}). {CURE.format(path=path)}")
    if "disk is full" in text:
        return CacheError(f"{path} can not take more: the disk is full. Free some space, or go on with a copy of it "
                          f"and of {path.name}-wal on another disk; no record is lost so far")  # fmt: skip
    if "locked" in text:
        return CacheError(f"{path} was locked by others for more than {BUSY_SECONDS:g} s")
    if any(word in text for word in _FORBIDDEN):
        return CacheError(f'{path} can not be written ({text}): name another file, or use mode="replay"')
    return CacheError(f"{path}: {text}")
