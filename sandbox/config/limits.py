"""How much a sandbox and each of its sessions may use.

What the operating system cannot enforce for a backend is said at the field; nothing here is a promise that is
not kept by a kernel limit or by the supervisor.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

_LEAST_MEMORY = 64 << 20
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


@dataclass(frozen=True)
class Limits:
    """Limits of a sandbox. A family is a session with all its forks, and the forks of those.

    Attributes:
        memory: of all sessions of a container together, "2g" or bytes. Before it is reached the supervisor ends
            the largest session of the family that uses most. (docker: also the container's limit; unsafe_local: not
            limited.)
        session_memory: bytes of private memory of each process (RLIMIT_DATA; the address space may be 1 GiB more).
        cpus: CPUs that a container may use, 1.5 such as; None does not limit it. (docker only, where the engine's
            kernel has a CPU controller; else `Sandbox.isolation` says "no(cpus)", and a warning is given.)
        processes: processes and threads of a family (RLIMIT_NPROC; of all sessions together where they share a
            user: bubblewrap without root; not limited in unsafe_local).
        disk: bytes of a family's directories (size of its tmpfs; of all together where they share a user; not
            limited in unsafe_local).
        file_size: bytes of one file.
        open_files: descriptors of one process.
        cpu_seconds: CPU time of one process, over all its cells.
        output_bytes: how much of each of stdout and stderr (bytes), value and error (characters) is kept, half
            from the head and half from the tail.
        output_limit: bytes a cell may write before it is stopped with status "output_limit".
        timeout: seconds a cell may take when `run` is not told otherwise.
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
        _at_least("open_files", self.open_files, 256, whole=True)
        _at_least("grace", self.grace, 0.01)
        _at_least("timeout", self.timeout, 0.01)
        if self.cpus is not None:
            _at_least("cpus", self.cpus, 0.01)
        if parse_size(self.memory) < _LEAST_MEMORY:
            raise ValueError(f"Limits.memory is {self.memory!r}; a container needs {_LEAST_MEMORY >> 20} MB at least")


def _at_least(name: str, value: float, least: float, whole: bool = False) -> None:
    kinds = (int,) if whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds) or not least <= value < math.inf:
        raise ValueError(f"Limits.{name} is {value!r}; it has to be a {'whole ' * whole}number, at least {least}")


def parse_size(size: str | int) -> int:
    """Return a number of bytes: 1024, "512m", "2g".

    Raises:
        ValueError: not a size.
    """
    match = re.fullmatch(r"(\d+)([kmg]?)b?", str(size).strip().lower())
    if match is None:
        raise ValueError(f"{size!r} is no size; write bytes, or a number with k, m or g, such as '2g'")
    return int(match[1]) * _UNITS[match[2]]
