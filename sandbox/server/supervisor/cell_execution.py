"""Has sessions run cells, within their limits of time and output. Runs inside the sandbox, in the supervisor."""

from __future__ import annotations

import base64
import os
import signal
import time
from collections.abc import Callable
from typing import Any

from sandbox.server.kernel.processes import send_signal
from sandbox.server.supervisor.client_stream import ClientRequest, ClientStream
from sandbox.server.supervisor.event_loop import EventLoop
from sandbox.server.supervisor.session_channels import SessionChannels
from sandbox.server.supervisor.session_handle import SessionControl, SessionHandle
from sandbox.server.wire import (
    CELL,
    HAS_ERROR,
    HAS_VALUE,
    OUTCOME,
    RUN,
    SETUP,
    SHORTENED,
    STATUSES,
    WireError,
    unpack_pictures,
)

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
