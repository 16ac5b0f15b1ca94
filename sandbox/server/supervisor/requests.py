"""Hands the client's requests on, listens to the sessions, and buries them. Runs inside the sandbox.

Requests of one session are done one after the other, in the order they came; closing and interrupting do not wait.
Exactly one reply goes out for each request, whatever the session does.
"""

from __future__ import annotations

import errno
import os
import signal
import time
import traceback
from typing import TYPE_CHECKING, Any

from sandbox.server.kernel.processes import kill_tree, out_of_memory_kills, send
from sandbox.server.supervisor.cell_execution import Cells, killed
from sandbox.server.supervisor.control_socket import Message
from sandbox.server.supervisor.file_requests import Files
from sandbox.server.supervisor.session_creation import Births
from sandbox.server.supervisor.session_forks import Forks
from sandbox.server.supervisor.session_handle import Handle, Request, outcome_fields
from sandbox.server.wire import (
    BRANCHED,
    CLOSE,
    DONE,
    FILED,
    FORK,
    GAVE_UP,
    INTERRUPT,
    LIST,
    OPEN,
    PING,
    READ,
    READY,
    RUN,
    RUN_ONCE,
    UNABLE,
    WRITE,
    WireError,
)

if TYPE_CHECKING:
    from sandbox.server.supervisor.supervisor import Supervisor

_LAST_WORDS = 5.0
_CLOSED = "this session is closed; open a new interpreter"


class Requests:
    """The supervisor's dispatcher.

    Args:
        supervisor: whose.
    """

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._births = Births(supervisor, self)
        self._forks = Forks(supervisor, self._births)
        self._cells = Cells(supervisor, self)
        self._files = Files(supervisor, self)
        self._oom_kills = out_of_memory_kills()

    def take(self, request: Request) -> None:
        """Take a request from the client."""
        if request.kind == PING:
            self._supervisor.reply(request.number, self._supervisor.watchdog.condition())
            return
        key = request.fields["session"]
        if request.kind in (OPEN, RUN_ONCE):
            self._births.open(request, key)
            return
        handle = self._supervisor.sessions.get(key)
        if request.kind == INTERRUPT:
            self._cells.interrupt(handle, request)
        elif handle is None:
            self._supervisor.fail(request.number, "SessionLost", _CLOSED)
        elif request.kind == CLOSE:
            self._close(handle, request.number)
        elif handle.lost or handle.closing:
            self._answer_for_the_dead(handle, request)
        else:
            handle.queue.append(request)
            self.advance(handle)

    def _close(self, handle: Handle, number: int) -> None:
        """End a session; one that is being born is ended as soon as it is there, see `Births`."""
        handle.closing.append(number)
        if handle.lost:
            self.forget(handle)
        elif handle.pid:
            self._end(handle)
        elif handle.slot is None:
            self._births.failed(handle, _CLOSED)

    def _end(self, handle: Handle) -> None:
        if handle.slot and handle.slot.uid:
            send(handle.pid, signal.SIGKILL)  # what it leaves behind is swept up as strangers, or by its user
        else:
            kill_tree(handle.pid)
        self._supervisor.call_in(_LAST_WORDS, lambda: self._give_up(handle))

    def answer(self, handle: Handle, request: Request, fields: dict[str, Any], well: bool) -> None:
        """Answer a request; the session of a RUN_ONCE ends with its answer, which is that of a step that fails."""
        if request.step and well:
            return
        self._supervisor.reply(request.number, {**fields, "step": request.step} if request.step else fields)
        if handle.once:
            handle.queue.clear()
            if fields.get("alive", True):
                self._close(handle, 0)
            else:
                handle.closing.append(0)

    def _answer_for_the_dead(self, handle: Handle, request: Request) -> None:
        """Answer a request that comes too late; what the session has done to itself is a result, not a fault."""
        if request.step:
            return  # the run that it prepares is answered
        if handle.ended is None:
            self._supervisor.fail(request.number, "SessionLost", handle.lost or _CLOSED)
        elif request.kind == RUN:
            self._supervisor.reply(request.number, killed(*handle.ended))
        elif request.kind == FORK:
            self._supervisor.fail(request.number, "SessionEnded", handle.lost)
        else:
            self._supervisor.reply(request.number, {"errno": errno.EIO})

    def forget(self, handle: Handle) -> None:
        """Drop a session that is gone, and tell those who wait for that."""
        self._supervisor.sessions.pop(handle.key, None)
        for number in filter(None, handle.closing):
            self._supervisor.reply(number, {})

    def advance(self, handle: Handle) -> None:
        """Start the next request of a session, if it is free."""
        if handle.current or not handle.queue or not handle.pid or handle.lost or handle.cause:
            return
        request = handle.current = handle.queue.popleft()
        request.started = time.monotonic()
        if handle.idle:
            self._supervisor.shares.restore(handle)
        try:
            if request.kind == RUN:
                self._cells.run(handle, request)
            elif request.kind == FORK:
                self._forks.fork(handle, request)
            else:
                self._files.begin(handle, request)
        except OSError as error:
            self.kill(handle, "killed", f"its control channel is closed ({error.strerror})")

    def kill(self, handle: Handle, cause: str, why: str) -> None:
        """Kill a session; its burial answers whatever is open."""
        if handle.cause or handle.lost:
            return
        handle.cause, handle.why = cause, why
        self._end(handle)

    def _give_up(self, handle: Handle) -> None:
        """Bury a session of whose death nothing is heard, for it is no child of the supervisor."""
        if not handle.lost:
            self._supervisor.by_pid.pop(handle.pid, None)
            self.bury(handle, None)

    def listen(self, handle: Handle) -> None:
        """Hear a session; one that confuses us is ended."""
        try:
            self.hear(handle)
        except Exception as error:
            traceback.print_exc()
            why = f"the supervisor did not understand it ({type(error).__name__})"
            if handle.pid:
                self.kill(handle, "killed", why)
            else:
                self._births.failed(handle, why)

    def hear(self, handle: Handle) -> None:
        """Read what a session says."""
        try:
            message = handle.channel.receive()
            if message is None:
                self._mute(handle)
                return
            try:
                self._take_in(handle, message)
            finally:
                for fd in message.fds:
                    os.close(fd)
        except WireError as error:
            why = f"the code has written to the interpreter's control channel ({error})"
            if handle.pid:
                self.kill(handle, "killed", why)
            else:
                self._births.failed(handle, why)

    def _take_in(self, handle: Handle, message: Message) -> None:
        """Act on what a process has sent on the channel of a session.

        Raises:
            WireError: it is the session's process, and it makes no sense.
        """
        if handle.cause or handle.lost:
            return  # whatever it says now, it has been killed
        if handle.pid and message.data and message.pid != handle.pid:
            if not self._forks.announced(handle, message):
                handle.channel.ignore(message.data)
            return
        for kind, number, payload in handle.channel.frames(message.data):
            self._understand(handle, kind, number, payload, message)

    def _mute(self, handle: Handle) -> None:
        """Act on the end of a channel: the process has ended, or has closed its descriptors."""
        self._supervisor.unwatch(handle.channel.fileno())
        if not handle.pid:
            if not self._births.try_again(handle):
                self._births.failed(handle, "the new process ended before it was ready")
        else:
            why = "the code has closed the interpreter's control channel"
            self._supervisor.call_in(0.2, lambda: self.kill(handle, "killed", why))

    def _understand(self, handle: Handle, kind: int, number: int, payload: bytes, message: Message) -> None:
        request = handle.current
        if handle.cause or handle.lost:
            return
        if not handle.pid and kind == READY:
            self._births.arrived(handle, message.pid, message.uid, payload)
        elif not handle.pid and kind == UNABLE:
            self._births.failed(handle, payload[:2000].decode("utf-8", "replace"))
        elif request is None or number != request.number:
            raise WireError(f"frame of kind {kind} out of turn")
        elif kind == DONE and request.kind == RUN:
            self._cells.finish(handle, request, outcome_fields(payload))
        elif kind == FILED and request.kind in (READ, WRITE, LIST):
            self._files.finish(handle, request, payload)
        elif kind in (BRANCHED, UNABLE) and request.kind == FORK:
            self._forks.branched(handle, kind, payload, message)
        else:
            raise WireError(f"frame of kind {kind} out of turn")

    def bury(self, handle: Handle, status: int | None) -> None:
        """Answer for a session whose process has ended; `status` is as waitpid tells it, None if unknown."""
        cause, why = self._cause_of_death(handle, status)
        request, handle.current = handle.current, None
        lost = _CLOSED if handle.closing else f"the session has ended ({why}); open a new interpreter"
        if not handle.closing and not handle.orphaned:
            status_of_later = cause if cause == "memory_limit" else "killed"
            handle.ended = (status_of_later, f"the session had ended before this cell: {why}")
        run = request is not None and request.kind == RUN and handle.ended is not None
        if request and run:
            self._cells.cut_off(handle, request, cause, why)
        waiting = list(handle.queue)
        if request and not run and request.kind != FORK:
            waiting.insert(0, request)
        self.discard(handle, lost)
        for late in waiting:
            self._supervisor.call_off(late.timer)
            self._answer_for_the_dead(handle, late)
        if handle.once and not handle.closing:
            handle.closing.append(0)
        self._forks.parent_died(handle)
        if handle.closing:
            self.forget(handle)

    def _cause_of_death(self, handle: Handle, status: int | None) -> tuple[str, str]:
        if handle.cause:
            return handle.cause, handle.why or handle.cause
        if handle.closing:
            return "killed", _CLOSED
        if status is None:
            return "killed", "the process is gone"
        code = os.waitstatus_to_exitcode(status)
        kills = out_of_memory_kills() if code == -signal.SIGKILL else self._oom_kills
        if kills > self._oom_kills:
            self._oom_kills = kills
            return "memory_limit", "the process was killed because the sandbox ran out of memory"
        if code == GAVE_UP:
            return "killed", f"the code has closed the interpreter's control channel (exit code {code})"
        if code >= 0:
            return "killed", f"the process ended with exit code {code}"
        return "killed", f"the process was killed by {_signal_name(-code)}"

    def discard(self, handle: Handle, lost: str) -> None:
        """Give back what a session that is gone has held."""
        if handle.lost:
            return
        handle.lost = lost
        handle.queue.clear()
        self._supervisor.forget_channels(handle)
        self._supervisor.slots.leave(handle)


def _signal_name(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"
