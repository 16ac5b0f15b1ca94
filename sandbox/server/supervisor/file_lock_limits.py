"""Bounds file locks: each takes memory of the kernel that no limit counts. Runs inside, in the supervisor.

A POSIX lock takes 192 bytes, and a process can take 400,000 in a second. Refusing them would break sqlite3, so they
are counted in /proc/locks. Reading that file takes 5 to 20 ms, mostly spent waiting, and more where there are many
locks: a thread does it, and stops at the first user that holds too many.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator

from sandbox.server.kernel.processes import parent_of, user_of
from sandbox.server.supervisor.session_handle import SessionHandle
from sandbox.server.supervisor.session_table import SessionTable

_LOCKS = "/proc/locks"
_MOST = 1000  # for each user; a connection of sqlite3 takes four at most
_INTERVAL, _REST = 0.2, 10  # between readings: seconds, and multiples of the time that the last one took
_PART = 1 << 16
_ALL = -2  # key of the sum, among the processes
_WHY = (
    f"the session was ended because its group held more than {_MOST} file locks, which take memory of the kernel, "
    "and it held the most of them"
)


class FileLockLimit:
    """Ends the session that holds most of the file locks of a group that has too many.

    Args:
        active: whether sessions are isolated at all.
        table: the sessions.
        kill: ends a session, with the status of its cell and a reason.
    """

    def __init__(self, active: bool, table: SessionTable, kill: Callable[[SessionHandle, str, str], None]) -> None:
        self._table = table
        self._kill = kill
        self._wanted = threading.Event()
        self._found: dict[int, int] = {}
        if active and os.path.exists(_LOCKS):  # gVisor has no such file
            threading.Thread(target=self._work, daemon=True).start()

    def check(self) -> None:
        """Act on what was counted, and have the locks counted again."""
        found, self._found = self._found, {}
        self._wanted.set()
        if found:
            self._end_the_largest(found)

    def _work(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            begun = time.monotonic()
            with contextlib.suppress(OSError, ValueError, IndexError):  # a malformed line; it is read again
                self._found = too_many()
            time.sleep(max(_INTERVAL, _REST * (time.monotonic() - begun)))

    def _end_the_largest(self, found: dict[int, int]) -> None:
        held: dict[SessionHandle, int] = {}
        for pid, locks in found.items():
            handle = self._session_of(pid)
            if handle is not None:  # orphans are killed anyway
                held[handle] = held.get(handle, 0) + locks
        if held:
            self._kill(max(held, key=lambda one: held[one]), "memory_limit", _WHY)

    def _session_of(self, pid: int) -> SessionHandle | None:
        """Return the session that a process belongs to; None for orphans, and for processes that are gone."""
        while pid > 1:  # up the tree; orphans end at the supervisor, process 1
            handle = self._table.by_pid.get(pid)
            if handle is not None:
                return handle
            pid = parent_of(pid)
        return None


def too_many() -> dict[int, int]:
    """Return how many locks each process of the first user that holds too many holds; counting stops there."""
    held: dict[int, dict[int, int]] = {}
    users: dict[int, int] = {}
    for pid in _holders():
        if pid not in users:
            users[pid] = user_of(pid)
        of_user = held.setdefault(users[pid], {})
        of_user[pid] = of_user.get(pid, 0) + 1
        of_user[_ALL] = of_user.get(_ALL, 0) + 1
        if of_user[_ALL] > _MOST and users[pid] >= 0:
            del of_user[_ALL]
            return of_user
    return {}


def _holders() -> Iterator[int]:
    """Yield the process that holds, or waits for, each lock; the kernel lists those of this container only."""
    rest = b""
    try:
        with open(_LOCKS, "rb", buffering=0) as file:
            for part in iter(lambda: file.read(_PART), b""):
                *lines, rest = (rest + part).split(b"\n")
                for line in lines:
                    yield int(line.replace(b"-> ", b"").split()[4])
    except OSError:
        return
