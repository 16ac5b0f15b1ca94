"""Settings of a sandbox, and arguments of its sessions: what is wrong is refused here, before anything is sent."""

from __future__ import annotations

import math
import re
import shlex
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_LEAST_MEMORY = 64 << 20
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
UNENFORCED = {
    "cpus": "Limits.cpus is not enforced: there is no CPU controller here; cells share the CPUs of the whole machine",
    "memory": "Limits.memory is enforced by the watchdog alone: there is no control group with a memory limit",
    "pids": "the processes of a container are not limited, only those of each group, where groups have their own users",
    "disk": "Limits.disk is not enforced: the groups of sessions share one file system, whose size limits all together",
    "network": "the container has a network; the refusal of sockets, and the network's own rules, keep code from it",
}
"""Limits that some place cannot enforce, and what that means; `Sandbox.isolation` has their names."""
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
            _check_number(f"Limits.{name}", getattr(self, name), 1, whole=True)
        # a session keeps the descriptors 199 and 200, and the code needs some above them
        _check_number("Limits.open_files", self.open_files, 256, whole=True)
        for name in ("grace", "timeout", *(() if self.cpus is None else ("cpus",))):
            _check_number(f"Limits.{name}", getattr(self, name), 0.01)
        if parse_size(self.memory) < _LEAST_MEMORY:
            raise ValueError(f"Limits.memory is {self.memory!r}; a container needs at least {_LEAST_MEMORY >> 20} MB")


def _check_number(name: str, value: float, least: float, most: float = math.inf, whole: bool = False) -> None:
    kinds = (int,) if whole else (int, float)
    # True is an int; and NaN fails the comparisons
    if isinstance(value, bool) or not isinstance(value, kinds) or not least <= value <= most or value == math.inf:
        up_to = "" if most == math.inf else f" and at most {most}"
        raise ValueError(f"{name} is {value!r}; it has to be a {'whole ' * whole}number, at least {least}{up_to}")


def parse_size(size: str | int) -> int:
    """Return a number of bytes: 1024, "512m", "2g"."""
    match = re.fullmatch(r"(\d+)([kmg]?)b?", str(size).strip().lower())
    if match is None:
        raise ValueError(f"{size!r} is not a size; write a number of bytes, or a number with k, m or g, such as '2g'")
    return int(match[1]) * _UNITS[match[2]]


def unenforced_limits(info: Mapping[str, Any] | None) -> list[str]:
    """Return the names of the limits that a Docker engine which reports this, or without one this machine, lacks."""
    if info is None:
        return ["cpus"]
    # only an explicit False counts: engines that do not report a field may well have the controller
    return [name for name, fields in _CONTROLLERS.items() if any(info.get(field) is False for field in fields)]


def warn_of_unenforced_limits(names: Iterable[str], limits: Limits) -> tuple[str, ...]:
    """Warn once of each of these limits that was asked for; return their names."""
    found = tuple(name for name in names if name != "cpus" or limits.cpus is not None)
    for name in found:
        if name not in _warned:
            _warned.add(name)
            warnings.warn(UNENFORCED[name], RuntimeWarning, stacklevel=3)
    return found


PROFILES = ("minimal", "math", "data")
BACKENDS = ("auto", "docker", "bubblewrap", "command", "unsafe_local")
_VERSION = r"(===?|~=|!=|[<>]=?)[\w.*+!-]+"
# a name as pip has it, with extras and versions, and nothing that pip would take for an option, a file or an address
_PACKAGE = re.compile(rf"\w[\w.-]*(\[\w[\w.,-]*\])?({_VERSION}(,{_VERSION})*)?", re.ASCII)


def package_names(packages: Sequence[str]) -> tuple[str, ...]:
    """Return requirements of pip in one order and without spaces, so that equal ones are the same."""
    if isinstance(packages, str) or not isinstance(packages, Sequence):
        raise ValueError(f"packages={packages!r}; it has to be a list, such as ['networkx', 'pandas==3.0.6']")
    words = sorted({"".join(str(one).split()) for one in packages})
    for word in words:
        if not _PACKAGE.fullmatch(word):
            raise ValueError(f"packages: {word!r} is not a package, such as 'networkx', 'pandas==3.0.6' or 'rich>=13'")
    return tuple(words)


def command_words(command: str | Sequence[str], name: str = "command") -> tuple[str, ...]:
    """Return the words of a command; a text is split as a shell does it. `name` is where it comes from."""
    try:
        words = tuple(shlex.split(command) if isinstance(command, str) else command)
    except (TypeError, ValueError) as error:  # the command is not shown, since it may hold a password
        raise ValueError(f"{name} cannot be split into words as a shell does it: {error}") from None
    if not all(isinstance(word, str) and "\0" not in word for word in words) or "" in words[:1]:
        raise ValueError(f"{name} has to be a text or a list of texts, of which the first names a program")
    return words


@dataclass(frozen=True)
class SandboxOptions:
    """The arguments of `sandbox.Sandbox`, which documents them, checked; how to start each server, and how many.

    Attributes:
        backend: one of `BACKENDS`, or "http".
        packages: in the form of `package_names`.
        host: the Docker engine, as in DOCKER_HOST, or the address of a sandbox server; None is that of the environment.
        command: its words; None takes those of the environment.
    """

    limits: Limits = field(default_factory=Limits)
    sessions: int = 64
    profile: str = "math"
    image: str | None = None
    runtime: str | None = None
    host: str | None = None
    containers: int = 4
    command: tuple[str, ...] | None = None
    start_wait: float = 300.0
    token: str = field(default="", repr=False)
    wait: float = 600.0
    packages: tuple[str, ...] = ()
    backend: str = "auto"

    def __post_init__(self) -> None:
        for name, most in (("sessions", 128), ("containers", math.inf)):
            _check_number(name, getattr(self, name), 1, most, whole=True)
        for name in ("start_wait", "wait"):
            _check_number(name, getattr(self, name), 1e-3)
        if not isinstance(self.limits, Limits):
            raise TypeError(f"limits={self.limits!r}; write Limits(...)")
        if self.profile not in PROFILES:
            raise ValueError(f"there is no profile {self.profile!r}; choose one of {', '.join(PROFILES)}")
        if self.packages and self.image is not None:
            raise ValueError(
                f"packages={list(self.packages)} go into the image that is built here, not into image={self.image!r}: "
                "give one of the two, or build an image with both by hand (docs/how-to/sandbox-images.md)"
            )

    @property
    def software(self) -> str:
        """What the code can import, in one text: the profile, and the packages added to it."""
        return " ".join((self.profile, *self.packages))
