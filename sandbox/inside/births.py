"""Brings sessions into being, by opening and by forking. Runs inside the sandbox, in the supervisor.

A birth is done when every new session has said that it is ready or that it can not be, and, in a fork, when
the parent has said so, too. If any of them fails, all of them are undone, but for the parent.

In a fork, copies speak on their parent's channel until they have made their own; the kernel tells them apart. What
else has come from the parent, workers of before the fork above all, is stopped when the fork begins and ended when
it is done, before any of the sessions goes on.
"""

from __future__ import annotations

import errno
import os
import signal
from typing import TYPE_CHECKING

from sandbox.inside.control import Message
from sandbox.inside.handle import Handle, Request
from sandbox.inside.processes import children, kill_tree, kill_trees, send, sizes_of, stat_of, stop_trees, user_of
from sandbox.wire import (
    BRANCH,
    BRANCHED,
    FAULT,
    INDEX,
    LOSS_NAMES,
    LOSSES,
    READY,
    RUN,
    RUN_ONCE,
    UNABLE,
    Frames,
    WireError,
)

if TYPE_CHECKING:
    from sandbox.inside.requests import Requests
    from sandbox.inside.supervisor import Supervisor

_SECONDS = 30.0
_MOST_ATTEMPTS = 3
_SHORT = 256


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
        self.workers: set[int] = set()
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
        self._add(birth, handle)
        self._supervisor.slots.ask(handle, lambda: self._begin(birth, handle))

    def _begin(self, birth: Birth, handle: Handle) -> None:
        self._supervisor.expect(handle)
        handle.spawner.open(handle)
        birth.request.timer = self._supervisor.call_in(_SECONDS, lambda: self._too_slow(birth))

    def try_again(self, handle: Handle) -> bool:
        """Have a session forked again whose process has ended before it was ready; False if that is no use."""
        birth = self._of.get(handle)
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

    def fork(self, parent: Handle, request: Request) -> None:
        """Have a session fork itself.

        Raises:
            OSError: the session has closed its channel.
        """
        birth = self._of[parent] = Birth(request, parent)
        seed = request.fields.get("reseed")
        for key in request.fields["children"]:
            handle = self._supervisor.new_handle(key)
            self._add(birth, handle)
            self._supervisor.slots.join(handle, parent.home)
            self._supervisor.expect(handle)
        birth.workers = stop_trees(lambda: children(parent.pid))
        stat = stat_of(parent.pid)
        threads = stat.threads - 1 if stat else 0
        birth.losses = {"threads": threads, "processes": len(birth.workers)}
        order = ["" if seed is None else str(seed), "threads" if threads else ""]
        order += [handle.directory for handle in birth.handles]
        birth.request.timer = self._supervisor.call_in(_SECONDS, lambda: self._too_slow(birth))
        parent.send(BRANCH, request.number, "\n".join(order).encode())
        self._supervisor.send_on(parent)

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
        handle.parent = handle.spawner.pid
        self._check(handle, pid, uid)
        self._enrol(handle, self._of[handle], pid)

    def _enrol(self, handle: Handle, birth: Birth, pid: int) -> None:
        status = self._supervisor.dead.pop(pid, None)
        handle.pid = pid
        handle.inherited = sizes_of(pid)["RssAnon"] if birth.parent else 0
        self._supervisor.by_pid[pid] = handle
        if handle.closing:
            kill_tree(pid)
        self._settle(handle, birth)
        if status is not None and stat_of(pid) is None:
            self._supervisor.died(pid, status)

    def _check(self, handle: Handle, pid: int, uid: int) -> None:
        """See whether a process can be a new session.

        Raises:
            WireError: it can not.
        """
        stat = stat_of(pid)
        strange = pid <= 1 or pid in self._supervisor.by_pid or pid in self._supervisor.zygotes
        if handle.home.uid:
            strange |= uid != handle.home.uid
        if stat is not None:
            strange |= stat.parent != handle.parent or stat.start < handle.born_after
            strange |= stat.threads > 1  # started by an at-fork hook, before the process was confined
        if strange:
            raise WireError("a session that is not the process it should be")

    def announced(self, parent: Handle, message: Message) -> bool:
        """Hear a process that is not the session on whose channel it speaks: a copy of it, or what replaces it.

        Returns:
            Whether that is what it is.
        """
        birth = self._of.get(parent)
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
        except (WireError, OSError) as error:  # somebody pretends to be a copy
            birth.error = birth.error or str(error)
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
            self.failed(handle, _reason(rest))
            return
        handle.parent = os.getpid()
        self._check(handle, message.pid, message.uid)
        self._adopt(handle, message)
        handle.rename(rest)
        self._enrol(handle, birth, message.pid)

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
        old, parent.parent, parent.born_after = parent.pid, os.getpid(), birth.handles[0].born_after
        self._check(parent, message.pid, message.uid)
        self._supervisor.by_pid.pop(old, None)
        parent.pid = message.pid
        self._supervisor.by_pid[parent.pid] = parent
        kill_tree(old)
        self.branched(parent, BRANCHED, payload, message)

    def failed(self, handle: Handle, error: str) -> None:
        """Take note that a session will never be."""
        birth = self._of.get(handle)
        if birth is None:
            return
        birth.error = birth.error or error
        self._requests.discard(handle, error)
        self._requests.forget(handle)
        self._settle(handle, birth)

    def branched(self, parent: Handle, kind: int, payload: bytes, message: Message) -> None:
        """Take note that a session has done its part of a fork, or could not.

        Raises:
            WireError: what it says makes no sense.
        """
        birth = self._of.get(parent)
        if birth is None:
            raise WireError("a fork's reply that makes no sense")
        if kind == UNABLE:
            birth.error = _reason(payload)  # it knows best, also if its copies failed first
            for pid in birth.workers:
                send(pid, signal.SIGCONT)
            birth.workers = set()
        else:
            self._take_reply(parent, birth, payload, message)
        for handle in birth.handles:
            if handle in birth.waiting:  # copies speak before their parent does
                self.failed(handle, birth.error or _reason(b""))
        self._settle(parent, birth)

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
        birth = self._of.get(parent)
        if birth is not None:
            birth.error = birth.error or parent.lost
            for handle in birth.handles:
                if handle in birth.waiting:
                    self.failed(handle, birth.error)
            self._settle(parent, birth)

    def _settle(self, handle: Handle, birth: Birth) -> None:
        """Note that one of those waited for has answered; when all have, answer the client."""
        self._of.pop(handle, None)
        self._supervisor.settled(handle)
        handle.spawner.settled(handle)
        birth.waiting.discard(handle)
        if birth.waiting:
            return
        self._supervisor.call_off(birth.request.timer)
        if birth.parent:
            kill_trees(lambda: self._leftovers(birth))
        if birth.error:
            self._undo(birth)
        elif birth.request.kind != RUN_ONCE:
            self._supervisor.reply(birth.request.number, {"losses": birth.losses})
        if birth.parent and birth.parent.current is birth.request:
            birth.parent.current = None
            self._requests.advance(birth.parent)
        for handle in birth.handles:
            self._requests.advance(handle)

    def _leftovers(self, birth: Birth) -> list[int]:
        """Return what has come from the sessions of a fork, before it or while it was made, and is no session."""
        handles = [handle for handle in (birth.parent, *birth.handles) if handle and handle.pid and not handle.lost]
        left = [pid for handle in handles for pid in children(handle.pid)]
        slots = {id(handle.slot): handle.slot for handle in handles if handle.slot and handle.slot.uid}
        for slot in slots.values():
            forks = [handle.born_after for handle in self._supervisor.starting if handle.slot is slot]
            for pid in self._supervisor.strangers():
                stat = stat_of(pid)
                if stat and stat.start < min(forks, default=stat.start + 1) and user_of(pid) == slot.uid:
                    left.append(pid)
        return left

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
