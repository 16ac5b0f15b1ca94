"""Connections to a cache's file: shared by threads, closed before a fork, and emptied into the file itself.

A process has one connection to read and one to write, each behind a lock: SQLite keeps notes on its locks in the
memory of the process, and the copy of them that a fork makes is wrong.

What is written lands in FILE-wal first. It is moved into FILE (a checkpoint) a second after it was written, and when a
connection is closed: by `close`, before a fork, and at the end of the process. So FILE alone is the whole cache once
its writers are closed, and lacks a second at most of a writer that is killed.
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
    explained,
    log_of,
    open_read_only,
    open_to_write,
    size_of,
)

CHECKPOINT_SECONDS = 1.0
PATIENCE = 2.0  # seconds that closing waits for others' locks


class Connection:
    """A connection that several threads use in turn; opened at first use, and again after a fork.

    Args:
        path: of the file.
        read_only: never write, nor make the file.
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
        """Lend the connection.

        Raises:
            CacheError: the file can not be used.
        """
        with self.lock:
            try:
                if self._open is None:
                    self._open = open_read_only(self.path) if self.read_only else open_to_write(self.path)
                    _close_at_exit()
                yield self._open
            except sqlite3.Error as error:
                raise explained(error, self.path) from error

    def checkpoint_soon(self) -> None:
        """Move what was written into the file in a second; the caller is using the connection."""
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
        """Move what was written into the file now, unless others' locks forbid it for long."""
        with self.lock:
            if self._open is not None and not self.read_only:
                _checkpoint(self._open, self.path, PATIENCE)

    def close(self, patience: float = 0.0) -> None:
        """Close it; the caller holds the lock.

        Args:
            patience: seconds to wait for others' locks, so that what was written gets into the file itself. What does
                not get there stays in FILE-wal.
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
                f"the disk of {self.path} is full: its last records are in {log_of(self.path).name}, and the file by "
                "itself lacks them. Free some space, and open it again to record; or copy both",
                RuntimeWarning,
                stacklevel=2,
            )

    def forget_timer(self) -> None:
        """Forget the thread of a parent process."""
        self._timer = None

    def __del__(self) -> None:
        # A forgotten one is closed by whichever thread collects garbage, which may be amid a fork of another.
        with self.lock, _closing:
            self.close()


def checkpoint(path: Path) -> None:
    """Move all that this process wrote to a cache into the file itself."""
    with _registry:
        known = list(_connections)
    for connection in known:
        if _same(connection.path, path):
            connection.checkpoint()


def _same(one: Path, other: Path) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _has_room(path: Path) -> bool:
    """Say whether the log fits into the file: half of it there would leave a file that is no good by itself."""
    try:
        disk = os.statvfs(path.parent)
    except OSError:
        return True
    return size_of(log_of(path)) <= disk.f_bavail * disk.f_frsize


def _checkpoint(connection: sqlite3.Connection, path: Path, patience: float) -> bool:
    """Move the log into the file and, if nobody reads from it, empty it; return whether all of it was moved.

    Nothing is lost if it fails, because of a lock or a full disk: the log stays.
    """
    if not _has_room(path):
        return False
    end = time.monotonic() + patience
    with contextlib.suppress(sqlite3.Error):
        connection.execute("PRAGMA busy_timeout = 0")  # or it would keep other writers out while it waits for readers
        try:
            while True:
                busy, length, moved = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0]
                if not busy or time.monotonic() >= end:
                    return not busy or 0 <= length == moved
                time.sleep(0.01)
        finally:
            connection.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000:.0f}")
    return False


_connections: weakref.WeakSet[Connection] = weakref.WeakSet()
_registry = threading.Lock()
_closing = threading.RLock()  # taken last, and by its own thread again if garbage is collected then
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
        connection = _held.pop()  # by name: the last of its kind would close itself before its lock is free
        connection.lock.release()
    _registry.release()


def _after_fork_in_child() -> None:
    for connection in _held:
        connection.forget_timer()
    _after_fork()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)


def _close_all() -> None:
    """Close the connections of this process, those that write last: the last one to a file tidies up beside it."""
    with _registry:
        known = sorted(_connections, key=lambda connection: not connection.read_only)
    for connection in known:
        with connection.lock:
            connection.close(PATIENCE)


atexit.register(_close_all)
_finalizers: dict[int, Finalize] = {}  # by process


def _close_at_exit() -> None:
    """See to it that a forked child of `multiprocessing` closes its connections, too: it ends without `atexit`."""
    if os.getpid() not in _finalizers and multiprocessing.parent_process() is not None:
        _finalizers[os.getpid()] = Finalize(None, _close_all, exitpriority=1)
