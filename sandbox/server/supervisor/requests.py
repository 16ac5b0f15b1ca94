"""Dispatches the client's requests to sessions, and answers for sessions that end. Runs inside the sandbox.

The requests of one session are served one after the other, in the order in which they came; closing and interrupting
do not wait. Each request gets exactly one reply, whatever the session does.
"""

from __future__ import annotations

import base64
import errno
import math
import os
import signal
import time
import traceback
from collections.abc import Callable
from typing import Any

from sandbox.server.kernel.processes import alive, kill_tree, out_of_memory_kills, send_signal
from sandbox.server.supervisor.event_loop import ClientRequest, ClientStream, EventLoop
from sandbox.server.supervisor.memory import SharedMemoryLimit
from sandbox.server.supervisor.session_handle import Message, SessionChannels, SessionControl, SessionHandle
from sandbox.server.supervisor.session_table import SessionTable
from sandbox.server.supervisor.sessions import SessionCreation, SessionForks
from sandbox.server.supervisor.shares import restore_priority
from sandbox.server.supervisor.slots import Slots
from sandbox.server.supervisor.zygote_client import Zygotes
from sandbox.server.wire import (
    BRANCHED,
    CELL,
    CLOSE,
    DONE,
    FILE_REPLY,
    FILE_REQUEST,
    FILED,
    FORK,
    GAVE_UP,
    HAS_ERROR,
    HAS_VALUE,
    INTERRUPT,
    LARGEST_PIECE,
    LIST,
    LOAD,
    LOOK,
    OPEN,
    OUTCOME,
    READ,
    READY,
    RUN,
    RUN_ONCE,
    SETUP,
    SHORTENED,
    STATUSES,
    STORE,
    UNABLE,
    WRITE,
    WireError,
    unpack_pictures,
)

# Passes pieces of files, and listings of directories, between the client and a session.

_SECONDS = 30.0
_ALLOWED_ERRORS = frozenset(
    (
        *(errno.EACCES, errno.EDQUOT, errno.EEXIST, errno.EFBIG, errno.EINVAL, errno.EISDIR, errno.ELOOP, errno.EMFILE),
        *(errno.ENAMETOOLONG, errno.ENFILE, errno.ENOENT, errno.ENOMEM, errno.ENOSPC, errno.ENOTDIR, errno.ENOTEMPTY),
        *(errno.ENXIO, errno.EPERM, errno.EROFS, errno.ETXTBSY),
    )
)
"""Errors that reading and writing files can have. A session may report any number; others become EIO."""


class FileRequests:
    """Reads, writes and lists files of sessions.

    Args:
        loop: the supervisor's event loop.
        channels: of the sessions.
        control: answers, kills sessions, and starts their next requests.
    """

    def __init__(self, loop: EventLoop, channels: SessionChannels, control: SessionControl) -> None:
        self._loop = loop
        self._channels = channels
        self._control = control

    def begin(self, handle: SessionHandle, request: ClientRequest) -> None:
        """Pass a request to its session.

        Raises:
            OSError: the session has closed its channel.
        """
        fields = request.fields
        path = fields["path"].encode("utf-8", "surrogatepass")
        if request.kind == READ:
            kind, payload = LOAD, FILE_REQUEST.pack(fields["offset"], fields["length"]) + path
        elif request.kind == LIST:
            kind, payload = LOOK, path
        else:
            # a zero ends the path, since no path contains one
            data = base64.b64decode(fields["data"])
            kind, payload = STORE, FILE_REQUEST.pack(fields["offset"], 0) + path + b"\0" + data
        self._channels.send(handle, kind, request.number, payload)
        request.timer = self._loop.call_in(_SECONDS, lambda: self._time_out(handle, request))

    def _time_out(self, handle: SessionHandle, request: ClientRequest) -> None:
        if handle.current is request:
            self._control.kill(handle, "timeout", f"a file was not read or written within {_SECONDS:.0f} s")

    def finish(self, handle: SessionHandle, request: ClientRequest, payload: bytes) -> None:
        """Answer for a piece; `payload` is that of FILED.

        Raises:
            WireError: the payload is malformed.
        """
        if not FILE_REPLY.size <= len(payload) <= FILE_REPLY.size + LARGEST_PIECE:
            raise WireError("a malformed piece of a file")
        self._loop.cancel(request.timer)
        code, size = FILE_REPLY.unpack_from(payload)
        data = payload[FILE_REPLY.size :]
        if code:
            # an arbitrary number could pass for an error that callers handle in a special way
            code = code if code in _ALLOWED_ERRORS else errno.EIO
            self._control.answer(handle, request, {"errno": code}, False)
        elif request.kind in (READ, LIST):
            self._control.answer(handle, request, {"data": base64.b64encode(data).decode(), "size": size}, True)
        else:
            self._control.answer(handle, request, {}, True)
        handle.current = None
        self._control.advance(handle)


# Has sessions run cells, within their limits of time and output.

_EARLY_SECONDS = 1.0
_REPEAT_SECONDS = 0.05
_NOT_BEGUN = "Interrupted: stopped on request, before it began"
_KEPT, _ENDED, _ONCE = "; variables are kept", "; it could not be interrupted, the session was ended", ""


class CellExecution:
    """Runs cells.

    Args:
        limits: the client's limits.
        loop: the supervisor's event loop.
        client: where results go.
        channels: of the sessions.
        control: kills sessions, and starts their next requests.
        check_shared_memory: ends sessions that hold too much of /dev/shm; called before each result.
    """

    def __init__(
        self,
        limits: dict[str, Any],
        loop: EventLoop,
        client: ClientStream,
        channels: SessionChannels,
        control: SessionControl,
        check_shared_memory: Callable[[], None],
    ) -> None:
        self._limits = limits
        self._loop = loop
        self._client = client
        self._channels = channels
        self._control = control
        self._check_shared_memory = check_shared_memory

    def run(self, handle: SessionHandle, request: ClientRequest) -> None:
        """Send a cell to its session and start the clock.

        Raises:
            OSError: the session has closed its channel.
        """
        # only during cells: between them, a background process that writes for ever fills its pipe and waits
        for fd in handle.outputs:
            self._loop.watch(fd, self._output_reader(handle, request, fd))
        kind = SETUP if request.fields["setup"] else CELL
        self._channels.send(handle, kind, request.number, request.fields["code"].encode("utf-8", "surrogatepass"))
        request.timer = self._loop.call_in(request.fields["timeout"], lambda: self._time_out(handle, request))

    def _output_reader(self, handle: SessionHandle, request: ClientRequest, fd: int) -> Callable[[], None]:
        def read() -> None:
            if handle.read_output(fd) == 0:
                self._loop.unwatch(fd)
            if handle.written > self._limits["output_limit"]:
                self._stop(handle, request, "output_limit")

        return read

    def _time_out(self, handle: SessionHandle, request: ClientRequest) -> None:
        if handle.current is request:
            self._stop(handle, request, "timeout")

    def _stop(self, handle: SessionHandle, request: ClientRequest, cause: str) -> None:
        """Interrupt a cell, and kill the session if that does not help."""
        if request.stopped:
            return
        request.stopped = cause
        _signal_group(handle.pid, signal.SIGINT)  # subprocesses too, as Ctrl-C in a terminal
        self._loop.cancel(request.timer)
        request.timer = self._loop.call_in(self._limits["grace"], lambda: self._end_after_grace(handle, request))
        if time.monotonic() - request.started < _EARLY_SECONDS:
            self._loop.call_in(_REPEAT_SECONDS, lambda: self._signal_again(handle, request))

    def _signal_again(self, handle: SessionHandle, request: ClientRequest) -> None:
        """Repeat an early interrupt, since the session ignores signals until it has begun the cell.

        The session raises only one KeyboardInterrupt per cell.
        """
        if handle.current is request and not handle.cause:
            send_signal(handle.pid, signal.SIGINT)
            self._loop.call_in(_REPEAT_SECONDS, lambda: self._signal_again(handle, request))

    def _end_after_grace(self, handle: SessionHandle, request: ClientRequest) -> None:
        if handle.current is request:
            self._control.kill(handle, request.stopped, self._reason(request, _ENDED))

    def interrupt(self, handle: SessionHandle | None, request: ClientRequest) -> None:
        """Stop the cell that the client names, or the one that runs (None); answers whether there was one."""
        name = request.fields["cell"]
        found = False
        if handle is not None and not (handle.lost or handle.cause or handle.closing):
            found = self._stop_current(handle, name) or self._drop_waiting(handle, name)
        self._client.reply(request.number, {"interrupted": found})

    def _stop_current(self, handle: SessionHandle, name: int | None) -> bool:
        cell = handle.current
        if cell is None or cell.kind != RUN or cell.fields["setup"] or name not in (None, cell.fields.get("cell")):
            return False
        self._stop(handle, cell, "interrupted")
        return True

    def _drop_waiting(self, handle: SessionHandle, name: int | None) -> bool:
        for cell in handle.queue:
            if cell.kind == RUN and name is not None and cell.fields.get("cell") == name:
                # it is answered out of turn, since the cell that runs may take long
                handle.queue.remove(cell)
                self._control.answer(handle, cell, {**killed("interrupted", _NOT_BEGUN), "alive": True}, False)
                return True
        return False

    def finish(self, handle: SessionHandle, request: ClientRequest, payload: bytes) -> None:
        """Answer for a cell that has ended; `payload` is that of DONE.

        Raises:
            WireError: the payload is malformed.
        """
        outcome = outcome_fields(payload)
        handle.drain()  # output that was written before DONE may still be in the pipes
        self._check_shared_memory()
        if handle.cause:
            return  # it has just been killed; the cell is answered when its process has ended
        if request.stopped:
            outcome["status"] = request.stopped
            reason = self._reason(request, _ONCE if handle.once else _KEPT)
            outcome["error"] = "\n".join(filter(None, (outcome["error"], reason)))
        self._answer(handle, request, {**outcome, "alive": True})
        for fd in handle.outputs:
            self._loop.unwatch(fd)
        handle.current = None
        self._control.advance(handle)

    def cut_off(self, handle: SessionHandle, request: ClientRequest, cause: str, why: str) -> None:
        """Answer for a cell during which the session has ended."""
        handle.drain()
        # the interrupt itself may have ended the process; then the limit is the cause, and not the exit
        if request.stopped and cause == "killed":
            cause, why = request.stopped, self._reason(request, _ENDED)
        self._answer(handle, request, killed(cause, why))

    def _answer(self, handle: SessionHandle, request: ClientRequest, outcome: dict[str, Any]) -> None:
        self._loop.cancel(request.timer)
        out, err = handle.captures
        outcome["stdout"], outcome["stderr"] = out.text(), err.text()
        outcome["truncated"] = outcome["truncated"] or out.truncated or err.truncated
        outcome["duration"] = time.monotonic() - request.started
        handle.begin_output()
        self._control.answer(handle, request, outcome, outcome["status"] == "ok")

    def _reason(self, request: ClientRequest, end: str) -> str:
        if request.stopped == "timeout":
            return f"TimeoutError: stopped after {request.fields['timeout']:g} s{end}"
        if request.stopped == "interrupted":
            return f"Interrupted: stopped on request{end}"
        return f"OutputLimit: stopped after {self._limits['output_limit']} bytes of output{end}"


def killed(status: str, why: str) -> dict[str, Any]:
    """Return the outcome of a cell whose session has ended."""
    texts = {"stdout": "", "stderr": "", "value": None, "error": why}
    return {"status": status, **texts, "truncated": False, "duration": 0.0, "alive": False}


def outcome_fields(payload: bytes) -> dict[str, Any]:
    """Parse the payload of a DONE frame.

    Raises:
        WireError: it is malformed.
    """
    if len(payload) < OUTCOME.size:
        raise WireError("an outcome that is too short")
    status, flags, value, error = OUTCOME.unpack_from(payload)
    texts, rest = payload[OUTCOME.size :][: value + error], payload[OUTCOME.size + value + error :]
    # the session is not trusted: the announced lengths have to agree with what has come
    if status >= len(STATUSES) or len(texts) != value + error:
        raise WireError("a malformed outcome")
    fields: dict[str, Any] = {
        "status": STATUSES[status],
        "value": texts[:value].decode("utf-8", "replace") if flags & HAS_VALUE else None,
        "error": texts[value:].decode("utf-8", "replace") if flags & HAS_ERROR else None,
        "truncated": bool(flags & SHORTENED),
    }
    if rest:
        pictures, fields["pictures_left_out"] = unpack_pictures(rest)
        fields["pictures"] = [base64.b64encode(picture).decode() for picture in pictures]
    return fields


def _signal_group(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        send_signal(pid, number)


# Reads what sessions send on their control sockets.
#
# Nothing that a session sends is trusted. The kernel says which process has sent it: messages of other processes count
# only while a fork is under way. A session that sends malformed frames is killed.

_CLOSED_CHANNEL_SECONDS, _LONGEST_END = 0.2, 5.0
_LONGEST_ERROR = 2000


class SessionMessages:
    """Passes the frames of sessions to what serves their requests.

    Args:
        loop: the supervisor's event loop.
        creation: of sessions.
        forks: of sessions.
        cells: that run.
        files: that are read and written.
        kill: ends a session, with the status of its cell and a reason.
    """

    def __init__(
        self,
        loop: EventLoop,
        creation: SessionCreation,
        forks: SessionForks,
        cells: CellExecution,
        files: FileRequests,
        kill: Callable[[SessionHandle, str, str], None],
    ) -> None:
        self._loop = loop
        self._creation = creation
        self._forks = forks
        self._cells = cells
        self._files = files
        self._kill = kill

    def read(self, handle: SessionHandle) -> None:
        """Read what a session has sent; one that causes an error here is ended."""
        try:
            self._receive(handle)
        except WireError as error:
            self._end(handle, f"the code has written to the interpreter's control channel ({error})")
        except Exception as error:
            traceback.print_exc()
            self._end(handle, f"the supervisor could not process its message ({type(error).__name__})")

    def _end(self, handle: SessionHandle, why: str) -> None:
        if handle.pid:
            self._kill(handle, "killed", why)
        else:
            self._creation.failed(handle, why)

    def _receive(self, handle: SessionHandle) -> None:
        message = handle.channel.receive()
        if message is None:
            self._on_end(handle)
            return
        try:
            self._dispatch(handle, message)
        finally:
            # descriptors that nobody has taken; otherwise a session could fill the supervisor's table
            for fd in message.fds:
                os.close(fd)

    def _dispatch(self, handle: SessionHandle, message: Message) -> None:
        """Act on a message.

        Raises:
            WireError: it is of the session's own process, and malformed.
        """
        if handle.cause or handle.lost:
            return  # it has been killed; what it sent before does not count any more
        if handle.pid and message.data and message.pid != handle.pid:
            if not self._forks.on_foreign_message(handle, message):
                handle.channel.ignore(message.data)
            return
        for kind, number, payload in handle.channel.frames(message.data):
            self._on_frame(handle, kind, number, payload, message)

    def _on_frame(self, handle: SessionHandle, kind: int, number: int, payload: bytes, message: Message) -> None:
        request = handle.current
        # an earlier frame of the same message may have ended it
        if handle.cause or handle.lost:
            return
        if not handle.pid and kind == READY:
            self._creation.arrived(handle, message.pid, message.uid, payload)
        elif not handle.pid and kind == UNABLE:
            self._creation.failed(handle, payload[:_LONGEST_ERROR].decode("utf-8", "replace"))
        elif request is None or number != request.number:
            raise WireError(f"frame of kind {kind} out of turn")
        elif kind == DONE and request.kind == RUN:
            self._cells.finish(handle, request, payload)
        elif kind == FILED and request.kind in (READ, WRITE, LIST):
            self._files.finish(handle, request, payload)
        elif kind in (BRANCHED, UNABLE) and request.kind == FORK:
            self._forks.on_parent(handle, kind, payload, message)
        else:
            raise WireError(f"frame of kind {kind} out of turn")

    def _on_end(self, handle: SessionHandle) -> None:
        """Act on the end of a channel: the process has ended, or has closed its descriptors."""
        self._loop.unwatch(handle.channel.fileno())
        if not handle.pid:
            if not self._creation.try_again(handle):
                self._creation.failed(handle, "the new process ended before it was ready")
        else:
            self._loop.call_in(_CLOSED_CHANNEL_SECONDS, lambda: self._after_end(handle, last=False))

    def _after_end(self, handle: SessionHandle, last: bool) -> None:
        """Kill a session that lives on without its channel; if its process is ending, its exit says more."""
        if last or alive(handle.pid):
            self._kill(handle, "killed", "the code has closed the interpreter's control channel")
        else:
            self._loop.call_in(_LONGEST_END, lambda: self._after_end(handle, last=True))


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
