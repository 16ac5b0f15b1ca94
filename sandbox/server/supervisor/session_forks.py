"""Has sessions fork themselves. Runs inside the sandbox, in the supervisor.

The hand-over of channels: a copy reports on its parent's channel, since it has no other yet, and the kernel tells by
the sender's pid which process speaks. With its report it sends one end of a new control socket, and gets new pipes for
its output over it. The parent does the same at the end. From then on every session of the group has a channel and
outputs that no other process has ever had.

Other processes of the parent, such as workers from before the fork, are stopped when the fork begins and killed when
it is done, before any of the sessions goes on. The parent's threads end as well: a parent that has threads is replaced
by a fork of itself.
"""

from __future__ import annotations

import errno
import os
import signal

from sandbox.server.kernel.processes import (
    children,
    kill_tree,
    kill_trees,
    send_signal,
    stat_of,
    stop_trees,
    user_of,
)
from sandbox.server.supervisor.client_stream import ClientRequest
from sandbox.server.supervisor.event_loop import EventLoop
from sandbox.server.supervisor.session_channels import SessionChannels
from sandbox.server.supervisor.session_creation import Creation, SessionCreation
from sandbox.server.supervisor.session_handle import SessionHandle
from sandbox.server.supervisor.session_socket import Message
from sandbox.server.supervisor.session_table import SessionTable
from sandbox.server.supervisor.slots import Slots
from sandbox.server.wire import BRANCH, BRANCHED, FAULT, INDEX, LOSS_NAMES, LOSSES, READY, UNABLE, Frames, WireError

_LONGEST_PAYLOAD = 256


class SessionForks:
    """Forks sessions.

    Args:
        loop: the supervisor's event loop.
        table: the sessions.
        slots: where they are.
        channels: of the sessions.
        creation: completes the forks.
    """

    def __init__(
        self, loop: EventLoop, table: SessionTable, slots: Slots, channels: SessionChannels, creation: SessionCreation
    ) -> None:
        self._loop = loop
        self._table = table
        self._slots = slots
        self._channels = channels
        self._creation = creation

    def fork(self, parent: SessionHandle, request: ClientRequest) -> None:
        """Have a session fork itself.

        Raises:
            OSError: the session has closed its channel.
        """
        creation = self._creation.under_way[parent] = Creation(request, parent, self._kill_leftovers)
        seed = request.fields.get("reseed")
        for key in request.fields["children"]:
            handle = self._table.add(key)
            self._creation.add(creation, handle)
            self._slots.join(handle, parent.home)
            self._table.expect(handle)
        # stopped and not killed yet: if the session cannot fork, they go on
        creation.workers = stop_trees(lambda: children(parent.pid))
        stat = stat_of(parent.pid)
        threads = stat.threads - 1 if stat else 0
        creation.cpu = stat.cpu if stat else 0
        alive = [stat for stat in map(stat_of, creation.workers) if stat and stat.state != "Z"]
        creation.losses = {"threads": threads, "processes": len(alive)}
        if threads:
            self._table.expect(parent)  # else what replaces it would be taken for an orphan until it reports
        order = ["" if seed is None else str(seed), "threads" if threads else ""]
        order += [handle.directory for handle in creation.handles]
        self._creation.start_clock(creation)
        self._channels.send(parent, BRANCH, request.number, "\n".join(order).encode())

    def on_foreign_message(self, parent: SessionHandle, message: Message) -> bool:
        """Take a message of another process on a session's channel: of a copy, or of what replaces the session.

        Returns:
            Whether the process is one of these.

        Raises:
            WireError: the process has replaced the session, and its message is malformed.
        """
        creation = self._creation.under_way.get(parent)
        if creation is None or creation.parent is not parent:
            return False
        try:
            for kind, number, payload in Frames(_LONGEST_PAYLOAD).feed(message.data):
                if number != creation.request.number:
                    return False
                if kind == BRANCHED:
                    self._replace(parent, creation, payload, message)
                elif kind in (READY, UNABLE) and len(payload) >= INDEX.size:
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
        """Take a copy's report: that it is ready, or why it cannot be made.

        Raises:
            WireError: the report is malformed.
            OSError: it comes without a proper channel.
        """
        index, rest = INDEX.unpack_from(payload)[0], payload[INDEX.size :]
        if index >= len(creation.handles) or creation.handles[index] not in creation.waiting:
            raise WireError("a copy too many")
        handle = creation.handles[index]
        if kind == UNABLE:
            self._creation.failed(handle, _reason(rest))
            return
        self._creation.check(handle, message.pid, message.uid, os.getpid())
        self._adopt(handle, message)
        handle.rename(rest)
        self._creation.enrol(handle, creation, message.pid)

    def _adopt(self, handle: SessionHandle, message: Message) -> None:
        """Use the new channel that came with a message, in the place of the present one."""
        if len(message.fds) != 1:
            raise WireError("a channel is missing")
        if handle.control is not None:
            # first, since `adopt` closes it, and its number may then be that of another file
            self._loop.unwatch(handle.control.fileno())
        handle.adopt(message.fds.pop(), message.pid)
        self._channels.listen_to(handle)

    def _replace(self, parent: SessionHandle, creation: Creation, payload: bytes, message: Message) -> None:
        """Let a fork of a session that has threads take its place.

        Raises:
            WireError: the process cannot be that fork, or its report is malformed.
            OSError: it comes without a proper channel.
        """
        if not creation.losses["threads"]:
            raise WireError("a session that was not to be replaced")
        # the replacement is forked after the copies were expected; nothing older can be it
        old, parent.created_after = parent.pid, creation.handles[0].created_after
        self._creation.check(parent, message.pid, message.uid, os.getpid())
        # before the old process is killed, so that its end is not taken for that of the session
        self._table.by_pid.pop(old, None)
        parent.pid = message.pid
        self._table.by_pid[parent.pid] = parent
        kill_tree(old)  # it only waits, and its threads must not go on
        self.on_parent(parent, BRANCHED, payload, message)

    def on_parent(self, parent: SessionHandle, kind: int, payload: bytes, message: Message) -> None:
        """Take the parent's report: that it has done its part of the fork, or could not.

        Raises:
            WireError: the report is malformed.
        """
        creation = self._creation.under_way.get(parent)
        if creation is None:
            raise WireError("a reply to no fork")
        if kind == UNABLE:
            creation.error = _reason(payload)  # replaces those of its copies, since it is the first cause
            creation.refused = True
            # the session goes on as if nothing had happened, and its workers with it
            for pid in creation.workers:
                send_signal(pid, signal.SIGCONT)
        else:
            self._finish_parent(parent, creation, payload, message)
        for handle in creation.handles:
            if handle in creation.waiting:  # copies report before their parent does, so these will not
                self._creation.failed(handle, creation.error or _reason(b""))
        self._creation.settle(parent, creation)

    def _finish_parent(self, parent: SessionHandle, creation: Creation, payload: bytes, message: Message) -> None:
        if len(payload) < LOSSES.size + FAULT.size:
            raise WireError("a malformed reply to a fork")
        try:
            self._adopt(parent, message)
        except OSError as error:
            raise WireError(str(error)) from None
        parent.rename(payload[LOSSES.size + FAULT.size :])
        creation.losses.update(zip(LOSS_NAMES, LOSSES.unpack_from(payload)))  # noqa: B905  (Python 3.9)
        if FAULT.unpack_from(payload, LOSSES.size)[0]:
            creation.error = creation.error or _reason(payload[LOSSES.size :])
        stat = stat_of(parent.pid)
        if stat is not None and stat.threads > 1:
            # such a thread would be outside of the Landlock domain that the session has entered
            creation.error = creation.error or "code that runs at a fork has started threads"

    def on_parent_exit(self, parent: SessionHandle) -> None:
        """Note that a session has ended, maybe during its fork."""
        creation = self._creation.under_way.get(parent)
        if creation is not None:
            creation.error = creation.error or parent.lost
            for handle in creation.handles:
                if handle in creation.waiting:
                    self._creation.failed(handle, creation.error)
            self._creation.settle(parent, creation)

    def _kill_leftovers(self, creation: Creation) -> None:
        """Kill what the sessions of a fork have started, before or during it, and what is not a session itself.

        A session that did not begin to fork keeps its workers.
        """
        handles = [*creation.handles]
        if creation.parent is not None and not creation.refused:
            handles.append(creation.parent)
        kill_trees(lambda: self._leftovers([handle for handle in handles if handle.pid and not handle.lost]))
        self._table.kill_orphans_soon()

    def _leftovers(self, handles: list[SessionHandle]) -> list[int]:
        left = [pid for handle in handles for pid in children(handle.pid)]
        slots = {id(handle.slot): handle.slot for handle in handles if handle.slot and handle.slot.uid}
        for slot in slots.values():
            # unknown children of this user are orphans, unless another fork of the same group is being created: then
            # only those that are older than it are; see `session_table`
            others = [handle.created_after for handle in self._table.creating if handle.slot is slot]
            for pid in self._table.unknown_children():
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
    """Return why a session could not be forked, as text; the session reports only a number."""
    code = FAULT.unpack(fault)[0] if len(fault) == FAULT.size else 0
    return _REASONS.get(code, "its copies could not be made")
