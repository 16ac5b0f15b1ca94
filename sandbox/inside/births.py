"""Brings sessions into being, by opening and by forking. Runs inside the sandbox, in the supervisor.

A birth is done when every new session has said that it is ready or that it can not be, and, in a fork, when
the parent has said so, too. If any of them fails, all of them are undone, but for the parent.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from sandbox.inside.handle import Handle, Request
from sandbox.inside.processes import kill_tree, parent_of, start_time
from sandbox.wire import BRANCH, LOSS_NAMES, LOSSES, UNABLE, WireError

if TYPE_CHECKING:
    from sandbox.inside.requests import Requests
    from sandbox.inside.supervisor import Supervisor

_SECONDS = 30.0
_MOST_ATTEMPTS = 3


class Birth:
    """Sessions that are being born for one request.

    Args:
        request: what is to be answered.
        parent: the session that is forked, None when opening.
    """

    def __init__(self, request: Request, parent: Handle | None) -> None:
        self.request = request
        self.parent = parent
        self.handles: list[Handle] = []
        self.waiting: set[Handle] = {parent} if parent else set()
        self.losses: dict[str, int] = {}
        self.error = ""


class Births:
    """Keeps account of the births that are under way.

    Args:
        supervisor: whose sessions they are.
        requests: who drops sessions, and starts what is next.
    """

    def __init__(self, supervisor: Supervisor, requests: Requests) -> None:
        self._supervisor = supervisor
        self._requests = requests
        self._of: dict[Handle, Birth] = {}

    def open(self, request: Request, key: int) -> None:
        """Have a session forked from the zygote, as soon as there is a place for it."""
        birth = Birth(request, None)
        try:
            handle = self._supervisor.new_handle(key)
        except OSError as error:
            self._supervisor.fail(request.number, "SandboxError", f"no session could be opened: {error}")
            return
        self._add(birth, handle)
        self._supervisor.slots.ask(handle, lambda: self._begin(birth, handle))

    def _begin(self, birth: Birth, handle: Handle) -> None:
        self._supervisor.expect(handle)
        self._supervisor.spawner.open(handle)
        birth.request.timer = self._supervisor.call_in(_SECONDS, lambda: self._too_slow(birth))

    def try_again(self, handle: Handle) -> bool:
        """Have a session forked again whose process has ended before it was ready; False if that is no use."""
        birth = self._of.get(handle)
        if birth is None or birth.parent or handle.closing or handle.attempts >= _MOST_ATTEMPTS:
            return False
        handle.attempts += 1
        self._supervisor.forget_channels(handle)
        self._supervisor.spawner.settled(handle)
        self._supervisor.slots.move(handle)
        try:
            handle.open_channels()
        except OSError:
            return False
        self._supervisor.listen_to(handle)
        self._supervisor.expect(handle)
        self._supervisor.spawner.open(handle)
        return True

    def fork(self, parent: Handle, request: Request) -> None:
        """Have a session fork itself."""
        birth = self._of[parent] = Birth(request, parent)
        seed = request.fields.get("reseed")
        try:
            for key in request.fields["children"]:
                handle = self._supervisor.new_handle(key)
                self._add(birth, handle)
                self._supervisor.slots.join(handle, parent.home)
                self._supervisor.expect(handle)
            order = ["" if seed is None else str(seed), *(handle.directory for handle in birth.handles)]
            ends = tuple(fd for handle in birth.handles for fd in handle.given)
            parent.send(BRANCH, request.number, "\n".join(order).encode(), ends)
            for handle in birth.handles:
                handle.release()
        except OSError as error:
            for handle in birth.handles:
                self.failed(handle, str(error))
            self._settle(parent, birth)
            return
        birth.request.timer = self._supervisor.call_in(_SECONDS, lambda: self._too_slow(birth))

    def _add(self, birth: Birth, handle: Handle) -> None:
        birth.handles.append(handle)
        birth.waiting.add(handle)
        self._of[handle] = birth

    def _too_slow(self, birth: Birth) -> None:
        for handle in list(birth.waiting):
            birth.error = birth.error or f"it was not done after {_SECONDS:.0f} s"
            if handle is birth.parent:
                self._requests.kill(handle, "killed", "it did not come back from a fork")
            else:
                self.failed(handle, birth.error)

    def arrived(self, handle: Handle, pid: int, uid: int, directory: bytes) -> None:
        """Take note that a session is ready; the kernel vouches for its pid.

        Raises:
            WireError: that process is something else already, or the name makes no sense.
        """
        handle.rename(directory)
        if pid <= 1 or pid in self._supervisor.by_pid or pid == self._supervisor.spawner.pid:
            raise WireError("a session that is not the process it should be")
        birth = self._of[handle]
        mother = os.getpid() if birth.parent else self._supervisor.spawner.pid
        status = self._supervisor.dead.pop(pid, None)
        alive = start_time(pid) >= 0
        if (handle.home.uid and uid != handle.home.uid) or (alive and parent_of(pid) != mother):
            raise WireError("a session that is not the process it should be")
        handle.pid = pid
        self._supervisor.by_pid[pid] = handle
        if handle.closing:
            kill_tree(pid)
        self._settle(handle, birth)
        if status is not None and not alive:
            self._supervisor.died(pid, status)

    def failed(self, handle: Handle, error: str) -> None:
        """Take note that a session will never be."""
        birth = self._of.get(handle)
        if birth is None:
            return
        birth.error = birth.error or error
        self._requests.discard(handle, error)
        self._requests.forget(handle)
        self._settle(handle, birth)

    def branched(self, parent: Handle, kind: int, payload: bytes) -> None:
        """Take note that a session has done its part of a fork, or could not.

        Raises:
            WireError: what it says makes no sense.
        """
        birth = self._of.get(parent)
        if birth is None or (kind != UNABLE and len(payload) < LOSSES.size):
            raise WireError("a fork's reply that makes no sense")
        if kind == UNABLE:
            birth.error = payload[:2000].decode("utf-8", "replace")  # it knows best, also if its copies failed first
        else:
            parent.rename(payload[LOSSES.size :])
            birth.losses = dict(zip(LOSS_NAMES, LOSSES.unpack_from(payload)))  # noqa: B905  (Python 3.9)
        self._settle(parent, birth)

    def parent_died(self, parent: Handle) -> None:
        """Take note that a session that has just been buried will not come back from its fork."""
        birth = self._of.get(parent)
        if birth is not None:
            birth.error = birth.error or parent.lost
            self._settle(parent, birth)

    def _settle(self, handle: Handle, birth: Birth) -> None:
        """Note that one of those waited for has answered; when all have, answer the client."""
        self._of.pop(handle, None)
        self._supervisor.settled(handle)
        self._supervisor.spawner.settled(handle)
        birth.waiting.discard(handle)
        if birth.waiting:
            return
        self._supervisor.call_off(birth.request.timer)
        if birth.error:
            self._undo(birth)
        else:
            self._supervisor.reply(birth.request.number, {"losses": birth.losses})
        if birth.parent and birth.parent.current is birth.request:
            birth.parent.current = None
            self._requests.advance(birth.parent)
        for handle in birth.handles:
            self._requests.advance(handle)

    def _undo(self, birth: Birth) -> None:
        for handle in birth.handles:
            if handle.pid and not handle.lost:
                handle.closing.append(0)
                kill_tree(handle.pid)
        error = birth.error + (_NO_PROCESSES if "[Errno 11]" in birth.error else "")
        if birth.parent is None:
            kind, message = "SandboxError", f"no session could be opened: {error}"
        elif birth.parent.lost:
            kind, message = "SessionLost", birth.parent.lost
        else:
            kind, message = "ForkError", f"the session could not be forked, and goes on: {error}"
        self._supervisor.fail(birth.request.number, kind, message)


_NO_PROCESSES = "; all processes are taken: close forks, or raise Limits.processes"
