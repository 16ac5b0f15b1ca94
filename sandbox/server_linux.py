"""The few Linux calls the server needs that the standard library lacks. Runs inside the sandbox."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator, Mapping

_PDEATHSIG, _DUMPABLE, _CHILD_SUBREAPER = 1, 4, 36
_CAPABILITIES_V3 = 0x20080522
_ROUNDS = 100
_TICKS = os.sysconf("SC_CLK_TCK")
_libc = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int) -> None:
    zero = ctypes.c_ulong(0)
    if _libc.prctl(option, ctypes.c_ulong(value), zero, zero, zero) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value})")


def hide_memory() -> None:
    """Let no other process of this user trace this one or open its descriptors; forks inherit it, exec ends it."""
    _prctl(_DUMPABLE, 0)


def adopt_orphans(on: bool = True) -> None:
    """Become (or cease to be) the parent of descendants whose own parent ends."""
    _prctl(_CHILD_SUBREAPER, int(on))


def die_with_parent() -> None:
    """Be killed when the parent ends."""
    _prctl(_PDEATHSIG, signal.SIGKILL)


def prefer_for_oom() -> None:
    """Have the kernel take this process, and what it forks, before the supervisor when memory runs out."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    except OSError:
        return  # /proc is read-only in some containers; the order of the victims is then the kernel's


def drop_user(uid: int) -> None:
    """Become `uid` for good, and lose every capability."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_V3, 0)
    if _libc.capset(header, (ctypes.c_uint32 * 6)()) != 0:
        raise OSError(ctypes.get_errno(), "capset")
    die_with_parent()


def limit_processes(most: int) -> None:
    """Bound the processes and threads of this user, which has to be the sandbox's own."""
    resource.setrlimit(resource.RLIMIT_NPROC, (most, most))


def limit_process(limits: Mapping[str, int]) -> None:
    """Set the limits of a session's process; whatever it starts inherits them."""
    wanted = {
        resource.RLIMIT_DATA: limits["session_memory"],
        resource.RLIMIT_AS: limits["session_memory"] + (1 << 30),
        resource.RLIMIT_FSIZE: limits["file_size"],
        resource.RLIMIT_NOFILE: limits["open_files"],
        resource.RLIMIT_CORE: 0,
    }
    for kind, value in wanted.items():
        hard = resource.getrlimit(kind)[1]
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        resource.setrlimit(kind, (value, value))


def raise_file_limit() -> None:
    """Allow this process as many descriptors as it may have: the supervisor holds three for each session."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def children(pid: int) -> list[int]:
    """Return the direct children of a process, zombies included; none if it is gone."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
        found: list[int] = []
        for thread in threads:
            with open(f"/proc/{pid}/task/{thread}/children") as file:
                found += map(int, file.read().split())
        return found
    except FileNotFoundError:
        return _children_by_scan(pid) if os.path.exists(f"/proc/{pid}") else []
    except (ProcessLookupError, PermissionError):
        return []


def _children_by_scan(pid: int) -> list[int]:
    """For kernels without /proc/PID/task/TID/children."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and _field(int(name), 4) == pid]


def _field(pid: int, number: int) -> int:
    """Return a field of /proc/PID/stat by its number in proc(5), -1 if the process is gone."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[number - 3])
    except (OSError, IndexError):
        return -1


def start_time(pid: int) -> int:
    """Return when a process started, in clock ticks since boot."""
    return _field(pid, 22)


def now_in_ticks() -> int:
    """Return the time that a process starting now would have, or a little earlier."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * _TICKS) - 1


def descendants(pid: int) -> Iterator[int]:
    """Yield the processes below a process, children before grandchildren."""
    level = children(pid)
    while level:
        yield from level
        level = [below for one in level for below in children(one)]


def kill_tree(pid: int) -> None:
    """Kill a process and everything below it."""
    if pid > 1:
        kill_trees(lambda: [pid])


def kill_trees(roots: Callable[[], list[int]]) -> None:
    """Kill processes and everything below them, also if they fork as fast as they can.

    All are stopped before any is killed: what is stopped can not fork and keeps its place among the processes
    that the limit allows, so that each round finds fewer new ones. What still escapes becomes a child of the
    supervisor.

    Args:
        roots: called in each round, since processes whose parents end move up.
    """
    stopped: set[int] = set()
    for _ in range(_ROUNDS):
        found = {pid for root in roots() for pid in (root, *descendants(root))} - stopped
        if not found:
            break
        for pid in found:
            send(pid, signal.SIGSTOP)
        stopped |= found
    for pid in stopped:
        send(pid, signal.SIGKILL)


def send(pid: int, number: int) -> None:
    """Send a signal; a process that is gone, or not ours, is left alone."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def out_of_memory_kills() -> int:
    """Return how often the kernel has killed in this container for memory (0 where that can not be read)."""
    for path in ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"):
        try:
            with open(path) as file:
                counts = dict(line.split() for line in file)
            return int(counts.get("oom_kill", 0))
        except (OSError, ValueError):
            continue
    return 0


def isolation_facts() -> dict[str, object]:
    """Return what really stands around this process; the client compares it with what it asked for."""
    with open("/proc/self/status") as file:
        status = dict(line.split(":", 1) for line in file)
    with open("/proc/net/dev") as file:
        interfaces = [line.split(":")[0].strip() for line in file if ":" in line]
    return {
        "uid": os.getuid(),
        "capabilities": int(status["CapEff"], 16) | int(status["CapPrm"], 16),
        "no_new_privileges": status.get("NoNewPrivs", "0").strip() == "1",
        "read_only_root": bool(os.statvfs("/").f_flag & os.ST_RDONLY),
        "interfaces": interfaces,
    }
