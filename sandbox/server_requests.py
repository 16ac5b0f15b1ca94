"""What the supervisor does for each request of the client, and when a session speaks or dies. Runs inside the sandbox.

Requests of one session are done one after the other, in the order they came; closing does not wait its turn.
Exactly one reply goes out for each request, whatever the session does.
"""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sandbox.server_handle import Handle, Request, outcome_fields
from sandbox.server_linux import kill_tree, out_of_memory_kills, send
from sandbox.wire import (
    BRANCH,
    BRANCHED,
    CELL,
    CLOSE,
    DONE,
    FORK,
    LOSS_NAMES,
    LOSSES,
    OPEN,
    READY,
    RUN,
    UNABLE,
    WireError,
)

if TYPE_CHECKING:
    from sandbox.server import Supervisor

_READ_WRITE = selectors.EVENT_READ | selectors.EVENT_WRITE
_FORK_SECONDS = 60.0
_LAST_WORDS = 5.0


class Birth:
    """Sessions that are being born for one request, by opening or by forking.

    Args:
        request: what is to be answered.
        handles: the sessions.
        parent: the session that is forked, None when opening.
    """

    def __init__(self, request: Request, handles: list[Handle], parent: Handle | None) -> None:
        self.request = request
        self.handles = handles
        self.parent = parent
        self.waiting: set[Handle] = {*handles, *([parent] if parent else [])}
        self.losses: dict[str, int] = {}
        self.error = ""


class Requests:
    """The supervisor's dispatcher."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._births: dict[Handle, Birth] = {}
        self._oom_kills = out_of_memory_kills()

    def take(self, request: Request) -> None:
        """Take a request from the client."""
        key = request.fields["session"]
        if request.kind == OPEN:
            self._open(request, key)
            return
        handle = self._supervisor.sessions.get(key)
        if handle is None:
            self._supervisor.fail(request.number, "SessionLost", "this session is closed; open a new interpreter")
        elif request.kind == CLOSE:
            self._close(handle, request.number)
        elif handle.lost or handle.closing:
            self._supervisor.fail(request.number, "SessionLost", handle.lost or _CLOSED)
        else:
            handle.queue.append(request)
            self._next(handle)

    def _open(self, request: Request, key: int) -> None:
        try:
            handle = self._supervisor.new_handle(key)
        except OSError as error:
            self._supervisor.fail(request.number, "SandboxError", f"no further session can be opened: {error}")
            return
        self._births[handle] = Birth(request, [handle], None)
        self._supervisor.spawner.open(handle)

    def _close(self, handle: Handle, number: int) -> None:
        handle.closing.append(number)
        if handle.lost:
            self._forget(handle)
        elif handle.pid:
            kill_tree(handle.pid)
        # a session that is being born is killed as soon as it is there, see `_arrive`

    def _forget(self, handle: Handle) -> None:
        self._supervisor.sessions.pop(handle.key, None)
        for number in filter(None, handle.closing):
            self._supervisor.reply(number, {})

    def _next(self, handle: Handle) -> None:
        """Start the next request of a session, if it is free."""
        if handle.current or not handle.queue or not handle.pid or handle.lost or handle.cause:
            return
        request = handle.current = handle.queue.popleft()
        request.started = time.monotonic()
        try:
            if request.kind == RUN:
                self._run(handle, request)
            elif request.kind == FORK:
                self._fork(handle, request)
        except OSError as error:
            self._kill(handle, "killed", f"its control channel is closed ({error.strerror})")

    def _run(self, handle: Handle, request: Request) -> None:
        handle.begin_output()
        for fd in handle.outputs:
            self._supervisor.watch(fd, self._listener(handle, request, fd))
        mark = b"s" if request.fields["setup"] else b"c"
        code = request.fields["code"].encode("utf-8", "surrogatepass")
        handle.send(CELL, request.number, mark + code)
        if not handle.flush():
            self._supervisor.watch(handle.control.fileno(), lambda: self._converse(handle), _READ_WRITE)
        self._supervisor.call_in(request.fields["timeout"], lambda: self._overdue(handle, request))

    def _converse(self, handle: Handle) -> None:
        """Send on what was too long for one go, and listen meanwhile."""
        try:
            done = handle.flush()
        except OSError:
            done = True
        if done:
            self._supervisor.watch(handle.control.fileno(), lambda: self.hear(handle))
        self.hear(handle)

    def _listener(self, handle: Handle, request: Request, fd: int) -> Callable[[], None]:
        def listen() -> None:
            try:
                data = handle.read_output(fd)
            except OSError:
                data = False
            if not data:
                self._supervisor.unwatch(fd)
            if handle.written > self._supervisor.config["limits"]["output_limit"]:
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
        grace = self._supervisor.config["limits"]["grace"]
        self._supervisor.call_in(grace, lambda: self._insist(handle, request, cause))

    def _insist(self, handle: Handle, request: Request, cause: str) -> None:
        if handle.current is request:
            self._kill(handle, cause, "")

    def _kill(self, handle: Handle, cause: str, why: str) -> None:
        """Kill a session; its burial answers whatever is open."""
        if handle.cause or handle.lost:
            return
        handle.cause, handle.why = cause, why
        kill_tree(handle.pid)
        self._supervisor.call_in(_LAST_WORDS, lambda: self._give_up(handle))

    def _give_up(self, handle: Handle) -> None:
        """Bury a session whose process is not this one's child, so that no death is reported."""
        if not handle.lost:
            self.bury(handle, None)

    def _fork(self, parent: Handle, request: Request) -> None:
        birth = self._births[parent] = Birth(request, [], parent)
        try:
            for key in request.fields["children"]:
                handle = self._supervisor.new_handle(key)
                birth.handles.append(handle)
                birth.waiting.add(handle)
                self._births[handle] = birth
            directories = "\n".join(handle.directory for handle in birth.handles)
            ends = tuple(fd for handle in birth.handles for fd in handle.given)
            parent.send(BRANCH, request.number, directories.encode(), ends)
            for handle in birth.handles:
                handle.release()
        except OSError as error:
            for handle in list(birth.handles):
                self._unborn(handle, str(error))
            self._settle(parent, birth)
            return
        self._supervisor.call_in(_FORK_SECONDS, lambda: self._too_slow(birth))

    def _too_slow(self, birth: Birth) -> None:
        for handle in [one for one in birth.waiting if self._births.get(one) is birth]:
            birth.error = birth.error or f"the fork was not done after {_FORK_SECONDS:.0f} s"
            if handle is birth.parent:
                self._kill(handle, "killed", "it did not come back from a fork")
            else:
                self._unborn(handle, birth.error)

    def hear(self, handle: Handle) -> None:
        """Read what a session says."""
        try:
            frames = handle.receive()
            if frames is None:
                self._mute(handle)
                return
            for kind, number, payload, pid in frames:
                self._understand(handle, kind, number, payload, pid)
        except WireError as error:
            self._kill(handle, "killed", f"the code has written to the interpreter's control channel ({error})")

    def _mute(self, handle: Handle) -> None:
        """Act on the end of a channel: the process has ended, or has closed its descriptors."""
        self._supervisor.unwatch(handle.control.fileno())
        if not handle.pid:
            self._unborn(handle, "the new process ended before it was ready")
        else:
            self._supervisor.call_in(0.2, lambda: self._kill(handle, "killed", "it has closed its control channel"))

    def _understand(self, handle: Handle, kind: int, number: int, payload: bytes, pid: int) -> None:
        request = handle.current
        birth = self._births.get(handle)
        if kind == READY and birth and not handle.pid:
            self._arrive(handle, birth, pid)
        elif kind == UNABLE and birth and not handle.pid:
            self._unborn(handle, payload[:2000].decode("utf-8", "replace"))
        elif kind == DONE and request and request.kind == RUN and number == request.number:
            self._finish(handle, request, outcome_fields(payload))
        elif kind in (BRANCHED, UNABLE) and birth and birth.parent is handle and number == birth.request.number:
            self._branched(handle, birth, kind, payload)
        else:
            raise WireError(f"frame of kind {kind} out of turn")

    def _arrive(self, handle: Handle, birth: Birth, pid: int) -> None:
        handle.pid = pid
        self._settle(handle, birth)
        if handle.closing:
            kill_tree(pid)

    def _unborn(self, handle: Handle, error: str) -> None:
        birth = self._births.get(handle)
        if birth is None:
            return
        birth.error = birth.error or error
        self._discard(handle, error)
        self._settle(handle, birth)
        self._forget(handle)

    def _branched(self, parent: Handle, birth: Birth, kind: int, payload: bytes) -> None:
        if kind == UNABLE:
            birth.error = birth.error or payload[:2000].decode("utf-8", "replace")
        elif len(payload) != LOSSES.size:
            raise WireError("a fork's reply that makes no sense")
        else:
            birth.losses = dict(zip(LOSS_NAMES, LOSSES.unpack(payload), strict=False))
        self._settle(parent, birth)

    def _settle(self, handle: Handle, birth: Birth) -> None:
        """Note that one of those waited for has answered; when all have, answer the client."""
        self._births.pop(handle, None)
        self._supervisor.starting.discard(handle)
        self._supervisor.spawner.settled(handle)
        birth.waiting.discard(handle)
        if birth.waiting:
            return
        number = birth.request.number
        if birth.error:
            self._miscarried(birth)
        else:
            self._supervisor.reply(number, {"losses": birth.losses})
        parent = birth.parent
        if parent and parent.current is birth.request:
            parent.current = None
            self._next(parent)
        for born in birth.handles:
            self._next(born)

    def _miscarried(self, birth: Birth) -> None:
        for handle in birth.handles:
            if handle.pid and not handle.lost:
                handle.closing.append(0)
                kill_tree(handle.pid)
        if birth.parent is None:
            kind, message = "SandboxError", f"no session could be opened: {birth.error}"
        elif birth.parent.lost:
            kind, message = "SessionLost", birth.parent.lost
        else:
            kind, message = "ForkError", f"the session could not be forked, and goes on: {birth.error}"
        self._supervisor.fail(birth.request.number, kind, message)

    def _finish(self, handle: Handle, request: Request, outcome: dict[str, Any]) -> None:
        handle.drain()
        stopped = request.stopped
        if stopped:
            outcome["status"] = stopped
            outcome["error"] = "\n".join(filter(None, (outcome["error"], self._why(stopped, request, True))))
        self._answer(handle, request, outcome, True)
        for fd in handle.outputs:
            self._supervisor.unwatch(fd)
        handle.current = None
        self._next(handle)

    def _answer(self, handle: Handle, request: Request, outcome: dict[str, Any], alive: bool) -> None:
        out, err = handle.captures
        outcome["stdout"], outcome["stderr"] = out.text(), err.text()
        outcome["truncated"] = outcome["truncated"] or out.truncated or err.truncated
        outcome["duration"] = time.monotonic() - request.started
        self._supervisor.reply(request.number, {**outcome, "alive": alive})

    def _why(self, cause: str, request: Request, alive: bool) -> str:
        limits = self._supervisor.config["limits"]
        end = "variables are kept" if alive else "the session could not be interrupted and was ended"
        if cause == "timeout":
            return f"TimeoutError: stopped after {request.fields['timeout']:g} s; {end}"
        return f"OutputLimit: stopped after {limits['output_limit']} bytes of output; {end}"

    def bury(self, handle: Handle, status: int | None) -> None:
        """Answer for a session whose process has ended; `status` is as waitpid tells it, None if unknown."""
        cause, why = self._cause_of_death(handle, status)
        request, handle.current = handle.current, None
        if request and request.kind == RUN and handle.closing:
            self._supervisor.fail(request.number, "SessionLost", "the session was closed while this cell ran")
        elif request and request.kind == RUN:
            handle.drain()
            if cause in ("timeout", "output_limit"):
                why = self._why(cause, request, False)
            outcome = {"status": cause, "value": None, "error": why, "truncated": False}
            self._answer(handle, request, outcome, False)
        lost = _CLOSED if handle.closing else f"the session has ended ({why}); open a new interpreter"
        waiting = list(handle.queue)
        birth = self._births.get(handle)
        self._discard(handle, lost)
        for late in waiting:
            self._supervisor.fail(late.number, "SessionLost", lost)
        if birth and birth.parent is handle:
            birth.error = birth.error or lost
            self._settle(handle, birth)
        if handle.closing:
            self._forget(handle)

    def _cause_of_death(self, handle: Handle, status: int | None) -> tuple[str, str]:
        if handle.cause:
            return handle.cause, f"the session was ended: {handle.why or handle.cause}"
        if status is None:
            return "killed", "the process is gone"
        code = os.waitstatus_to_exitcode(status)
        kills = out_of_memory_kills() if code == -signal.SIGKILL else self._oom_kills
        if kills > self._oom_kills:
            self._oom_kills = kills
            return "memory_limit", "the process was killed because the sandbox ran out of memory"
        if code >= 0:
            return "killed", f"the process ended with exit code {code}"
        return "killed", f"the process was killed by {_signal_name(-code)}"

    def _discard(self, handle: Handle, lost: str) -> None:
        """Give back what a session that is gone has held."""
        if handle.lost:
            return
        handle.lost = lost
        handle.queue.clear()
        for fd in (handle.control.fileno(), *handle.outputs):
            self._supervisor.unwatch(fd)
        handle.close()
        self._supervisor.janitor.remove(handle.directory)
        self._supervisor.sweep_soon()


_CLOSED = "this session is closed; open a new interpreter"


def _signal_group(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        send(pid, number)


def _signal_name(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"
