"""The queue for the slots of a sandbox's containers.

Requests are served in the order in which they came, whatever threads and event loops they come from. When all
slots are held another container is started, up to `Plan.containers`; after that requests wait. A container that
has ended is replaced when somebody needs it; the sessions in it are lost. The thread of `keeper` looks after
deadlines and health. Futures are resolved, and containers spoken to, only while the lock is not held.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any

from sandbox.backends.docker_hosts import Host
from sandbox.config.pool_plan import Plan
from sandbox.daemon_threads import daemon, start_thread
from sandbox.errors import SandboxError
from sandbox.pool.connection import Stream
from sandbox.pool.container import Container
from sandbox.pool.fleet import Fleet
from sandbox.pool.health_monitor import keep
from sandbox.pool.isolation_check import unkept_promise
from sandbox.pool.session_group import Family, Session
from sandbox.server.wire import PING
from sandbox.sync_async import Steps

_ENDING = 10.0
_CLOSED = "this sandbox is closed; open another"
_log = logging.getLogger(__name__)
_all: weakref.WeakSet[Pool] = weakref.WeakSet()
Action = Callable[[], object]


class Pool:
    """The containers of one sandbox, and those who wait for a slot.

    Args:
        plan: what it may do.
        hosts: the engines to use.

    Attributes:
        counts: what has happened, see `Sandbox.stats`.
        wake: what the keeper waits for: actions for it to do, or None to look around.
    """

    def __init__(self, plan: Plan, hosts: list[Host]) -> None:
        self.plan = plan
        self.fleet = Fleet(plan, hosts)
        self.lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        self.wake: SimpleQueue[Action | None] = SimpleQueue()
        self.closed = False
        self._waiting: deque[tuple[float, Future[Family]]] = deque()
        self._forgotten: deque[Session] = deque()
        self._keys = itertools.count(1)
        self._owner = 0
        self._keeper: threading.Thread | None = None
        _all.add(self)

    def enter(self) -> Steps[Family]:
        """Wait for a slot; the caller leaves the family in the end."""
        future = self._ask()
        try:
            family: Family = yield future
        except BaseException:  # also a cancellation: then nobody would give the slot back
            if not future.cancel() and future.exception() is None:
                future.result().leave()
            raise
        return family

    def _ask(self) -> Future[Family]:
        self.check_process()
        self.close_forgotten()
        future: Future[Family] = Future()
        with self.lock:
            if self.closed:
                raise SandboxError(_CLOSED)
            if self._keeper is None:
                keeper = daemon(keep, "sandbox keeper", self)
                start_thread(keeper)
                self._owner, self._keeper = os.getpid(), keeper
            self._waiting.append((time.monotonic() + self.plan.wait, future))
            actions = self._dispatch()
        future.add_done_callback(self._withdrawn)
        _do(actions)
        if not future.done():
            self.wake.put(None)  # the keeper watches the deadline
        return future

    def _withdrawn(self, future: Future[Family]) -> None:
        if future.cancelled():
            with self.lock:
                self._waiting = deque(entry for entry in self._waiting if entry[1] is not future)

    def leave(self, family: Family, number: int) -> None:
        """Count members of a family that are gone; with the last one its slot is free."""
        with self.lock:
            family.members -= number
            if family.members > 0:
                return
            family.container.families.discard(family)
            actions = self._dispatch()
        _do(actions)

    def _dispatch(self) -> list[Action]:
        """With the lock: give away slots, start and end containers; returns what is to be done without it."""
        actions: list[Action] = []
        while self._waiting and (container := self.fleet.with_most_free()):
            _, future = self._waiting.popleft()
            if future.set_running_or_notify_cancel():
                actions.append(self._give(container, future))
        if not self.closed:
            started = self.fleet.grow(len(self._waiting), lambda host, slots: Container(self, host, slots))
            actions += [container.start for container in started]
        return actions + [container.end for container in self.fleet.drained()]

    def _give(self, container: Container, future: Future[Family]) -> Action:
        family = Family(self, container)
        container.families.add(family)
        return partial(future.set_result, family)

    # what containers and the keeper report

    def start_stream(self, host: Host) -> Stream:
        """Start a server; takes its time."""
        return self.fleet.start_stream(host)

    def opened(self, container: Container, facts: dict[str, Any]) -> None:
        """Use a container that has said hello, if it is what it has to be."""
        fault = unkept_promise(self.fleet.backend, facts)
        if fault:
            self.failed(container, SandboxError(f"the sandbox ({self.fleet.backend}) is not isolated: {fault}"))
            container.give_up("it is not isolated")
            return
        with self.lock:
            if container.state != "starting":
                return
            container.slots = min(container.slots, facts["slots"])
            self.fleet.opened(container)
            actions = self._dispatch()
        _do(actions)

    def failed(self, container: Container, error: BaseException) -> None:
        """Do without a container that has not started: try another host, or again, or disappoint who waits."""
        with self.lock:
            if container.state != "starting":
                return
            if self.fleet.failed(container, error):
                victims, self._waiting = self._waiting, deque()
                actions = _refusals((future for _, future in victims), lambda: self.fleet.error(error))
            else:
                actions = self._dispatch()
        _do(actions)

    def ended(self, container: Container) -> None:
        """Take note that a container is gone, and of who was in it."""
        with self.lock:
            if self.fleet.remove(container) and not self.closed:
                lost = sum(family.members for family in container.families)
                self.counts.update(replaced=1, lost=lost)
                _log.warning("a container was lost, with %d sessions: %s", lost, container.lost)
            actions = self._dispatch()
        _do(actions)

    def measured(self, container: Container, reply: dict[str, Any]) -> None:
        """Take note of a container's answer to a ping."""
        with self.lock:
            container.missed = 0
            container.slots = reply["slots"]
            worn = self.fleet.wears_out(container, reply["memory"], reply["memory_limit"])
            self.counts["recycled"] += worn
            actions = self._dispatch()
        _do(actions)

    def look(self) -> bool:
        """Refuse those who have waited too long, try again what failed; says whether anybody waits."""
        self.close_forgotten()
        with self.lock:
            late: list[Future[Family]] = []
            while self._waiting and self._waiting[0][0] <= time.monotonic() and not self.fleet.is_growing():
                late.append(self._waiting.popleft()[1])
            actions = _refusals(late, lambda: self.fleet.too_late(len(self._waiting))) + self._dispatch()
            busy = bool(self._waiting)
        _do(actions)
        return busy

    # sessions

    def first_session(self, family: Family) -> Session:
        """Return the session that a family begins with."""
        with self.lock:
            self.counts["opened"] += 1
            family.container.served += 1
            self.counts["recycled"] += self.fleet.wears_out(family.container)
        return Session(family)

    def new_key(self) -> int:
        """Return a name for a session."""
        return next(self._keys)

    def count(self, name: str, by: int = 1) -> None:
        """Count what has happened."""
        with self.lock:
            self.counts[name] += by

    def forget(self, session: Session) -> None:
        """Note that nobody holds a session any more; runs during garbage collection, so takes no lock."""
        self._forgotten.append(session)
        self.wake.put(None)

    def close_forgotten(self) -> None:
        """Close what nobody holds any more."""
        while self._forgotten:
            self._forgotten.popleft().close()

    def stats(self) -> dict[str, int]:
        """Return the counts of now, and those since the beginning."""
        self.close_forgotten()
        with self.lock:
            names = ("opened", "forks", "closed", "runs", "lost", "replaced", "recycled")
            counts = {name: self.counts[name] for name in names}
            now = {
                "sessions": counts["opened"] + counts["forks"] - counts["closed"],
                "containers": sum(one.state != "starting" for one in self.fleet.containers),
                "free": self.fleet.room(),
                "waiting": len(self._waiting),
            }
        return now | counts

    def ping(self) -> list[Future[Any]]:
        """Ask all containers that run how they are."""
        with self.lock:
            running = [one.connection for one in self.fleet.containers if one.state in ("open", "draining")]
        return [connection.request(PING, {}) for connection in running if connection is not None]

    # the process

    def is_ours(self) -> bool:
        """Whether this process is the one that opened it, or it has not been opened."""
        return self._owner in (0, os.getpid())

    def check_process(self) -> None:
        """Raise a SandboxError in a process that was forked from the one that opened it."""
        if not self.is_ours():
            raise SandboxError(
                f"this sandbox belongs to process {self._owner}, not to this one ({os.getpid()}), which was "
                "forked from it; open another here (default_sandbox() does so by itself)"
            )

    def close(self) -> None:
        """End all containers, refuse those who wait; may be called twice."""
        with self.lock:
            self.closed = True
            containers = list(self.fleet.containers)
            victims, self._waiting = self._waiting, deque()
            actions = _refusals((future for _, future in victims), lambda: SandboxError(_CLOSED))
            for container in containers:
                if container.state == "starting":
                    container.state = "ended"
        if not self.is_ours():
            return
        _do([*actions, *(container.end for container in containers)])
        self.wake.put(None)
        deadline = time.monotonic() + _ENDING
        for container in containers:
            container.join(max(0.0, deadline - time.monotonic()))
        for host in self.fleet.hosts:
            host.close()
        if self._keeper is not None and self._keeper is not threading.current_thread():
            self._keeper.join(_ENDING)

    def _let_go(self) -> None:
        """In a forked child: the containers are not ours, and the locks may be held for ever."""
        self.lock, self.wake = threading.Lock(), SimpleQueue()
        for container in self.fleet.containers:
            if container.connection is not None:
                container.connection.stream.abandon()


def _do(actions: Iterable[Action]) -> None:
    for action in actions:
        action()


def _refusals(futures: Iterable[Future[Family]], error: Callable[[], BaseException]) -> list[Action]:
    alive = [future for future in futures if future.set_running_or_notify_cancel()]
    return [partial(future.set_exception, error()) for future in alive]


def _let_all_go() -> None:
    for pool in list(_all):
        pool._let_go()


os.register_at_fork(after_in_child=_let_all_go)
