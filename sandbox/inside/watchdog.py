"""Keeps memory from running out: ends the session that uses most before the kernel picks one. Runs inside.

The kernel would choose by process, and might take an innocent one. Where the sandbox is a container, its own
account is believed; elsewhere what its processes and directories hold is added up, shared pages of forks as often
as they are shared.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from sandbox.inside.handle import Handle
from sandbox.inside.processes import descendants, memory_of

if TYPE_CHECKING:
    from sandbox.inside.slots import Slot
    from sandbox.inside.supervisor import Supervisor

_BUSY, _IDLE = 0.05, 0.5
_ACT_AT = 0.8
_WORTH_IT = 0.02
_PATIENCE, _CALM = 3.0, 0.3
_ACCOUNTS = (
    ("/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat"),
    ("/sys/fs/cgroup/memory/memory.usage_in_bytes", "/sys/fs/cgroup/memory/memory.stat"),
)
_CACHES = ("inactive_file", "active_file", "total_inactive_file", "total_active_file")


class Watchdog:
    """Looks at the memory in use, more often while cells run.

    Args:
        supervisor: whose sessions it watches.
    """

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._limit = supervisor.config["memory"]
        own = supervisor.config["own_account"]
        self._account = next((pair for pair in _ACCOUNTS if own and os.path.exists(pair[0])), None)
        self._baseline = 0
        self._patience = self._calm = 0.0
        self._ended: tuple[Handle, Slot] | None = None
        if self._limit:
            supervisor.call_in(_IDLE, self._look)

    def _look(self) -> None:
        busy = any(handle.current for handle in self._supervisor.sessions.values())
        used = self._used()
        if used > _ACT_AT * self._limit and not (self._still_ending() or self._dying()):
            self._end_the_largest(used)
            busy = True
        self.share_fairly()
        self._supervisor.call_in(_BUSY if busy else _IDLE, self._look)

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
            if handle.home.sweeping if handle.lost else handle.pid and not memory_of(handle.pid):
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
        if self._account is None:
            return sum(self._held_by(family)[0] for family in self._families())
        used = _number_in(self._account[0])
        return used if used <= _ACT_AT * self._limit else used - _caches(self._account[1])

    def _families(self) -> list[list[Handle]]:
        """Return the sessions that live, by family."""
        families: dict[int, list[Handle]] = {}
        for handle in self._supervisor.sessions.values():
            if handle.pid and handle.slot and not handle.lost and not handle.cause:
                families.setdefault(id(handle.slot), []).append(handle)
        return list(families.values())

    def _held_by(self, family: list[Handle]) -> tuple[int, int]:
        """Return what sessions, their subprocesses and their directory hold beyond what the zygote gave them.

        Returns:
            Bytes, and the number of processes.
        """
        self._baseline = self._baseline or memory_of(self._supervisor.spawner.pid)
        processes = {pid for handle in family for pid in (handle.pid, *descendants(handle.pid))}
        own = sum(max(0, memory_of(pid) - self._baseline) for pid in processes)
        slot = family[0].home
        return own + (_files(slot.path) if slot.uid else 0), len(processes)

    def _end_the_largest(self, used: int) -> None:
        """End the largest session of the family that holds most.

        What the kernel holds for nobody in particular is shared out by process.
        """
        families = self._families()
        held = [self._held_by(family) for family in families]
        unknown = max(0, used - sum(own for own, _ in held) - self._baseline)
        processes = sum(number for _, number in held) or 1
        shares = [own + unknown * number // processes for own, number in held]
        most = max(shares, default=0)
        if most < _WORTH_IT * self._limit:
            return  # it is somewhere else, or being given back
        why = (
            f"the session was ended because the sandbox was running out of memory ({self._limit >> 20} MB for all "
            f"sessions) and it held the most, with its forks ({most >> 20} MB)"
        )
        family = families[shares.index(most)]
        largest = max(family, key=lambda handle: self._held_by([handle]))
        self._ended, self._patience = (largest, largest.home), time.monotonic() + _PATIENCE
        self._supervisor.requests.kill(largest, "memory_limit", why)

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


def _number_in(path: str) -> int:
    try:
        with open(path) as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0


def _caches(path: str) -> int:
    """Return how much of a container's memory holds files that can be read again."""
    try:
        with open(path) as file:
            fields = dict(line.split() for line in file)
    except (OSError, ValueError):
        return 0
    totals = [name for name in _CACHES if name.startswith("total_") and name in fields]
    return sum(int(fields[name]) for name in totals or _CACHES if name in fields)


def _files(path: str) -> int:
    status = os.statvfs(path)
    return (status.f_blocks - status.f_bfree) * status.f_frsize
