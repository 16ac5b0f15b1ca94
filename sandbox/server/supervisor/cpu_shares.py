"""Divides the CPU fairly: one share for each cell that runs, whatever it starts. Runs inside, in the supervisor.

Of a group's runnable processes and threads, as many as it has running cells keep their priority, in turn. All others
get the kernel's idle priority, so that they run only where nothing else wants to; this includes everything that
outlives its cell. Sessions cannot raise their own priority, and what they start inherits it. A process that was started
between two rounds is found in the next.
"""

from __future__ import annotations

import contextlib
import os
import time

from sandbox.server.kernel.processes import ProcessUsage, all_processes, roots_of, usage_of
from sandbox.server.supervisor.cgroup_usage import CgroupUsage, others_running
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
