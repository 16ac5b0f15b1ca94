"""Connections to a cache file: shared by threads, closed before a fork, and checkpointed into the file.

A process has one connection for reading and one for writing, each behind a lock. Both are closed before a fork, because
SQLite keeps its lock state in process memory and a forked copy of that state is wrong.

SQLite appends new records to FILE-wal (the write-ahead log). They are moved into FILE (a checkpoint) one second after
they were written and whenever a connection is closed: by `close`, before a fork, and at the end of the process. FILE
alone is therefore complete once its writers are closed; a killed writer loses at most the last second from FILE.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import sqlite3
import threading
import time
import warnings
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.util import Finalize
from pathlib import Path

from arpo_env.cache.sqlite_open import (
    BUSY_SECONDS,
    close_without_checkpoint,
    explain_error,
    file_size,
    open_read_only,
    open_to_write,
    wal_path,
)

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
