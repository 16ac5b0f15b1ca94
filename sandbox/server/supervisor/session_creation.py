"""Brings sessions into being, by opening and by forking. Runs inside the sandbox, in the supervisor.

A birth is done when every new session has said that it is ready or that it can not be, and, in a fork, when
the parent has said so, too. If any of them fails, all of them are undone, but for the parent. See `forks` for what is
particular about a fork.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sandbox.server.kernel.processes import kill_tree, sizes_of, stat_of
from sandbox.server.supervisor.session_handle import Handle, Request
from sandbox.server.wire import RUN, RUN_ONCE, WireError

if TYPE_CHECKING:
    from sandbox.server.supervisor.requests import Requests
    from sandbox.server.supervisor.supervisor import Supervisor

_SECONDS = 30.0
_MOST_ATTEMPTS = 3


class Birth:
    """Sessions that are being born for one request.

    Args:
        request: what is to be answered.
        parent: the session that is forked, None when opening.
        last: what there is to do before the client is answered.
    """

    def __init__(self, request: Request, parent: Handle | None, last: Callable[[Birth], None] | None = None) -> None:
        self.request = request
        self.parent = parent
        self.last = last
        self.handles: list[Handle] = []
        self.waiting: set[Handle] = {parent} if parent else set()
        self.losses: dict[str, int] = {}
        self.workers: set[int] = set()
        self.refused = False
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
        self.of: dict[Handle, Birth] = {}

    def open(self, request: Request, key: int) -> None:
        """Have a session forked from the zygote, as soon as there is a place for it."""
        birth = Birth(request, None)
        try:
            handle = self._supervisor.new_handle(key)
            handle.open_channels()
        except OSError as error:
            self._supervisor.sessions.pop(key)
            self._supervisor.fail(request.number, "SandboxError", f"no session could be opened: {error}")
            return
        if request.kind == RUN_ONCE:
            handle.once = True
            steps = enumerate(request.fields["steps"], 1)
            handle.queue.extend(Request(kind, request.number, fields, step) for step, (kind, fields) in steps)
            handle.queue.append(Request(RUN, request.number, request.fields))
            texts = [one.fields["code"] for one in handle.queue if one.kind == RUN]
            handle.spawner = self._supervisor.spawner_for(texts)
        self._supervisor.listen_to(handle)
        self.add(birth, handle)
        self._supervisor.slots.ask(handle, lambda: self._begin(birth, handle))

    def _begin(self, birth: Birth, handle: Handle) -> None:
        self._supervisor.expect(handle)
        handle.spawner.open(handle)
        self.start_clock(birth)

    def start_clock(self, birth: Birth) -> None:
        """Give a birth up when it takes too long."""
        birth.request.timer = self._supervisor.call_in(_SECONDS, lambda: self._too_slow(birth))

    def try_again(self, handle: Handle) -> bool:
        """Have a session forked again whose process has ended before it was ready; False if that is no use."""
        birth = self.of.get(handle)
        if birth is None or birth.parent or handle.closing or handle.attempts >= _MOST_ATTEMPTS:
            return False
        handle.attempts += 1
        self._supervisor.forget_channels(handle)
        handle.spawner.settled(handle)
        self._supervisor.slots.move(handle)
        try:
            handle.open_channels()
        except OSError:
            return False
        self._supervisor.listen_to(handle)
        self._supervisor.expect(handle)
        handle.spawner.open(handle)
        return True

    def add(self, birth: Birth, handle: Handle) -> None:
        """Take a session that is to be into a birth."""
        birth.handles.append(handle)
        birth.waiting.add(handle)
        self.of[handle] = birth

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
        self.check(handle, pid, uid, handle.spawner.pid)
        self.enrol(handle, self.of[handle], pid)

    def enrol(self, handle: Handle, birth: Birth, pid: int) -> None:
        """Take in the process of a session."""
        status = self._supervisor.dead.pop(pid, None)
        handle.pid = pid
        handle.inherited = sizes_of(pid)["RssAnon"] if birth.parent else 0
        self._supervisor.by_pid[pid] = handle
        if handle.closing:
            kill_tree(pid)
        self.settle(handle, birth)
        if status is not None and stat_of(pid) is None:
            self._supervisor.died(pid, status)

    def check(self, handle: Handle, pid: int, uid: int, parent: int) -> None:
        """See whether a process can be a session that is expected, and take note of its parent.

        Raises:
            WireError: it can not.
        """
        stat = stat_of(pid)
        strange = pid <= 1 or pid in self._supervisor.by_pid or pid in self._supervisor.zygotes
        if handle.home.uid:
            strange |= uid != handle.home.uid
        if stat is not None:
            strange |= stat.parent != parent or stat.start < handle.born_after
            strange |= stat.threads > 1  # started by an at-fork hook, before the process was confined
        if strange:
            raise WireError("a session that is not the process it should be")
        handle.parent = parent

    def failed(self, handle: Handle, error: str) -> None:
        """Take note that a session will never be."""
        birth = self.of.get(handle)
        if birth is None:
            return
        birth.error = birth.error or error
        self._requests.discard(handle, error)
        self._requests.forget(handle)
        self.settle(handle, birth)

    def settle(self, handle: Handle, birth: Birth) -> None:
        """Note that one of those waited for has answered; when all have, answer the client."""
        self.of.pop(handle, None)
        self._supervisor.settled(handle)
        handle.spawner.settled(handle)
        birth.waiting.discard(handle)
        if birth.waiting:
            return
        self._supervisor.call_off(birth.request.timer)
        if birth.last:
            birth.last(birth)
        if birth.error:
            self._undo(birth)
        elif birth.request.kind != RUN_ONCE:
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
        if birth.parent is None:
            kind, message = "SandboxError", f"no session could be opened: {birth.error}"
        elif birth.parent.lost:
            kind = "SessionEnded" if birth.parent.ended else "SessionLost"
            message = birth.parent.lost
        else:
            kind, message = "ForkError", f"the session could not be forked, and goes on: {birth.error}"
        self._supervisor.fail(birth.request.number, kind, message)
