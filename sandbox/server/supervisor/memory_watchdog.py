"""Keeps memory from running out: ends the session that uses most before the kernel picks one. Runs inside.

The kernel would choose by process, and might take an innocent one. Where the sandbox is a container, its own
account is believed; elsewhere what its processes and directories hold is added up, shared pages of forks as often
as they are shared. Nobody is ended for memory that cannot be told to be his.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from sandbox.server.kernel.processes import descendants, set_oom_preference
from sandbox.server.supervisor.cgroup_usage import available_memory
from sandbox.server.supervisor.memory_accounting import Holding, Holdings, alive, anonymous, charge
from sandbox.server.supervisor.session_handle import Handle

if TYPE_CHECKING:
    from sandbox.server.supervisor.slots import Slot
    from sandbox.server.supervisor.supervisor import Supervisor

_OFTEN, _RISING, _LATEST = 0.05, 0.01, 0.5
_FAST = 0.2  # of the limit, in a second
_RISE = 0.02
_ACT_AT = 0.8
_WATCH_FROM = 0.4
_WORTH_IT = 0.02
_PATIENCE, _CALM = 3.0, 0.3


class Watchdog:
    """Looks at the memory in use every 0.05 s, and every 0.01 s while it rises.

    Where there is no account a look adds up all processes; then it waits for a cell that runs, or for the machine's
    memory to become less.

    Args:
        supervisor: whose sessions it watches.
    """

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._limit = supervisor.config["memory"]
        self._account = supervisor.account
        self._holdings = Holdings(supervisor)
        self._last = self._available = 0
        self._patience = self._calm = self._not_before = self._latest = self._looked = 0.0
        self._ended: tuple[Handle, Slot] | None = None
        self._marked: set[int] = set()  # processes that the kernel is to take first
        if self._limit:
            supervisor.call_in(_OFTEN, self._look)

    def _look(self) -> None:
        rising = False
        try:
            rising = self._look_at_memory() if self._account.counts_memory or self._worth_adding_up() else False
            self._supervisor.shares.look()
            self._supervisor.locks.look()
            self.share_fairly()
        finally:  # whatever has gone wrong, the next look may find better
            self._supervisor.call_in(_RISING if rising and self._account.counts_memory else _OFTEN, self._look)

    def _worth_adding_up(self) -> bool:
        now, available = time.monotonic(), available_memory()
        busy = any(handle.current for handle in self._supervisor.sessions.values())
        if not busy and now < self._latest and available > self._available - _RISE * self._limit:
            return False
        self._available, self._latest = available, now + _LATEST
        return True

    def _look_at_memory(self) -> bool:
        """Do what has to be done about the memory in use; say whether it rises fast."""
        used, now = self._used(), time.monotonic()
        rise = (used - self._last) / max(now - self._looked, _RISING)
        rising = bool(used > _WATCH_FROM * self._limit and rise > _FAST * self._limit)
        self._last, self._looked = used, now
        if used > _ACT_AT * self._limit and not (self._still_ending() or self._dying()):
            self._end_the_largest()
        elif rising or (self._marked and used < _WATCH_FROM * self._limit):
            self._mark_the_largest(rising)
        return rising

    def _still_ending(self) -> bool:
        """Whether what was ended last has not given back its memory yet, which takes the kernel a moment."""
        now = time.monotonic()
        if self._ended is None or now > self._patience:
            return False
        handle, slot = self._ended
        if not handle.lost or slot.sweeping or self._supervisor.strangers():
            self._calm = now + _CALM
        return now < self._calm

    def _dying(self) -> bool:
        """Whether one that somebody else has ended, such as the kernel, has not given back its memory yet."""
        for handle in self._supervisor.sessions.values():
            if not handle.slot or (self._ended and handle is self._ended[0]):
                continue
            if handle.home.sweeping if handle.lost else handle.pid and not alive(handle.pid):
                self._ended, self._patience = (handle, handle.home), time.monotonic() + _PATIENCE
                return True
        return False

    def share_fairly(self) -> None:
        """End sessions whose family takes more of /dev/shm, which all share, than it may."""
        for uid in self._supervisor.slots.greedy():
            for handle in list(self._supervisor.sessions.values()):
                if handle.pid and handle.slot and handle.slot.uid == uid:
                    why = "the session was ended because it held too much of /dev/shm, which all sessions share"
                    self._supervisor.requests.kill(handle, "memory_limit", why)

    def _used(self) -> int:
        if not self._account.counts_memory:
            held = self._holdings.of(self._families())
            return sum(one.sure + one.pages for one in held)
        used = self._account.used()
        return used if used <= _ACT_AT * self._limit else used - self._account.parts()["caches"]

    def _families(self) -> list[list[Handle]]:
        """Return the sessions that live, by family."""
        families: dict[int, list[Handle]] = {}
        for handle in self._supervisor.sessions.values():
            if handle.pid and handle.slot and not handle.lost and not handle.cause:
                families.setdefault(id(handle.slot), []).append(handle)
        return list(families.values())

    def _mark_the_largest(self, rising: bool) -> None:
        """Have the kernel choose from the family that holds most, should memory run out before the next look."""
        families = self._families() if rising and self._account.counts_memory else []
        marked: set[int] = set()
        if families:
            held = self._holdings.of(families)
            shares, _ = charge(held, *self._in_doubt(held))
            marked = {
                pid for handle in families[shares.index(max(shares))] for pid in (handle.pid, *descendants(handle.pid))
            }
        for pid in self._marked ^ marked:
            set_oom_preference(pid, most=pid in marked)
        self._marked = marked

    def _end_the_largest(self) -> None:
        """End the largest session of the family that holds most, if it can be told."""
        now = time.monotonic()
        families = self._families()
        if not families or now < self._not_before:
            return
        held = self._holdings.of(families)
        shares, unknown = charge(held, *self._in_doubt(held))
        most = max(shares)
        if most < max(_WORTH_IT * self._limit, unknown):
            self._not_before = now + _CALM
            return  # it is somewhere else, or being given back
        why = (
            f"the session was ended because the sandbox was running out of memory ({self._limit >> 20} MB for all "
            f"sessions) and it held the most, with its forks ({most >> 20} MB)"
        )
        family = families[shares.index(most)]
        parts = self._holdings.of([[handle] for handle in family])
        sizes = [one.sure + one.pages + one.kernel for one in parts]
        largest = family[sizes.index(max(sizes))]
        self._ended, self._patience = (largest, largest.home), now + _PATIENCE
        self._supervisor.requests.kill(largest, "memory_limit", why)

    def _in_doubt(self, held: list[Holding]) -> tuple[int, int]:
        """Return the bytes of programs and of the kernel that are not known to be a family's or the sandbox's own."""
        if not self._account.counts_memory:
            return sum(one.pages for one in held), 0
        parts = self._account.parts()
        own = anonymous(os.getpid())
        own += sum(self._holdings.born_with(pid).get("RssAnon", 0) for pid in set(self._supervisor.zygotes))
        own += sum(one.sure + one.idle for one in held)
        return parts["programs"] - own, parts["kernel"]

    def condition(self) -> dict[str, Any]:
        """Return the answer to PING."""
        slots = self._supervisor.slots
        alive = [handle for handle in self._supervisor.sessions.values() if handle.pid and not handle.lost]
        return {
            "memory": self._used(),
            "memory_limit": self._limit,
            "processes": self._processes(),
            "sessions": len(alive),
            "slots": slots.usable,
            "free": slots.free,
            "retired": slots.retired,
        }

    def _processes(self) -> int:
        return 1 + sum(1 for _ in descendants(os.getpid()))
