"""Which sessions there are, and which processes belong to them. Runs inside the sandbox, in the supervisor.

The supervisor is the parent of all orphans. A child that belongs to no session is an orphan, left behind by a session
that is gone; or it is a session that is being created and has not reported yet. The kernel does not tell them apart,
but their start times do: while sessions are being created, only children that are older than the first of them are
certainly orphans. Younger ones are left alone until those sessions have reported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sandbox.server.kernel.processes import kill_trees, now_in_ticks, own_children, start_time
from sandbox.server.supervisor.event_loop import EventLoop
from sandbox.server.supervisor.session_handle import SessionHandle
from sandbox.server.supervisor.zygote_client import Zygotes

_SWEEP_DELAY = 0.02


class SessionTable:
    """The sessions by key and by process.

    Args:
        limits: the client's limits.
        loop: the supervisor's event loop.
        zygotes: the parents of new sessions.
        on_exit: called with a session and its wait status when its process has ended.

    Attributes:
        sessions: by the client's key.
        by_pid: those whose process is known.
        creating: those whose process may exist and is not known yet.
        exited: wait statuses of unknown children that have ended while sessions were being created; one of them may
            turn out to be such a session.
    """

    def __init__(
        self,
        limits: dict[str, Any],
        loop: EventLoop,
        zygotes: Zygotes,
        on_exit: Callable[[SessionHandle, int | None], None],
    ) -> None:
        self._limits = limits
        self._loop = loop
        self._zygotes = zygotes
        self._on_exit = on_exit
        self._sweep_planned = False
        self.sessions: dict[int, SessionHandle] = {}
        self.by_pid: dict[int, SessionHandle] = {}
        self.creating: set[SessionHandle] = set()
        self.exited: dict[int, int] = {}

    def add(self, key: int) -> SessionHandle:
        """Return the handle of a session that is about to be created, without channels."""
        handle = self.sessions[key] = SessionHandle(key, self._limits, self._zygotes.full)
        return handle

    def expect(self, handle: SessionHandle) -> None:
        """Note that the process of a session may appear from now on."""
        handle.created_after = now_in_ticks()
        self.creating.add(handle)

    def settled(self, handle: SessionHandle) -> None:
        """Note that a session has started, or never will."""
        self.creating.discard(handle)
        # nobody will ask for these any more, and their numbers may be given to other processes
        if not self.creating:
            self.exited.clear()

    def child_exited(self, pid: int, status: int) -> None:
        """Note the end of a process."""
        handle = self.by_pid.pop(pid, None)
        if handle is not None:
            self._on_exit(handle, status)
        elif self.creating:
            self.exited[pid] = status  # its READY may be read later than its end

    def unknown_children(self) -> list[int]:
        """Return children that belong to no session: orphans, and sessions that have not reported yet."""
        pids = self._zygotes.pids
        return [pid for pid in own_children() if pid not in self.by_pid and pid not in pids]

    def orphans(self) -> list[int]:
        """Return children that sessions have left behind: those that are older than every session being created."""
        oldest = min((handle.created_after for handle in self.creating), default=None)
        return [pid for pid in self.unknown_children() if oldest is None or start_time(pid) < oldest]

    def check_orphans(self) -> None:
        """Kill what has left its session, whose memory and time nobody would be charged with."""
        if self.unknown_children():
            self.kill_orphans_soon()

    def kill_orphans_soon(self) -> None:
        """Kill what sessions have left behind, in a moment."""
        if not self._sweep_planned:
            self._sweep_planned = True
            self._loop.call_in(_SWEEP_DELAY, self._kill_orphans)

    def _kill_orphans(self) -> None:
        self._sweep_planned = False
        if self.unknown_children():  # again soon, until none is left: some may still be too young to judge
            kill_trees(self.orphans)
            self.kill_orphans_soon()
