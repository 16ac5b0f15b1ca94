"""Has sessions run cells, within their limits of time and output. Runs inside the sandbox, in the supervisor."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sandbox.server.kernel.processes import send
from sandbox.server.supervisor.session_handle import Handle, Request
from sandbox.server.wire import CELL, RUN, SETUP

if TYPE_CHECKING:
    from sandbox.server.supervisor.requests import Requests
    from sandbox.server.supervisor.supervisor import Supervisor

_EARLY = 1.0
_AGAIN = 0.05
_NOT_BEGUN = "Interrupted: stopped on request, before it began"


class Cells:
    """Runs cells.

    Args:
        supervisor: whose loop to use.
        requests: who kills sessions, and starts what is next.
    """

    def __init__(self, supervisor: Supervisor, requests: Requests) -> None:
        self._supervisor = supervisor
        self._requests = requests
        self._limits = supervisor.config["limits"]

    def run(self, handle: Handle, request: Request) -> None:
        """Send a cell to its session and start the clock.

        Raises:
            OSError: the session has closed its channel.
        """
        for fd in handle.outputs:
            self._supervisor.watch(fd, self._listener(handle, request, fd))
        kind = SETUP if request.fields["setup"] else CELL
        handle.send(kind, request.number, request.fields["code"].encode("utf-8", "surrogatepass"))
        self._supervisor.send_on(handle)
        request.timer = self._supervisor.call_in(request.fields["timeout"], lambda: self._overdue(handle, request))

    def _listener(self, handle: Handle, request: Request, fd: int) -> Callable[[], None]:
        def listen() -> None:
            if handle.read_output(fd) == 0:
                self._supervisor.unwatch(fd)
            if handle.written > self._limits["output_limit"]:
                self._stop(handle, request, "output_limit")

        return listen

    def _overdue(self, handle: Handle, request: Request) -> None:
        if handle.current is request:
            self._stop(handle, request, "timeout")

    def _stop(self, handle: Handle, request: Request, cause: str) -> None:
        """Interrupt a cell, and kill the session if that does not help."""
        if request.stopped:
            return
        request.stopped = cause
        _signal_group(handle.pid, signal.SIGINT)
        self._supervisor.call_off(request.timer)
        request.timer = self._supervisor.call_in(self._limits["grace"], lambda: self._insist(handle, request))
        if time.monotonic() - request.started < _EARLY:
            self._supervisor.call_in(_AGAIN, lambda: self._signal_again(handle, request))

    def _signal_again(self, handle: Handle, request: Request) -> None:
        """Repeat an early interrupt: the session may not have begun the cell. It heeds one for each cell."""
        if handle.current is request and not handle.cause:
            send(handle.pid, signal.SIGINT)
            self._supervisor.call_in(_AGAIN, lambda: self._signal_again(handle, request))

    def _insist(self, handle: Handle, request: Request) -> None:
        if handle.current is request:
            self._requests.kill(handle, request.stopped, self._why(request, _ENDED))

    def interrupt(self, handle: Handle | None, request: Request) -> None:
        """Stop the cell that the client names, or with None the one that runs; answers whether there was one."""
        name = request.fields["cell"]
        found = False
        if handle is not None and not (handle.lost or handle.cause or handle.closing):
            found = self._stop_current(handle, name) or self._drop_waiting(handle, name)
        self._supervisor.reply(request.number, {"interrupted": found})

    def _stop_current(self, handle: Handle, name: int | None) -> bool:
        cell = handle.current
        if cell is None or cell.kind != RUN or cell.fields["setup"] or name not in (None, cell.fields.get("cell")):
            return False
        self._stop(handle, cell, "interrupted")
        return True

    def _drop_waiting(self, handle: Handle, name: int | None) -> bool:
        for cell in handle.queue:
            if cell.kind == RUN and name is not None and cell.fields.get("cell") == name:
                handle.queue.remove(cell)
                outcome = {**killed("interrupted", _NOT_BEGUN), "alive": True}
                self._requests.answer(handle, cell, outcome, False)
                return True
        return False

    def finish(self, handle: Handle, request: Request, outcome: dict[str, Any]) -> None:
        """Answer for a cell that has come to its end."""
        handle.drain()
        self._supervisor.watchdog.share_fairly()
        if handle.cause:
            return  # it has taken more than its share, and is answered for when it is buried
        if request.stopped:
            outcome["status"] = request.stopped
            outcome["error"] = "\n".join(
                filter(None, (outcome["error"], self._why(request, _ONCE if handle.once else _KEPT)))
            )
        self._answer(handle, request, {**outcome, "alive": True})
        for fd in handle.outputs:
            self._supervisor.unwatch(fd)
        handle.current = None
        self._requests.advance(handle)

    def cut_off(self, handle: Handle, request: Request, cause: str, why: str) -> None:
        """Answer for a cell in which the session has died."""
        handle.drain()
        if request.stopped and cause == "killed":
            cause, why = request.stopped, self._why(request, _ENDED)
        self._answer(handle, request, killed(cause, why))

    def _answer(self, handle: Handle, request: Request, outcome: dict[str, Any]) -> None:
        self._supervisor.call_off(request.timer)
        out, err = handle.captures
        outcome["stdout"], outcome["stderr"] = out.text(), err.text()
        outcome["truncated"] = outcome["truncated"] or out.truncated or err.truncated
        outcome["duration"] = time.monotonic() - request.started
        handle.begin_output()
        self._requests.answer(handle, request, outcome, outcome["status"] == "ok")

    def _why(self, request: Request, end: str) -> str:
        if request.stopped == "timeout":
            return f"TimeoutError: stopped after {request.fields['timeout']:g} s{end}"
        if request.stopped == "interrupted":
            return f"Interrupted: stopped on request{end}"
        return f"OutputLimit: stopped after {self._limits['output_limit']} bytes of output{end}"


_KEPT, _ENDED, _ONCE = "; variables are kept", "; it could not be interrupted, the session was ended", ""


def killed(status: str, why: str) -> dict[str, Any]:
    """Return the outcome of a cell whose session has ended."""
    texts = {"stdout": "", "stderr": "", "value": None, "error": why}
    return {"status": status, **texts, "truncated": False, "duration": 0.0, "alive": False}


def _signal_group(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        send(pid, number)
