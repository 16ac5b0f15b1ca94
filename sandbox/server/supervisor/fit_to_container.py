"""Fits the server to a container that another program has made. Runs inside the sandbox, in the supervisor.

The backends "docker" and "bubblewrap" make the container and know what is in it. Behind "command" and "kubernetes"
anything may be: which users there are, where sessions may write, and which limits the kernel keeps is looked up here,
before the first session. What is missing is reported, or refused.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

from sandbox.server.kernel.syscalls import capabilities, keep_capabilities, surroundings
from sandbox.server.supervisor.shared_memory_limit import SHARED_MEMORY

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
        text = _text(name).strip()
        if text.isdigit() and int(text) < _UNLIMITED:
            return int(text)
    return 0


def _cpus() -> float:
    """Return the number of CPUs that the control group may use; 0 if it is not limited."""
    words = _text("cpu.max").split() or [_text(f"cpu/cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
    if len(words) != 2 or not all(word.isdigit() for word in words):
        return 0.0
    return int(words[0]) / int(words[1])


def _text(name: str) -> str:
    try:
        with open(os.path.join(_CGROUPS, name)) as file:
            return file.read()
    except OSError:
        return ""


def _network() -> list[str]:
    """Return "network" if the container has any: seccomp refuses sockets to it, and nothing else here does."""
    return ["network"] if set(surroundings()["interfaces"]) - {"lo"} else []
