"""Starts the zygotes, has them fork sessions and empty slots, and learns of their sessions' ends. Runs inside.

There are two zygotes: one has imported the profile's packages, the other has imported nothing.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import re
import socket
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

from sandbox.server.supervisor.event_loop import EventLoop
from sandbox.server.supervisor.session_handle import SessionHandle, Slot
from sandbox.server.wire import DIED, ENDED, HELLO, SPAWN, SWEEP, Frames, pack

_AT_ONCE = 8  # sessions that are being forked
_MOST_STARTS = 5  # in a row, without a zygote that was ready
_RETRY_SECONDS = 0.05
_LONG_TEXT = 1 << 18


class ZygoteClient:
    """The supervisor's side of one zygote.

    Args:
        config: what the client sent.
        script: the server's source.
        preload: the modules that the zygote imports.
        loop: the supervisor's event loop.
        on_ready: called with the zygote's facts each time it is ready.
        on_exit: called with pid and wait status when a child of the zygote has ended.

    Attributes:
        pid: of the zygote.
    """

    def __init__(
        self,
        config: dict[str, Any],
        script: bytes,
        preload: list[str],
        loop: EventLoop,
        on_ready: Callable[[dict[str, Any]], None],
        on_exit: Callable[[int, int], None],
    ) -> None:
        self._config = config
        self._script = script
        self._preload = preload
        self._loop = loop
        self._on_ready = on_ready
        self._on_exit = on_exit
        self._control: socket.socket | None = None
        self._frames = Frames()
        self._ready = False
        self._waiting: deque[SessionHandle] = deque()
        self._under_way: set[SessionHandle] = set()
        self._starts = 0
        self.pid = 0

    def start(self) -> None:
        """Start the zygote; called again when it has died."""
        self._starts += 1
        if self._starts > _MOST_STARTS:
            sys.stderr.write(f"the zygote died {_MOST_STARTS} times in a row; Python cannot run in this sandbox\n")
            self._loop.stop()
            return
        if self._control is not None:
            self._receive()  # what the old one has still sent
            self._loop.unwatch(self._control.fileno())
            self._control.close()
        self._control, theirs = socket.socketpair()
        self._frames, self._ready = Frames(), False
        self.pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-s", "-c", self._config["bootstrap"]],
            self._environment(),
            file_actions=[
                (os.POSIX_SPAWN_DUP2, theirs.fileno(), 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            ],
        )
        theirs.close()
        config = json.dumps({**self._config, "role": "zygote", "preload": self._preload}).encode()
        with contextlib.suppress(OSError):  # it has died at once; its exit is noticed, and it is started again
            self._control.sendall(b"%016d" % len(self._script) + self._script + b"%016d" % len(config) + config)
        self._control.setblocking(False)
        self._loop.watch(self._control.fileno(), self._receive)

    def _environment(self) -> dict[str, str]:
        environment = {"PATH": os.environ.get("PATH", os.defpath), **_ENVIRONMENT, **_HUGE_PAGES}
        if self._config["packages"]:
            environment["PYTHONPATH"] = self._config["packages"]
        return environment

    def _receive(self) -> None:
        """Read what the zygote reports: that it is ready, and how its sessions end."""
        if self._control is None:
            return
        try:
            data = self._control.recv(1 << 16)
        except OSError:
            return
        if not data:
            self._loop.unwatch(self._control.fileno())
            return
        for kind, number, payload in self._frames.feed(data):
            if kind == HELLO:
                self._ready, self._starts = True, 0
                self._on_ready(json.loads(payload))
                self._advance()
            elif kind == DIED:
                self._on_exit(number, ENDED.unpack(payload)[0])

    def sweep(self, slot: Slot, directories: list[str], kill: bool) -> socket.socket | None:
        """Have directories removed by a process of the user they belong to.

        Args:
            slot: the slot of that user.
            directories: what to remove, a few at a time.
            kill: first kill all other processes of that user, and also remove all that is in the slot or in shared
                memory.

        Returns:
            A socket that reaches its end when that is done; None if it cannot be done now.
        """
        try:
            ours, theirs = socket.socketpair()
        except OSError:  # no descriptors are left
            return None
        order = json.dumps({"uid": slot.uid, "slot": slot.path, "directories": directories, "kill": kill}).encode()
        with theirs:
            if not self._send(SWEEP, order, (theirs.fileno(),)):
                ours.close()
                return None
        return ours

    def open(self, handle: SessionHandle) -> None:
        """Have a session forked for this handle; its READY, or the end of its channel, is the answer."""
        self._waiting.append(handle)
        self._advance()

    def settled(self, handle: SessionHandle) -> None:
        """Note that a session has started, or never will."""
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
            if not self._send(SPAWN, json.dumps(order).encode(), handle.given):
                return  # the zygote is dead; the next one takes over the queue
            self._waiting.popleft()
            self._under_way.add(handle)
            handle.release()

    def _send(self, kind: int, payload: bytes, fds: tuple[int, ...]) -> bool:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
        try:
            if self._control is not None and self._ready:
                self._control.sendmsg([pack(kind, 0, payload)], rights)
                return True
        except BlockingIOError:  # it is busy
            self._loop.call_in(_RETRY_SECONDS, self._advance)
        except OSError:
            self._ready = False
        return False


class Zygotes:
    """The two zygotes, and which of them forks a session.

    Args:
        config: what the client sent.
        script: the server's source.
        loop: the supervisor's event loop.
        on_ready: called once, with the facts that the full zygote has measured.
        on_exit: called with pid and wait status when a session of a zygote has ended.

    Attributes:
        full: has imported the profile's packages.
        lean: has imported nothing. It is the same as `full` for a profile without packages.
    """

    def __init__(
        self,
        config: dict[str, Any],
        script: bytes,
        loop: EventLoop,
        on_ready: Callable[[dict[str, Any]], None],
        on_exit: Callable[[int, int], None],
    ) -> None:
        self._on_ready = on_ready
        self._introduced = False
        self._packages = re.compile("")
        preload = config["preload"]
        self.full = ZygoteClient(config, script, preload, loop, self._full_is_ready, on_exit)
        self.lean = ZygoteClient(config, script, [], loop, lambda _: None, on_exit) if preload else self.full

    def start(self) -> None:
        """Start the zygotes."""
        for zygote in {self.full, self.lean}:
            zygote.start()

    def with_pid(self, pid: int) -> ZygoteClient | None:
        """Return the zygote that is this process, if one is."""
        return next((zygote for zygote in (self.full, self.lean) if zygote.pid == pid), None)

    @property
    def pids(self) -> tuple[int, int]:
        """The zygotes' processes."""
        return self.full.pid, self.lean.pid

    def for_texts(self, texts: list[str]) -> ZygoteClient:
        """Return what forks the session for a fresh run of these texts: the lean zygote if they name no package.

        Forking the lean one takes half the time. Code that imports a package without naming it gets it nevertheless,
        after the time that the import takes.
        """
        # a long text goes to the full zygote unread, since the search would take longer than the fork
        named = any(len(text) > _LONG_TEXT or self._packages.search(text) for text in texts)
        return self.full if named else self.lean

    def _full_is_ready(self, facts: dict[str, Any]) -> None:
        if not self._introduced:  # it may be started again
            self._introduced = True
            self._packages = re.compile("|".join(rf"\b{re.escape(name)}\b" for name in facts.pop("packages")))
            self._on_ready(facts)


_HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""Puts large blocks of memory into huge pages, which makes forking them cheap. Sessions do not see the variable."""
_ENVIRONMENT = {
    "LANG": "C.UTF-8",
    "MALLOC_ARENA_MAX": "2",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
}
"""The whole environment of a session, apart from PATH, HOME and TMPDIR."""
