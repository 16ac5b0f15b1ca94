"""Keeps what all sessions share from running out: memory, /dev/shm, the CPU, file locks. Runs in the supervisor.

The kernel would end a process when memory is gone, and might choose an innocent one. So the supervisor ends the session
that uses most before; none is ended for memory that cannot be attributed to its group.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from sandbox.server.channels import SessionHandle, Slot
from sandbox.server.processes import (
    SHARED_MEMORY,
    Process,
    alive,
    all_processes,
    descendants,
    descriptors_of,
    first_number,
    roots_of,
    set_oom_preference,
    sizes_of,
    stat_of,
    text_of,
    user_of,
)
from sandbox.server.sessions import Sessions

# What the container's control group counts. In pairs: the name in version 2 of control groups, then in version 1;
# `_KERNEL` is of version 1 only.
_USAGE = ("memory.current", "memory/memory.usage_in_bytes")
_STAT = ("memory.stat", "memory/memory.stat")
_KERNEL = ("memory/memory.kmem.usage_in_bytes", "memory/memory.kmem.tcp.usage_in_bytes")
_CPU = ("cpu.stat", "cpuacct/cpuacct.usage")
_CACHES = ("inactive_file", "active_file")
_PROGRAMS = (("anon", "shmem"), ("rss", "shmem"))
_KERNEL_FIELDS = ("slab", "sock", "kernel_stack", "pagetables", "percpu", "vmalloc")


class CgroupUsage:
    """What a container uses. Where the control group is not the sandbox's `own`, everything is 0."""

    def __init__(self, own: bool, root: str = "/sys/fs/cgroup") -> None:
        self._root = root
        there = [name for name in (*_USAGE, *_CPU) if own and os.path.exists(os.path.join(root, name))]
        self._usage = next((name for name in _USAGE if name in there), "")
        self._cpu = next((name for name in _CPU if name in there), "")
        self.counts_memory, self.counts_cpu = bool(self._usage), bool(self._cpu)

    def used(self) -> int:
        """Return the bytes of memory in use, including cached files."""
        return first_number(self._read(self._usage))

    def parts(self) -> dict[str, int]:
        """Return what the memory is used for, in bytes: by programs (with tmpfs), by the kernel for them, by caches."""
        version = _USAGE.index(self._usage) if self._usage else 0
        fields = _fields(self._read(_STAT[version] if self._usage else ""))
        total = "total_" if version else ""  # includes child groups
        kernel = fields.get("kernel", sum(fields.get(name, 0) for name in _KERNEL_FIELDS))
        if version:
            kernel = sum(first_number(self._read(name)) for name in _KERNEL)
        return {
            "caches": sum(fields.get(total + name, 0) for name in _CACHES),
            "programs": sum(fields.get(total + name, 0) for name in _PROGRAMS[version]),
            "kernel": kernel,
        }

    def cpu(self) -> float:
        """Return the seconds of CPU time so far."""
        text = self._read(self._cpu)
        return first_number(text) / 1e9 if self._cpu == _CPU[1] else _fields(text).get("usage_usec", 0) / 1e6

    def _read(self, name: str) -> str:
        return text_of(os.path.join(self._root, name)) if name else ""


def _fields(text: str) -> dict[str, int]:
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


# What memory each group holds: what is certainly its own, and what it may hold besides.
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


class GroupMemory:
    """Bytes that a group of sessions holds."""

    def __init__(self, sure: int = 0, pages: int = 0, kernel: int = 0, idle: int = 0) -> None:
        self.sure = sure  # certainly its own
        self.pages = pages  # the most that it may hold in pages that it shares with others, or that its forks share
        self.kernel = kernel  # the most that the kernel may keep for it
        self.idle = idle  # what its sessions cost if they do nothing, which is not charged


def measure(groups: Sequence[Sequence[SessionHandle]]) -> list[GroupMemory]:
    """Return what each of some groups, or parts of groups, holds."""
    processes = all_processes()
    sessions = {handle.pid: (number, handle) for number, group in enumerate(groups) for handle in group}
    roots = roots_of(processes, sessions)
    sizes = {pid: sizes_of(pid) for pid in roots}
    held = [GroupMemory() for _ in groups]
    written, mapped = [0] * len(groups), [0] * len(groups)
    for pid, root in roots.items():
        number, handle = sessions[root]
        group, process, is_session = held[number], processes[pid], pid == root
        size, initial = sizes[pid], handle.spawner.sizes()
        # anonymous memory that came with the fork is not the process's own until it is written to
        before = handle.inherited if is_session else sizes.get(process.parent, initial)["RssAnon"]
        sure = max(0, size["RssAnon"] - max(initial["RssAnon"], before))
        idle = min(process.faults, _IDLE_FAULTS) * _PAGE if is_session else 0
        group.sure += sure + max(0, size["VmPTE"] - initial["VmPTE"])
        group.idle += idle
        group.pages += size["RssAnon"] - sure
        group.kernel += _THREAD_BYTES * (process.threads - is_session) + _PROCESS_BYTES * (not is_session)
        group.kernel += _DESCRIPTOR_BYTES * max(0, descriptors_of(pid) - _IDLE_DESCRIPTORS * is_session)
        written[number] += process.faults * _PAGE - idle - sure
        mapped[number] += size["RssShmem"]
    shared = _shared_memory_by_user()
    for number, group in enumerate(held):
        # a shared page becomes a process's own only by a page fault: faults bound what it may hold of them
        group.pages = min(group.pages, max(0, written[number])) + mapped[number]
        slot = groups[number][0].home
        # only such a slot is a file system of its own; elsewhere the files of groups cannot be told apart
        if slot.uid:
            status = os.statvfs(slot.path)
            group.sure += (status.f_blocks - status.f_bfree) * status.f_frsize + shared.get(slot.uid, (0, 0))[0]
            group.sure += (status.f_files - status.f_ffree) * _INODE_BYTES
    return held


def charge(held: Sequence[GroupMemory], pages: int, kernel: int) -> tuple[list[int], int]:
    """Divide memory that no group certainly holds among the groups that may hold it, in proportion.

    `pages` are bytes in use by programs, less what is certainly a group's; `kernel` is the same for what the kernel
    keeps. Returns the bytes for each group, and those that no group can hold.
    """
    shares = [one.sure for one in held]
    left = 0
    for amount, most in ((pages, [one.pages for one in held]), (kernel, [one.kernel for one in held])):
        part = min(1.0, max(0, amount) / (sum(most) or 1))  # the same fraction of each group's maximum
        shares = [share + int(part * bound) for share, bound in zip(shares, most)]  # noqa: B905  (Python 3.9)
        left += max(0, amount - sum(most))
    return shares, left


def _held_by_sockets(sessions: int, most: int) -> int:
    """Return the most bytes that the Unix sockets here can hold, but for those of so many sessions' channels.

    Connections that nobody has accepted and sockets on their way in others are among them. Counting stops at `most`.
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


def _shared_memory_by_user() -> dict[int, tuple[int, int]]:
    """Return the bytes and the number of files in /dev/shm by user."""
    held: dict[int, tuple[int, int]] = {}
    with contextlib.suppress(OSError), os.scandir(SHARED_MEMORY) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):  # it was removed meanwhile
                status = entry.stat(follow_symlinks=False)
                size, files = held.get(status.st_uid, (0, 0))
                held[status.st_uid] = (size + status.st_blocks * 512, files + 1)
    return held


# The watchdog of memory.
#
# The arithmetic: a session is ended when 80 % of the limit is in use (`_END_AT`). Below, the watchdog checks every
# 0.05 s, and every 0.01 s while memory rises fast, which is by more than 20 % of the limit per second (`_FAST_RISE`)
# above 40 % (`_WATCH_FROM`). At 0.05 s, memory that rises from 40 to 100 % between two checks would have to rise by 12
# times the limit per second. The kernel may be faster then, so while memory rises fast, the processes of the largest
# group are marked for the kernel to kill first.

_INTERVAL, _RISING_INTERVAL, _LONGEST_INTERVAL = 0.05, 0.01, 0.5
_FAST_RISE = 0.2  # of the limit, per second
_NOTICEABLE = 0.02  # of the limit
_END_AT = 0.8
_WATCH_FROM = 0.4
_LEAST_SHARE = 0.02  # ending a group that holds less would not help
_PATIENCE, _CALM = 3.0, 0.3


class MemoryWatchdog:
    """Checks the memory in use, and makes `other_checks` in each round as well.

    Where memory has to be added up over all processes, that is done only while a cell runs, or when the machine's
    available memory has become noticeably less. A limit of 0 is none, and then nothing is checked.
    """

    def __init__(
        self, limit: int, usage: CgroupUsage, sessions: Sessions, other_checks: Sequence[Callable[[], None]]
    ) -> None:
        self.limit = limit
        self._usage, self._sessions, self._loop, self._other_checks = usage, sessions, sessions.loop, other_checks
        self._last = self._available = 0
        self._patience = self._calm = self._not_before = self._latest = self._checked = 0.0
        self._ended: tuple[SessionHandle, Slot] | None = None
        self._marked: set[int] = set()  # processes that the kernel is to kill first
        if limit:
            self._loop.call_later(_INTERVAL, self._tick)

    def _tick(self) -> None:
        rising = False
        try:
            rising = self._check() if self._usage.counts_memory or self._worth_adding_up() else False
            for check in self._other_checks:
                check()
        finally:  # the next round comes, whatever has gone wrong in this one
            interval = _RISING_INTERVAL if rising and self._usage.counts_memory else _INTERVAL
            self._loop.call_later(interval, self._tick)

    def _worth_adding_up(self) -> bool:
        lines = text_of("/proc/meminfo").splitlines()[:3]
        found = [first_number(line.partition(":")[2]) << 10 for line in lines if line.startswith("MemAvailable:")]
        now, available = time.monotonic(), sum(found)
        busy = any(handle.current for handle in self._sessions.by_key.values())
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
        if used > _END_AT * self.limit and not self._still_ending():
            self._end_the_largest()
        elif rising or (self._marked and used < _WATCH_FROM * self.limit):
            self._mark_the_largest(rising)
        return rising

    def _still_ending(self) -> bool:
        """Whether a session that has ended may still hold its memory, which the kernel takes a moment to release.

        It may until its slot is swept and no unknown child is left, and for 0.3 s (`_CALM`) after that; for 3 s
        (`_PATIENCE`) in all.
        """
        now, known = time.monotonic(), self._ended and self._ended[0]
        for handle in self._sessions.by_key.values():
            # one that the kernel or its own code has ended
            if handle is not known and handle.slot and handle.pid and not alive(handle.pid):
                self._ended, self._patience = (handle, handle.home), now + _PATIENCE
        if self._ended is None or now > self._patience:
            return False
        handle, slot = self._ended
        if not handle.lost or slot.sweeping or self._sessions.unknown_children():
            self._calm = now + _CALM
        return now < self._calm

    def used(self) -> int:
        """Return the bytes in use."""
        if not self._usage.counts_memory:
            held = measure(self._groups())
            return sum(one.sure + one.pages for one in held) + _held_by_sockets(len(self._sessions.by_key), self.limit)
        used = self._usage.used()
        # cached files are subtracted only when it matters, since that takes another reading
        return used if used <= _END_AT * self.limit else used - self._usage.parts()["caches"]

    def _groups(self) -> list[list[SessionHandle]]:
        """Return the sessions that live, by group."""
        groups: dict[int, list[SessionHandle]] = {}
        for handle in self._sessions.by_key.values():
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
        parts = measure([[handle] for handle in group])
        sizes = [one.sure + one.pages + one.kernel for one in parts]
        largest = group[sizes.index(max(sizes))]
        self._ended, self._patience = (largest, largest.home), now + _PATIENCE
        self._sessions.kill(largest, "memory_limit", why)

    def _largest(self, groups: list[list[SessionHandle]]) -> tuple[list[SessionHandle], int]:
        """Return the group that holds most, and its bytes; none if more is of unknown owners, or it holds little."""
        if not groups:
            return [], 0
        held = measure(groups)
        shares, unknown = charge(held, *self._in_doubt(held))
        most = max(shares)
        return (groups[shares.index(most)] if most >= max(_LEAST_SHARE * self.limit, unknown) else []), most

    def _in_doubt(self, held: list[GroupMemory]) -> tuple[int, int]:
        """Return the bytes of programs and of the kernel that are not known to be a group's or the server's own."""
        if not self._usage.counts_memory:
            return sum(one.pages for one in held), _held_by_sockets(len(self._sessions.by_key), self.limit)
        parts = self._usage.parts()
        known = sizes_of(os.getpid())["RssAnon"] + sum(
            sizes_of(pid)["RssAnon"] for pid in set(self._sessions.zygotes.pids)
        )
        known += sum(one.sure + one.idle for one in held)
        return parts["programs"] - known, parts["kernel"]


# /dev/shm, which all groups share. It has room for every group's share twice over. While it is at most half full,
# nobody has to keep to the share.

_REST = 10  # pause after counting, in multiples of the time that counting took
_TOO_MUCH = "the session was ended because it held too much of /dev/shm, which all sessions share"


class SharedMemoryLimit:
    """Ends the sessions of groups that hold more than their share while /dev/shm is more than half full."""

    def __init__(self, config: dict[str, Any], sessions: Sessions) -> None:
        self._sessions = sessions
        self._groups = config["sessions"]
        self._most_files = 2 * self._groups * config["shared_files"]
        self._by_user = bool(config["first_uid"])
        self._next_count = 0.0

    def check(self) -> None:
        """End the sessions of groups that hold too much."""
        if not self._by_user:
            return  # the files cannot be told apart
        for uid in self._users_above_share():
            for handle in list(self._sessions.by_key.values()):
                if handle.pid and handle.slot and handle.slot.uid == uid:
                    self._sessions.kill(handle, "memory_limit", _TOO_MUCH)

    def _users_above_share(self) -> list[int]:
        """Return the users that hold more bytes or files than their share, if it is more than half full."""
        whole = os.statvfs(SHARED_MEMORY)
        size, most = (whole.f_blocks - whole.f_bfree) * whole.f_frsize, whole.f_blocks * whole.f_frsize
        files = whole.f_files - whole.f_ffree
        half_full = size > most // 2 or files > self._most_files // 2
        if not half_full or time.monotonic() < self._next_count:
            return []
        begun = time.monotonic()
        held = _shared_memory_by_user()
        now = time.monotonic()
        self._next_count = now + _REST * (now - begun)  # there may be many files, and nobody above the share
        share, share_files = most // 2 // self._groups, self._most_files // 2 // self._groups
        return [uid for uid, (size, files) in held.items() if uid and (size > share or files > share_files)]


# The CPU: one share for each cell that runs, whatever it starts.
#
# Of a group's runnable processes and threads, as many as it has running cells keep their priority, in turn. All others
# get the kernel's idle priority, so that they run only where nothing else wants to; this includes everything that
# outlives its cell. Sessions cannot raise their own priority, and what they start inherits it. A process that was
# started between two rounds is found in the next.

_SHARES_INTERVAL = 0.04  # less than the watchdog's 0.05 s, so that no round of it is missed
_BUSY = 0.4  # CPUs in use; below, nobody has to wait
_PAUSE, _PAUSE_AFTER_CHANGES = 100, 10  # multiples of the time that a round took
_DEFAULT = os.sched_param(0)


class CpuShares:
    """Sets the priorities of what the sessions run, where each group has a user of its own."""

    def __init__(self, own_users: bool, usage: CgroupUsage, sessions: Sessions) -> None:
        self._usage = usage
        self._sessions = sessions
        self._processes: dict[int, Process] = {}
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
        busy = spent - self._spent > _BUSY * (now - self._checked) if self._usage.counts_cpu else _others_running()
        self._spent, self._checked, self._next = spent, now, now + _SHARES_INTERVAL
        if busy:
            started = time.thread_time()
            pause = _PAUSE_AFTER_CHANGES if self._divide() else _PAUSE
            self._next = max(self._next, now + pause * (time.thread_time() - started))

    def _divide(self) -> bool:
        """Set priorities; returns whether any group has more to lower than to keep."""
        handles = {handle.pid: handle for handle in self._sessions.by_key.values() if handle.pid and handle.slot}
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
        found = ((thread, stat_of(f"{pid}/task/{thread}")) for thread in threads)
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
    """Whether this process can raise priorities again: not without the capability, nor in a user namespace."""
    own = os.getpriority(os.PRIO_PROCESS, 0)
    try:
        os.setpriority(os.PRIO_PROCESS, 0, own - 1)
        os.setpriority(os.PRIO_PROCESS, 0, own)
    except OSError:
        return False
    return True


def _others_running() -> bool:
    """Whether anything besides this process is running or runnable on this machine."""
    # the fourth word is "runnable/all"; this process itself is running while it reads it
    words = text_of("/proc/loadavg").split()
    return len(words) < 4 or first_number(words[3].replace("/", " ")) > 1


# File locks: each takes memory of the kernel that no limit counts.
#
# A POSIX lock takes 192 bytes, and a process can take 400,000 in a second. Refusing them would break sqlite3, so they
# are counted in /proc/locks. Reading that file takes 5 to 20 ms, mostly spent waiting, and more where there are many
# locks: a thread does it, and stops at the first user that holds too many.

_LOCKS = "/proc/locks"
_MOST_LOCKS = 1000  # for each user; a connection of sqlite3 takes four at most
_LOCK_INTERVAL = 0.2  # seconds between readings
_TOO_MANY = (
    f"the session was ended because its group held more than {_MOST_LOCKS} file locks, which take memory of the "
    "kernel, and it held the most of them"
)


class FileLockLimit:
    """Ends the session that holds most of the file locks of a group that has too many, where sessions are isolated."""

    def __init__(self, active: bool, sessions: Sessions) -> None:
        self._sessions = sessions
        self._wanted = threading.Event()
        self._found: dict[int, int] = {}
        if active and os.path.exists(_LOCKS):  # gVisor has no such file
            threading.Thread(target=self._work, daemon=True).start()

    def check(self) -> None:
        """Act on what was counted, and have the locks counted again."""
        found, self._found = self._found, {}
        self._wanted.set()
        if not found:
            return
        by_pid, held = self._sessions.by_pid, dict[int, int]()
        roots = roots_of(all_processes(), by_pid)
        for pid, locks in found.items():
            if pid in roots:  # orphans are killed anyway
                held[roots[pid]] = held.get(roots[pid], 0) + locks
        if held:
            self._sessions.kill(by_pid[max(held, key=lambda pid: held[pid])], "memory_limit", _TOO_MANY)

    def _work(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            begun = time.monotonic()
            with contextlib.suppress(OSError, ValueError, IndexError):  # a malformed line; it is read again
                self._found = too_many_locks()
            time.sleep(max(_LOCK_INTERVAL, _REST * (time.monotonic() - begun)))


def too_many_locks() -> dict[int, int]:
    """Return how many locks each process of the first user that holds too many holds; counting stops there."""
    held: dict[int, dict[int, int]] = {}
    users: dict[int, int] = {}
    with open(_LOCKS, "rb") as file:
        for line in file:
            pid = int(line.replace(b"-> ", b"").split()[4])  # it holds the lock, or waits for it
            if pid not in users:
                users[pid] = user_of(pid)
            of_user = held.setdefault(users[pid], {})
            of_user[pid] = of_user.get(pid, 0) + 1
            if users[pid] >= 0 and sum(of_user.values()) > _MOST_LOCKS:
                return of_user
    return {}
