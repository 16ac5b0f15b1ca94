"""Creates sessions, by opening and by forking. Runs inside the sandbox, in the supervisor.

A creation is complete when every new session has reported that it is ready or cannot be created and, in a fork, the
parent has reported as well. If one of them fails, all new sessions are ended; the parent lives on.
"""

from __future__ import annotations

import errno
import os
import signal

from sandbox.server import processes, wire
from sandbox.server.channels import ClientRequest, Message, SessionHandle
from sandbox.server.sessions import Sessions
from sandbox.server.wire import FAULT, INDEX, LOSSES, Frames, WireError

_OPEN_SECONDS = 30.0  # the first session of a machine that is busy may have to wait
_FORK_SECONDS = 5.0  # without a report of the session or of a copy: a fork takes some 10 ms, and code can prolong it
_RETURN_SECONDS = 0.5  # for a session whose copies were given up, to go on without them
_LONGEST_PAYLOAD = 256


class Creation:
    """Sessions that are being created for one request; `parent` is the session that is forked, None when opening."""

    def __init__(self, request: ClientRequest, parent: SessionHandle | None) -> None:
        self.request = request
        self.parent = parent
        self.handles: list[SessionHandle] = []
        self.waiting: set[SessionHandle] = {parent} if parent else set()  # who has not reported yet
        self.losses: dict[str, int] = {}  # what the fork could not copy
        self.workers: set[int] = set()  # processes of the parent that were stopped for the fork
        self.refused = False  # the parent has not even begun to fork
        self.error = ""  # why the creation fails; empty while it does not


class Creations:
    """Opens and forks sessions.

    The hand-over of channels in a fork: a copy reports on its parent's channel, since it has no other yet, and the
    kernel tells by the sender's pid which process speaks. With its report it sends one end of a new control socket, and
    gets new pipes for its output over it. The parent does the same at the end. From then on every session of the group
    has a channel and outputs that no other process has ever had.

    Other processes of the parent, such as workers from before the fork, are stopped when the fork begins and killed
    when it is done, before any of the sessions goes on. The parent's threads end as well: a parent that has threads is
    replaced by a fork of itself.
    """

    def __init__(self, sessions: Sessions) -> None:
        self._sessions, self._loop, self._client = sessions, sessions.loop, sessions.client
        self._slots, self._zygotes = sessions.slots, sessions.zygotes
        self._under_way: dict[SessionHandle, Creation] = {}  # by each session that has not reported yet

    def open(self, request: ClientRequest, key: int) -> None:
        """Have a session forked from a zygote, as soon as a slot is free."""
        creation = Creation(request, None)
        try:
            handle = self._sessions.add(key)
            handle.open_channels()
        except OSError as error:
            self._sessions.by_key.pop(key)
            self._client.fail(request.number, "SandboxError", f"no session could be opened: {error}")
            return
        # queued now: they start as soon as the session has reported, without another message of the client
        if request.kind == wire.RUN_ONCE:
            handle.once = True
            cells = [cell for cell in (request.fields["before"], request.fields) if cell]
            handle.queue.extend(ClientRequest(wire.RUN, request.number, cell) for cell in cells)
            handle.spawner = self._zygotes.for_texts([cell["code"] for cell in cells])
        self._sessions.listen_to(handle)
        self._add(creation, handle)
        self._slots.ask(handle, lambda: self._begin(creation, handle))

    def _begin(self, creation: Creation, handle: SessionHandle) -> None:
        # before the fork: a process that is older than this moment cannot be the session
        self._sessions.expect(handle)
        handle.spawner.open(handle)
        # not in `open`, since the time that is spent waiting for a slot does not count
        self._start_clock(creation)

    def _start_clock(self, creation: Creation, seconds: float = 0.0) -> None:
        """Give a creation up when it takes too long; where the clock runs already, it begins anew."""
        creation.request.stop_clock()
        seconds = seconds or (_FORK_SECONDS if creation.parent else _OPEN_SECONDS)
        creation.request.timer = self._loop.call_later(seconds, lambda: self._time_out(creation, seconds))

    def _add(self, creation: Creation, handle: SessionHandle) -> None:
        creation.handles.append(handle)
        creation.waiting.add(handle)
        self._under_way[handle] = creation

    def _time_out(self, creation: Creation, seconds: float) -> None:
        parent = creation.parent
        creation.error = creation.error or f"it was not done after {seconds:.0f} s"
        copies = [handle for handle in creation.waiting if handle is not parent]
        if parent in creation.waiting and not copies:
            self._sessions.kill(parent, "killed", "it did not come back from a fork")
            return
        if parent in creation.waiting:
            self._start_clock(creation, _RETURN_SECONDS)
        for handle in copies:
            self.failed(handle, creation.error)
        if parent in creation.waiting:
            self._kill_leftovers(creation)  # it waits for its copies, of which one may have stopped itself

    def arrived(self, handle: SessionHandle, message: Message, directory: bytes) -> None:
        """Note that a session of a zygote is ready; WireError: it cannot be this session, or names no directory."""
        handle.rename(directory)
        self._check(handle, message, handle.spawner.pid)
        self._enrol(handle, self._under_way[handle], message.pid)

    def _enrol(self, handle: SessionHandle, creation: Creation, pid: int) -> None:
        """Note the process of a session that was checked."""
        handle.pid = pid
        handle.inherited = processes.sizes_of(pid)["RssAnon"] if creation.parent else 0
        self._sessions.by_pid[pid] = handle
        if creation.parent:
            self._start_clock(creation)  # the other copies have as long as this one had
        if handle.closing:  # the client has closed it before it existed
            processes.kill_tree(pid)
        self._settle(handle, creation)
        if processes.stat_of(pid) is None and not handle.lost:  # it ended before its READY was read
            self._sessions.by_pid.pop(pid, None)
            self._sessions.on_exit(handle, None)

    def _check(self, handle: SessionHandle, message: Message, parent: int) -> None:
        """Raise WireError if the sender cannot be a session that is expected, and note its parent."""
        pid, stat = message.pid, processes.stat_of(message.pid)
        wrong = pid <= 1 or pid in self._sessions.by_pid or pid in self._zygotes.pids
        if handle.home.uid:
            wrong |= message.uid != handle.home.uid
        if stat is not None:
            # an older process, or one of another parent, is something that the code has started
            wrong |= stat.parent != parent or stat.start < handle.created_after
            wrong |= stat.threads > 1  # started by an at-fork hook, before the process was confined
        if wrong:
            raise WireError("a session that is not the process it should be")
        handle.parent = parent

    def failed(self, handle: SessionHandle, error: str) -> None:
        """Note that a session cannot be created."""
        creation = self._under_way.get(handle)
        if creation is None:
            return
        creation.error = creation.error or error
        self._sessions.discard(handle, error)
        self._sessions.forget(handle)
        self._settle(handle, creation)

    def _settle(self, handle: SessionHandle, creation: Creation) -> None:
        """Note that a session has reported; when all have, answer the client."""
        self._under_way.pop(handle, None)
        self._sessions.creating.discard(handle)
        creation.waiting.discard(handle)
        if not creation.waiting:
            self._complete(creation)

    def _complete(self, creation: Creation) -> None:
        creation.request.stop_clock()
        # leftovers of a fork end before any of its sessions can go on
        if creation.parent:
            self._kill_leftovers(creation)
        if creation.error:
            self._undo(creation)
        # a RUN_ONCE is answered with the outcome of its code
        elif creation.request.kind != wire.RUN_ONCE:
            self._client.reply(creation.request.number, {"losses": creation.losses})
        if creation.parent and creation.parent.current is creation.request:
            creation.parent.current = None
            self._sessions.advance(creation.parent)
        for handle in creation.handles:
            self._sessions.advance(handle)

    def _undo(self, creation: Creation) -> None:
        for handle in creation.handles:
            if handle.pid and not handle.lost:
                handle.closing.append(0)  # ends without an answer of its own
                processes.kill_tree(handle.pid)
        if creation.parent is None:
            kind, message = "SandboxError", f"no session could be opened: {creation.error}"
        elif creation.parent.lost:
            kind = "SessionEnded" if creation.parent.ended else "SessionLost"
            message = creation.parent.lost
        else:
            kind, message = "ForkError", f"the session could not be forked, and goes on: {creation.error}"
        self._client.fail(creation.request.number, kind, message)

    def fork(self, parent: SessionHandle, request: ClientRequest) -> None:
        """Have a session fork itself; OSError: it has closed its channel."""
        creation = self._under_way[parent] = Creation(request, parent)
        for key in request.fields["children"]:
            handle = self._sessions.add(key)
            self._add(creation, handle)
            self._slots.join(handle, parent.home)
            self._sessions.expect(handle)
        # stopped and not killed yet: if the session cannot fork, they go on
        creation.workers = processes.stop_trees(lambda: processes.children(parent.pid))
        stat = processes.stat_of(parent.pid)
        threads = stat.threads - 1 if stat else 0
        alive = [stat for stat in map(processes.stat_of, creation.workers) if stat and stat.state != "Z"]
        creation.losses = {"threads": threads, "processes": len(alive)}
        if threads:
            self._sessions.expect(parent)  # else what replaces it would be taken for an orphan until it reports
        order = ["threads" if threads else "", *(handle.directory for handle in creation.handles)]
        self._start_clock(creation)
        self._sessions.send(parent, wire.BRANCH, request.number, "\n".join(order).encode())

    def on_foreign_message(self, parent: SessionHandle, message: Message) -> bool:
        """Take a message of another process on a session's channel: of a copy, or of what replaces the session.

        Returns whether it is one of these. WireError: it has replaced the session, and its message is malformed.
        """
        creation = self._under_way.get(parent)
        if creation is None or creation.parent is not parent:
            return False
        try:
            for kind, number, payload in Frames(_LONGEST_PAYLOAD).feed(message.data):
                if number != creation.request.number:
                    return False
                if kind == wire.BRANCHED:
                    self._replace(parent, creation, payload, message)
                elif kind in (wire.READY, wire.UNABLE) and len(payload) >= INDEX.size:
                    self._on_copy(creation, kind, payload, message)
                else:
                    return False
        except (WireError, OSError):
            if parent.pid == message.pid:  # it has just replaced the original
                raise
            creation.error = creation.error or _reason(b"")  # another process pretends to be a copy
            return False
        return True

    def _on_copy(self, creation: Creation, kind: int, payload: bytes, message: Message) -> None:
        """Take a copy's report: that it is ready, or why it cannot be made."""
        index, rest = INDEX.unpack_from(payload)[0], payload[INDEX.size :]
        if index >= len(creation.handles) or creation.handles[index] not in creation.waiting:
            raise WireError("a copy too many")
        handle = creation.handles[index]
        if kind == wire.UNABLE:
            self.failed(handle, _reason(rest))
            return
        self._check(handle, message, os.getpid())
        self._adopt(handle, message)
        handle.rename(rest)
        self._enrol(handle, creation, message.pid)

    def _adopt(self, handle: SessionHandle, message: Message) -> None:
        """Use the new channel that came with a message, in the place of the present one."""
        if len(message.fds) != 1:
            raise WireError("a channel is missing")
        self._sessions.leave_channel(handle)  # first, since `adopt` closes it, and its number may then be another's
        handle.adopt(message.fds.pop(), message.pid)
        self._sessions.listen_to(handle)

    def _replace(self, parent: SessionHandle, creation: Creation, payload: bytes, message: Message) -> None:
        """Let a fork of a session that has threads take its place."""
        if not creation.losses["threads"]:
            raise WireError("a session that was not to be replaced")
        # the replacement is forked after the copies were expected; nothing older can be it
        old, parent.created_after = parent.pid, creation.handles[0].created_after
        self._check(parent, message, os.getpid())
        # before the old process is killed, so that its end is not taken for that of the session
        self._sessions.by_pid.pop(old, None)
        parent.pid = message.pid
        self._sessions.by_pid[parent.pid] = parent
        processes.kill_tree(old)  # it only waits, and its threads must not go on
        self.on_parent(parent, wire.BRANCHED, payload, message)

    def on_parent(self, parent: SessionHandle, kind: int, payload: bytes, message: Message) -> None:
        """Take the parent's report: that it has done its part of the fork, or could not; WireError: it is malformed."""
        creation = self._under_way.get(parent)
        if creation is None:
            raise WireError("a reply to no fork")
        if kind == wire.UNABLE:
            creation.error = _reason(payload)  # replaces those of its copies, since it is the first cause
            creation.refused = True
            # the session goes on as if nothing had happened, and its workers with it
            for pid in creation.workers:
                processes.send_signal(pid, signal.SIGCONT)
        else:
            self._finish_parent(parent, creation, payload, message)
        self._settle_parent(parent, creation, creation.error or _reason(b""))

    def _settle_parent(self, parent: SessionHandle, creation: Creation, error: str) -> None:
        for handle in creation.handles:
            if handle in creation.waiting:  # copies report before their parent does, so these will not
                self.failed(handle, error)
        self._settle(parent, creation)

    def _finish_parent(self, parent: SessionHandle, creation: Creation, payload: bytes, message: Message) -> None:
        if len(payload) < LOSSES.size + FAULT.size:
            raise WireError("a malformed reply to a fork")
        try:
            self._adopt(parent, message)
        except OSError as error:
            raise WireError(str(error)) from None
        parent.rename(payload[LOSSES.size + FAULT.size :])
        creation.losses.update(zip(wire.LOSS_NAMES, LOSSES.unpack_from(payload)))  # noqa: B905  (Python 3.9)
        if FAULT.unpack_from(payload, LOSSES.size)[0]:
            creation.error = creation.error or _reason(payload[LOSSES.size :])
        stat = processes.stat_of(parent.pid)
        if stat is not None and stat.threads > 1:
            # such a thread would be outside of the Landlock domain that the session has entered
            creation.error = creation.error or "code that runs at a fork has started threads"

    def on_parent_exit(self, parent: SessionHandle) -> None:
        """Note that a session has ended, maybe during its fork."""
        creation = self._under_way.get(parent)
        if creation is not None:
            creation.error = creation.error or parent.lost
            self._settle_parent(parent, creation, creation.error)

    def _kill_leftovers(self, creation: Creation) -> None:
        """Kill what the sessions of a fork have started; one that did not begin to fork keeps its workers."""
        handles = [*creation.handles]
        if creation.parent is not None and not creation.refused:
            handles.append(creation.parent)
        processes.kill_trees(lambda: self._leftovers([handle for handle in handles if handle.pid and not handle.lost]))
        self._sessions.kill_orphans_soon()

    def _leftovers(self, handles: list[SessionHandle]) -> list[int]:
        left = [pid for handle in handles for pid in processes.children(handle.pid)]
        slots = {id(handle.slot): handle.slot for handle in handles if handle.slot and handle.slot.uid}
        for slot in slots.values():
            # unknown children of this user are orphans, unless another fork of the same group is being created: then
            # only those that are older than it are; see `sessions`
            others = [handle.created_after for handle in self._sessions.creating if handle.slot is slot]
            for pid in self._sessions.unknown_children():
                stat = processes.stat_of(pid)
                if stat and stat.start < min(others, default=stat.start + 1) and processes.user_of(pid) == slot.uid:
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
    """Return why a session could not be forked, as text; the session reports only a number."""
    code = FAULT.unpack(fault)[0] if len(fault) == FAULT.size else 0
    return _REASONS.get(code, "its copies could not be made")
