"""The containers of a sandbox, the queue for their slots, and the thread that watches both.

Requests are served in the order in which they came, whatever threads and event loops they come from. When all
slots are held, another container is started, up to `PoolPlan.containers`; after that, requests wait. A container that
has ended is replaced when a request needs it; the sessions in it are lost. The health monitor's thread checks
deadlines and containers. Futures are resolved, and containers spoken to, only while the lock is not held.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Literal, Protocol

from sandbox.backends.registry import choose, start
from sandbox.backends.stream import Stream
from sandbox.connection import Connection, PythonExiting, Reply, daemon_thread, start_thread
from sandbox.docker_engine import Host
from sandbox.errors import SandboxError, SandboxFull, SandboxUnavailable, SessionLost
from sandbox.options import PoolPlan, warn_of_missing_limits
from sandbox.server.wire import CLOSE, INTERRUPT, PING
from sandbox.sync_async import Steps

# One started server: its slots, and the thread that starts it and reads its replies.
#
# "Container" stands for whatever a backend starts. Nothing here takes a lock: `Pool` decides about containers, and
# implements `ContainerEvents`.

_KILL_SECONDS = 5.0
_log = logging.getLogger(__name__)


class SlotHolder(Protocol):
    """What holds a slot: a group of sessions.

    Attributes:
        members: number of its sessions.
    """

    members: int


class ContainerEvents(Protocol):
    """What a container reports to its pool, from its own thread."""

    def start_stream(self, host: Host) -> Stream:
        """Start a server and return the stream to it; may take long."""

    def on_open(self, container: Container, facts: dict[str, Any]) -> None:
        """The server has sent HELLO with these facts about its isolation."""

    def on_start_failure(self, container: Container, error: BaseException) -> None:
        """The server could not be started."""

    def on_end(self, container: Container) -> None:
        """The stream has ended."""


class Container:
    """A server that is starting, open, draining (it takes no new groups), or ended.

    Args:
        events: told when the container opens, fails and ends.
        host: the engine it runs on.
        slots: how many groups of sessions it holds.

    Attributes:
        connection: to the server, once there is one.
        groups: those that hold a slot.
        capacity: how many slots it had when it opened; fewer can be usable later.
        served: how many groups have held a slot so far.
        bloated_pings: pings in a row that found too much memory in use.
        missed_pings: rounds of the health monitor since the server last answered. Rounds and not seconds, since this
            program may have been suspended.
    """

    def __init__(self, events: ContainerEvents, host: Host, slots: int) -> None:
        self.host = host
        self.slots = self.capacity = slots
        self.state: Literal["starting", "open", "draining", "ended"] = "starting"
        self.connection: Connection | None = None
        self.groups: set[SlotHolder] = set()
        self.served = 0
        self.missed_pings = 0
        self.bloated_pings = 0
        self.thread = daemon_thread(self._run, "sandbox")
        self._events = events

    @property
    def free(self) -> int:
        """Number of slots that a new group can take now."""
        if self.state != "open" or self.connection is None or self.connection.lost:
            return 0
        return max(0, self.slots - len(self.groups))

    @property
    def isolation(self) -> str:
        """What separates the code from the machine and from other groups; empty until the container is open."""
        return self.connection.isolation if self.connection is not None else ""

    @property
    def lost(self) -> str:
        """Why the container is gone; empty while it is not."""
        return self.connection.lost if self.connection is not None else ""

    def start(self) -> None:
        """Begin to start the server; the result is reported to the pool."""
        try:
            start_thread(self.thread)
        except RuntimeError as error:  # is passed on to those who wait for a container
            self._events.on_start_failure(self, error)

    def _run(self) -> None:
        """Start the server and read its replies.

        Both happen in one thread, since bubblewrap ends with the thread that started it.
        """
        try:
            stream = self._events.start_stream(self.host)
        except Exception as error:  # is passed on to those who wait for a container
            self._events.on_start_failure(self, error)
            return
        self.connection = connection = Connection(stream)
        self.missed_pings = 0
        connection.hello.add_done_callback(lambda hello: self._on_hello(hello.exception(), hello.result))
        if self.state == "ended":  # the pool was closed meanwhile
            connection.close()
        connection.read()
        self._events.on_end(self)

    def _on_hello(self, error: BaseException | None, facts: Callable[[], dict[str, Any]]) -> None:
        if error is not None:
            self._events.on_start_failure(self, error)
            return
        self.missed_pings = 0
        self._events.on_open(self, facts())

    def give_up(self, why: str) -> None:
        """Fail everything that waits for the server, and end it by force; returns at once."""
        connection = self.connection
        if connection is None:
            return
        connection.fail(why)
        with contextlib.suppress(PythonExiting):  # the server is killed when the pool is closed
            start_thread(daemon_thread(_kill, "sandbox kill", connection.stream))

    def end(self) -> None:
        """Tell the server to end; returns at once."""
        if self.connection is not None:
            self.connection.close()

    def join(self, seconds: float) -> None:
        """Wait for a server that was told to end, and kill it if that takes too long."""
        if self.thread.ident is None:  # it was about to start, and will end by itself
            return
        self.thread.join(seconds)
        if self.thread.is_alive() and self.connection is not None:
            _log.warning("a sandbox container did not end in time; killing it")
            _kill(self.connection.stream)
            self.thread.join(_KILL_SECONDS)


def _kill(stream: Stream) -> None:
    with contextlib.suppress(OSError, SandboxError):
        stream.kill()


# The containers of one pool and the engines they run on: which are started, used, drained and dropped.
#
# Takes no lock: everything except `start_stream` is called while the lock of the pool is held.

_IDLE_FRACTION = 8  # a container is judged by its memory while at most 1/8 of its slots are held
_BLOATED_PINGS = 3  # in a row, since one cell may need much memory for a moment


class Fleet:
    """Containers that are starting, open or draining.

    Args:
        plan: how many containers there may be, and of what kind.
        hosts: the engines to spread them over.

    Attributes:
        backend: the name of the backend; "auto" is resolved at the first start.
        worked: whether a container has been open before. If so, a failure may be temporary.
        fault: why the last start failed; empty after a start that worked.
        isolation: of the container that was opened last.
    """

    def __init__(self, plan: PoolPlan, hosts: list[Host]) -> None:
        self.containers: list[Container] = []
        self.hosts = hosts
        self.backend = ""
        self.worked = False
        self.fault = ""
        self.isolation = ""
        self._plan = plan

    def start_stream(self, host: Host) -> Stream:
        """Start a server and return the stream to it; may take long."""
        if not self.backend:  # remembered, so that the isolation never changes while the sandbox is open
            chosen = len(self.hosts) > 1 or self.hosts[0].name is not None
            engine = "http" if self._plan.backend == "http" else "docker"
            self.backend = engine if chosen else choose(self._plan.backend)
        return start(self.backend, replace(self._plan.options, host=host.address(), containers=self._plan.containers))

    def with_most_free(self) -> Container | None:
        """Return the container that a new group of sessions goes to, if any has a free slot."""
        best = max(self.containers, key=lambda one: one.free, default=None)
        return best if best is not None and best.free else None

    def live(self) -> list[Container]:
        """Return the containers that take new groups, now or once they have started."""
        return [one for one in self.containers if one.state in ("starting", "open")]

    def room(self) -> int:
        """Return how many groups could be opened before one has to wait."""
        not_started = self._plan.containers - len(self.live())
        starting = sum(one.slots for one in self.containers if one.state == "starting")
        return sum(one.free for one in self.containers) + starting + not_started * self._plan.options.sessions

    def is_growing(self) -> bool:
        """Whether a container is being started on a host that is not known to fail."""
        return any(one.state == "starting" and not one.host.fault for one in self.containers)

    def grow(self, waiting: int, make: Callable[[Host, int], Container]) -> list[Container]:
        """Return new containers for the waiting requests, as many as are needed and the plan allows.

        A container on a host that has failed before does not count; another host is tried at the same time.
        """
        live, made = self.live(), list[Container]()
        # slots that are about to come count, except on hosts that have failed before
        need = waiting - sum(one.slots for one in live if one.state == "starting" and not one.host.fault)
        while need > 0 and len(live) + len(made) < self._plan.containers:
            host = self._least_loaded(live + made)
            if host is None:
                break
            made.append(make(host, self._plan.options.sessions))
            need -= 0 if host.fault else self._plan.options.sessions
        self.containers += made
        return made

    def _least_loaded(self, live: list[Container]) -> Host | None:
        tried = {id(one.host) for one in live if one.state == "starting" and one.host.fault}
        now = time.monotonic()
        # a host that has failed gets one trial at a time
        usable = [host for host in self.hosts if host.closed_until <= now and id(host) not in tried]
        return min(usable, key=lambda host: sum(one.host is host for one in live), default=None)

    def wears_out(self, container: Container, memory: int = 0, limit: int = 0) -> bool:
        """Start to drain a container that has served enough groups, lost its slots, or leaks memory.

        Only one container is drained at a time, unless it has no usable slot. Memory is judged while few groups are
        open, since many could well be using it.

        Returns:
            Whether the container is now draining.
        """
        few = len(container.groups) <= container.slots // _IDLE_FRACTION
        if limit:
            container.bloated_pings = container.bloated_pings + 1 if few and limit < 2 * memory else 0
        worn = container.served >= self._plan.recycle_after or container.bloated_pings >= _BLOATED_PINGS
        alone = not any(one.state == "draining" for one in self.containers)
        degraded = 2 * container.slots < container.capacity
        if container.state != "open" or not (container.slots <= 0 or ((worn or degraded) and alone)):
            return False
        container.state = "draining"
        return True

    def drained(self) -> list[Container]:
        """Return containers that are drained and empty; the caller ends them."""
        done = [one for one in self.containers if one.state == "draining" and not one.groups]
        for container in done:
            container.state = "ended"
        return done

    def opened(self, container: Container) -> None:
        """Note that a container can be used."""
        container.state = "open"
        container.host.worked()
        self.worked, self.fault, self.isolation = True, "", container.isolation

    def failed(self, container: Container, error: BaseException) -> bool:
        """Drop a container that has not started; returns whether the waiting requests should fail."""
        self.remove(container)
        container.host.failed(str(error))
        # with several engines, the message names each that has failed
        several = len(self.hosts) > 1
        self.fault = "\n".join(f"  - {host}: {host.fault}" for host in self.hosts if host.fault)
        what = "sandbox server" if self._plan.backend == "http" else "Docker engine"
        self.fault = f"no {what} can be used:\n{self.fault}" if several else str(error)
        bad_option = isinstance(error, (ValueError, TypeError))
        may_recover = self.worked or any(not host.fault for host in self.hosts)
        if not isinstance(error, PythonExiting) and (self.live() or (may_recover and not bad_option)):
            _log.warning("a sandbox container has not started (%s): %s", container.host, error)
            return False
        for host in self.hosts:  # the next request tries again at once, without the pause after a failure
            host.worked()
        return True

    def error(self, error: BaseException) -> BaseException:
        """Return the exception for one waiting request after a failure; each gets a copy."""
        if len(self.hosts) > 1 and not isinstance(error, (ValueError, TypeError)):
            return SandboxUnavailable(self.fault)
        kind = type(error) if isinstance(error, (SandboxError, ValueError, TypeError)) else SandboxError
        copy = kind(str(error))  # of its own, since raising adds a traceback to an exception
        copy.__cause__ = error
        return copy

    def too_late(self, waiting: int) -> SandboxError:
        """Return the exception for a request that has waited too long, while `waiting` others still wait."""
        plan, live = self._plan, self.live()
        if self.fault and not any(one.state == "open" for one in live):
            return SandboxUnavailable(f"no container has started within {plan.wait:g} s: {self.fault}")
        held = sum(len(one.groups) for one in self.containers)
        return SandboxFull(
            f"no session became free within {plan.wait:g} s: {held} are open (each with its forks) in {len(live)} of "
            f"{plan.containers} containers with {plan.options.sessions} slots each, and {waiting} more requests wait. "
            "Close sessions, or open the sandbox with more containers= or sessions="
        )

    def remove(self, container: Container) -> bool:
        """Drop a container that has ended; returns whether its end was unexpected."""
        unexpected = container.state in ("open", "draining")
        container.state = "ended"
        if container in self.containers:
            self.containers.remove(container)
        return unexpected


# Compares the isolation that a server has measured with what its backend must provide.

_KILL_SETGID_SETUID_SYS_NICE = 1 << 5 | 1 << 6 | 1 << 7 | 1 << 23


def isolation_fault(backend: str, facts: dict[str, Any]) -> str:
    """Return what is wrong with the isolation; empty if nothing is.

    Args:
        backend: its name. "unsafe_local" need not provide anything; a server behind "http" has checked its own. The
            containers of "command" may have a network, as every pod has, if sessions cannot make sockets for it.
        facts: from the server's HELLO. The server measures them in its own process ("supervisor") and in a child that
            is confined as sessions are ("session").
    """
    if "fault" in facts:
        return str(facts["fault"])
    if backend in ("unsafe_local", "http"):
        return ""
    session, supervisor = facts["session"], facts["supervisor"]
    fitted = backend == "command"  # somebody else makes the container
    network = set(facts["interfaces"]) - {"lo"}
    faults = {
        # without "uid" (bubblewrap without root) sessions have the server's own user, whatever its number is
        "sessions run as root": session["uid"] == 0 and (fitted or "uid" in facts["separation"]),
        "neither users nor Landlock separate sessions from each other": fitted
        and not {"uid", "landlock"} & set(facts["separation"]),
        "sessions run as the container's user": backend == "docker" and "uid" not in facts["separation"],
        f"sessions have capabilities ({session['capabilities']:#x})": session["capabilities"] != 0,
        # the supervisor changes users, kills sessions and sets their priorities; it needs nothing else
        f"the supervisor has capabilities ({supervisor['capabilities']:#x})": bool(
            supervisor["capabilities"] & ~_KILL_SETGID_SETUID_SYS_NICE
        ),
        "sessions could gain privileges": not session["no_new_privileges"],
        "its root file system is writable": not facts["read_only_root"],
        f"it has network interfaces ({', '.join(sorted(network))})": bool(network)
        and (not fitted or facts["internet"]),
    }
    return "; ".join(fault for fault, present in faults.items() if present)


# The state that a pool shares with its sessions and its health monitor.

Action = Callable[[], object]


class PoolState:
    """Lock, counters and work queues of one pool.

    Attributes:
        lock: guards the counters, the waiting requests and the containers. Futures are resolved, and containers are
            spoken to, only while it is not held.
        counts: what has happened so far; see `Sandbox.stats`.
        wake: what the health monitor waits for: actions that it runs, or None, which makes it tick at once.
        forgotten: the `close` methods of sessions that were garbage collected while open.
        closed: whether the pool was closed.
        owner: the process that opened the pool; 0 before the first request.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        self.wake: SimpleQueue[Action | None] = SimpleQueue()
        self.forgotten: deque[Action] = deque()
        self.closed = False
        self.owner = 0
        self._keys = itertools.count(1)

    def new_key(self) -> int:
        """Return a key for a new session; the server knows the session by it."""
        return next(self._keys)

    def count(self, name: str, by: int = 1) -> None:
        """Add to a counter."""
        with self.lock:
            self.counts[name] += by

    def close_forgotten(self) -> None:
        """Close the sessions that were garbage collected while open."""
        while self.forgotten:
            self.forgotten.popleft()()

    def is_own_process(self) -> bool:
        """Whether this process opened the pool, or the pool has not been opened yet."""
        return self.owner in (0, os.getpid())

    def check_process(self) -> None:
        """Raise a SandboxError in a process that was forked from the one that opened the pool."""
        if not self.is_own_process():
            raise SandboxError(
                f"this sandbox belongs to process {self.owner}; this process ({os.getpid()}) was forked from it. "
                "Open another sandbox here (default_sandbox() does so by itself)"
            )

    def reset_after_fork(self) -> None:
        """In a forked child: replace lock and queue, since a thread of the parent may have held them."""
        self.lock, self.wake = threading.Lock(), SimpleQueue()


# The thread that watches a pool: deadlines of waiting requests, health of the containers.
#
# It never waits for a container itself. Calls that could block run in short-lived threads.

PING_INTERVAL = 5.0
PING_TIMEOUT = 30.0
_TICK_INTERVAL = 0.1  # while requests wait


class MonitoredPool(Protocol):
    """What the monitor needs of a pool."""

    state: PoolState
    fleet: Fleet

    def tick(self) -> bool:
        """Fail requests that have waited too long, retry failed starts; returns whether requests wait."""

    def on_ping_reply(self, container: Container, reply: dict[str, Any]) -> None:
        """A container has answered a ping."""

    def on_end(self, container: Container) -> None:
        """A container is gone."""


def monitor(pool: MonitoredPool) -> None:
    """Watch a pool until it is closed."""
    busy, next_ping = False, time.monotonic() + PING_INTERVAL
    while not pool.state.closed:
        action = None
        with contextlib.suppress(Empty):
            action = pool.state.wake.get(timeout=_TICK_INTERVAL if busy else PING_INTERVAL)
        try:
            if action is not None:
                action()
            busy = pool.tick()
            if time.monotonic() >= next_ping:
                next_ping = time.monotonic() + PING_INTERVAL
                _ping_all(pool)
        except PythonExiting:
            pass  # the pool is about to be closed
        except Exception:  # waiting requests still need the monitor, whatever went wrong
            _log.exception("sandbox health monitor failed; it goes on")


def _ping_all(pool: MonitoredPool) -> None:
    for container in list(pool.fleet.containers):
        connection = container.connection
        if connection is None or connection.lost:
            continue
        starting = container.state == "starting"
        timeout = connection.stream.start_seconds if starting else PING_TIMEOUT
        if container.missed_pings * PING_INTERVAL > timeout:
            container.give_up(f"it has not {'started' if starting else 'answered'} for {timeout:g} s")
            pool.on_end(container)
            continue
        container.missed_pings += 1  # set to 0 by its next answer
        if not starting:
            start_thread(daemon_thread(_ping, "sandbox ping", pool, container, connection))


def _ping(pool: MonitoredPool, container: Container, connection: Connection) -> None:
    def on_reply(reply: Future[Reply]) -> None:
        if reply.exception() is None:
            pool.on_ping_reply(container, reply.result())

    connection.request(PING, {}).add_done_callback(on_reply)


# Sessions as the client sees them, and the groups in which they hold a slot of a container.
#
# A group is a session with all its forks. It holds one slot until the server has confirmed that its last member is
# closed.


class SessionGroup:
    """A session, all its forks, and the forks of those.

    Args:
        state: of the pool.
        container: the container in which the group holds a slot.
        on_leave: called with the group and a number of members that are gone.

    Attributes:
        members: number of sessions that are open or about to be. It starts at 1, for the first session.
    """

    def __init__(self, state: PoolState, container: Container, on_leave: Callable[[SessionGroup, int], object]) -> None:
        self.state = state
        self.container = container
        self.members = 1
        self._on_leave = on_leave

    def leave(self, number: int = 1) -> None:
        """Note that members are gone; the last one frees the slot."""
        self._on_leave(self, number)


class RemoteSession:
    """One session of a container, as the client knows it.

    Args:
        group: the group that it belongs to.
    """

    def __init__(self, group: SessionGroup) -> None:
        self.group = group
        self.container = group.container
        self.key = group.state.new_key()
        self.closed = False
        connection = group.container.connection
        if connection is None:  # cannot happen: only open containers have free slots
            raise RuntimeError("a slot was assigned in a container that has not been started")
        self._state = group.state
        self._connection = connection

    def copies(self, number: int) -> list[RemoteSession]:
        """Return sessions of the same group that are about to be forked from this one."""
        with self._state.lock:
            self.group.members += number
        return [RemoteSession(self.group) for _ in range(number)]

    @property
    def lost(self) -> str:
        """Why its container is gone; empty while the container lives."""
        return self._connection.lost

    def request(self, kind: int, **fields: Any) -> Future[Reply]:
        """Send a request.

        Raises:
            SessionLost: the session was closed.
            SandboxError: this process was forked from the one that opened the session.
        """
        return self.request_all((kind, fields))[0]

    def request_all(self, *requests: tuple[int, dict[str, Any]]) -> list[Future[Reply]]:
        """Send several requests at once, without waiting for replies in between; see `request`."""
        self.check_process()
        if self.closed:
            raise SessionLost("this session is closed; open a new interpreter")
        return self._connection.request_all([(kind, {"session": self.key, **fields}) for kind, fields in requests])

    def check_process(self) -> None:
        """Raise a SandboxError in a process that was forked from the one that opened the session."""
        self._state.check_process()

    def interrupt(self, cell: int | None) -> Future[Reply]:
        """Stop a cell, or the one that is running (None). The reply says whether there was one; see `request`."""
        return self.request(INTERRUPT, cell=cell)

    def interrupt_later(self, cell: int) -> None:
        """Stop a cell that nobody waits for any more. Takes no lock, so that garbage collection may call it."""

        def stop() -> None:
            with contextlib.suppress(SandboxError):  # the session is closed, and the cell ended with it
                self.interrupt(cell)

        self.call_later(stop)

    def call_later(self, action: Callable[[], object]) -> None:
        """Have the health monitor's thread run an action; returns at once."""
        self._state.wake.put(action)

    def count(self, name: str, by: int = 1) -> None:
        """Add to a counter of the pool; see `Sandbox.stats`."""
        self._state.count(name, by)

    def forget(self) -> None:
        """Note that nobody holds the session any more. Takes no lock, since it runs during garbage collection."""
        self._state.forgotten.append(self.close)
        self._state.wake.put(None)

    def mark_closed(self) -> None:
        """Note that the server has closed the session with its last answer."""
        with self._state.lock:
            if self.closed:
                return
            self.closed = True
            self._state.counts["closed"] += 1
        self.group.leave()

    def close(self) -> Future[Reply] | None:
        """End the session; returns the future of the server's confirmation, or None if none will come."""
        state = self._state
        with state.lock:
            if self.closed:
                return None
            self.closed = True
            state.counts["closed"] += 1
            if self._connection.lost and self.container.state != "ended" and not state.closed:
                state.counts["lost"] += 1  # before the pool itself has noticed
        # a forked child must not write to the stream, which belongs to its parent
        if self._connection.lost or not state.is_own_process():
            self.group.leave()
            return None
        future = self._connection.request(CLOSE, {"session": self.key})
        future.add_done_callback(lambda _: self.group.leave())
        return future


_END_SECONDS = 10.0
_CLOSED = "this sandbox is closed; open another"
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
