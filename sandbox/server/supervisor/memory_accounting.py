"""Tells what memory each family holds: what is surely its own, and what it may hold besides. Runs inside the sandbox.

/proc does not say whose a page is that several processes share after a fork, nor whose the kernel's buffers and
tables are. A family is charged for such memory only as far as the container's account has some that nobody is known to
hold, and at most with what its processes, threads, descriptors and page faults allow. A family that has done nothing
since its session was opened is charged with nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sandbox.server.kernel.processes import Process, all_processes, descriptors_of, look_at, roots_of, sizes_of

if TYPE_CHECKING:
    from sandbox.server.supervisor.session_handle import Handle
    from sandbox.server.supervisor.supervisor import Supervisor

_PAGE = os.sysconf("SC_PAGE_SIZE")
_SHARED_MEMORY = "/dev/shm"
_INODE = 1 << 10
_OF_A_DESCRIPTOR = 1 << 20  # the largest buffer of a pipe
_OF_A_TASK = 128 << 10  # stack and entries in the kernel's tables
_ORDINARY_DESCRIPTORS, _ORDINARY_FAULTS = 32, 2500
_Sizes = Mapping[str, int]


class Holding:
    """Bytes that a family holds.

    Args:
        sure: what is its own for certain.
        pages: what it may hold at most in pages which it shares with others, or which its forks share.
        kernel: what the kernel may keep for it at most.
        idle: what its sessions cost if they do nothing; it is not charged.
    """

    def __init__(self, sure: int = 0, pages: int = 0, kernel: int = 0, idle: int = 0) -> None:
        self.sure = sure
        self.pages = pages
        self.kernel = kernel
        self.idle = idle


class Holdings:
    """Looks at processes, directories and shared memory.

    Args:
        supervisor: whose sessions it looks at.
    """

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._zygotes: dict[int, _Sizes] = {}

    def born_with(self, zygote: int) -> _Sizes:
        """Return what every session of a zygote begins with: the sizes of that process."""
        if not self._zygotes.get(zygote, {}).get("RssAnon"):
            self._zygotes = {pid: sizes_of(pid) for pid in self._supervisor.zygotes}
        return self._zygotes.get(zygote, {})

    def of(self, families: Sequence[Sequence[Handle]]) -> list[Holding]:
        """Return what each of some families, or parts of families, holds."""
        processes = all_processes()
        sessions = {handle.pid: (number, handle) for number, family in enumerate(families) for handle in family}
        roots = roots_of(processes, sessions)
        sizes = {pid: sizes_of(pid) for pid in roots}
        held = [Holding() for _ in families]
        written, mapped = [0] * len(families), [0] * len(families)
        for pid, root in roots.items():
            number, handle = sessions[root]
            before = handle.inherited if pid == root else sizes.get(processes[pid].parent, {}).get("RssAnon", 0)
            born = self.born_with(handle.spawner.pid)
            written[number] += self._add(held[number], processes[pid], sizes[pid], born, before, pid == root)
            mapped[number] += sizes[pid]["RssShmem"]
            held[number].kernel += _OF_A_DESCRIPTOR * max(0, descriptors_of(pid) - _ORDINARY_DESCRIPTORS)
        shared = _owned_shared_memory()
        for number, holding in enumerate(held):
            holding.pages = min(holding.pages, max(0, written[number])) + mapped[number]
            slot = families[number][0].home
            if slot.uid:
                holding.sure += files_in(slot.path) + shared.get(slot.uid, 0)
        return held

    def _add(self, holding: Holding, process: Process, sizes: _Sizes, born: _Sizes, before: int, session: bool) -> int:
        """Add a process, which had so many bytes from the one that it was forked from, and from the zygote.

        Returns:
            Bytes of the pages that it may have written to besides: each takes a page fault.
        """
        sure = max(0, sizes["RssAnon"] - max(born.get("RssAnon", 0), before))
        idle = min(process.faults, _ORDINARY_FAULTS) * _PAGE if session else 0
        holding.sure += sure + max(0, sizes["VmPTE"] - born.get("VmPTE", 0))
        holding.idle += idle
        holding.pages += sizes["RssAnon"] - sure
        holding.kernel += _OF_A_TASK * (process.threads - session)
        return process.faults * _PAGE - idle - sure


def charge(held: Sequence[Holding], pages: int, kernel: int) -> tuple[list[int], int]:
    """Divide what nobody surely holds among those who may hold it.

    Args:
        held: by each family.
        pages: bytes in use by programs, less what is surely somebody's.
        kernel: the same of what the kernel keeps.

    Returns:
        Bytes for each family, and those that nobody can hold.
    """
    shares = [one.sure for one in held]
    left = 0
    for amount, most in ((pages, [one.pages for one in held]), (kernel, [one.kernel for one in held])):
        part = min(1.0, max(0, amount) / (sum(most) or 1))
        shares = [share + int(part * bound) for share, bound in zip(shares, most)]  # noqa: B905  (Python 3.9)
        left += max(0, amount - sum(most))
    return shares, left


def anonymous(pid: int) -> int:
    """Return the bytes of anonymous memory of a process."""
    return sizes_of(pid)["RssAnon"]


def alive(pid: int) -> bool:
    """Whether a process has its memory still: it is neither gone nor dying."""
    process = look_at(str(pid))
    return process is not None and process.state not in "ZX" and sizes_of(pid)["RssAnon"] > 0


def files_in(path: str) -> int:
    """Return the bytes that a tmpfs holds, its inodes included."""
    status = os.statvfs(path)
    size: int = (status.f_blocks - status.f_bfree) * status.f_frsize
    return size + (status.f_files - status.f_ffree) * _INODE


def _owned_shared_memory() -> dict[int, int]:
    """Return the bytes in /dev/shm by user."""
    held: dict[int, int] = {}
    try:
        with os.scandir(_SHARED_MEMORY) as entries:
            for entry in entries:
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:  # gone meanwhile
                    continue
                held[status.st_uid] = held.get(status.st_uid, 0) + status.st_blocks * 512
    except OSError:
        return {}
    return held
