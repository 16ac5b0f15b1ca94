"""Estimates what memory each group holds: what is certainly its own, and what it may hold besides. Runs inside.

/proc does not say whose a page is that several processes share after a fork, nor whose the kernel's buffers and
tables are. A group is charged for such memory only as far as the container uses memory that no group certainly holds,
and at most with what its processes, threads, descriptors and page faults allow. A group that has done nothing since
its session was opened is charged with nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from sandbox.server.kernel.processes import ProcessUsage, all_processes, descriptors_of, roots_of, sizes_of
from sandbox.server.supervisor.session_handle import SessionHandle
from sandbox.server.supervisor.shared_memory_limit import SHARED_MEMORY

_PAGE = os.sysconf("SC_PAGE_SIZE")
_INODE_BYTES = 1 << 10
_STREAM_BYTES = 320 << 10  # of a Unix socket, which sends while less than 208 kB are on their way
_MOST_CONNECTIONS = 17  # that wait to be accepted, where net.core.somaxconn is 16
_DESCRIPTOR_BYTES = _MOST_CONNECTIONS * _STREAM_BYTES
_DATAGRAM_BYTES = 11 * (208 << 10)  # of a socket that holds ten datagrams of others that have ended
_SOCKETS_OF_A_SESSION = 2  # its control channel
_PROCESS_BYTES = 16 << 20  # of 65,530 mappings, the most of a process
_THREAD_BYTES = 128 << 10  # stack and entries in the kernel's tables
_IDLE_DESCRIPTORS, _IDLE_FAULTS = 8, 2500  # of a session that has done nothing
_Sizes = Mapping[str, int]


class GroupMemory:
    """Bytes that a group of sessions holds.

    Args:
        sure: what is certainly its own.
        pages: what it may hold at most in pages that it shares with others, or that its forks share.
        kernel: what the kernel may keep for it at most.
        idle: what its sessions cost if they do nothing; it is not charged.
    """

    def __init__(self, sure: int = 0, pages: int = 0, kernel: int = 0, idle: int = 0) -> None:
        self.sure = sure
        self.pages = pages
        self.kernel = kernel
        self.idle = idle


class MemoryAccounting:
    """Adds up processes, directories and shared memory by group.

    Args:
        zygote_pids: returns the processes that sessions are forked from.
    """

    def __init__(self, zygote_pids: Callable[[], tuple[int, ...]]) -> None:
        self._zygote_pids = zygote_pids
        self._zygotes: dict[int, _Sizes] = {}

    def initial_sizes(self, zygote: int) -> _Sizes:
        """Return what every session of a zygote begins with: the sizes of the zygote."""
        # a zygote that was started again has another process id, so it is measured anew
        if not self._zygotes.get(zygote, {}).get("RssAnon"):
            self._zygotes = {pid: sizes_of(pid) for pid in self._zygote_pids()}
        return self._zygotes.get(zygote, {})

    def zygote_memory(self) -> int:
        """Return the bytes of anonymous memory of the zygotes."""
        return sum(self.initial_sizes(pid).get("RssAnon", 0) for pid in set(self._zygote_pids()))

    def measure(self, groups: Sequence[Sequence[SessionHandle]]) -> list[GroupMemory]:
        """Return what each of some groups, or parts of groups, holds."""
        processes = all_processes()
        sessions = {handle.pid: (number, handle) for number, group in enumerate(groups) for handle in group}
        roots = roots_of(processes, sessions)
        sizes = {pid: sizes_of(pid) for pid in roots}
        held = [GroupMemory() for _ in groups]
        written, mapped = [0] * len(groups), [0] * len(groups)
        for pid, root in roots.items():
            number, handle = sessions[root]
            # anonymous memory that came with the fork is not the process's own until it is written to
            before = handle.inherited if pid == root else sizes.get(processes[pid].parent, {}).get("RssAnon", 0)
            initial = self.initial_sizes(handle.spawner.pid)
            written[number] += self._add(held[number], processes[pid], sizes[pid], initial, before, pid == root)
            mapped[number] += sizes[pid]["RssShmem"]
            idle = _IDLE_DESCRIPTORS if pid == root else 0
            held[number].kernel += _DESCRIPTOR_BYTES * max(0, descriptors_of(pid) - idle)
        shared = _owned_shared_memory()
        for number, group in enumerate(held):
            # a shared page becomes a process's own only by a page fault: faults bound what it may hold of them
            group.pages = min(group.pages, max(0, written[number])) + mapped[number]
            slot = groups[number][0].home
            # only such a slot is a file system of its own; elsewhere the files of groups cannot be told apart
            if slot.uid:
                group.sure += files_in(slot.path) + shared.get(slot.uid, 0)
        return held

    def _add(
        self,
        group: GroupMemory,
        process: ProcessUsage,
        sizes: _Sizes,
        initial: _Sizes,
        before: int,
        is_session: bool,
    ) -> int:
        """Add a process, which shared `before` bytes with the one it was forked from, and `initial` with the zygote.

        Returns:
            Bytes of pages that it may have written to besides: writing to a shared page takes a page fault.
        """
        sure = max(0, sizes["RssAnon"] - max(initial.get("RssAnon", 0), before))
        idle = min(process.faults, _IDLE_FAULTS) * _PAGE if is_session else 0
        group.sure += sure + max(0, sizes["VmPTE"] - initial.get("VmPTE", 0))
        group.idle += idle
        group.pages += sizes["RssAnon"] - sure
        group.kernel += _THREAD_BYTES * (process.threads - is_session) + _PROCESS_BYTES * (not is_session)
        return process.faults * _PAGE - idle - sure


def charge(held: Sequence[GroupMemory], pages: int, kernel: int) -> tuple[list[int], int]:
    """Divide memory that no group certainly holds among the groups that may hold it, in proportion.

    Args:
        held: by each group.
        pages: bytes in use by programs, less what is certainly a group's.
        kernel: the same for what the kernel keeps.

    Returns:
        Bytes for each group, and the bytes that no group can hold.
    """
    shares = [one.sure for one in held]
    left = 0
    for amount, most in ((pages, [one.pages for one in held]), (kernel, [one.kernel for one in held])):
        part = min(1.0, max(0, amount) / (sum(most) or 1))  # the same fraction of each group's maximum
        shares = [share + int(part * bound) for share, bound in zip(shares, most)]  # noqa: B905  (Python 3.9)
        left += max(0, amount - sum(most))
    return shares, left


def anonymous(pid: int) -> int:
    """Return the bytes of anonymous memory of a process."""
    return sizes_of(pid)["RssAnon"]


def files_in(path: str) -> int:
    """Return the bytes that a tmpfs holds, including its inodes."""
    status = os.statvfs(path)
    size: int = (status.f_blocks - status.f_bfree) * status.f_frsize
    return size + (status.f_files - status.f_ffree) * _INODE_BYTES


def held_by_sockets(sessions: int, most: int) -> int:
    """Return the most bytes that the Unix sockets here can hold, all those of the sandbox; `most` if it is more.

    Connections that nobody has accepted and sockets on their way in others are among them.

    Args:
        sessions: how many there are, whose channels do not count.
        most: bytes at which counting stops.
    """
    size = -_SOCKETS_OF_A_SESSION * sessions * _STREAM_BYTES
    try:
        with open("/proc/net/unix", "rb") as file:
            next(file)
            for line in file:
                size += _DATAGRAM_BYTES if line.split(None, 5)[4] == b"0002" else _STREAM_BYTES
                if size > most:
                    return most
    except (OSError, StopIteration):
        return 0
    return max(0, size)


def _owned_shared_memory() -> dict[int, int]:
    """Return the bytes in /dev/shm by user."""
    held: dict[int, int] = {}
    try:
        with os.scandir(SHARED_MEMORY) as entries:
            for entry in entries:
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:  # gone meanwhile
                    continue
                held[status.st_uid] = held.get(status.st_uid, 0) + status.st_blocks * 512
    except OSError:
        return {}
    return held
