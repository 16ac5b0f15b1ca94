"""Slots for groups of sessions: a user and a directory each. Runs inside the sandbox, in the supervisor.

A group is a session with all its forks. It keeps its slot until its last member is gone. Then everything that still
runs as that user is killed and the directory is emptied, and the slot is used again only when it was seen to be empty.
Where the supervisor cannot change users, there is one user for all, and Landlock confines each group to its directory;
where nothing is isolated, all groups share one directory as well.
"""

from __future__ import annotations

import os
import queue
import secrets
import socket
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from sandbox.server.kernel.processes import remove_tree
from sandbox.server.supervisor.event_loop import EventLoop
from sandbox.server.supervisor.memory import SHARED_MEMORY, used_inodes
from sandbox.server.supervisor.session_handle import SessionHandle, Slot
from sandbox.server.supervisor.session_table import SessionTable

_MOST_TRIES = 3
_AT_ONCE = 32
_LONGEST_SWEEP = 60.0
_RETRY_SECONDS = 0.2


class Slots:
    """Assigns slots, first come first served, and empties them.

    Args:
        config: what the client sent.
        loop: the supervisor's event loop.
        table: the sessions.
        sweep: has directories removed by a process of their user; see `ZygoteClient.sweep`.

    Attributes:
        usable: how many slots there are.
        retired: how many slots could not be emptied and are not used again.
    """

    def __init__(
        self,
        config: dict[str, Any],
        loop: EventLoop,
        table: SessionTable,
        sweep: Callable[[Slot, list[str], bool], socket.socket | None],
    ) -> None:
        self._loop = loop
        self._table = table
        self._sweep_process = sweep
        root, first = config["root"], config["first_uid"]
        own_directories = bool(first or config["harden"])
        numbers = range(config["sessions"])
        places = [(os.path.join(root, str(k)) if own_directories else root, first + k if first else 0) for k in numbers]
        # with users, the backend has made the directories
        if own_directories and not first:
            for path, _ in places:
                os.mkdir(path, 0o700)
        self.usable = len(places)
        self.retired = 0
        self._free = deque(Slot(path, uid) for path, uid in places)
        self._remover = None if first else _DirectoryRemover()
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

    def move(self, handle: SessionHandle) -> None:
        """Give a session another directory in the same slot."""
        if self._remover is not None:
            self._remover.remove(handle.directory)
        else:
            handle.home.leftovers.append(handle.directory)
        handle.directory = os.path.join(handle.home.path, secrets.token_hex(16))

    def leave(self, handle: SessionHandle) -> None:
        """Take a session that is gone out of its slot, with everything it has left there."""
        slot, handle.slot = handle.slot, None
        self._table.kill_orphans_soon()
        if slot is None:
            return
        slot.members.discard(handle)
        slot.tries = 0  # what has changed may make the next sweep succeed
        if self._remover is not None:
            self._remover.remove(handle.directory)
        elif not _removed(handle.directory):
            slot.leftovers.append(handle.directory)
        self._tidy(slot)

    def _tidy(self, slot: Slot) -> None:
        """Sweep a slot, or give it back, as far as it needs either."""
        if slot.sweeping:
            return
        if slot.members:
            if slot.leftovers:
                self._sweep(slot, kill=False)
        elif not slot.uid:
            self._give_back(slot)
        elif (
            slot.leftovers
            or self._table.unknown_children()  # one of them may be of this user
            or _shared_memory_of(slot.uid)
            or not _is_empty(slot.path)
        ):
            self._sweep(slot, kill=True)
        else:
            self._give_back(slot)

    def _sweep(self, slot: Slot, kill: bool) -> None:
        slot.sweeping, slot.swept = True, False
        done = self._sweep_process(slot, slot.leftovers[:_AT_ONCE], kill)
        if done is None:  # the zygote is busy, or is being started again
            self._loop.call_in(_RETRY_SECONDS, lambda: self._swept(slot, None))
            return
        last = len(slot.leftovers) <= _AT_ONCE  # only a sweep of everything counts as a try
        self._loop.watch(done.fileno(), lambda: self._on_progress(slot, done, last))
        # a socket that is closed has the number -1: that sweep has ended in time
        self._loop.call_in(_LONGEST_SWEEP, lambda: self._swept(slot, done) if done.fileno() >= 0 else None)

    def _on_progress(self, slot: Slot, done: socket.socket, last: bool) -> None:
        """Note that a process has begun to sweep, or has ended. If none could be forked, try again later."""
        if done.recv(1):
            slot.swept = True
            slot.tries += last
        elif slot.swept:
            self._swept(slot, done)
        else:
            self._loop.unwatch(done.fileno())
            done.close()
            self._loop.call_in(_RETRY_SECONDS, lambda: self._swept(slot, None))

    def _swept(self, slot: Slot, done: socket.socket | None) -> None:
        if done is not None:
            self._loop.unwatch(done.fileno())
            done.close()
        slot.sweeping = False
        slot.leftovers = [directory for directory in slot.leftovers if not _removed(directory)]
        if slot.members:
            if slot.tries < _MOST_TRIES:
                self._tidy(slot)
        elif _is_empty(slot.path) and not _shared_memory_of(slot.uid) and not slot.leftovers:
            self._give_back(slot)
        elif slot.tries < _MOST_TRIES:
            self._tidy(slot)
        else:  # better one slot less than a group that finds what another has left
            self.retired += 1
            self.usable -= 1

    def _give_back(self, slot: Slot) -> None:
        slot.tries = 0
        self._free.append(slot)
        self._advance()


class _DirectoryRemover:
    """A thread that removes directories, so that the event loop need not wait. For sessions of the supervisor's user.

    Directories of other users are removed by processes of those users; see `ZygoteClient.sweep`.
    """

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._work, daemon=True).start()

    def remove(self, directory: str) -> None:
        """Have a directory removed."""
        self._waiting.put(directory)

    def _work(self) -> None:
        while True:
            remove_tree(self._waiting.get())


def _is_empty(path: str) -> bool:
    """Whether a directory is empty; cheap for one that is a file system of its own, which counts its inodes."""
    return used_inodes(path) == 1 or not os.listdir(path)


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
