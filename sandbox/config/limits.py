"""How much a sandbox and each of its sessions may use, and which limits a backend cannot enforce.

Every limit is enforced by the kernel or by the supervisor. Exceptions are documented at the field, and reported at run
time by a warning and in `Sandbox.isolation`.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

_LEAST_MEMORY = 64 << 20
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_REASONS = {
    "cpus": "Limits.cpus is not enforced: {backend} has no CPU controller; cells share the CPUs of the whole machine",
    "memory": "Limits.memory is enforced by the watchdog alone: the engine's kernel has no memory controller",
    "pids": "the processes of a container are not limited, only those of each group: the engine's kernel has no pids "
    "controller",
}
_MISSING = {
    "cpus": "Limits.cpus is not enforced: the container's control group does not limit its CPUs to that",
    "memory": "Limits.memory is enforced by the watchdog alone: the container has no control group with a memory limit",
    "pids": "the container's processes are not limited, only those of each group, where groups have their own users",
    "disk": "Limits.disk is not enforced: the groups of sessions share one file system, whose size limits all together",
    "network": "the container has a network; the refusal of sockets, and the network's own rules, keep code from it",
}
_CONTROLLERS = {"cpus": ("CpuCfsPeriod", "CpuCfsQuota"), "memory": ("MemoryLimit",), "pids": ("PidsLimit",)}
# shared by all containers of this program, so that each limit is warned of once
_warned: set[str] = set()


@dataclass(frozen=True)
class Limits:
    """Limits of a sandbox. A group is a session with all its forks, and the forks of those.

    Attributes:
        memory: of all sessions of a container together, "2g" or bytes. Before it is reached, the supervisor ends
            the largest session of the group that uses most. (docker: also the container's limit; unsafe_local: not
            enforced.)
        session_memory: bytes of private memory of each process (RLIMIT_DATA; the address space may be 1 GiB more).
        cpus: CPUs that a container may use, such as 1.5; None does not limit it. (docker only, where the engine's
            kernel has a CPU controller; otherwise `Sandbox.isolation` says "no(cpus)", and there is a warning.)
        processes: processes and threads of a group (RLIMIT_NPROC; of all sessions together where they share a
            user: bubblewrap without root; not enforced in unsafe_local).
        disk: bytes of a group's directories (size of its tmpfs; of all together where they share a user; not
            enforced in unsafe_local).
        file_size: bytes of one file.
        open_files: descriptors of one process.
        cpu_seconds: CPU time of one process, over all its cells.
        output_bytes: how much of each of stdout and stderr (bytes), value and error (characters) is kept: half
            from the head and half from the tail.
        output_limit: bytes a cell may write before it is stopped with status "output_limit".
        timeout: seconds a cell may take, unless `run` is given another number.
        grace: seconds between the interrupt (the session lives on) and the kill (it does not).
    """

    memory: str | int = "4g"
    cpus: float | None = None
    session_memory: int = 1 << 30
    processes: int = 256
    disk: int = 128 << 20
    file_size: int = 64 << 20
    open_files: int = 512
    cpu_seconds: int = 3600
    output_bytes: int = 64 << 10
    output_limit: int = 8 << 20
    timeout: float = 10.0
    grace: float = 1.0

    def __post_init__(self) -> None:
        for name in ("session_memory", "processes", "disk", "file_size", "cpu_seconds", "output_bytes", "output_limit"):
            _at_least(name, getattr(self, name), 1, whole=True)
        # a session keeps the descriptors 199 and 200, and the code needs some above them
        _at_least("open_files", self.open_files, 256, whole=True)
        _at_least("grace", self.grace, 0.01)
        _at_least("timeout", self.timeout, 0.01)
        if self.cpus is not None:
            _at_least("cpus", self.cpus, 0.01)
        if parse_size(self.memory) < _LEAST_MEMORY:
            raise ValueError(f"Limits.memory is {self.memory!r}; a container needs at least {_LEAST_MEMORY >> 20} MB")


def _at_least(name: str, value: float, least: float, whole: bool = False) -> None:
    kinds = (int,) if whole else (int, float)
    # True is an int; and NaN fails the comparisons
    if isinstance(value, bool) or not isinstance(value, kinds) or not least <= value < math.inf:
        raise ValueError(f"Limits.{name} is {value!r}; it has to be a {'whole ' * whole}number, at least {least}")


def parse_size(size: str | int) -> int:
    """Return a number of bytes: 1024, "512m", "2g".

    Raises:
        ValueError: it is not a size.
    """
    match = re.fullmatch(r"(\d+)([kmg]?)b?", str(size).strip().lower())
    if match is None:
        raise ValueError(f"{size!r} is not a size; write a number of bytes, or a number with k, m or g, such as '2g'")
    return int(match[1]) * _UNITS[match[2]]


def unenforced_limits(backend: str, info: Mapping[str, Any] | None = None) -> dict[str, str]:
    """Return which limits cannot be enforced ("cpus", "memory", "pids"), and why.

    Args:
        backend: "docker", "bubblewrap" or "unsafe_local".
        info: what a Docker engine reports about itself.
    """
    if info is None:
        missing = ["cpus"]
    else:
        # only an explicit False counts: engines that do not report a field may well have the controller
        missing = [name for name, fields in _CONTROLLERS.items() if any(info.get(field) is False for field in fields)]
    where = "the engine's kernel" if info is not None else backend
    return {name: _REASONS[name].format(backend=where) for name in missing}


def warn_of_unenforced_limits(backend: str, limits: Limits, info: Mapping[str, Any] | None = None) -> tuple[str, ...]:
    """Warn once of each limit that was asked for and cannot be enforced; return their names."""
    reasons = unenforced_limits(backend, info)
    if limits.cpus is None:
        reasons.pop("cpus", None)
    _warn_once(reasons.values())
    return tuple(reasons)


def warn_of_missing_limits(names: Iterable[str]) -> None:
    """Warn once of each of these limits, which a server has not found in its container."""
    _warn_once(_MISSING[name] for name in names if name in _MISSING)


def _warn_once(reasons: Iterable[str]) -> None:
    for reason in reasons:
        if reason not in _warned:
            _warned.add(reason)
            warnings.warn(reason, RuntimeWarning, stacklevel=3)
