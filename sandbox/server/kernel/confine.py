"""Confines a freshly forked process: user, limits, Landlock, seccomp. Runs inside the sandbox.

What the kernel lacks is left out and reported: `Confinement.facts` says what really separates sessions.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
from typing import Any

from sandbox.server.kernel.landlock import DEEPEST, abi, enter_branch, restrict, ruleset_for, separates_branches
from sandbox.server.kernel.seccomp import filter_here, install
from sandbox.server.kernel.syscalls import (
    drop_to,
    hide_memory,
    limit_process,
    limit_processes,
    limit_time,
    prefer_for_oom,
    process_facts,
)

_SPARE = 4
_NICE = 5


class Confinement:
    """What confines every session; created once, in the zygote.

    Args:
        config: what the client sent; with "first_uid" each group has a user of its own, with "harden" Landlock
            and seccomp are used.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        self._limits = config["limits"]
        self._own_users = bool(config["first_uid"])
        self._landlock = bool(config["harden"] and abi())
        self._filter = filter_here(config["loopback"]) if config["harden"] else b""
        self._layers = 0
        self._ruleset = -1

    def begin(self) -> None:
        """In the zygote: apply what is the same for all sessions; forks inherit it."""
        limit_process(self._limits)
        if self._filter:
            install(self._filter)

    def prepare(self, slot: str) -> None:
        """In the zygote, before a fork: create the rules for this slot."""
        if self._landlock:
            self._ruleset = ruleset_for(slot)

    def separate(self, uid: int) -> None:
        """Become the user of an empty slot, and kill whatever may still run as that user."""
        prefer_for_oom()  # as root, and not in the zygote, with which all sessions would end
        if self._own_users:
            drop_to(uid)
            end_all_of_this_user()
        hide_memory()

    def close_off(self) -> None:
        """Set the remaining limits and enter the Landlock domain; no code can undo that."""
        os.nice(_NICE)  # the supervisor and the client come first
        limit_time(self._limits["cpu_seconds"])
        if self._own_users:
            limit_processes(self._limits["processes"])
        if self._landlock:
            restrict(self._ruleset)
            self._layers = 1

    def check_depth(self) -> None:
        """Check whether one more fork can be separated from its parent.

        Raises:
            OSError: forks cannot be nested deeper.
        """
        if self._branches and self._layers >= DEEPEST:
            raise OSError(errno.E2BIG, "forks in a line cannot be nested deeper")

    def enter_branch(self) -> None:
        """In a fork: make its origin and its siblings unreachable for signals."""
        if self._branches:
            enter_branch()
            self._layers += 1

    def leave_branches(self) -> None:
        """In the original: make its forks unreachable for it, as long as enough domains are left for more forks."""
        if self._branches and self._layers < DEEPEST - _SPARE:
            with contextlib.suppress(OSError):  # the code itself has nested domains; the forks are made
                self.enter_branch()

    @property
    def _branches(self) -> bool:
        return self._layers > 0 and separates_branches()

    def facts(self, uid: int) -> dict[str, Any]:
        """Confine this process, a child that is about to end, and return what has worked."""
        separation = []
        if self._own_users:
            drop_to(uid)
            separation.append("uid")
        hide_memory()
        if self._landlock:
            restrict(ruleset_for("/dev/shm"))
            separation.append("landlock")
        if self._filter:
            separation.append("seccomp")
        return {
            "separation": separation,
            "landlock": abi(),
            "internet": _makes_internet_sockets(),
            "session": process_facts(),
        }


def _makes_internet_sockets() -> bool:
    try:
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close()
    except OSError:
        return False
    return True


def end_all_of_this_user() -> None:
    """Kill every other process of this user, at once, so that none escapes by forking."""
    try:
        os.kill(-1, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return
