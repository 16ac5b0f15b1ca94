"""Which sessions there are, their processes and their slots, and how they end. Runs inside, in the supervisor.

The supervisor is the parent of all orphans. A child that belongs to no session is an orphan, left behind by a session
that is gone; or it is a session that is being created and has not reported yet. The kernel does not tell them apart,
but their start times do: while sessions are being created, only children that are older than the first of them are
certainly orphans. Younger ones are left alone until those sessions have reported.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from sandbox.server import processes
from sandbox.server.channels import ClientStream, EventLoop, SessionHandle, Slot, Zygotes
from sandbox.server.processes import SHARED_MEMORY, used_inodes

_SWEEP_DELAY = 0.02
LONGEST_END = 5.0
"""Seconds after which a session that was killed, or has closed its channel, is no longer waited for."""


class Sessions:
    """The sessions by the client's key and by process."""

    # set by `Requests`
    on_message: Callable[[SessionHandle], None]  # a session has sent something, or its channel has ended
    on_exit: Callable[[SessionHandle, int | None], None]  # with the wait status; None if that is not known
    advance: Callable[[SessionHandle], None]  # starts the next request of a session, if it is free

    def __init__(self, config: dict[str, Any], loop: EventLoop, client: ClientStream, zygotes: Zygotes) -> None:
        self.limits: dict[str, Any] = config["limits"]
        self.loop, self.client, self.zygotes = loop, client, zygotes
        self.by_key: dict[int, SessionHandle] = {}
        self.by_pid: dict[int, SessionHandle] = {}
        self.creating: set[SessionHandle] = set()  # their processes may exist and are not known yet
        self.slots = Slots(config, self)
        self._sweep_planned = False

    def add(self, key: int) -> SessionHandle:
        """Return the handle of a session that is about to be created, without channels."""
        handle = self.by_key[key] = SessionHandle(key, self.limits, self.zygotes.full)
        return handle

    def expect(self, handle: SessionHandle) -> None:
        """Note that the process of a session may appear from now on."""
        handle.created_after = processes.now_in_ticks()
        self.creating.add(handle)

    def child_exited(self, pid: int, status: int) -> None:
        """Note the end of a process."""
        handle = self.by_pid.pop(pid, None)
        if handle is not None:
            self.on_exit(handle, status)

    def unknown_children(self) -> list[int]:
        """Return children that belong to no session: orphans, and sessions that have not reported yet."""
        pids = self.zygotes.pids
        return [pid for pid in processes.children(os.getpid()) if pid not in self.by_pid and pid not in pids]

    def check_orphans(self) -> None:
        """Kill what has left its session, whose memory and time nobody would be charged with."""
        if self.unknown_children():
            self.kill_orphans_soon()

    def kill_orphans_soon(self) -> None:
        """Kill what sessions have left behind, in a moment."""
        if not self._sweep_planned:
            self._sweep_planned = True
            self.loop.call_later(_SWEEP_DELAY, self._kill_orphans)

    def _kill_orphans(self) -> None:
        self._sweep_planned = False
        if self.unknown_children():  # again soon, until none is left: some may still be too young to judge
            processes.kill_trees(self._orphans)
            self.kill_orphans_soon()

    def _orphans(self) -> list[int]:
        """Return the unknown children that are older than every session being created."""
        unknown = self.unknown_children()
        if not self.creating:
            return unknown
        oldest = min(handle.created_after for handle in self.creating)
        stats = ((pid, processes.stat_of(pid)) for pid in unknown)
        return [pid for pid, stat in stats if stat is None or stat.start < oldest]

    def listen_to(self, handle: SessionHandle) -> None:
        """Call `on_message` for what a session sends on its control socket."""
        self.loop.add_reader(handle.channel.fileno(), self.on_message, handle)

    def send(self, handle: SessionHandle, kind: int, number: int, payload: bytes) -> None:
        """Send a frame; what does not fit is sent when the session reads on. OSError: it has closed its end."""
        handle.channel.send(kind, number, payload)
        if not handle.channel.flush():
            self.loop.add_writer(handle.channel.fileno(), self._send_rest, handle)

    def _send_rest(self, handle: SessionHandle) -> None:
        with contextlib.suppress(OSError):  # the session has closed its end, which reading reports
            if not handle.channel.flush():
                return
        self.loop.remove_writer(handle.channel.fileno())

    def leave_channel(self, handle: SessionHandle) -> None:
        """Stop listening to a session."""
        if handle.control is not None:
            self.loop.remove_reader(handle.control.fileno())
            self.loop.remove_writer(handle.control.fileno())

    def close_channels(self, handle: SessionHandle) -> None:
        """Stop listening to a session, and close what is open for it."""
        self.leave_channel(handle)
        for fd in handle.outputs:
            self.loop.remove_reader(fd)
        handle.close_channels()

    def kill(self, handle: SessionHandle, cause: str, why: str) -> None:
        """Kill a session; when its process has ended, its requests are answered, a cell with status `cause`."""
        # the first cause counts: what comes later is mostly its consequence
        if handle.cause or handle.lost:
            return
        handle.cause, handle.why = cause, why
        self.end(handle)

    def end(self, handle: SessionHandle) -> None:
        """End the process of a session."""
        if handle.slot and handle.slot.uid:
            # what it has started is killed as orphans, or by its user
            processes.send_signal(handle.pid, signal.SIGKILL)
        else:
            processes.kill_tree(handle.pid)
        self.loop.call_later(LONGEST_END, self._give_up, handle)

    def _give_up(self, handle: SessionHandle) -> None:
        """Treat a session as ended whose exit is not reported, since it is not a child of the supervisor any more."""
        if not handle.lost:
            self.by_pid.pop(handle.pid, None)
            self.on_exit(handle, None)

    def discard(self, handle: SessionHandle, lost: str) -> None:
        """Release what a session that is gone has held."""
        if handle.lost:
            return
        handle.lost = lost
        handle.queue.clear()
        self.close_channels(handle)
        self.slots.leave(handle)

    def forget(self, handle: SessionHandle) -> None:
        """Remove a session that is gone, and tell the client that it is closed."""
        self.by_key.pop(handle.key, None)
        for number in filter(None, handle.closing):
            self.client.reply(number, {})


# Slots for groups of sessions: a user and a directory each.
#
# A group is a session with all its forks. It keeps its slot until its last member is gone. Then everything that still
# runs as that user is killed and the directory is emptied, by a process of that user that the lean zygote forks, and
# the slot is used again only when it was seen to be empty. Where the supervisor cannot change users, there is one user
# for all, and Landlock confines each group to its directory; where nothing is isolated, all groups share one directory.

_AT_ONCE = 32
_LONGEST_SWEEP, _LONGEST_WAIT = 20.0, 60.0
_RETRY_SECONDS = 0.2


class Slots:
    """Assigns slots, first come first served, and empties them."""

    def __init__(self, config: dict[str, Any], sessions: Sessions) -> None:
        self._sessions, self._loop = sessions, sessions.loop
        root, first = config["root"], config["first_uid"]
        own_directories = bool(first or config["harden"])
        numbers = range(config["sessions"])
        places = [(os.path.join(root, str(k)) if own_directories else root, first + k if first else 0) for k in numbers]
        # with users, the backend has made the directories
        if own_directories and not first:
            for path, _ in places:
                os.mkdir(path, 0o700)
        self.usable = len(places)
        self.retired = 0  # slots that could not be emptied and are not used again
        self._free = deque(Slot(path, uid) for path, uid in places)
        self._waiting: deque[tuple[SessionHandle, Callable[[], None]]] = deque()

    @property
    def free(self) -> int:
        """Number of free slots."""
        return len(self._free)

    def ask(self, handle: SessionHandle, granted: Callable[[], None]) -> None:
        """Put a session into a slot as soon as one is free, and call back."""
        self._waiting.append((handle, granted))
        self._advance()

    def _advance(self) -> None:
        while self._waiting and self._free:
            handle, granted = self._waiting.popleft()
            # a session that was closed while it waited takes no slot
            if not handle.lost:
                self.join(handle, self._free.popleft())
                granted()

    def join(self, handle: SessionHandle, slot: Slot) -> None:
        """Put a session into a slot."""
        handle.slot = slot
        handle.directory = os.path.join(slot.path, secrets.token_hex(16))
        slot.members.add(handle)

    def leave(self, handle: SessionHandle) -> None:
        """Take a session that is gone out of its slot, with everything it has left there."""
        slot, handle.slot = handle.slot, None
        self._sessions.kill_orphans_soon()
        if slot is None:
            return
        slot.members.discard(handle)
        slot.deadline = time.monotonic() + _LONGEST_WAIT
        if not _removed(handle.directory):
            slot.leftovers.append(handle.directory)
        self._tidy(slot)

    def _tidy(self, slot: Slot) -> None:
        """Sweep a slot, or give it back, as far as it needs either."""
        if slot.sweeping:
            return
        empty = not slot.members
        # an unknown child may be of this user
        if slot.leftovers or (empty and slot.uid and (self._sessions.unknown_children() or not _is_clean(slot))):
            self._sweep(slot, kill=empty and slot.uid > 0)
        elif empty:
            self._give_back(slot)

    def _sweep(self, slot: Slot, kill: bool) -> None:
        slot.sweeping = True
        done = self._sessions.zygotes.lean.sweep(slot, slot.leftovers[:_AT_ONCE], kill)
        if done is None:  # the zygote is busy
            self._loop.call_later(_RETRY_SECONDS, self._sweep_again, slot)
            return
        self._loop.add_reader(done.fileno(), self._swept, slot, done)
        # a socket that is closed has the number -1: that sweep has ended in time
        self._loop.call_later(_LONGEST_SWEEP, lambda: self._swept(slot, done) if done.fileno() >= 0 else None)

    def _swept(self, slot: Slot, done: socket.socket) -> None:
        self._loop.remove_reader(done.fileno())
        done.close()
        slot.leftovers = [directory for directory in slot.leftovers if not _removed(directory)]
        unclean = slot.leftovers or not (slot.members or _is_clean(slot))
        if unclean and time.monotonic() < slot.deadline:  # later, since no process may have been left for a sweep
            self._loop.call_later(_RETRY_SECONDS, self._sweep_again, slot)
            return
        slot.sweeping = False
        if not slot.members and not unclean:
            self._give_back(slot)
        elif not slot.members:  # better one slot less than a group that finds what another has left
            self.retired += 1
            self.usable -= 1

    def _sweep_again(self, slot: Slot) -> None:
        slot.sweeping = False
        self._tidy(slot)

    def _give_back(self, slot: Slot) -> None:
        self._free.append(slot)
        self._advance()


def _is_clean(slot: Slot) -> bool:
    """Whether a slot is empty, and its user has nothing in /dev/shm; what can be removed from there is removed."""
    if not slot.uid:
        return True
    # cheap for a directory that is a file system of its own, which counts its inodes
    empty = used_inodes(slot.path) == 1 or not os.listdir(slot.path)
    return not _shared_memory_of(slot.uid) and empty


def _removed(directory: str) -> bool:
    """Remove a directory if it is empty; returns whether it is gone."""
    try:
        os.rmdir(directory)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _shared_memory_of(uid: int) -> list[str]:
    """Remove a user's files in /dev/shm, which the supervisor owns; returns those that are still there."""
    left = []
    try:
        names = os.listdir(SHARED_MEMORY) if used_inodes(SHARED_MEMORY) != 1 else []
    except OSError:
        return []
    for name in names:
        path = os.path.join(SHARED_MEMORY, name)
        try:
            if os.lstat(path).st_uid == uid:
                left.append(path)
                os.unlink(path)  # fails for a directory, which takes a sweep
                left.pop()
        except OSError:
            continue
    return left
