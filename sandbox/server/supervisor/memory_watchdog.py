"""Keeps memory from running out: ends the session that uses most before the kernel picks one. Runs inside.

The kernel would choose by process, and might kill an innocent one. In a container, the memory in use is read from its
control group. Elsewhere it is the sum over processes and directories, in which shared pages of forks count once for
each. No session is ended for memory that cannot be attributed to its group.

The arithmetic: a session is ended when 80 % of the limit is in use (`_END_AT`). Below, the watchdog checks every
0.05 s, and every 0.01 s while memory rises fast, which is by more than 20 % of the limit per second (`_FAST_RISE`)
above 40 % (`_WATCH_FROM`). At 0.05 s, memory that rises from 40 to 100 % between two checks would have to rise by 12
times the limit per second. The kernel may be faster then, so while memory rises fast, the processes of the largest
group are marked for the kernel to kill first.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

from sandbox.server.kernel.processes import alive, descendants, set_oom_preference
from sandbox.server.supervisor.cgroup_usage import CgroupUsage, available_memory
from sandbox.server.supervisor.event_loop import EventLoop
from sandbox.server.supervisor.memory_accounting import (
    GroupMemory,
    MemoryAccounting,
    anonymous,
    charge,
    held_by_sockets,
)
from sandbox.server.supervisor.session_handle import SessionHandle, Slot
from sandbox.server.supervisor.session_table import SessionTable

_INTERVAL, _RISING_INTERVAL, _LONGEST_INTERVAL = 0.05, 0.01, 0.5
_FAST_RISE = 0.2  # of the limit, per second
_NOTICEABLE = 0.02  # of the limit
_END_AT = 0.8
_WATCH_FROM = 0.4
_LEAST_SHARE = 0.02  # ending a group that holds less would not help
_PATIENCE, _CALM = 3.0, 0.3


class MemoryWatchdog:
    """Checks the memory in use every 0.05 s, and every 0.01 s while it rises fast.

    Where it has to be added up over all processes, that is done only while a cell runs, or when the machine's available
    memory has become noticeably less.

    Args:
        limit: bytes for all sessions together; 0 for none, and then nothing is checked.
        loop: the supervisor's event loop.
        usage: of the container.
        table: the sessions.
        accounting: what each group holds.
        kill: ends a session, with the status of its cell and a reason.
        other_checks: of other limits, made in each round as well.
    """

    def __init__(
        self,
        limit: int,
        loop: EventLoop,
        usage: CgroupUsage,
        table: SessionTable,
        accounting: MemoryAccounting,
        kill: Callable[[SessionHandle, str, str], None],
        other_checks: Sequence[Callable[[], None]],
    ) -> None:
        self.limit = limit
        self._loop = loop
        self._usage = usage
        self._table = table
        self._accounting = accounting
        self._kill = kill
        self._other_checks = other_checks
        self._last = self._available = 0
        self._patience = self._calm = self._not_before = self._latest = self._checked = 0.0
        self._ended: tuple[SessionHandle, Slot] | None = None
        self._marked: set[int] = set()  # processes that the kernel is to kill first
        if limit:
            loop.call_in(_INTERVAL, self._tick)

    def _tick(self) -> None:
        rising = False
        try:
            rising = self._check() if self._usage.counts_memory or self._worth_adding_up() else False
            for check in self._other_checks:
                check()
        finally:  # the next round comes, whatever has gone wrong in this one
            interval = _RISING_INTERVAL if rising and self._usage.counts_memory else _INTERVAL
            self._loop.call_in(interval, self._tick)

    def _worth_adding_up(self) -> bool:
        now, available = time.monotonic(), available_memory()
        busy = any(handle.current for handle in self._table.sessions.values())
        if not busy and now < self._latest and available > self._available - _NOTICEABLE * self.limit:
            return False
        self._available, self._latest = available, now + _LONGEST_INTERVAL
        return True

    def _check(self) -> bool:
        """Act on the memory in use; returns whether it rises fast."""
        used, now = self.used(), time.monotonic()
        rise = (used - self._last) / max(now - self._checked, _RISING_INTERVAL)
        rising = bool(used > _WATCH_FROM * self.limit and rise > _FAST_RISE * self.limit)
        self._last, self._checked = used, now
        if used > _END_AT * self.limit and not (self._still_ending() or self._ended_by_others()):
            self._end_the_largest()
        elif rising or (self._marked and used < _WATCH_FROM * self.limit):
            self._mark_the_largest(rising)
        return rising

    def _still_ending(self) -> bool:
        """Whether the session ended last may still hold its memory, which the kernel takes a moment to release.

        It may until its slot is swept and no unknown child is left, and for 0.3 s (`_CALM`) after that; for 3 s
        (`_PATIENCE`) in all.
        """
        now = time.monotonic()
        if self._ended is None or now > self._patience:
            return False
        handle, slot = self._ended
        if not handle.lost or slot.sweeping or self._table.unknown_children():
            self._calm = now + _CALM
        return now < self._calm

    def _ended_by_others(self) -> bool:
        """Whether a session that the kernel or its own code has ended may still hold its memory."""
        for handle in self._table.sessions.values():
            if not handle.slot or (self._ended and handle is self._ended[0]):
                continue
            # after its end: until its slot is swept; before it is reported: while the kernel takes the process down
            if handle.home.sweeping if handle.lost else handle.pid and not alive(handle.pid):
                self._ended, self._patience = (handle, handle.home), time.monotonic() + _PATIENCE
                return True
        return False

    def used(self) -> int:
        """Return the bytes in use."""
        if not self._usage.counts_memory:
            held = self._accounting.measure(self._groups())
            return sum(one.sure + one.pages for one in held) + self._in_sockets()
        used = self._usage.used()
        # cached files are subtracted only when it matters, since that takes another reading
        return used if used <= _END_AT * self.limit else used - self._usage.parts()["caches"]

    def _in_sockets(self) -> int:
        return held_by_sockets(len(self._table.sessions), self.limit)

    def _groups(self) -> list[list[SessionHandle]]:
        """Return the sessions that live, by group."""
        groups: dict[int, list[SessionHandle]] = {}
        for handle in self._table.sessions.values():
            if handle.pid and handle.slot and not handle.lost and not handle.cause:
                groups.setdefault(id(handle.slot), []).append(handle)
        return list(groups.values())

    def _mark_the_largest(self, rising: bool) -> None:
        """Have the kernel kill processes of the largest group first, if memory runs out before the next check."""
        if rising and self._still_ending():
            return  # what the ended session has started may still hold its memory, and stays marked
        groups = self._groups() if rising and self._usage.counts_memory else []
        largest, _ = self._largest(groups)
        for handle in largest:
            handle.blamed = time.monotonic()
        marked = {pid for handle in largest for pid in (handle.pid, *descendants(handle.pid))}
        for pid in self._marked ^ marked:
            set_oom_preference(pid, most=pid in marked)
        self._marked = marked

    def _end_the_largest(self) -> None:
        """End the largest session of the group that holds most, unless more memory is of unknown owners."""
        now = time.monotonic()
        groups = self._groups()
        if not groups or now < self._not_before:
            return
        group, most = self._largest(groups)
        if not group:
            self._not_before = now + _CALM  # the memory is somewhere else, or about to be released
            return
        why = (
            f"the session was ended because the sandbox was running out of memory ({self.limit >> 20} MB for all "
            f"sessions) and it held the most, with its forks ({most >> 20} MB)"
        )
        parts = self._accounting.measure([[handle] for handle in group])
        sizes = [one.sure + one.pages + one.kernel for one in parts]
        largest = group[sizes.index(max(sizes))]
        self._ended, self._patience = (largest, largest.home), now + _PATIENCE
        self._kill(largest, "memory_limit", why)

    def _largest(self, groups: list[list[SessionHandle]]) -> tuple[list[SessionHandle], int]:
        """Return the group that holds most, and its bytes; none if more is of unknown owners, or it holds little."""
        if not groups:
            return [], 0
        held = self._accounting.measure(groups)
        shares, unknown = charge(held, *self._in_doubt(held))
        most = max(shares)
        return (groups[shares.index(most)] if most >= max(_LEAST_SHARE * self.limit, unknown) else []), most

    def _in_doubt(self, held: list[GroupMemory]) -> tuple[int, int]:
        """Return the bytes of programs and of the kernel that are not known to be a group's or the server's own."""
        if not self._usage.counts_memory:
            return sum(one.pages for one in held), self._in_sockets()
        parts = self._usage.parts()
        known = anonymous(os.getpid()) + self._accounting.zygote_memory()
        known += sum(one.sure + one.idle for one in held)
        return parts["programs"] - known, parts["kernel"]
