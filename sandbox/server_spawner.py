"""Starts the zygote, and has it fork sessions, a few at a time. Runs inside the sandbox, in the supervisor."""

from __future__ import annotations

import array
import contextlib
import json
import os
import socket
import sys
from collections import deque
from typing import TYPE_CHECKING

from sandbox.server_handle import Handle
from sandbox.wire import SPAWN, pack

if TYPE_CHECKING:
    from sandbox.server import Supervisor

_AT_ONCE = 8
_MOST_STARTS = 5


class Spawner:
    """The supervisor's side of the zygote.

    Args:
        supervisor: whose zygote it is.
        script: the server's source.
    """

    def __init__(self, supervisor: Supervisor, script: bytes) -> None:
        self._supervisor = supervisor
        self._script = script
        self._control: socket.socket | None = None
        self._waiting: deque[Handle] = deque()
        self._under_way: set[Handle] = set()
        self._starts = 0
        self.pid = 0

    def start_zygote(self) -> None:
        """Start the zygote, or start it again when a session has managed to kill it."""
        self._starts += 1
        if self._starts > _MOST_STARTS:
            raise RuntimeError(f"the zygote died {_MOST_STARTS} times in a row; Python can not run in this sandbox")
        if self._control is not None:
            self._control.close()
        self._control, theirs = socket.socketpair()
        environment = {"PATH": os.environ.get("PATH", os.defpath), **_ENVIRONMENT}
        bootstrap = self._supervisor.config["bootstrap"]
        self.pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-s", "-c", bootstrap],
            environment,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, theirs.fileno(), 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            ],
        )
        theirs.close()
        config = json.dumps({**self._supervisor.config, "role": "zygote"}).encode()
        with contextlib.suppress(OSError):  # it has died at once; its death is noticed and it is started again
            self._control.sendall(b"%016d" % len(self._script) + self._script + b"%016d" % len(config) + config)
        self._control.setblocking(False)
        self._advance()

    def open(self, handle: Handle) -> None:
        """Have a session forked for this handle; its READY, or the end of its channel, tells how it went."""
        self._waiting.append(handle)
        self._advance()

    def settled(self, handle: Handle) -> None:
        """Take note that a session is there, or will never be."""
        self._under_way.discard(handle)
        if handle.pid:
            self._starts = 0
        self._advance()

    def _advance(self) -> None:
        while self._waiting and len(self._under_way) < _AT_ONCE and self._control is not None:
            handle = self._waiting.popleft()
            self._under_way.add(handle)
            frame = pack(SPAWN, 0, handle.directory.encode())
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", handle.given))]
            try:
                self._control.sendmsg([frame], rights)
            except OSError:  # the zygote is dead; its successor takes the queue over
                self._under_way.discard(handle)
                self._waiting.appendleft(handle)
                return
            handle.release()


_ENVIRONMENT = {
    "LANG": "C.UTF-8",
    "MALLOC_ARENA_MAX": "2",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
}
"""The whole environment of a session, but for PATH, HOME and TMPDIR."""
