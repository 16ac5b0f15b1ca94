"""Starts the zygote, has it fork sessions, a few at a time, and hears of their ends. Runs inside, in the supervisor."""

from __future__ import annotations

import array
import contextlib
import json
import os
import socket
import sys
from collections import deque
from typing import TYPE_CHECKING

from sandbox.server.supervisor.session_handle import Handle
from sandbox.server.wire import DIED, ENDED, HELLO, SPAWN, SWEEP, Frames, pack

if TYPE_CHECKING:
    from sandbox.server.supervisor.slots import Slot
    from sandbox.server.supervisor.supervisor import Supervisor

_AT_ONCE = 8
_MOST_STARTS = 5
_LATER = 0.05


class Spawner:
    """The supervisor's side of a zygote.

    Args:
        supervisor: whose zygote it is.
        script: the server's source.
        preload: the modules that the zygote imports.

    Attributes:
        pid: of the zygote.
    """

    def __init__(self, supervisor: Supervisor, script: bytes, preload: list[str]) -> None:
        self._supervisor = supervisor
        self._script = script
        self._preload = preload
        self._control: socket.socket | None = None
        self._frames = Frames()
        self._ready = False
        self._waiting: deque[Handle] = deque()
        self._under_way: set[Handle] = set()
        self._starts = 0
        self.pid = 0

    def start_zygote(self) -> None:
        """Start the zygote, or start it again when a session has managed to kill it."""
        self._starts += 1
        if self._starts > _MOST_STARTS:
            sys.stderr.write(f"the zygote died {_MOST_STARTS} times in a row; Python can not run in this sandbox\n")
            self._supervisor.stop()
            return
        if self._control is not None:
            self._hear()
            self._supervisor.unwatch(self._control.fileno())
            self._control.close()
        self._control, theirs = socket.socketpair()
        self._frames, self._ready = Frames(), False
        bootstrap = self._supervisor.config["bootstrap"]
        self.pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-s", "-c", bootstrap],
            self._environment(),
            file_actions=[
                (os.POSIX_SPAWN_DUP2, theirs.fileno(), 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            ],
        )
        theirs.close()
        config = json.dumps({**self._supervisor.config, "role": "zygote", "preload": self._preload}).encode()
        with contextlib.suppress(OSError):  # it has died at once; its death is noticed and it is started again
            self._control.sendall(b"%016d" % len(self._script) + self._script + b"%016d" % len(config) + config)
        self._control.setblocking(False)
        self._supervisor.watch(self._control.fileno(), self._hear)

    def _environment(self) -> dict[str, str]:
        environment = {"PATH": os.environ.get("PATH", os.defpath), **_ENVIRONMENT, **_HUGE_PAGES}
        if self._supervisor.config["packages"]:
            environment["PYTHONPATH"] = self._supervisor.config["packages"]
        return environment

    def _hear(self) -> None:
        """Take in what the zygote says: what holds its sessions, once, and how they end."""
        if self._control is None:
            return
        try:
            data = self._control.recv(1 << 16)
        except OSError:
            return
        if not data:
            self._supervisor.unwatch(self._control.fileno())
            return
        for kind, number, payload in self._frames.feed(data):
            if kind == HELLO:
                self._ready, self._starts = True, 0
                self._supervisor.introduce(self, json.loads(payload))
                self._advance()
            elif kind == DIED:
                self._supervisor.died(number, ENDED.unpack(payload)[0])

    def sweep(self, slot: Slot, directories: list[str], kill: bool) -> socket.socket | None:
        """Have directories removed by a process of the user they belong to.

        Args:
            slot: whose user that is.
            directories: what to remove, a few at a time.
            kill: end all other processes of that user before, and remove all that is in the slot or in shared memory.

        Returns:
            A socket that comes to its end when that is done; None if it can not be done now.
        """
        try:
            ours, theirs = socket.socketpair()
        except OSError:  # no descriptors are left
            return None
        order = json.dumps({"uid": slot.uid, "slot": slot.path, "directories": directories, "kill": kill}).encode()
        with theirs:
            if not self._order(SWEEP, order, (theirs.fileno(),)):
                ours.close()
                return None
        return ours

    def open(self, handle: Handle) -> None:
        """Have a session forked for this handle; its READY, or the end of its channel, tells how it went."""
        self._waiting.append(handle)
        self._advance()

    def settled(self, handle: Handle) -> None:
        """Take note that a session is there, or will never be."""
        self._under_way.discard(handle)
        self._advance()

    def _advance(self) -> None:
        while self._ready and self._waiting and len(self._under_way) < _AT_ONCE:
            handle = self._waiting[0]
            slot = handle.slot
            if slot is None:  # it has been given up meanwhile
                self._waiting.popleft()
                continue
            order = {"uid": slot.uid, "slot": slot.path, "directory": handle.directory}
            if not self._order(SPAWN, json.dumps(order).encode(), handle.given):
                return  # the zygote is dead; its successor takes the queue over
            self._waiting.popleft()
            self._under_way.add(handle)
            handle.release()

    def _order(self, kind: int, payload: bytes, fds: tuple[int, ...]) -> bool:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
        try:
            if self._control is not None and self._ready:
                self._control.sendmsg([pack(kind, 0, payload)], rights)
                return True
        except BlockingIOError:  # it is busy
            self._supervisor.call_in(_LATER, self._advance)
        except OSError:
            self._ready = False
        return False


_HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""Has big blocks of memory in huge pages, which makes forking them cheap; sessions do not see it."""
_ENVIRONMENT = {
    "LANG": "C.UTF-8",
    "MALLOC_ARENA_MAX": "2",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
}
"""The whole environment of a session, but for PATH, HOME and TMPDIR."""
