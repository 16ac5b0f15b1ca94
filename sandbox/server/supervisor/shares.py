"""Divides the CPU fairly: one share for each cell that runs, whatever it starts. Runs inside, in the supervisor.

Of a group's runnable processes and threads, as many as it has running cells keep their priority, in turn. All others
get the kernel's idle priority, so that they run only where nothing else wants to; this includes everything that
outlives its cell. Sessions cannot raise their own priority, and what they start inherits it. A process that was started
between two rounds is found in the next.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator

from sandbox.server.kernel.processes import ProcessUsage, all_processes, parent_of, roots_of, usage_of, user_of
from sandbox.server.supervisor.memory import CgroupUsage, others_running
from sandbox.server.supervisor.session_handle import SessionHandle, Slot
from sandbox.server.supervisor.session_table import SessionTable

_INTERVAL = 0.04  # less than the watchdog's 0.05 s, so that no round of it is missed
_BUSY = 0.4  # CPUs in use; below, nobody has to wait
_PAUSE, _PAUSE_AFTER_CHANGES = 100, 10  # multiples of the time that a round took
_DEFAULT = os.sched_param(0)


class CpuShares:
    """Sets the priorities of what the sessions run.

    Args:
        own_users: whether each group has a user of its own.
        usage: of the container.
        table: the sessions.
    """

    def __init__(self, own_users: bool, usage: CgroupUsage, table: SessionTable) -> None:
        self._usage = usage
        self._table = table
        self._processes: dict[int, ProcessUsage] = {}
        self._spent = usage.cpu()
        self._checked = time.monotonic()
        self._turn = 0
        self._next = 0.0
        self._able = own_users and _may_raise_priorities()

    def check(self) -> None:
        """Divide the CPU if it is busy. Takes 1 % of the time, or 10 % while priorities have to be lowered."""
        now = time.monotonic()
        if not self._able or now < self._next:
            return
        spent = self._usage.cpu()
        busy = spent - self._spent > _BUSY * (now - self._checked) if self._usage.counts_cpu else others_running()
        self._spent, self._checked, self._next = spent, now, now + _INTERVAL
        if busy:
            started = time.thread_time()
            pause = _PAUSE_AFTER_CHANGES if self._divide() else _PAUSE
            self._next = max(self._next, now + pause * (time.thread_time() - started))

    def _divide(self) -> bool:
        """Set priorities; returns whether any group has more to lower than to keep."""
        handles = {handle.pid: handle for handle in self._table.sessions.values() if handle.pid and handle.slot}
        processes = all_processes()
        wanting: dict[Slot, dict[int, int]] = {}
        for pid, root in roots_of(processes, handles).items():
            runnable = self._runnable(pid, processes[pid])
            if runnable:
                wanting.setdefault(handles[root].home, {}).update(runnable)
        self._processes = processes
        self._turn += 1
        return any([self._divide_among(slot, tasks) for slot, tasks in wanting.items()])

    def _runnable(self, pid: int, process: ProcessUsage) -> dict[int, int]:
        """Return the runnable threads of a process, with their scheduling policies."""
        if process.threads == 1:
            return {pid: process.policy} if process.state == "R" else {}
        before = self._processes.get(pid)
        if process.state != "R" and before is not None and before.ticks == process.ticks:
            return {}  # it has not run since the last round, so none of its threads is looked at
        try:
            threads = [int(name) for name in os.listdir(f"/proc/{pid}/task")]
        except OSError:
            return {}
        found = ((thread, usage_of(f"{pid}/task/{thread}")) for thread in threads)
        return {thread: one.policy for thread, one in found if one is not None and one.state == "R"}

    def _divide_among(self, slot: Slot, tasks: dict[int, int]) -> bool:
        busy = [handle.pid for handle in slot.members if handle.current]
        others = sorted(task for task in tasks if task not in busy)
        start = self._turn % len(others) if others else 0  # another task comes first in each round
        # a session's own process comes first, since its cell is what the caller waits for
        order = [*(pid for pid in busy if pid in tasks), *others[start:], *others[:start]]
        first, rest = order[: len(busy)], order[len(busy) :]
        lowered = [task for task in rest if tasks[task] != os.SCHED_IDLE]
        for task in lowered:
            _set_policy(task, os.SCHED_IDLE)
        for task in first:
            if tasks[task] == os.SCHED_IDLE:
                _set_policy(task, os.SCHED_OTHER)
        for handle in slot.members:
            handle.idle = handle.idle or handle.pid in rest
        return len(lowered) > len(first)


def restore_priority(handle: SessionHandle) -> None:
    """Give a session its priority back, since it has a request to serve."""
    handle.idle = False
    _set_policy(handle.pid, os.SCHED_OTHER)


def _set_policy(task: int, policy: int) -> None:
    with contextlib.suppress(OSError):  # it is gone
        os.sched_setscheduler(task, policy, _DEFAULT)


def _may_raise_priorities() -> bool:
    """Whether this process can raise priorities again that it has lowered.

    It cannot without the capability, nor in a user namespace.
    """
    own = os.getpriority(os.PRIO_PROCESS, 0)
    try:
        os.setpriority(os.PRIO_PROCESS, 0, own - 1)
        os.setpriority(os.PRIO_PROCESS, 0, own)
    except OSError:
        return False
    return True


# Bounds file locks: each takes memory of the kernel that no limit counts.
#
# A POSIX lock takes 192 bytes, and a process can take 400,000 in a second. Refusing them would break sqlite3, so they
# are counted in /proc/locks. Reading that file takes 5 to 20 ms, mostly spent waiting, and more where there are many
# locks: a thread does it, and stops at the first user that holds too many.

_LOCKS = "/proc/locks"
_MOST = 1000  # for each user; a connection of sqlite3 takes four at most
_LOCK_INTERVAL, _REST = 0.2, 10  # between readings: seconds, and multiples of the time that the last one took
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
            time.sleep(max(_LOCK_INTERVAL, _REST * (time.monotonic() - begun)))

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
