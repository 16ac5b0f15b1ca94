"""Finds and ends processes and reads what they use, from /proc. Runs inside the sandbox."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Container, Iterator, Mapping
from typing import NamedTuple

_ROUNDS = 100
TICKS = os.sysconf("SC_CLK_TCK")


SHARED_MEMORY = "/dev/shm"


def text_of(path: str) -> str:
    """Return a file of /proc or of the control groups; "" if it cannot be read."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def first_number(text: str) -> int:
    """Return the number that a text begins with; 0 if it begins with none."""
    word = text.split(None, 1)[:1]
    return int(word[0]) if word and word[0].isdigit() else 0


def used_inodes(path: str) -> int:
    """Return how many inodes the file system at a path holds; its root directory is one."""
    status = os.statvfs(path)
    return status.f_files - status.f_ffree


def children(pid: int) -> list[int]:
    """Return the direct children of a process, including zombies; none if it is gone."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", errors="replace") as file:
                found += map(int, file.read().split())
    except FileNotFoundError:  # it is gone, or the kernel has no such file
        if os.path.exists(f"/proc/{pid}"):
            return [child for child, process in all_processes().items() if process.parent == pid]
    except (ProcessLookupError, PermissionError):
        return []
    return found


class Process(NamedTuple):
    """What /proc/PID/stat says; times in clock ticks, `start` since boot, `ticks` of CPU; state "R" is runnable."""

    parent: int
    state: str
    faults: int
    ticks: int
    threads: int
    policy: int
    start: int


def stat_of(place: int | str) -> Process | None:
    """Return facts about a process or a thread (7, "7/task/9"); None if it is gone."""
    try:
        # without a file object, to save time: this is done for every process in each round
        fd = os.open(f"/proc/{place}/stat", os.O_RDONLY)
    except OSError:
        return None
    try:
        # the program's name before the bracket may itself contain spaces and brackets
        state, *rest = os.read(fd, 1024).rpartition(b")")[2].split()
        parent, faults, user, system, threads, start, policy = (int(rest[at]) for at in (0, 6, 10, 11, 16, 18, 37))
        return Process(parent, state.decode(), faults, user + system, threads, policy, start)
    except (OSError, IndexError, ValueError):
        return None
    finally:
        os.close(fd)


def all_processes() -> dict[int, Process]:
    """Return every visible process."""
    found = ((int(name), stat_of(name)) for name in os.listdir("/proc") if name.isdigit())
    return {pid: process for pid, process in found if process is not None}


def user_of(pid: int) -> int:
    """Return the user of a process, -1 if it is gone; the owner of /proc/PID is root where memory is hidden."""
    try:
        with open(f"/proc/{pid}/status", errors="replace") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("Uid:"))
    except (OSError, StopIteration):
        return -1


def now_in_ticks() -> int:
    """Return the start time that a process would have if it started now, or a little earlier."""
    # one tick less, so that rounding never makes a new process older than the moment of this call
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * TICKS) - 1


def descendants(pid: int) -> Iterator[int]:
    """Yield the processes below a process, children before grandchildren."""
    level = children(pid)
    while level:
        yield from level
        level = [below for one in level for below in children(one)]


def ended_children() -> Iterator[tuple[int, int]]:
    """Collect the children that have ended: yield their pids and wait statuses."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            yield ended


def kill_tree(pid: int) -> None:
    """Kill a process and everything below it."""
    if pid > 1:
        kill_trees(lambda: [pid])


def kill_trees(roots: Callable[[], list[int]]) -> None:
    """Kill processes and everything below them, also if they fork as fast as they can.

    All are stopped before any is killed. A stopped process cannot fork, and still counts towards the limit on
    processes, so that each round finds fewer new ones. What still escapes becomes a child of the supervisor. `roots` is
    called in each round, since processes whose parents end move up.
    """
    for pid in stop_trees(roots):
        send_signal(pid, signal.SIGKILL)


def stop_trees(roots: Callable[[], list[int]]) -> set[int]:
    """Stop processes and everything below them, and return them; see `kill_trees`."""
    stopped: set[int] = set()
    for _ in range(_ROUNDS):  # until no new process appears
        found = {pid for root in roots() for pid in (root, *descendants(root))} - stopped
        if not found:
            break
        for pid in found:
            send_signal(pid, signal.SIGSTOP)
        stopped |= found
    return stopped


def send_signal(pid: int, number: int) -> None:
    """Send a signal; does nothing for a process that is gone or cannot be signalled."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def out_of_memory_kills(root: str = "/sys/fs/cgroup") -> int:
    """Return how often the kernel has killed for lack of memory, in this container or, failing that, this machine."""
    # version 2 of control groups, then version 1
    for name in ("memory.events", "memory/memory.oom_control", "/proc/vmstat"):
        text = text_of(os.path.join(root, name))
        if text:
            return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("oom_kill "))
    return 0


def roots_of(processes: Mapping[int, Process], roots: Container[int]) -> dict[int, int]:
    """Return for each process its nearest ancestor among the roots, or itself; others are left out."""
    known: dict[int, int] = {}
    for pid in processes:
        path: list[int] = []
        at = pid
        # bounded: processes end and numbers are reused while /proc is read, so that parents can form a circle
        while at not in known and at not in roots and at in processes and len(path) < len(processes):
            path.append(at)
            at = processes[at].parent
        root = at if at in roots else known.get(at, 0)
        known.update(dict.fromkeys((*path, pid), root))
    return {pid: root for pid, root in known.items() if root}


def sizes_of(pid: int) -> dict[str, int]:
    """Return bytes of a process: RssAnon, RssShmem (shared memory, tmpfs), VmPTE (page tables); zeros if it is gone."""
    sizes = _sizes_at(f"/proc/{pid}")
    if not sizes["VmPTE"]:  # a thread that has ended shows none, also the first of a process that goes on
        sizes = next(filter(lambda found: found["VmPTE"], map(_sizes_at, _other_threads(pid))), sizes)
    return sizes


def alive(pid: int) -> bool:
    """Whether a process still has its memory: it is neither gone nor ending."""
    return sizes_of(pid)["RssAnon"] > 0


def _sizes_at(place: str) -> dict[str, int]:
    sizes = {"RssAnon": 0, "RssShmem": 0, "VmPTE": 0}
    try:
        with open(f"{place}/status", errors="replace") as file:
            for line in file:
                name, _, rest = line.partition(":")
                if name in sizes:
                    sizes[name] = int(rest.split()[0]) << 10
    except (OSError, ValueError, IndexError):
        return dict.fromkeys(sizes, 0)
    return sizes


def _other_threads(pid: int) -> list[str]:
    """Return the places in /proc of all threads of a process but the first; none if it is gone."""
    try:
        return [f"/proc/{pid}/task/{thread}" for thread in os.listdir(f"/proc/{pid}/task") if thread != str(pid)]
    except OSError:
        return []


def descriptors_of(pid: int) -> int:
    """Return how many descriptors a process has open; before Linux 6.2, how many its table holds."""
    # where the first thread has ended, the table is that of the others, who share one
    found = map(_descriptors_at, (f"/proc/{pid}", *_other_threads(pid)))
    return next(filter(None, found), 0)


def _descriptors_at(place: str) -> int:
    try:
        number = os.stat(f"{place}/fd").st_size
        if number:
            return number
        with open(f"{place}/status", errors="replace") as file:
            return next((int(line.split()[1]) for line in file if line.startswith("FDSize:")), 0)
    except (OSError, ValueError, IndexError):
        return 0


def set_oom_preference(pid: int, most: bool) -> None:
    """Have the kernel kill a session's process first when memory runs out (`most`), or like any other session's."""
    # it may be gone, or have started another program, whose value cannot be changed
    with contextlib.suppress(OSError), open(f"/proc/{pid}/oom_score_adj", "w") as file:
        file.write("1000" if most else "500")


# Removes directories made by untrusted code.
#
# The trees may be deeper than any recursion limit, without permissions, full of links, and may change while they are
# removed. No link is followed: every directory is opened with O_NOFOLLOW, and names are looked up relative to
# descriptors only. Nothing recurses: subdirectories are moved to the top before they are emptied.

_PLACE = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(root: str) -> None:
    """Remove a directory with everything in it, or whatever else has its name; what cannot be removed is left."""
    try:
        os.unlink(root)
    except IsADirectoryError:
        with contextlib.suppress(OSError):
            _empty(root)
            os.rmdir(root)
    except OSError:  # it is not there
        return


def _empty(path: str) -> None:
    root = _enter(path, None)
    try:
        while names := os.listdir(root):  # again in each round, since subdirectories are moved up to here
            for name in names:
                if not _unlinked(name, root):
                    _take_apart(name, root)
    finally:
        os.close(root)


def _take_apart(name: str, root: int) -> None:
    """Remove a directory of the root, and move its own directories to the root."""
    place = _enter(name, root)
    try:
        for inner in os.listdir(place):
            if not _unlinked(inner, place):
                # gives it permissions: to move a directory, the kernel demands write access to it, since ".." changes
                os.close(_enter(inner, place))
                os.rename(inner, os.urandom(16).hex(), src_dir_fd=place, dst_dir_fd=root)
    finally:
        os.close(place)
    os.rmdir(name, dir_fd=root)


def _unlinked(name: str, place: int) -> bool:
    """Remove what is no directory; returns whether it was none."""
    try:
        os.unlink(name, dir_fd=place)
    except IsADirectoryError:
        return False
    return True


def _enter(name: str, place: int | None) -> int:
    """Open a directory, also one without permissions; NotADirectoryError for all else, links to one included."""
    path = os.open(name, _PLACE, dir_fd=place)
    try:
        # by way of /proc, since fchmod refuses an O_PATH descriptor, and the name may mean something else by now
        os.chmod(f"/proc/self/fd/{path}", 0o700)
        return os.open(f"/proc/self/fd/{path}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(path)
