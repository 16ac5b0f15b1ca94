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

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sandbox.server.kernel.confine import capabilities, keep_capabilities, surroundings
from sandbox.server.kernel.processes import (
    ProcessUsage,
    alive,
    all_processes,
    descendants,
    descriptors_of,
    roots_of,
    set_oom_preference,
    sizes_of,
)
from sandbox.server.supervisor.event_loop import EventLoop
from sandbox.server.supervisor.session_handle import SessionHandle, Slot
from sandbox.server.supervisor.session_table import SessionTable

# Reads what the container's control group counts: memory and CPU time, versions 1 and 2.
#
# The files stay open, so that a reading takes a few microseconds; the watchdog reads twenty times a second.

# in pairs: the name in version 2 of control groups, then in version 1; `_KERNEL` is of version 1 only
_USAGE = ("memory.current", "memory/memory.usage_in_bytes")
_STAT = ("memory.stat", "memory/memory.stat")
_KERNEL = ("memory/memory.kmem.usage_in_bytes", "memory/memory.kmem.tcp.usage_in_bytes")
_CPU = ("cpu.stat", "cpuacct/cpuacct.usage")
_CACHES = ("inactive_file", "active_file")
_PROGRAMS = (("anon", "shmem"), ("rss", "shmem"))
_KERNEL_FIELDS = ("slab", "sock", "kernel_stack", "pagetables", "percpu", "vmalloc")


class CgroupUsage:
    """What a container uses.

    Args:
        own: whether the control group is the sandbox's own. If not, nothing is read, and everything is 0.
        root: where the control groups are mounted.

    Attributes:
        counts_memory: whether the memory in use is known.
        counts_cpu: whether the CPU time is known.
    """

    def __init__(self, own: bool, root: str = "/sys/fs/cgroup") -> None:
        self._files = {name: _opened(os.path.join(root, name)) if own else -1 for name in (*_USAGE, *_CPU)}
        self._root = root
        self._usage = next((name for name in _USAGE if self._files[name] >= 0), "")
        self._cpu = next((name for name in _CPU if self._files[name] >= 0), "")
        self._stat = _STAT[_USAGE.index(self._usage)] if self._usage else ""
        self.counts_memory = bool(self._usage)
        self.counts_cpu = bool(self._cpu)

    def used(self) -> int:
        """Return the bytes of memory in use, including cached files."""
        return _first_number(self._read(self._usage)) if self._usage else 0

    def parts(self) -> dict[str, int]:
        """Return what the memory is used for, in bytes.

        "caches" are cached files, "programs" the memory of processes and what is in tmpfs, "kernel" what the kernel
        keeps for them: buffers, tables, stacks, inodes.
        """
        fields = _fields(_text(os.path.join(self._root, self._stat))) if self._stat else {}
        total = "total_" if "total_inactive_file" in fields else ""  # version 1: includes child groups
        names = next((names for names in _PROGRAMS if total + names[0] in fields), ())
        kernel = fields.get("kernel", sum(fields.get(name, 0) for name in _KERNEL_FIELDS))
        # version 1 counts this memory in files of their own
        if self._stat == _STAT[1]:
            kernel = sum(_first_number(_text(os.path.join(self._root, name))) for name in _KERNEL)
        return {
            "caches": sum(fields.get(total + name, 0) for name in _CACHES),
            "programs": sum(fields.get(total + name, 0) for name in names),
            "kernel": kernel,
        }

    def cpu(self) -> float:
        """Return the seconds of CPU time so far."""
        if not self._cpu:
            return 0.0
        text = self._read(self._cpu)
        return _first_number(text) / 1e9 if self._cpu == _CPU[1] else _fields(text).get("usage_usec", 0) / 1e6

    def _read(self, name: str) -> str:
        try:
            return os.pread(self._files[name], 1 << 12, 0).decode("ascii", "replace")
        except OSError:
            return ""


def available_memory() -> int:
    """Return the bytes of memory that the machine has available; 0 where it does not say."""
    for line in _text("/proc/meminfo").splitlines()[:3]:
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            return _first_number(rest) << 10
    return 0


def others_running() -> bool:
    """Whether anything besides this process is running or runnable on this machine."""
    # the fourth word is "runnable/all"; this process itself is running while it reads it
    words = _text("/proc/loadavg").split()
    return len(words) < 4 or _first_number(words[3].replace("/", " ")) > 1


def _opened(path: str) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1


def _text(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _first_number(text: str) -> int:
    word = text.split(None, 1)[:1]
    return int(word[0]) if word and word[0].isdigit() else 0


def _fields(text: str) -> dict[str, int]:
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


# Bounds what each group holds in /dev/shm, which all groups share.
#
# /dev/shm has room for every group's share twice over. While it is at most half full, nobody has to keep to the share.

SHARED_MEMORY = "/dev/shm"
_REST = 10  # pause after counting, in multiples of the time that counting took
_WHY = "the session was ended because it held too much of /dev/shm, which all sessions share"


class SharedMemoryLimit:
    """Ends the sessions of groups that hold more than their share while /dev/shm is more than half full.

    Args:
        config: what the client sent.
        table: the sessions.
        kill: ends a session, with the status of its cell and a reason.
    """

    def __init__(
        self, config: dict[str, Any], table: SessionTable, kill: Callable[[SessionHandle, str, str], None]
    ) -> None:
        self._table = table
        self._kill = kill
        self._groups = config["sessions"]
        self._most_files = 2 * self._groups * config["shared_files"]
        self._by_user = bool(config["first_uid"])
        self._next_count = 0.0

    def check(self) -> None:
        """End the sessions of groups that hold too much."""
        if not self._by_user:
            return  # the files cannot be told apart
        for uid in self._users_above_share():
            for handle in list(self._table.sessions.values()):
                if handle.pid and handle.slot and handle.slot.uid == uid:
                    self._kill(handle, "memory_limit", _WHY)

    def _users_above_share(self) -> list[int]:
        """Return the users that hold more bytes or files than their share, if it is more than half full."""
        whole = os.statvfs(SHARED_MEMORY)
        size, most = (whole.f_blocks - whole.f_bfree) * whole.f_frsize, whole.f_blocks * whole.f_frsize
        files = whole.f_files - whole.f_ffree
        half_full = size > most // 2 or files > self._most_files // 2
        if not half_full or time.monotonic() < self._next_count:
            return []
        begun = time.monotonic()
        held = _held_by_user()
        now = time.monotonic()
        self._next_count = now + _REST * (now - begun)  # there may be many files, and nobody above the share
        share, share_files = most // 2 // self._groups, self._most_files // 2 // self._groups
        return [uid for uid, (size, files) in held.items() if uid and (size > share or files > share_files)]


def _held_by_user() -> dict[int, list[int]]:
    """Return bytes and number of files by user."""
    held: dict[int, list[int]] = {}
    with os.scandir(SHARED_MEMORY) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):  # it was removed meanwhile
                status = entry.stat(follow_symlinks=False)
                found = held.setdefault(status.st_uid, [0, 0])
                found[0] += status.st_blocks * 512
                found[1] += 1
    return held


def used_inodes(path: str) -> int:
    """Return how many inodes the file system at a path holds; its root directory is one."""
    status = os.statvfs(path)
    return status.f_files - status.f_ffree


# Estimates what memory each group holds: what is certainly its own, and what it may hold besides.
#
# /proc does not say whose a page is that several processes share after a fork, nor whose the kernel's buffers and
# tables are. A group is charged for such memory only as far as the container uses memory that no group certainly holds,
# and at most with what its processes, threads, descriptors and page faults allow. A group that has done nothing since
# its session was opened is charged with nothing.

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


# Fits the server to a container that another program has made.
#
# The backends "docker" and "bubblewrap" make the container and know what is in it. Behind "command"
# anything may be: which users there are, where sessions may write, and which limits the kernel keeps is looked up here,
# before the first session. What is missing is reported, or refused.

_KILL_SETGID_SETUID = 1 << 5 | 1 << 6 | 1 << 7
_CGROUPS = "/sys/fs/cgroup"
# in pairs: the file in version 2 of control groups, then in version 1
_MEMORY = ("memory.max", "memory/memory.limit_in_bytes")
_PROCESSES = ("pids.max", "pids/pids.max")
_UNLIMITED = 1 << 60  # version 1 has a huge number where version 2 says "max"


class UnfitContainerError(Exception):
    """The container lacks what no server can do without; the message says what to add."""


def fit_to_container(config: dict[str, Any]) -> None:
    """Complete a configuration with what the container has.

    Sets "first_uid", "root", "memory", "own_account", and "unenforced": the names of limits that nothing keeps.

    Args:
        config: what the client sent. Its "first_uid" is a proposal.

    Raises:
        UnfitContainerError: sessions have no place to write to.
        OSError: the place cannot be prepared.
    """
    enough = os.geteuid() == 0 and capabilities() & _KILL_SETGID_SETUID == _KILL_SETGID_SETUID
    config["first_uid"] = _users_here(config["first_uid"], config["sessions"]) if enough else 0
    if not config["first_uid"]:
        keep_capabilities(0)
    quotas = _prepare_slots(config)
    with contextlib.suppress(OSError):  # whoever owns it; where it is not ours, its names can be listed
        os.chmod(SHARED_MEMORY, 0o1733)
    config["unenforced"] = [*_unkept_limits(config), *([] if quotas else ["disk"]), *_network()]


def _users_here(first: int, number: int) -> int:
    """Return the first of `number` users in a row that exist here: `first` if it does; 0 if there are too few."""
    ranges = [_largest_range(f"/proc/self/{name}") for name in ("uid_map", "gid_map")]
    begin, end = max(one[0] for one in ranges), min(one[1] for one in ranges)
    if begin <= first and first + number <= end:
        return first
    begin = max(begin, 1 << 10)  # below are the users of the image
    return begin + first % (end - begin - number) if end - begin > number else 0


def _largest_range(path: str) -> tuple[int, int]:
    """Return the begin and the end of the largest range of numbers in a map of a user namespace."""
    with open(path) as file:
        lines = [[int(word) for word in line.split()] for line in file]
    inside, _, count = max(lines, key=lambda line: line[2])
    return inside, inside + count


def _prepare_slots(config: dict[str, Any]) -> bool:
    """Prepare a directory for each group; returns whether each is limited to its quota.

    A container may have one file system for all groups (/slots), or one for each (/slots/0, /slots/1 and so on).
    """
    root = config["root"]
    places = [os.path.join(root, str(number)) for number in range(config["sessions"])]
    mounted = all(os.path.ismount(place) for place in places)
    if not config["first_uid"] and mounted:
        config["root"] = root = places[0]  # with one user for all, Landlock separates directories in one place
    if not os.path.isdir(root) or not ((config["first_uid"] and mounted) or os.access(root, os.W_OK)):
        raise UnfitContainerError(
            f"sessions have no place to write to: {root} {'is not writable' if os.path.isdir(root) else 'is missing'} "
            f"for user {os.geteuid()}. Mount a tmpfs there: docker run --tmpfs {config['root']}:exec,mode=711,size=4g, "
            f"bwrap --tmpfs {config['root']}, or an emptyDir of medium Memory"
        )
    if config["first_uid"]:
        _hand_out(places, mounted, config["first_uid"])
        with contextlib.suppress(OSError):  # read-only where each group has a file system of its own
            os.chmod(root, 0o711)
    return mounted and bool(config["first_uid"]) and all(_size(place) <= config["limits"]["disk"] for place in places)


def _hand_out(places: list[str], mounted: bool, first: int) -> None:
    """Give each place to the group with the number of its user.

    Whoever owns a file may give it to a group it is in, so that no capability to change owners is needed.
    """
    try:
        for group, place in enumerate(places, first):
            os.setegid(group)
            if mounted:
                os.chown(place, -1, group)
            else:
                os.mkdir(place)
            # the group may make directories here but cannot list them; sticky: it removes only what is its own
            os.chmod(place, 0o1730)
    finally:
        os.setegid(os.getgid())


def _size(path: str) -> int:
    found = os.statvfs(path)
    return found.f_blocks * found.f_frsize


def _unkept_limits(config: dict[str, Any]) -> list[str]:
    """Adopt the container's memory limit, and return which of memory, pids and cpus nothing limits."""
    memory, processes, cpus = _limit(_MEMORY), _limit(_PROCESSES), _cpus()
    # as process 1 it has a control group to itself; elsewhere the group may hold other programs
    config["own_account"] = os.getpid() == 1 and memory > 0
    unkept = [name for name, limit in (("memory", memory), ("pids", processes)) if not limit or os.getpid() != 1]
    if config["own_account"]:
        config["memory"] = min(config["memory"], memory)
    wanted = config["limits"]["cpus"]
    if wanted is not None and not 0 < cpus <= wanted + 0.01:
        unkept.append("cpus")
    return unkept


def _limit(names: tuple[str, ...]) -> int:
    """Return a limit of the control group; 0 if there is none."""
    for name in names:
        text = _read(name).strip()
        if text.isdigit() and int(text) < _UNLIMITED:
            return int(text)
    return 0


def _cpus() -> float:
    """Return the number of CPUs that the control group may use; 0 if it is not limited."""
    words = _read("cpu.max").split() or [_read(f"cpu/cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
    if len(words) != 2 or not all(word.isdigit() for word in words):
        return 0.0
    return int(words[0]) / int(words[1])


def _read(name: str) -> str:
    try:
        with open(os.path.join(_CGROUPS, name)) as file:
            return file.read()
    except OSError:
        return ""


def _network() -> list[str]:
    """Return "network" if the container has any: seccomp refuses sockets to it, and nothing else here does."""
    return ["network"] if set(surroundings()["interfaces"]) - {"lo"} else []
