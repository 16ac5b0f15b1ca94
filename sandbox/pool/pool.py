"""The queue for the slots of a sandbox's containers.

Requests are served in the order in which they came, whatever threads and event loops they come from. When all
slots are held, another container is started, up to `PoolPlan.containers`; after that, requests wait. A container that
has ended is replaced when a request needs it; the sessions in it are lost. The health monitor's thread checks
deadlines and containers. Futures are resolved, and containers spoken to, only while the lock is not held.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from typing import Any

from sandbox.backends.stream import Stream
from sandbox.config.limits import warn_of_missing_limits
from sandbox.config.options import PoolPlan
from sandbox.docker_engine.hosts import Host
from sandbox.errors import SandboxError
from sandbox.pool.container import Container
from sandbox.pool.daemon_threads import daemon_thread, start_thread
from sandbox.pool.fleet import Fleet
from sandbox.pool.health_monitor import monitor
from sandbox.pool.isolation_check import isolation_fault
from sandbox.pool.session_group import RemoteSession, SessionGroup
from sandbox.pool.state import Action, PoolState
from sandbox.server.wire import PING
from sandbox.sync_async import Steps

_END_SECONDS = 10.0
_CLOSED = "this sandbox is closed; open another"
_log = logging.getLogger(__name__)
_all: weakref.WeakSet[Pool] = weakref.WeakSet()


class Pool:
    """The containers of one sandbox, and the requests that wait for a slot.

    Args:
        plan: how many containers there may be, and of what kind.
        hosts: the engines to use.

    Attributes:
        state: what the pool shares with its sessions and its health monitor.
        fleet: the containers.
    """

    def __init__(self, plan: PoolPlan, hosts: list[Host]) -> None:
        self.plan = plan
        self.state = PoolState()
        self.fleet = Fleet(plan, hosts)
        self._waiting: deque[tuple[float, Future[SessionGroup]]] = deque()
        self._monitor: threading.Thread | None = None
        _all.add(self)

    def acquire(self) -> Steps[SessionGroup]:
        """Wait for a slot; the caller gives it back with `SessionGroup.leave`."""
        future = self._enqueue()
        try:
            group: SessionGroup = yield future
        except BaseException:  # includes a cancellation, after which nobody would give the slot back
            if not future.cancel() and future.exception() is None:
                future.result().leave()
            raise
        return group

    def _enqueue(self) -> Future[SessionGroup]:
        self.state.check_process()
        self.state.close_forgotten()
        future: Future[SessionGroup] = Future()
        with self.state.lock:
            if self.state.closed:
                raise SandboxError(_CLOSED)
            if self._monitor is None:
                thread = daemon_thread(monitor, "sandbox monitor", self)
                start_thread(thread)
                self.state.owner, self._monitor = os.getpid(), thread
            self._waiting.append((time.monotonic() + self.plan.wait, future))
            actions = self._dispatch()
        future.add_done_callback(self._remove_cancelled)
        _run(actions)
        if not future.done():
            self.state.wake.put(None)  # the monitor checks the deadline
        return future

    def _remove_cancelled(self, future: Future[SessionGroup]) -> None:
        if future.cancelled():
            with self.state.lock:
                self._waiting = deque(entry for entry in self._waiting if entry[1] is not future)

    def _leave(self, group: SessionGroup, number: int) -> None:
        """Count members of a group that are gone; the last one frees the slot."""
        with self.state.lock:
            group.members -= number
            if group.members > 0:
                return
            group.container.groups.discard(group)
            actions = self._dispatch()
        _run(actions)

    def _dispatch(self) -> list[Action]:
        """Assign slots, start and end containers. Needs the lock; the caller runs the actions without it."""
        actions: list[Action] = []
        while self._waiting and (container := self.fleet.with_most_free()):
            _, future = self._waiting.popleft()
            if future.set_running_or_notify_cancel():
                actions.append(self._assign(container, future))
        if not self.state.closed:
            started = self.fleet.grow(len(self._waiting), lambda host, slots: Container(self, host, slots))
            actions += [container.start for container in started]
        return actions + [container.end for container in self.fleet.drained()]

    def _assign(self, container: Container, future: Future[SessionGroup]) -> Action:
        group = SessionGroup(self.state, container, self._leave)
        container.groups.add(group)  # now, so that the next request does not see the slot as free
        return partial(future.set_result, group)

    # what containers and the health monitor report

    def start_stream(self, host: Host) -> Stream:
        """Start a server and return the stream to it; may take long."""
        return self.fleet.start_stream(host)

    def on_open(self, container: Container, facts: dict[str, Any]) -> None:
        """Use a container that has started, unless its isolation is not what the backend must provide."""
        fault = isolation_fault(self.fleet.backend, facts)
        if fault:
            self.on_start_failure(
                container, SandboxError(f"the sandbox ({self.fleet.backend}) is not isolated: {fault}")
            )
            container.give_up("it is not isolated")
            return
        warn_of_missing_limits(facts.get("unenforced", ()))
        with self.state.lock:
            if container.state != "starting":
                return
            # the server may have fewer than were asked for
            container.slots = container.capacity = min(container.slots, facts["slots"])
            self.fleet.opened(container)
            actions = self._dispatch()
        _run(actions)

    def on_start_failure(self, container: Container, error: BaseException) -> None:
        """Drop a container that has not started: try another host, or again, or fail the waiting requests."""
        with self.state.lock:
            if container.state != "starting":
                return
            if self.fleet.failed(container, error):
                waiting, self._waiting = self._waiting, deque()
                actions = _failures((future for _, future in waiting), lambda: self.fleet.error(error))
            else:
                actions = self._dispatch()
        _run(actions)

    def on_end(self, container: Container) -> None:
        """Drop a container that is gone, and count the sessions that were lost with it."""
        with self.state.lock:
            if self.fleet.remove(container) and not self.state.closed:
                lost = sum(group.members for group in container.groups)
                self.state.counts.update(replaced=1, lost=lost)
                _log.warning("a sandbox container was lost, with %d sessions: %s", lost, container.lost)
            actions = self._dispatch()
        _run(actions)

    def on_ping_reply(self, container: Container, reply: dict[str, Any]) -> None:
        """Note a container's answer to a ping, and drain the container if it is worn out."""
        with self.state.lock:
            container.missed_pings = 0
            container.slots = min(reply["slots"], container.capacity)
            worn = self.fleet.wears_out(container, reply["memory"], reply["memory_limit"])
            self.state.counts["recycled"] += worn
            actions = self._dispatch()
        _run(actions)

    def tick(self) -> bool:
        """Fail requests that have waited too long, retry failed starts; returns whether requests wait."""
        self.state.close_forgotten()
        with self.state.lock:
            late: list[Future[SessionGroup]] = []
            # in the order of their deadlines, since all wait equally long
            while self._waiting and self._waiting[0][0] <= time.monotonic() and not self.fleet.is_growing():
                late.append(self._waiting.popleft()[1])
            actions = _failures(late, lambda: self.fleet.too_late(len(self._waiting))) + self._dispatch()
            busy = bool(self._waiting)
        _run(actions)
        return busy

    # sessions

    def first_session(self, group: SessionGroup) -> RemoteSession:
        """Return the first session of a group."""
        with self.state.lock:
            self.state.counts["opened"] += 1
            group.container.served += 1
            self.state.counts["recycled"] += self.fleet.wears_out(group.container)
        return RemoteSession(group)

    def stats(self) -> dict[str, int]:
        """Return current counts and totals; see `Sandbox.stats`."""
        self.state.close_forgotten()
        with self.state.lock:
            names = ("opened", "forks", "closed", "runs", "lost", "replaced", "recycled")
            counts = {name: self.state.counts[name] for name in names}
            now = {
                "sessions": counts["opened"] + counts["forks"] - counts["closed"],
                "containers": sum(one.state != "starting" for one in self.fleet.containers),
                "free": self.fleet.room(),
                "waiting": len(self._waiting),
            }
        return now | counts

    def ping(self) -> list[Future[Any]]:
        """Ping all running containers."""
        with self.state.lock:
            running = [one.connection for one in self.fleet.containers if one.state in ("open", "draining")]
        return [connection.request(PING, {}) for connection in running if connection is not None]

    # the process

    def close(self) -> None:
        """End all containers and fail the waiting requests; may be called twice."""
        with self.state.lock:
            self.state.closed = True
            containers = list(self.fleet.containers)
            waiting, self._waiting = self._waiting, deque()
            actions = _failures((future for _, future in waiting), lambda: SandboxError(_CLOSED))
            for container in containers:  # one that is starting ends itself once it sees this state
                if container.state == "starting":
                    container.state = "ended"
        if not self.state.is_own_process():
            return
        _run([*actions, *(container.end for container in containers)])
        self.state.wake.put(None)
        deadline = time.monotonic() + _END_SECONDS  # for all together
        for container in containers:
            container.join(max(0.0, deadline - time.monotonic()))
        for host in self.fleet.hosts:
            host.close()
        if self._monitor is not None and self._monitor is not threading.current_thread():
            self._monitor.join(_END_SECONDS)

    def _abandon(self) -> None:
        """In a forked child: the containers belong to the parent, and its locks may be held for ever."""
        self.state.reset_after_fork()
        for container in self.fleet.containers:
            if container.connection is not None:
                container.connection.stream.abandon()


def _run(actions: Iterable[Action]) -> None:
    for action in actions:
        action()


def _failures(futures: Iterable[Future[SessionGroup]], error: Callable[[], BaseException]) -> list[Action]:
    alive = [future for future in futures if future.set_running_or_notify_cancel()]
    return [partial(future.set_exception, error()) for future in alive]


def _abandon_all() -> None:
    for pool in list(_all):
        pool._abandon()


os.register_at_fork(after_in_child=_abandon_all)
