"""Has sessions fork themselves. Runs inside the sandbox, in the supervisor.

Copies speak on their parent's channel until they have made their own; the kernel tells them apart. From then on
every session of the family, the parent too, has a channel and outputs that no other process has ever had. What else
has come from the parent, workers of before the fork above all, is stopped when the fork begins and ended when
it is done, before any of the sessions goes on. Threads end with a parent that has some: a fork of it takes its place.
"""

from __future__ import annotations

import errno
import os
import signal
from typing import TYPE_CHECKING

from sandbox.server.kernel.processes import children, kill_tree, kill_trees, send, stat_of, stop_trees, user_of
from sandbox.server.supervisor.control_socket import Message
from sandbox.server.supervisor.session_creation import Birth, Births
from sandbox.server.supervisor.session_handle import Handle, Request
from sandbox.server.wire import BRANCH, BRANCHED, FAULT, INDEX, LOSS_NAMES, LOSSES, READY, UNABLE, Frames, WireError

if TYPE_CHECKING:
    from sandbox.server.supervisor.supervisor import Supervisor

_SHORT = 256


class Forks:
    """Forks sessions.

    Args:
        supervisor: whose sessions they are.
        births: keeps account of them.
    """

    def __init__(self, supervisor: Supervisor, births: Births) -> None:
        self._supervisor = supervisor
        self._births = births

    def fork(self, parent: Handle, request: Request) -> None:
        """Have a session fork itself.

        Raises:
            OSError: the session has closed its channel.
        """
        birth = self._births.of[parent] = Birth(request, parent, self._end_leftovers)
        seed = request.fields.get("reseed")
        for key in request.fields["children"]:
            handle = self._supervisor.new_handle(key)
            self._births.add(birth, handle)
            self._supervisor.slots.join(handle, parent.home)
            self._supervisor.expect(handle)
        birth.workers = stop_trees(lambda: children(parent.pid))
        stat = stat_of(parent.pid)
        threads = stat.threads - 1 if stat else 0
        alive = [stat for stat in map(stat_of, birth.workers) if stat and stat.state != "Z"]
        birth.losses = {"threads": threads, "processes": len(alive)}
        order = ["" if seed is None else str(seed), "threads" if threads else ""]
        order += [handle.directory for handle in birth.handles]
        self._births.start_clock(birth)
        parent.send(BRANCH, request.number, "\n".join(order).encode())
        self._supervisor.send_on(parent)

    def announced(self, parent: Handle, message: Message) -> bool:
        """Hear a process that is not the session on whose channel it speaks: a copy of it, or what replaces it.

        Returns:
            Whether that is what it is.

        Raises:
            WireError: it has taken the session's place, and makes no sense.
        """
        birth = self._births.of.get(parent)
        if birth is None or birth.parent is not parent:
            return False
        try:
            for kind, number, payload in Frames(_SHORT).feed(message.data):
                if number != birth.request.number:
                    return False
                if kind == BRANCHED:
                    self._replace(parent, birth, payload, message)
                elif kind in (READY, UNABLE) and len(payload) >= INDEX.size:
                    self._hear_copy(birth, kind, payload, message)
                else:
                    return False
        except (WireError, OSError):
            if parent.pid == message.pid:  # it has just taken the place of the original
                raise
            birth.error = birth.error or _reason(b"")  # somebody pretends to be a copy
            return False
        return True

    def _hear_copy(self, birth: Birth, kind: int, payload: bytes, message: Message) -> None:
        """Take in a copy, or that there will be none.

        Raises:
            WireError: it makes no sense.
            OSError: it has no proper channel.
        """
        index, rest = INDEX.unpack_from(payload)[0], payload[INDEX.size :]
        if index >= len(birth.handles) or birth.handles[index] not in birth.waiting:
            raise WireError("a copy too many")
        handle = birth.handles[index]
        if kind == UNABLE:
            self._births.failed(handle, _reason(rest))
            return
        self._births.check(handle, message.pid, message.uid, os.getpid())
        self._adopt(handle, message)
        handle.rename(rest)
        self._births.enrol(handle, birth, message.pid)

    def _adopt(self, handle: Handle, message: Message) -> None:
        if len(message.fds) != 1:
            raise WireError("a channel is missing")
        if handle.control is not None:
            self._supervisor.unwatch(handle.control.fileno())
        handle.adopt(message.fds.pop(), message.pid)
        self._supervisor.listen_to(handle)

    def _replace(self, parent: Handle, birth: Birth, payload: bytes, message: Message) -> None:
        """Let a fork of a session that has threads take its place.

        Raises:
            WireError: it is something else, or makes no sense.
            OSError: it has no proper channel.
        """
        if not birth.losses["threads"]:
            raise WireError("a session that was not to be replaced")
        old, parent.born_after = parent.pid, birth.handles[0].born_after
        self._births.check(parent, message.pid, message.uid, os.getpid())
        self._supervisor.by_pid.pop(old, None)
        parent.pid = message.pid
        self._supervisor.by_pid[parent.pid] = parent
        kill_tree(old)
        self.branched(parent, BRANCHED, payload, message)

    def branched(self, parent: Handle, kind: int, payload: bytes, message: Message) -> None:
        """Take note that a session has done its part of a fork, or could not.

        Raises:
            WireError: what it says makes no sense.
        """
        birth = self._births.of.get(parent)
        if birth is None:
            raise WireError("a fork's reply that makes no sense")
        if kind == UNABLE:
            birth.error = _reason(payload)  # it knows best, also if its copies failed first
            birth.refused = True
            for pid in birth.workers:
                send(pid, signal.SIGCONT)
        else:
            self._take_reply(parent, birth, payload, message)
        for handle in birth.handles:
            if handle in birth.waiting:  # copies speak before their parent does
                self._births.failed(handle, birth.error or _reason(b""))
        self._births.settle(parent, birth)

    def _take_reply(self, parent: Handle, birth: Birth, payload: bytes, message: Message) -> None:
        if len(payload) < LOSSES.size + FAULT.size:
            raise WireError("a fork's reply that makes no sense")
        try:
            self._adopt(parent, message)
        except OSError as error:
            raise WireError(str(error)) from None
        parent.rename(payload[LOSSES.size + FAULT.size :])
        birth.losses.update(zip(LOSS_NAMES, LOSSES.unpack_from(payload)))  # noqa: B905  (Python 3.9)
        if FAULT.unpack_from(payload, LOSSES.size)[0]:
            birth.error = birth.error or _reason(payload[LOSSES.size :])
        stat = stat_of(parent.pid)
        if stat is not None and stat.threads > 1:
            birth.error = birth.error or "code that runs at a fork has started threads"

    def parent_died(self, parent: Handle) -> None:
        """Take note that a session that has just been buried will not come back from its fork."""
        birth = self._births.of.get(parent)
        if birth is not None:
            birth.error = birth.error or parent.lost
            for handle in birth.handles:
                if handle in birth.waiting:
                    self._births.failed(handle, birth.error)
            self._births.settle(parent, birth)

    def _end_leftovers(self, birth: Birth) -> None:
        """End what has come from the sessions of a fork, before it or while it was made, and is no session.

        A session that did not even begin to fork keeps its workers.
        """
        handles = [*birth.handles] if birth.refused or birth.parent is None else [birth.parent, *birth.handles]
        kill_trees(lambda: self._leftovers([handle for handle in handles if handle.pid and not handle.lost]))
        self._supervisor.sweep_soon()

    def _leftovers(self, handles: list[Handle]) -> list[int]:
        left = [pid for handle in handles for pid in children(handle.pid)]
        slots = {id(handle.slot): handle.slot for handle in handles if handle.slot and handle.slot.uid}
        for slot in slots.values():
            others = [handle.born_after for handle in self._supervisor.starting if handle.slot is slot]
            for pid in self._supervisor.strangers():
                stat = stat_of(pid)
                if stat and stat.start < min(others, default=stat.start + 1) and user_of(pid) == slot.uid:
                    left.append(pid)
        return left


_REASONS = {
    errno.E2BIG: "forks in a line can be 15 deep; fork an ancestor, or replay in a new session",
    errno.EAGAIN: "all processes are taken: close forks, or raise Limits.processes",
    errno.EDQUOT: "there is no space left for the copies' files",
    errno.EMFILE: "the session has no descriptors left for its copies",
    errno.ENFILE: "the sandbox has no descriptors left",
    errno.ENOMEM: "there is no memory left for the copies",
    errno.ENOSPC: "there is no space left for the copies' files",
}


def _reason(fault: bytes) -> str:
    """Put into words why a session could not be forked; it says only which of these it was."""
    code = FAULT.unpack(fault)[0] if len(fault) == FAULT.size else 0
    return _REASONS.get(code, "its copies could not be made")
