"""Compares the isolation that a server has measured with what its backend must provide."""

from __future__ import annotations

from typing import Any

_KILL_SETGID_SETUID_SYS_NICE = 1 << 5 | 1 << 6 | 1 << 7 | 1 << 23
_FITTED = ("command", "kubernetes")  # somebody else makes the container


def isolation_fault(backend: str, facts: dict[str, Any]) -> str:
    """Return what is wrong with the isolation; empty if nothing is.

    Args:
        backend: its name. "unsafe_local" need not provide anything; a server behind "http" has checked its own. The
            containers of "command" and "kubernetes" may have a network, as every pod has, if sessions cannot make
            sockets for it.
        facts: from the server's HELLO. The server measures them in its own process ("supervisor") and in a child that
            is confined as sessions are ("session").
    """
    if "fault" in facts:
        return str(facts["fault"])
    if backend in ("unsafe_local", "http"):
        return ""
    session, supervisor = facts["session"], facts["supervisor"]
    fitted = backend in _FITTED
    network = set(facts["interfaces"]) - {"lo"}
    faults = {
        # without "uid" (bubblewrap without root) sessions have the server's own user, whatever its number is
        "sessions run as root": session["uid"] == 0 and (fitted or "uid" in facts["separation"]),
        "neither users nor Landlock separate sessions from each other": fitted
        and not {"uid", "landlock"} & set(facts["separation"]),
        "sessions run as the container's user": backend == "docker" and "uid" not in facts["separation"],
        f"sessions have capabilities ({session['capabilities']:#x})": session["capabilities"] != 0,
        # the supervisor changes users, kills sessions and sets their priorities; it needs nothing else
        f"the supervisor has capabilities ({supervisor['capabilities']:#x})": bool(
            supervisor["capabilities"] & ~_KILL_SETGID_SETUID_SYS_NICE
        ),
        "sessions could gain privileges": not session["no_new_privileges"],
        "its root file system is writable": not facts["read_only_root"],
        f"it has network interfaces ({', '.join(sorted(network))})": bool(network)
        and (not fitted or facts["internet"]),
    }
    return "; ".join(fault for fault, present in faults.items() if present)
