"""Limits that a backend can not keep on this machine: they are named, warned of, and never silently left out."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from sandbox.config.limits import Limits

_WITHOUT_CONTROLLER = {
    "cpus": "Limits.cpus is not kept: {backend} has no CPU controller; cells share the whole machine's CPU",
    "memory": "Limits.memory is kept by the watchdog alone: the engine's kernel has no memory controller",
    "pids": "the processes of a container are not limited, only those of each family: the engine's kernel has no pids "
    "controller",
}
_CONTROLLERS = {"cpus": ("CpuCfsPeriod", "CpuCfsQuota"), "memory": ("MemoryLimit",), "pids": ("PidsLimit",)}
_warned: set[str] = set()


def unkept_limits(backend: str, info: Mapping[str, Any] | None = None) -> dict[str, str]:
    """Return which limits are not kept, "cpus", "memory" or "pids", and why.

    Args:
        backend: "docker", "bubblewrap" or "unsafe_local".
        info: what a Docker engine says of itself.
    """
    if info is None:
        lacking = ["cpus"]
    else:
        lacking = [name for name, fields in _CONTROLLERS.items() if any(info.get(field) is False for field in fields)]
    where = "the engine's kernel" if info is not None else backend
    return {name: _WITHOUT_CONTROLLER[name].format(backend=where) for name in lacking}


def warn_of(backend: str, limits: Limits, info: Mapping[str, Any] | None = None) -> tuple[str, ...]:
    """Warn once of each limit that was asked for and is not kept; return their names."""
    unkept = unkept_limits(backend, info)
    if limits.cpus is None:
        unkept.pop("cpus", None)
    for why in unkept.values():
        if why not in _warned:
            _warned.add(why)
            warnings.warn(why, RuntimeWarning, stacklevel=2)
    return tuple(unkept)
