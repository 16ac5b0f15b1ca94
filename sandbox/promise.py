"""Compares what a server has found around itself with what its backend stands for."""

from __future__ import annotations

from typing import Any


def unkept_promise(name: str, facts: dict[str, Any]) -> str:
    """Return what is wrong with a server's surroundings; empty if nothing is.

    Args:
        name: of the backend.
        facts: of the server's hello.
    """
    if name == "unsafe_local":
        return ""
    faults = {
        "it runs as root": facts["uid"] == 0 and name == "docker",
        f"it has capabilities ({facts['capabilities']:#x})": facts["capabilities"] != 0,
        "it could gain privileges": not facts["no_new_privileges"],
        "its root file system is writable": not facts["read_only_root"],
        f"it has network interfaces ({facts['interfaces']})": set(facts["interfaces"]) - {"lo"},
    }
    return "; ".join(fault for fault, present in faults.items() if present)
