"""Bounds file locks: each is memory of the kernel that no limit counts. Runs inside, in the supervisor.

A POSIX lock takes 192 bytes, and a process can take 400,000 in a second. To refuse them would break sqlite3, so they
are counted in /proc/locks. To read it takes 5 to 20 ms, mostly spent waiting, and more where there are many: a thread
does it, and stops at the first user that holds too many.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sandbox.server.kernel.processes import kill_trees, parent_of, start_time

if TYPE_CHECKING:
    from sandbox.server.supervisor.session_handle import Handle
    from sandbox.server.supervisor.supervisor import Supervisor

_LOCKS = "/proc/locks"
_MOST = 1000  # a user may hold; a connection of sqlite3 takes four at most
_EVERY, _REST = 0.2, 10  # seconds; times as long as the last reading took
_PART = 1 << 16
_ALL = -2  # the sum, among the processes
_WHY = (
    f"the session was ended because its family held more than {_MOST} file locks, which take memory of the kernel, "
    "and it held the most of them"
)


class Locks:
    """Ends what holds most of the file locks of a family that has too many.

    Args:
        supervisor: whose sessions it watches.
    """

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._wanted = threading.Event()
        self._found: dict[int, int] = {}
        if supervisor.config["harden"] and os.path.exists(_LOCKS):  # gVisor has none
            threading.Thread(target=self._work, daemon=True).start()

    def look(self) -> None:
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
            with contextlib.suppress(OSError, ValueError, IndexError):  # a line of another form; the next look comes
                self._found = too_many()
            time.sleep(max(_EVERY, _REST * (time.monotonic() - begun)))

    def _end_the_largest(self, found: dict[int, int]) -> None:
        held: dict[Handle | None, int] = {}
        for pid, locks in found.items():
            handle = self._session_of(pid)
            held[handle] = held.get(handle, 0) + locks
        largest = max(held, key=lambda one: held[one])
        if largest is not None:
            self._supervisor.requests.kill(largest, "memory_limit", _WHY)
        else:  # orphans, of which nobody knows whose they are
            user = user_of(next(iter(found)))
            kill_trees(lambda: [pid for pid in self._orphans() if user_of(pid) == user])

    def _session_of(self, pid: int) -> Handle | None:
        """Return the session that a process belongs to; None for orphans, and for what is gone."""
        while pid > 1:
            handle = self._supervisor.by_pid.get(pid)
            if handle is not None:
                return handle
            pid = parent_of(pid)
        return None

    def _orphans(self) -> list[int]:
        birth = min((handle.born_after for handle in self._supervisor.starting), default=None)
        return [pid for pid in self._supervisor.strangers() if birth is None or start_time(pid) < birth]


def too_many() -> dict[int, int]:
    """Return how many locks each process of one user holds, as far as they were counted, if they are too many."""
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
    """Yield who holds each lock, or waits for it; the kernel tells those of this container only."""
    rest = b""
    try:
        with open(_LOCKS, "rb", buffering=0) as file:
            for part in iter(lambda: file.read(_PART), b""):
                *lines, rest = (rest + part).split(b"\n")
                for line in lines:
                    yield int(line.replace(b"-> ", b"").split()[4])
    except OSError:
        return


def user_of(pid: int) -> int:
    """Return the user of a process, -1 if it is gone."""
    try:
        with open(f"/proc/{pid}/status", errors="replace") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("Uid:"))
    except (OSError, StopIteration):
        return -1
