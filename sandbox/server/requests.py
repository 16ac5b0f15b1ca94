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

from sandbox.server import wire
from sandbox.server.channels import ClientRequest, Message, SessionHandle
from sandbox.server.creation import Creations
from sandbox.server.limits import restore_priority
from sandbox.server.processes import alive, out_of_memory_kills, send_signal
from sandbox.server.sessions import Sessions
from sandbox.server.wire import FILE_REPLY, FILE_REQUEST, OUTCOME, WireError

_FILE_SECONDS = 30.0
_ERRORS = """
EACCES EDQUOT EEXIST EFBIG EINVAL EISDIR ELOOP EMFILE ENAMETOOLONG ENFILE ENOENT ENOMEM ENOSPC ENOTDIR ENOTEMPTY ENXIO
EPERM EROFS ETXTBSY
"""
_ALLOWED_ERRORS = frozenset(getattr(errno, name) for name in _ERRORS.split())
"""Errors that reading and writing files can have. A session may report any number; others become EIO."""
_REPEAT_SECONDS = 0.05
_NOT_BEGUN = "Interrupted: stopped on request, before it began"
_KEPT, _ENDED, _ONCE = "; variables are kept", "; it could not be interrupted, the session was ended", ""
_CLOSED_CHANNEL_SECONDS = 0.2
_LONGEST_ERROR = 2000
_LATELY = 3.0  # an end is reported when the kernel has released the memory of the process, which takes a while
_CLOSED = "this session is closed; open a new interpreter"


class Requests:
    """Serves the requests of all sessions.

    `check_shared_memory` ends sessions that hold too much of /dev/shm; it is called before the result of each cell.
    """

    def __init__(self, sessions: Sessions, check_shared_memory: Callable[[], None]) -> None:
        self._sessions, self._loop, self._client = sessions, sessions.loop, sessions.client
        sessions.on_message, sessions.on_exit, sessions.advance = self._read, self._on_exit, self._advance
        self._limits = sessions.limits
        self._check_shared_memory = check_shared_memory
        self._creations = Creations(sessions)
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
        if request.kind in (wire.OPEN, wire.RUN_ONCE):
            self._creations.open(request, key)
            return
        handle = self._sessions.by_key.get(key)
        # before the check for closed sessions: for those the answer is that nothing was running, and no error
        if request.kind == wire.INTERRUPT:
            self._interrupt(handle, request)
        elif handle is None:
            self._client.fail(request.number, "SessionLost", _CLOSED)
        elif request.kind == wire.CLOSE:
            self._close(handle, request.number)
        elif handle.lost or handle.closing:
            self._answer_too_late(handle, request)
        else:
            handle.queue.append(request)
            self._advance(handle)

    def _advance(self, handle: SessionHandle) -> None:
        """Start the next request of a session, if the session is free."""
        if handle.current or not handle.queue or not handle.pid or handle.lost or handle.cause:
            return
        request = handle.current = handle.queue.popleft()
        request.started = time.monotonic()
        # else the request would wait for the CPU until the next division of it
        if handle.idle:
            restore_priority(handle)
        try:
            if request.kind == wire.RUN:
                self._run(handle, request)
            elif request.kind == wire.FORK:
                self._creations.fork(handle, request)
            else:
                self._pass_on(handle, request)
        except OSError as error:
            self._sessions.kill(handle, "killed", f"its control channel is closed ({error.strerror})")

    def _answer(self, handle: SessionHandle, request: ClientRequest, fields: dict[str, Any], succeeded: bool) -> None:
        """Answer a request. The setup of a RUN_ONCE is answered only if it fails, and that is the answer to the whole.

        The session of a RUN_ONCE ends with its answer.
        """
        of_setup = handle.once and request.fields["setup"]
        if of_setup and succeeded:
            return
        self._client.reply(request.number, {**fields, "of_setup": True} if of_setup else fields)
        if handle.once:
            handle.queue.clear()
            if fields.get("alive", True):
                self._close(handle, 0)
            else:
                handle.closing.append(0)

    def _answer_too_late(self, handle: SessionHandle, request: ClientRequest) -> None:
        """Answer a request to a session that is gone. If the code has ended it, that is a result and not an error."""
        if handle.once and request.fields["setup"]:
            return  # the run that it prepares is answered
        if handle.ended is None:
            self._client.fail(request.number, "SessionLost", handle.lost or _CLOSED)
        elif request.kind == wire.RUN:
            self._client.reply(request.number, _killed(*handle.ended))
        elif request.kind == wire.FORK:
            self._client.fail(request.number, "SessionEnded", handle.lost)
        else:
            self._client.reply(request.number, {"errno": errno.EIO})

    def _close(self, handle: SessionHandle, number: int) -> None:
        """End a session; one that is being created is ended as soon as it has reported, by `Creations`."""
        handle.closing.append(number)
        if handle.lost:
            self._sessions.forget(handle)
        elif handle.pid:
            self._sessions.end(handle)
        elif handle.slot is None:
            self._creations.failed(handle, _CLOSED)

    # Files: pieces of files, and listings of directories, are passed on between the client and a session.

    def _pass_on(self, handle: SessionHandle, request: ClientRequest) -> None:
        fields = request.fields
        path, data = fields["path"].encode("utf-8", "surrogatepass"), b""
        if request.kind == wire.WRITE:  # a zero ends the path, since no path contains one
            data = b"\0" + base64.b64decode(fields["data"])
        head = FILE_REQUEST.pack(request.kind, fields.get("offset", 0), fields.get("length", 0))
        self._sessions.send(handle, wire.FILE, request.number, head + path + data)
        why = f"a file was not read or written within {_FILE_SECONDS:.0f} s"
        request.timer = self._loop.call_later(_FILE_SECONDS, lambda: self._sessions.kill(handle, "timeout", why))

    def _finish_file(self, handle: SessionHandle, request: ClientRequest, payload: bytes) -> None:
        """Answer for a piece; `payload` is that of FILED."""
        if not FILE_REPLY.size <= len(payload) <= FILE_REPLY.size + wire.LARGEST_PIECE:
            raise WireError("a malformed piece of a file")
        request.stop_clock()
        code, size = FILE_REPLY.unpack_from(payload)
        data = payload[FILE_REPLY.size :]
        answer: dict[str, Any] = {"data": base64.b64encode(data).decode(), "size": size}
        if code:
            # an arbitrary number could pass for an error that callers handle in a special way
            answer = {"errno": code if code in _ALLOWED_ERRORS else errno.EIO}
        self._answer(handle, request, {} if request.kind == wire.WRITE and not code else answer, not code)
        handle.current = None
        self._advance(handle)

    # Cells, within their limits of time and output.

    def _run(self, handle: SessionHandle, request: ClientRequest) -> None:
        """Send a cell to its session and start the clock."""
        # only during cells: between them, a background process that writes for ever fills its pipe and waits
        for fd in handle.outputs:
            self._loop.add_reader(fd, self._read_output, handle, request, fd)
        kind = wire.SETUP if request.fields["setup"] else wire.CELL
        self._sessions.send(handle, kind, request.number, request.fields["code"].encode("utf-8", "surrogatepass"))
        request.timer = self._loop.call_later(request.fields["timeout"], lambda: self._stop(handle, request, "timeout"))

    def _read_output(self, handle: SessionHandle, request: ClientRequest, fd: int) -> None:
        if handle.read_output(fd) == 0:
            self._loop.remove_reader(fd)
        if sum(capture.total for capture in handle.captures) > self._limits["output_limit"]:
            self._stop(handle, request, "output_limit")

    def _stop(self, handle: SessionHandle, request: ClientRequest, cause: str) -> None:
        """Interrupt a cell, and kill the session if that does not help."""
        if request.stopped:
            return
        request.stopped = cause
        _signal_group(handle.pid, signal.SIGINT)  # subprocesses too, as Ctrl-C in a terminal
        request.stop_clock()
        why = self._reason(request, _ENDED)
        request.timer = self._loop.call_later(self._limits["grace"], lambda: self._sessions.kill(handle, cause, why))
        self._loop.call_later(_REPEAT_SECONDS, lambda: self._signal_again(handle, request))

    def _signal_again(self, handle: SessionHandle, request: ClientRequest) -> None:
        """Repeat an interrupt, which a session ignores before it has begun its cell; it interrupts a cell only once."""
        if handle.current is request and not handle.cause:
            send_signal(handle.pid, signal.SIGINT)
            self._loop.call_later(_REPEAT_SECONDS, lambda: self._signal_again(handle, request))

    def _interrupt(self, handle: SessionHandle | None, request: ClientRequest) -> None:
        """Stop the cell that the client names, or the one that runs (None); answers whether there was one."""
        name, found = request.fields["cell"], False
        if handle is not None and not (handle.lost or handle.cause or handle.closing):
            cells = [cell for cell in (handle.current, *handle.queue) if cell and cell.kind == wire.RUN]
            for cell in cells:
                if cell is handle.current and not cell.fields["setup"] and name in (None, cell.fields.get("cell")):
                    found = True
                    self._stop(handle, cell, "interrupted")
                elif cell is not handle.current and name is not None and name == cell.fields.get("cell"):
                    found = True
                    # it is answered out of turn, since the cell that runs may take long
                    handle.queue.remove(cell)
                    self._answer(handle, cell, {**_killed("interrupted", _NOT_BEGUN), "alive": True}, False)
        self._client.reply(request.number, {"interrupted": found})

    def _finish_cell(self, handle: SessionHandle, request: ClientRequest, payload: bytes) -> None:
        """Answer for a cell that has ended; `payload` is that of DONE."""
        outcome = outcome_fields(payload)
        handle.drain()  # output that was written before DONE may still be in the pipes
        self._check_shared_memory()
        if handle.cause:
            return  # it has just been killed; the cell is answered when its process has ended
        if request.stopped:
            outcome["status"] = request.stopped
            reason = self._reason(request, _ONCE if handle.once else _KEPT)
            outcome["error"] = "\n".join(filter(None, (outcome["error"], reason)))
        self._answer_cell(handle, request, {**outcome, "alive": True})
        for fd in handle.outputs:
            self._loop.remove_reader(fd)
        handle.current = None
        self._advance(handle)

    def _cut_off(self, handle: SessionHandle, request: ClientRequest, cause: str, why: str) -> None:
        """Answer for a cell during which the session has ended."""
        handle.drain()
        # the interrupt itself may have ended the process; then the limit is the cause, and not the exit
        if request.stopped and cause == "killed":
            cause, why = request.stopped, self._reason(request, _ENDED)
        self._answer_cell(handle, request, _killed(cause, why))

    def _answer_cell(self, handle: SessionHandle, request: ClientRequest, outcome: dict[str, Any]) -> None:
        request.stop_clock()
        out, err = handle.captures
        outcome["stdout"], outcome["stderr"] = out.text(), err.text()
        outcome["truncated"] = outcome["truncated"] or out.truncated or err.truncated
        outcome["duration"] = time.monotonic() - request.started
        handle.begin_output()
        self._answer(handle, request, outcome, outcome["status"] == "ok")

    def _reason(self, request: ClientRequest, end: str) -> str:
        if request.stopped == "timeout":
            return f"TimeoutError: stopped after {request.fields['timeout']:g} s{end}"
        if request.stopped == "interrupted":
            return f"Interrupted: stopped on request{end}"
        return f"OutputLimit: stopped after {self._limits['output_limit']} bytes of output{end}"

    # What sessions send. The kernel says which process has sent it: messages of other processes count only while a fork
    # is under way. A session that sends malformed frames is killed.

    def _read(self, handle: SessionHandle) -> None:
        """Read what a session has sent; one that causes an error here is ended."""
        try:
            self._receive(handle)
        except WireError as error:
            self._refuse(handle, f"the code has written to the interpreter's control channel ({error})")
        except Exception as error:
            traceback.print_exc()
            self._refuse(handle, f"the supervisor could not process its message ({type(error).__name__})")

    def _refuse(self, handle: SessionHandle, why: str) -> None:
        if handle.pid:
            self._sessions.kill(handle, "killed", why)
        else:
            self._creations.failed(handle, why)

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
        if handle.cause or handle.lost:
            return  # it has been killed; what it sent before does not count any more
        if handle.pid and message.data and message.pid != handle.pid:
            if not self._creations.on_foreign_message(handle, message):
                handle.channel.ignore(message.data)
            return
        for kind, number, payload in handle.channel.frames.feed(message.data):
            self._on_frame(handle, kind, number, payload, message)

    def _on_frame(self, handle: SessionHandle, kind: int, number: int, payload: bytes, message: Message) -> None:
        request = handle.current
        # an earlier frame of the same message may have ended it
        if handle.cause or handle.lost:
            return
        if not handle.pid and kind == wire.READY:
            self._creations.arrived(handle, message, payload)
        elif not handle.pid and kind == wire.UNABLE:
            self._creations.failed(handle, payload[:_LONGEST_ERROR].decode("utf-8", "replace"))
        elif request is None or number != request.number:
            raise WireError(f"frame of kind {kind} out of turn")
        elif kind == wire.DONE and request.kind == wire.RUN:
            self._finish_cell(handle, request, payload)
        elif kind == wire.FILED and request.kind in (wire.READ, wire.WRITE, wire.LIST):
            self._finish_file(handle, request, payload)
        elif kind in (wire.BRANCHED, wire.UNABLE) and request.kind == wire.FORK:
            self._creations.on_parent(handle, kind, payload, message)
        else:
            raise WireError(f"frame of kind {kind} out of turn")

    # Ends.

    def _on_end(self, handle: SessionHandle) -> None:
        """Act on the end of a channel: the process has ended, or has closed its descriptors."""
        self._sessions.leave_channel(handle)
        if not handle.pid:
            self._creations.failed(handle, "the new process ended before it was ready")
        else:
            self._loop.call_later(_CLOSED_CHANNEL_SECONDS, lambda: self._after_end(handle))

    def _after_end(self, handle: SessionHandle) -> None:
        """Kill a session that lives on without its channel; if its process is ending, its exit says more."""
        if alive(handle.pid):
            self._sessions.kill(handle, "killed", "the code has closed the interpreter's control channel")

    def _on_exit(self, handle: SessionHandle, status: int | None) -> None:
        """Answer for a session whose process has ended; `status` is as waitpid reports it, None if unknown."""
        cause, why = self._exit_cause(handle, status)  # this also finds out who is a bystander
        request, handle.current = handle.current, None
        lost = _CLOSED if handle.closing else f"the session has ended ({why}); open a new interpreter"
        if not handle.closing and not handle.bystander:
            later_status = cause if cause == "memory_limit" else "killed"
            handle.ended = (later_status, f"the session had ended before this cell: {why}")
        # a cell that was running gets the outcome; other requests are answered like those that come later
        run = request is not None and request.kind == wire.RUN and handle.ended is not None
        if request and run:
            self._cut_off(handle, request, cause, why)
        waiting = list(handle.queue)
        # a fork is answered by `on_parent_exit`, when its copies have been dealt with as well
        if request and not run and request.kind != wire.FORK:
            waiting.insert(0, request)
        # before the answers, which read `handle.lost`
        self._sessions.discard(handle, lost)
        for late in waiting:
            late.stop_clock()
            self._answer_too_late(handle, late)
        if handle.once and not handle.closing:
            handle.closing.append(0)
        self._creations.on_parent_exit(handle)
        if handle.closing:
            self._sessions.forget(handle)

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
        if code == wire.GAVE_UP:
            return "killed", f"the code has closed the interpreter's control channel (exit code {code})"
        if code >= 0:
            return "killed", f"the process ended with exit code {code}"
        name = {one.value: f" ({one.name})" for one in signal.Signals}.get(-code, "")
        return "killed", f"the process was killed by signal {-code}{name}"

    def _killed_for_memory(self) -> bool:
        """Whether a process that was killed just now was so for lack of memory: the kernel counts, and names none."""
        self.note_memory_kills()
        return time.monotonic() - self._memory_killed < _LATELY


def _killed(status: str, why: str) -> dict[str, Any]:
    """Return the outcome of a cell whose session has ended."""
    texts = {"stdout": "", "stderr": "", "value": None, "error": why}
    return {"status": status, **texts, "truncated": False, "duration": 0.0, "alive": False}


def outcome_fields(payload: bytes) -> dict[str, Any]:
    """Parse the payload of a DONE frame; WireError if it is malformed."""
    if len(payload) < OUTCOME.size:
        raise WireError("an outcome that is too short")
    status, flags, value, error = OUTCOME.unpack_from(payload)
    texts, rest = payload[OUTCOME.size :][: value + error], payload[OUTCOME.size + value + error :]
    # the session is not trusted: the announced lengths have to agree with what has come
    if status >= len(wire.STATUSES) or len(texts) != value + error:
        raise WireError("a malformed outcome")
    fields: dict[str, Any] = {
        "status": wire.STATUSES[status],
        "value": texts[:value].decode("utf-8", "replace") if flags & wire.HAS_VALUE else None,
        "error": texts[value:].decode("utf-8", "replace") if flags & wire.HAS_ERROR else None,
        "truncated": bool(flags & wire.SHORTENED),
    }
    if rest:
        pictures, fields["pictures_left_out"] = wire.unpack_pictures(rest)
        fields["pictures"] = [base64.b64encode(picture).decode() for picture in pictures]
    return fields


def _signal_group(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        send_signal(pid, number)
