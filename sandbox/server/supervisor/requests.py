"""Dispatches the client's requests to sessions, and answers for sessions that end. Runs inside the sandbox.

The requests of one session are served one after the other, in the order in which they came; closing and interrupting
do not wait. Each request gets exactly one reply, whatever the session does.
"""

from __future__ import annotations

import errno
import math
import os
import signal
import time
from typing import Any

from sandbox.server.kernel.processes import kill_tree, out_of_memory_kills, send_signal
from sandbox.server.supervisor.cell_execution import CellExecution, killed
from sandbox.server.supervisor.client_stream import ClientRequest, ClientStream
from sandbox.server.supervisor.cpu_shares import restore_priority
from sandbox.server.supervisor.event_loop import EventLoop
from sandbox.server.supervisor.file_requests import FileRequests
from sandbox.server.supervisor.session_channels import SessionChannels
from sandbox.server.supervisor.session_creation import SessionCreation
from sandbox.server.supervisor.session_forks import SessionForks
from sandbox.server.supervisor.session_handle import SessionHandle
from sandbox.server.supervisor.session_messages import SessionMessages
from sandbox.server.supervisor.session_table import SessionTable
from sandbox.server.supervisor.shared_memory_limit import SharedMemoryLimit
from sandbox.server.supervisor.slots import Slots
from sandbox.server.supervisor.zygote_client import Zygotes
from sandbox.server.wire import CLOSE, FORK, GAVE_UP, INTERRUPT, OPEN, RUN, RUN_ONCE

_LONGEST_END = 5.0
_LATELY = 3.0  # an end is reported when the kernel has released the memory of the process, which takes a while
_CLOSED = "this session is closed; open a new interpreter"


class SessionRequests:
    """Serves the requests of all sessions; implements `SessionControl`.

    Args:
        config: what the client sent.
        loop: the supervisor's event loop.
        client: where answers go.
        table: the sessions.
        slots: where they go.
        zygotes: what forks them.

    Attributes:
        shared_memory: the limit on /dev/shm.
    """

    def __init__(
        self,
        config: dict[str, Any],
        loop: EventLoop,
        client: ClientStream,
        table: SessionTable,
        slots: Slots,
        zygotes: Zygotes,
    ) -> None:
        self._loop = loop
        self._client = client
        self._table = table
        self._slots = slots
        # `_messages` is made last, since it needs the others; it is looked up when a session first sends something
        self._channels = SessionChannels(loop, lambda handle: self._messages.read(handle))
        self.shared_memory = SharedMemoryLimit(config, table, self.kill)
        self._creation = SessionCreation(loop, client, table, slots, zygotes, self._channels, self)
        self._forks = SessionForks(loop, table, slots, self._channels, self._creation)
        self._cells = CellExecution(config["limits"], loop, client, self._channels, self, self.shared_memory.check)
        self._files = FileRequests(loop, self._channels, self)
        self._messages = SessionMessages(loop, self._creation, self._forks, self._cells, self._files, self.kill)
        self._memory_kills = out_of_memory_kills()
        self._memory_killed = -math.inf  # when the kernel has last killed for memory

    def note_memory_kills(self) -> None:
        """Note whether the kernel has killed for lack of memory since the last look."""
        kills, before = out_of_memory_kills(), self._memory_kills
        if kills > before:
            self._memory_kills, self._memory_killed = kills, time.monotonic()

    def take(self, request: ClientRequest) -> None:
        """Take a request that concerns a session."""
        key = request.fields["session"]
        if request.kind in (OPEN, RUN_ONCE):
            self._creation.open(request, key)
            return
        handle = self._table.sessions.get(key)
        # before the check for closed sessions: for those the answer is that nothing was running, and no error
        if request.kind == INTERRUPT:
            self._cells.interrupt(handle, request)
        elif handle is None:
            self._client.fail(request.number, "SessionLost", _CLOSED)
        elif request.kind == CLOSE:
            self._close(handle, request.number)
        elif handle.lost or handle.closing:
            self._answer_too_late(handle, request)
        else:
            handle.queue.append(request)
            self.advance(handle)

    def advance(self, handle: SessionHandle) -> None:
        """Start the next request of a session, if the session is free."""
        if handle.current or not handle.queue or not handle.pid or handle.lost or handle.cause:
            return
        request = handle.current = handle.queue.popleft()
        request.started = time.monotonic()
        # else the request would wait for the CPU until the next division of it
        if handle.idle:
            restore_priority(handle)
        try:
            if request.kind == RUN:
                self._cells.run(handle, request)
            elif request.kind == FORK:
                self._forks.fork(handle, request)
            else:
                self._files.begin(handle, request)
        except OSError as error:
            self.kill(handle, "killed", f"its control channel is closed ({error.strerror})")

    def answer(self, handle: SessionHandle, request: ClientRequest, fields: dict[str, Any], succeeded: bool) -> None:
        """Answer a request. A step is answered only if it fails, and its answer is that of the whole RUN_ONCE.

        The session of a RUN_ONCE ends with that answer.
        """
        if request.step and succeeded:
            return
        self._client.reply(request.number, {**fields, "step": request.step} if request.step else fields)
        if handle.once:
            handle.queue.clear()
            if fields.get("alive", True):
                self._close(handle, 0)
            else:
                handle.closing.append(0)

    def _answer_too_late(self, handle: SessionHandle, request: ClientRequest) -> None:
        """Answer a request to a session that is gone. If the code has ended it, that is a result and not an error."""
        if request.step:
            return  # the run that it prepares is answered
        if handle.ended is None:
            self._client.fail(request.number, "SessionLost", handle.lost or _CLOSED)
        elif request.kind == RUN:
            self._client.reply(request.number, killed(*handle.ended))
        elif request.kind == FORK:
            self._client.fail(request.number, "SessionEnded", handle.lost)
        else:
            self._client.reply(request.number, {"errno": errno.EIO})

    def _close(self, handle: SessionHandle, number: int) -> None:
        """End a session; one that is being created is ended as soon as it has reported, by `SessionCreation`."""
        handle.closing.append(number)
        if handle.lost:
            self.forget(handle)
        elif handle.pid:
            self._end(handle)
        elif handle.slot is None:
            self._creation.failed(handle, _CLOSED)

    def kill(self, handle: SessionHandle, cause: str, why: str) -> None:
        """Kill a session; its open requests are answered when its process has ended.

        Args:
            handle: the session.
            cause: the status of the current cell.
            why: the reason, as text.
        """
        # the first cause counts: what comes later is mostly its consequence
        if handle.cause or handle.lost:
            return
        handle.cause, handle.why = cause, why
        self._end(handle)

    def _end(self, handle: SessionHandle) -> None:
        if handle.slot and handle.slot.uid:
            send_signal(handle.pid, signal.SIGKILL)  # what it has started is killed as orphans, or by its user
        else:
            kill_tree(handle.pid)
        self._loop.call_in(_LONGEST_END, lambda: self._give_up(handle))

    def _give_up(self, handle: SessionHandle) -> None:
        """Treat a session as ended whose exit is not reported, since it is not a child of the supervisor any more."""
        if not handle.lost:
            self._table.by_pid.pop(handle.pid, None)
            self.on_exit(handle, None)

    def on_exit(self, handle: SessionHandle, status: int | None) -> None:
        """Answer for a session whose process has ended; `status` is as waitpid reports it, None if unknown."""
        cause, why = self._exit_cause(handle, status)  # this also finds out who is a bystander
        request, handle.current = handle.current, None
        lost = _CLOSED if handle.closing else f"the session has ended ({why}); open a new interpreter"
        if not handle.closing and not handle.bystander:
            later_status = cause if cause == "memory_limit" else "killed"
            handle.ended = (later_status, f"the session had ended before this cell: {why}")
        # a cell that was running gets the outcome; other requests are answered like those that come later
        run = request is not None and request.kind == RUN and handle.ended is not None
        if request and run:
            self._cells.cut_off(handle, request, cause, why)
        waiting = list(handle.queue)
        # a fork is answered by `on_parent_exit`, when its copies have been dealt with as well
        if request and not run and request.kind != FORK:
            waiting.insert(0, request)
        # before the answers, which read `handle.lost`
        self.discard(handle, lost)
        for late in waiting:
            self._loop.cancel(late.timer)
            self._answer_too_late(handle, late)
        if handle.once and not handle.closing:
            handle.closing.append(0)
        self._forks.on_parent_exit(handle)
        if handle.closing:
            self.forget(handle)

    def _exit_cause(self, handle: SessionHandle, status: int | None) -> tuple[str, str]:
        """Return the status of the current cell, and the reason as text."""
        if handle.cause:
            return handle.cause, handle.why or handle.cause
        if handle.closing:
            return "killed", _CLOSED
        if status is None:
            return "killed", "the process is gone"
        code = os.waitstatus_to_exitcode(status)
        if code == -signal.SIGKILL and self._killed_for_memory():
            # the kernel chooses by the size of processes, and does not see whose memory runs out
            handle.bystander |= self._memory_killed - handle.blamed > _LATELY
            whose = "which others held" if handle.bystander else "and it held the most, with its forks"
            return "memory_limit", f"the process was killed because the sandbox ran out of memory, {whose}"
        if code == GAVE_UP:
            return "killed", f"the code has closed the interpreter's control channel (exit code {code})"
        if code >= 0:
            return "killed", f"the process ended with exit code {code}"
        return "killed", f"the process was killed by {_signal_name(-code)}"

    def _killed_for_memory(self) -> bool:
        """Whether a process that was killed just now was so for lack of memory: the kernel counts, and names none."""
        self.note_memory_kills()
        return time.monotonic() - self._memory_killed < _LATELY

    def discard(self, handle: SessionHandle, lost: str) -> None:
        """Release what a session that is gone has held."""
        if handle.lost:
            return
        handle.lost = lost
        handle.queue.clear()
        self._channels.close(handle)
        self._slots.leave(handle)

    def forget(self, handle: SessionHandle) -> None:
        """Remove a session that is gone, and tell the client that it is closed."""
        self._table.sessions.pop(handle.key, None)
        for number in filter(None, handle.closing):
            self._client.reply(number, {})


def _signal_name(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"
