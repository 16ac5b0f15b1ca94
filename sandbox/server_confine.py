"""Puts a freshly forked process behind bars: user, limits, Landlock, seccomp. Runs inside the sandbox.

What the kernel lacks is left out, and reported: `Confinement.separation` says what really stands between sessions.
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Any

from sandbox.server_landlock import DEEPEST, abi, enter_branch, restrict, ruleset_for, separates_branches
from sandbox.server_linux import drop_to, hide_memory, limit_process, limit_processes, process_facts, surroundings
from sandbox.server_seccomp import filter_here, install

_SPARE = 4
_NICE = 5


class Confinement:
    """What every session is held by; made once, in the zygote.

    Args:
        config: what the client sent; with "first_uid" each family has a user of its own, with "harden" Landlock
            and seccomp are used.

    Attributes:
        ruleset: descriptor of the Landlock rules, from `separate` to `close_off`; or -1.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        self._limits = config["limits"]
        self._own_users = bool(config["first_uid"])
        self._landlock = bool(config["harden"] and abi())
        self._filter = filter_here() if config["harden"] else b""
        self._layers = 0
        self.ruleset = -1

    def separate(self, uid: int, slot: str, empty: bool) -> None:
        """Become the slot's user; if the slot is meant to be empty, end what may still run as that user."""
        if self._landlock:
            self.ruleset = ruleset_for(slot)
        if self._own_users:
            drop_to(uid)
            if empty:
                end_all_of_this_user()
        hide_memory()

    def close_off(self) -> None:
        """Set the limits and enter the domains; what comes after this can not be undone by any code."""
        os.nice(_NICE)
        limit_process(self._limits)
        if self._own_users:
            limit_processes(self._limits["processes"])
        if self._landlock:
            restrict(self.ruleset)
            os.close(self.ruleset)
            self._layers = 1
        if self._filter:
            install(self._filter)

    def check_depth(self) -> None:
        """See whether one more fork can be separated from its parent.

        Raises:
            OSError: this is the last one in a line of forks.
        """
        if self._branches and self._layers >= DEEPEST:
            raise OSError(f"forks in a line can be {DEEPEST - 1} deep; fork an ancestor, or replay in a new session")

    def enter_branch(self) -> None:
        """In a fork: make those it came from, and its siblings, unreachable for signals."""
        if self._branches:
            enter_branch()
            self._layers += 1

    def leave_branches(self) -> None:
        """In the original: make its forks unreachable for it, as long as there are domains to spare for more forks."""
        if self._branches and self._layers < DEEPEST - _SPARE:
            with contextlib.suppress(OSError):  # the code itself has nested domains; the forks are made
                self.enter_branch()

    @property
    def _branches(self) -> bool:
        return self._layers > 0 and separates_branches()

    def facts(self, uid: int) -> dict[str, Any]:
        """Try everything out in this process, a child that is about to end, and return what has come of it."""
        separation = []
        if self._own_users:
            drop_to(uid)
            separation.append("uid")
        hide_memory()
        if self._landlock:
            restrict(ruleset_for("/dev/shm"))
            separation.append("landlock")
        if self._filter:
            install(self._filter)
            separation.append("seccomp")
        return {"separation": separation, "landlock": abi(), "session": process_facts(), **surroundings()}


def end_all_of_this_user() -> None:
    """Kill every other process of this user, at once, so that none escapes by forking."""
    try:
        os.kill(-1, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return
