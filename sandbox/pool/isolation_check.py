"""Compares what a server has found around itself with what its backend stands for."""

from __future__ import annotations

from typing import Any

_KILL_SETGID_SETUID_SYS_NICE = 1 << 5 | 1 << 6 | 1 << 7 | 1 << 23


def unkept_promise(backend: str, facts: dict[str, Any]) -> str:
    """Return what is wrong, or nothing.

    Args:
        backend: its name; "unsafe_local" promises nothing.
        facts: from the server's hello, measured in its own process and in one confined as sessions are.
    """
    if "fault" in facts:
        return str(facts["fault"])
    if backend == "unsafe_local":
        return ""
    session, supervisor = facts["session"], facts["supervisor"]
    faults = {
        "sessions run as root": session["uid"] == 0 and "uid" in facts["separation"],
        "sessions run as the container's user": backend == "docker" and "uid" not in facts["separation"],
        f"sessions have capabilities ({session['capabilities']:#x})": session["capabilities"] != 0,
        f"the supervisor has capabilities ({supervisor['capabilities']:#x})": bool(
            supervisor["capabilities"] & ~_KILL_SETGID_SETUID_SYS_NICE
        ),
        "sessions could gain privileges": not session["no_new_privileges"],
        "its root file system is writable": not facts["read_only_root"],
        f"it has network interfaces ({facts['interfaces']})": set(facts["interfaces"]) - {"lo"},
    }
    return "; ".join(fault for fault, present in faults.items() if present)
