"""Places for families of sessions: a user and a directory of their own. Runs inside the sandbox, in the supervisor.

A family is a session with all its forks. It keeps its slot until its last member is gone; then whatever still runs
as that user is ended and the directory is emptied, and only a slot that is seen to be empty is given out again.
Where the supervisor may not change users there is one user for all, and Landlock keeps families in their directories;
where nothing is isolated, all share one directory, too.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from sandbox.server.supervisor.directory_cleanup import Janitor
from sandbox.server.supervisor.session_handle import Handle

if TYPE_CHECKING:
    from sandbox.server.supervisor.supervisor import Supervisor

_TRIES = 3
_AT_ONCE = 32
_LONGEST_SWEEP = 60.0
_LATER = 0.2
_SHARED_MEMORY = "/dev/shm"
_REST = 10  # times as long as it took to count what is there


class Slot:
    """One place.

    Args:
        path: its directory, which belongs to the supervisor and can not be listed by sessions.
        uid: its user; 0 for the supervisor's own.
    """

    def __init__(self, path: str, uid: int) -> None:
        self.path = path
        self.uid = uid
        self.members: set[Handle] = set()
        self.leftovers: list[str] = []  # directories of members that are gone
        self.sweeping = False
        self.swept = False  # whether a process has begun to
        self.tries = 0


class Slots:
    """Gives places out, first come first served, and takes them back.

    Args:
        supervisor: whose.
    """

    def __init__(self, supervisor: Supervisor) -> None:
        config = supervisor.config
        self._supervisor = supervisor
        root, first = config["root"], config["first_uid"]
        apart = bool(first or config["harden"])
        numbers = range(config["sessions"])
        places = [(os.path.join(root, str(k)) if apart else root, first + k if first else 0) for k in numbers]
        if apart and not first:  # one user for all: Landlock keeps families in their directories
            for path, _ in places:
                os.mkdir(path, 0o700)
        self.usable = self._families = len(places)
        self._next_count = 0.0
        self.retired = 0
        self._free = deque(Slot(path, uid) for path, uid in places)
        self._by_user = bool(first)
        self._janitor = None if first else Janitor()
        self._waiting: deque[tuple[Handle, Callable[[], None]]] = deque()

    @property
    def free(self) -> int:
        """How many places are free."""
        return len(self._free)

    def ask(self, handle: Handle, granted: Callable[[], None]) -> None:
        """Give a session a place as soon as there is one."""
        self._waiting.append((handle, granted))
        self._advance()

    def _advance(self) -> None:
        while self._waiting and self._free:
            handle, granted = self._waiting.popleft()
            if not handle.lost:
                self.join(handle, self._free.popleft())
                granted()

    def join(self, handle: Handle, slot: Slot) -> None:
        """Put a session into a slot."""
        handle.slot = slot
        handle.directory = os.path.join(slot.path, secrets.token_hex(16))
        slot.members.add(handle)

    def move(self, handle: Handle) -> None:
        """Give a session another directory, in the same slot."""
        if self._janitor is not None:
            self._janitor.remove(handle.directory)
        else:
            handle.home.leftovers.append(handle.directory)
        handle.directory = os.path.join(handle.home.path, secrets.token_hex(16))

    def leave(self, handle: Handle) -> None:
        """Take a session that is gone out of its slot, with everything it has left."""
        slot, handle.slot = handle.slot, None
        self._supervisor.sweep_soon()
        if slot is None:
            return
        slot.members.discard(handle)
        slot.tries = 0
        if self._janitor is not None:
            self._janitor.remove(handle.directory)
        elif not _removed(handle.directory):
            slot.leftovers.append(handle.directory)
        self._tidy(slot)

    def _tidy(self, slot: Slot) -> None:
        """See what there is to be done in a slot."""
        if slot.sweeping:
            return
        if slot.members:
            if slot.leftovers:
                self._sweep(slot, kill=False)
        elif not slot.uid:
            self._give_back(slot)
        elif slot.leftovers or self._supervisor.strangers() or _shared_memory(slot.uid) or not _is_empty(slot.path):
            self._sweep(slot, kill=True)
        else:
            self._give_back(slot)

    def _sweep(self, slot: Slot, kill: bool) -> None:
        slot.sweeping, slot.swept = True, False
        done = self._supervisor.lean.sweep(slot, slot.leftovers[:_AT_ONCE], kill)
        if done is None:  # the zygote is just being started again, or busy
            self._supervisor.call_in(_LATER, lambda: self._swept(slot, None))
            return
        last = len(slot.leftovers) <= _AT_ONCE
        self._supervisor.watch(done.fileno(), lambda: self._hear(slot, done, last))
        self._supervisor.call_in(_LONGEST_SWEEP, lambda: self._swept(slot, done) if done.fileno() >= 0 else None)

    def _hear(self, slot: Slot, done: socket.socket, last: bool) -> None:
        """Take note that a process has begun to sweep, or has come to its end; without a process, try again later."""
        if done.recv(1):
            slot.swept = True
            slot.tries += last
        elif slot.swept:
            self._swept(slot, done)
        else:
            self._supervisor.unwatch(done.fileno())
            done.close()
            self._supervisor.call_in(_LATER, lambda: self._swept(slot, None))

    def _swept(self, slot: Slot, done: socket.socket | None) -> None:
        if done is not None:
            self._supervisor.unwatch(done.fileno())
            done.close()
        slot.sweeping = False
        slot.leftovers = [directory for directory in slot.leftovers if not _removed(directory)]
        if slot.members:
            if slot.tries < _TRIES:
                self._tidy(slot)
        elif _is_empty(slot.path) and not _shared_memory(slot.uid) and not slot.leftovers:
            self._give_back(slot)
        elif slot.tries < _TRIES:
            self._tidy(slot)
        else:
            self.retired += 1
            self.usable -= 1

    def _give_back(self, slot: Slot) -> None:
        slot.tries = 0
        self._free.append(slot)
        self._advance()

    def greedy(self) -> list[int]:
        """Return users that hold more of /dev/shm, in bytes or in files, than their share, when it is half full."""
        size, most, files, most_files = self._in_shared_memory()
        if not self._by_user or time.monotonic() < self._next_count or (size <= most // 2 and files <= most_files // 2):
            return []
        held: dict[int, list[int]] = {}
        begun = time.monotonic()
        with os.scandir(_SHARED_MEMORY) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):  # gone meanwhile
                    status = entry.stat(follow_symlinks=False)
                    found = held.setdefault(status.st_uid, [0, 0])
                    found[0] += status.st_blocks * 512
                    found[1] += 1
        now = time.monotonic()
        self._next_count = now + _REST * (now - begun)  # there may be many files, and nobody to blame
        share, share_files = most // 2 // self._families, most_files // 2 // self._families
        return [uid for uid, (size, files) in held.items() if uid and (size > share or files > share_files)]

    def _in_shared_memory(self) -> tuple[int, int, int, int]:
        """Return how many bytes are used there and how many there are, and the same of files."""
        whole = os.statvfs(_SHARED_MEMORY)
        most_files = 2 * self._families * self._supervisor.config["shared_files"]
        used = (whole.f_blocks - whole.f_bfree) * whole.f_frsize
        return used, whole.f_blocks * whole.f_frsize, whole.f_files - whole.f_ffree, most_files


def _is_empty(path: str) -> bool:
    """Whether a directory is empty; cheap where a file system of its own tells that it holds nothing else."""
    return _used_inodes(path) == 1 or not os.listdir(path)


def _used_inodes(path: str) -> int:
    status = os.statvfs(path)
    return status.f_files - status.f_ffree


def _removed(directory: str) -> bool:
    """Remove a directory if it is empty; say whether it is gone."""
    try:
        os.rmdir(directory)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _shared_memory(uid: int) -> list[str]:
    """Remove what a user has in shared memory, which the supervisor owns; return what is still there."""
    left = []
    try:
        names = os.listdir(_SHARED_MEMORY) if _used_inodes(_SHARED_MEMORY) != 1 else []
    except OSError:
        return []
    for name in names:
        path = os.path.join(_SHARED_MEMORY, name)
        try:
            if os.lstat(path).st_uid == uid:
                left.append(path)
                os.unlink(path)  # not a directory: those take a sweep
                left.pop()
        except OSError:
            continue
    return left
