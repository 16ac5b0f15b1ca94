"""Bounds what each group holds in /dev/shm, which all groups share. Runs inside the sandbox, in the supervisor.

/dev/shm has room for every group's share twice over. While it is at most half full, nobody has to keep to the share.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from typing import Any

from sandbox.server.supervisor.session_handle import SessionHandle
from sandbox.server.supervisor.session_table import SessionTable

SHARED_MEMORY = "/dev/shm"
_REST = 10  # pause after counting, in multiples of the time that counting took
_WHY = "the session was ended because it held too much of /dev/shm, which all sessions share"


class SharedMemoryLimit:
    """Ends the sessions of groups that hold more than their share while /dev/shm is more than half full.

    Args:
        config: what the client sent.
        table: the sessions.
        kill: ends a session, with the status of its cell and a reason.
    """

    def __init__(
        self, config: dict[str, Any], table: SessionTable, kill: Callable[[SessionHandle, str, str], None]
    ) -> None:
        self._table = table
        self._kill = kill
        self._groups = config["sessions"]
        self._most_files = 2 * self._groups * config["shared_files"]
        self._by_user = bool(config["first_uid"])
        self._next_count = 0.0

    def check(self) -> None:
        """End the sessions of groups that hold too much."""
        if not self._by_user:
            return  # the files cannot be told apart
        for uid in self._users_above_share():
            for handle in list(self._table.sessions.values()):
                if handle.pid and handle.slot and handle.slot.uid == uid:
                    self._kill(handle, "memory_limit", _WHY)

    def _users_above_share(self) -> list[int]:
        """Return the users that hold more bytes or files than their share, if it is more than half full."""
        whole = os.statvfs(SHARED_MEMORY)
        size, most = (whole.f_blocks - whole.f_bfree) * whole.f_frsize, whole.f_blocks * whole.f_frsize
        files = whole.f_files - whole.f_ffree
        half_full = size > most // 2 or files > self._most_files // 2
        if not half_full or time.monotonic() < self._next_count:
            return []
        begun = time.monotonic()
        held = _held_by_user()
        now = time.monotonic()
        self._next_count = now + _REST * (now - begun)  # there may be many files, and nobody above the share
        share, share_files = most // 2 // self._groups, self._most_files // 2 // self._groups
        return [uid for uid, (size, files) in held.items() if uid and (size > share or files > share_files)]


def _held_by_user() -> dict[int, list[int]]:
    """Return bytes and number of files by user."""
    held: dict[int, list[int]] = {}
    with os.scandir(SHARED_MEMORY) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):  # it was removed meanwhile
                status = entry.stat(follow_symlinks=False)
                found = held.setdefault(status.st_uid, [0, 0])
                found[0] += status.st_blocks * 512
                found[1] += 1
    return held


def used_inodes(path: str) -> int:
    """Return how many inodes the file system at a path holds; its root directory is one."""
    status = os.statvfs(path)
    return status.f_files - status.f_ffree
