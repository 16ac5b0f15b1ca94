"""Divides the CPU fairly: one share for each cell that runs, whatever a family starts. Runs inside, in the supervisor.

Of a family's processes and threads that want to run, as many as it has cells running keep their priority, in turn;
all others get the kernel's idle priority, and with it what nobody else wants. So what outlives its cell is idle
altogether. Sessions can not raise their priority themselves, and what they start inherits it; what has escaped by
being started at the wrong moment is found at the next look.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

from sandbox.server.kernel.processes import Process, all_processes, look_at, roots_of
from sandbox.server.supervisor.cgroup_usage import others_running
from sandbox.server.supervisor.session_handle import Handle

if TYPE_CHECKING:
    from sandbox.server.supervisor.slots import Slot
    from sandbox.server.supervisor.supervisor import Supervisor

_EVERY = 0.04  # so that looks of 0.05 s are not missed
_BUSY = 0.4
_COST, _COST_OF_CHANGES = 100, 10
_DEFAULT = os.sched_param(0)


class Shares:
    """Looks at what runs.

    Args:
        supervisor: whose sessions share.
    """

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._account = supervisor.account
        self._processes: dict[int, Process] = {}
        self._spent = self._account.cpu()
        self._looked = time.monotonic()
        self._turn = 0
        self._next = 0.0
        self._able = bool(supervisor.config["first_uid"]) and _may_raise_priorities()

    def restore(self, handle: Handle) -> None:
        """Give a session its priority back, for it has something to do."""
        handle.idle = False
        _set_policy(handle.pid, os.SCHED_OTHER)

    def look(self) -> None:
        """Divide the CPU if there is something to divide; takes 1 % of the time, 10 % while it finds much."""
        now = time.monotonic()
        if not self._able or now < self._next:
            return
        spent = self._account.cpu()
        busy = spent - self._spent > _BUSY * (now - self._looked) if self._account.counts_cpu else others_running()
        self._spent, self._looked, self._next = spent, now, now + _EVERY
        if busy:
            started = time.thread_time()
            cost = _COST_OF_CHANGES if self._divide() else _COST
            self._next = max(self._next, now + cost * (time.thread_time() - started))

    def _divide(self) -> bool:
        """Set priorities; say whether any had to be lowered."""
        handles = {handle.pid: handle for handle in self._supervisor.sessions.values() if handle.pid and handle.slot}
        processes = all_processes()
        wanting: dict[Slot, dict[int, int]] = {}
        for pid, root in roots_of(processes, handles).items():
            runnable = self._runnable(pid, processes[pid])
            if runnable:
                wanting.setdefault(handles[root].home, {}).update(runnable)
        self._processes = processes
        self._turn += 1
        return any([self._divide_among(slot, tasks) for slot, tasks in wanting.items()])

    def _runnable(self, pid: int, process: Process) -> dict[int, int]:
        """Return the threads of a process that want to run, with their policies."""
        if process.threads == 1:
            return {pid: process.policy} if process.state == "R" else {}
        before = self._processes.get(pid)
        if process.state != "R" and before is not None and before.ticks == process.ticks:
            return {}
        try:
            threads = [int(name) for name in os.listdir(f"/proc/{pid}/task")]
        except OSError:
            return {}
        found = ((thread, look_at(f"{pid}/task/{thread}")) for thread in threads)
        return {thread: one.policy for thread, one in found if one is not None and one.state == "R"}

    def _divide_among(self, slot: Slot, tasks: dict[int, int]) -> bool:
        busy = [handle.pid for handle in slot.members if handle.current]
        others = sorted(task for task in tasks if task not in busy)
        start = self._turn % len(others) if others else 0
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


def _set_policy(task: int, policy: int) -> None:
    with contextlib.suppress(OSError):  # it is gone
        os.sched_setscheduler(task, policy, _DEFAULT)


def _may_raise_priorities() -> bool:
    """Whether this process may undo what it does to priorities: not without the capability, nor in a user namespace."""
    own = os.getpriority(os.PRIO_PROCESS, 0)
    try:
        os.setpriority(os.PRIO_PROCESS, 0, own - 1)
        os.setpriority(os.PRIO_PROCESS, 0, own)
    except OSError:
        return False
    return True
