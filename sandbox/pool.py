"""The containers of a sandbox, what is sent to them, the queue for their slots, and the thread that watches all.

Requests are served in the order in which they came, whatever threads and event loops they come from. When all
slots are held, another container is started, up to `containers`; after that, requests wait. A container that has ended
is replaced when a request needs it; the sessions in it are lost. "Container" stands for whatever a backend starts.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import itertools
import json
import logging
import os
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Literal, TypeVar

from sandbox.backends import PythonExiting, Stream, start_thread
from sandbox.backends.registry import choose, start
from sandbox.docker_engine import Host
from sandbox.errors import BY_NAME, SandboxError, SandboxFull, SandboxUnavailable, SessionLost
from sandbox.options import SandboxOptions, warn_of_unenforced_limits
from sandbox.server.wire import CLOSE, HELLO, INTERRUPT, OPEN, PING, REPLY, Frames, pack

PING_INTERVAL = 5.0
PING_TIMEOUT = 30.0
_TICK_INTERVAL = 0.1  # while requests wait
_KILL_SECONDS, _END_SECONDS = 5.0, 10.0
_CLOSED = "this sandbox is closed; open another"
_log = logging.getLogger(__name__)
Action = Callable[[], object]
Reply = dict[str, Any]

# Procedures: generators that yield a future where they have to wait, and are sent the result, or have the exception
# thrown in. That exception can also be the caller's own, a `CancelledError` or a `KeyboardInterrupt`; a procedure then
# releases what nobody will use any more. They run either blocking or asynchronously.

T = TypeVar("T")
Steps = Generator[Future[Any], Any, T]


def finish(steps: Steps[T]) -> T:
    """Run a procedure; this thread blocks where it waits."""
    try:
        future = next(steps)
        while True:
            try:
                result = future.result()
            except BaseException as error:  # the procedure cleans up, and raises it again
                future = steps.throw(error)
            else:
                future = steps.send(result)
    except StopIteration as end:
        value: T = end.value
        return value


async def finish_async(steps: Steps[T]) -> T:
    """Run a procedure; the event loop serves other tasks where it waits."""
    try:
        future = next(steps)
        while True:
            try:
                # a future that is done takes no round of the event loop
                result = future.result() if future.done() else await asyncio.wrap_future(future)
            except BaseException as error:  # see `finish`
                future = steps.throw(error)
            else:
                future = steps.send(result)
    except StopIteration as end:
        value: T = end.value
        return value


class Container:
    """A server that is starting, open, draining (it takes no new groups), or ended; requests to it, and its replies.

    `Pool` decides about containers, and is told when one opens, fails and ends.

    Attributes:
        stream: to the server, once there is one.
        lost: why it is gone; empty while it is not.
        isolation: what separates the code from the machine and from other groups; empty until there is a stream.
        groups: those that hold a slot.
        slots: how many groups it can hold now; `capacity` is how many it could when it opened.
        missed_pings: rounds of the monitor since the server last answered. Rounds and not seconds, since this program
            may have been suspended.
    """

    def __init__(self, pool: Pool, host: Host, slots: int) -> None:
        self.host = host
        self.slots = self.capacity = slots
        self.state: Literal["starting", "open", "draining", "ended"] = "starting"
        self.stream: Stream | None = None
        self.lost = self.isolation = ""
        self.groups: set[SessionGroup] = set()
        self.missed_pings = 0
        self.thread: threading.Thread | None = None
        self._pool = pool
        self._numbers = itertools.count(1)
        self._waiting: dict[int, tuple[int, Future[Reply]]] = {}
        self._lock = threading.Lock()
        self._sending = threading.Lock()  # may be held for long, while a server does not read
        self._told_to_end = False

    @property
    def free(self) -> int:
        """Number of slots that a new group can take now."""
        return max(0, self.slots - len(self.groups)) if self.state == "open" and not self.lost else 0

    def start(self) -> None:
        """Begin to start the server; the result is reported to the pool."""
        try:
            self.thread = start_thread("sandbox", self._run)
        except RuntimeError as error:  # is passed on to those who wait for a container
            self._pool.on_start_failure(self, error)

    def _run(self) -> None:
        """Start the server and read its replies, in one thread, since bubblewrap ends with the one that started it."""
        try:
            self.stream = stream = self._pool.start_stream(self.host)
        except Exception as error:  # is passed on to those who wait for a container
            self._pool.on_start_failure(self, error)
            return
        self.isolation, self.missed_pings = stream.isolation, 0
        if self.state == "ended":  # the pool was closed meanwhile
            self.end()
        self._read(stream)
        self._pool.on_end(self)

    def request(self, kind: int, fields: Mapping[str, Any]) -> Future[Reply]:
        """Send a request; the future holds the reply or the exception.

        Cancelling a task that waits for the future does not undo the request.
        """
        number, future = next(self._numbers), Future[Reply]()
        future.set_running_or_notify_cancel()
        data = pack(kind, number, json.dumps(fields).encode())
        with self._lock:
            lost = self.lost  # under the lock, so that `fail` sees every future that is registered
            if not lost:
                self._waiting[number] = (kind, future)
        if lost:
            future.set_exception(_failure(kind, lost))
            return future
        with self._sending, contextlib.suppress(OSError):  # the reader sees the end as well and fails the futures
            if self.stream is not None and not self.lost:
                self.stream.send(data)
        return future

    def _read(self, stream: Stream) -> None:
        """Resolve futures until the stream ends."""
        frames = Frames()
        why = ""
        try:
            while data := stream.receive():
                for kind, number, payload in frames.feed(data):
                    self._take(stream, kind, number, json.loads(payload))
        except Exception as error:  # whatever it is, those who wait have to be told
            why = f"{type(error).__name__}: {error}"
        if not self.lost:
            self.fail("the sandbox was closed" if self._told_to_end else why or stream.post_mortem())
        stream.close()
        stream.finish()

    def _take(self, stream: Stream, kind: int, number: int, fields: Reply) -> None:
        if kind == HELLO:
            missing = [*stream.unenforced, *fields.get("unenforced", [])]
            unenforced = [f"no({','.join(missing)})"] if missing else []
            self.isolation = "+".join([stream.isolation, *fields.get("separation", []), *unenforced])
            self.missed_pings = 0
            self._pool.on_open(self, fields)
        elif kind == REPLY:
            with self._lock:
                _, future = self._waiting.pop(number, (0, None))
            if future is None:
                return  # the request has failed meanwhile
            if "failure" in fields:
                future.set_exception(BY_NAME.get(fields["failure"], SandboxError)(fields["message"]))
            else:
                future.set_result(fields)

    def fail(self, why: str) -> None:
        """Fail all open and later requests; only the first reason is kept."""
        with self._lock:
            if self.lost:
                return
            self.lost = f"the session is gone: {why}"
            waiting, self._waiting = self._waiting, {}
        self._pool.on_start_failure(self, SandboxError(f"the sandbox does not start: {why}"))
        for kind, future in waiting.values():
            future.set_exception(_failure(kind, self.lost))

    def give_up(self, why: str) -> None:
        """Fail everything that waits for the server, and end it by force; returns at once."""
        if self.stream is not None:
            self.fail(why)
            with contextlib.suppress(PythonExiting):  # the server is killed when the pool is closed
                start_thread("sandbox kill", _kill, self.stream)

    def end(self) -> None:
        """Tell the server to end; returns at once."""
        if self.stream is not None:
            self._told_to_end = True
            self.stream.close()

    def join(self, seconds: float) -> None:
        """Wait for a server that was told to end, and kill it if that takes too long."""
        if self.thread is None:  # it was about to start, and will end by itself
            return
        self.thread.join(seconds)
        if self.thread.is_alive() and self.stream is not None:
            _log.warning("a sandbox container did not end in time; killing it")
            _kill(self.stream)
            self.thread.join(_KILL_SECONDS)


def _failure(kind: int, why: str) -> SandboxError:
    if kind == OPEN:
        return SandboxError(why)
    return SessionLost(f"{why}; open a new interpreter, or restart this one")


def _kill(stream: Stream) -> None:
    with contextlib.suppress(OSError, SandboxError):
        stream.kill()


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


class SessionGroup:
    """A session, all its forks, and the forks of those.

    It holds one slot of a container until the server has confirmed that its last member is closed.

    Attributes:
        members: number of its sessions that are open or about to be.
    """

    def __init__(self, pool: Pool, container: Container) -> None:
        self.pool = pool
        self.container = container
        self.members = 1

    def leave(self, number: int = 1) -> None:
        """Note that members are gone; the last one frees the slot."""
        with self.pool.lock:
            self.members -= number
            if self.members > 0:
                return
            self.container.groups.discard(self)
            actions = self.pool._dispatch()
        _run(actions)


class RemoteSession:
    """One session of a container, as the client knows it."""

    def __init__(self, group: SessionGroup) -> None:
        self.group = group
        self.container = group.container
        self.pool = group.pool
        self.key = next(group.pool.keys)
        self.closed = False

    def copies(self, number: int) -> list[RemoteSession]:
        """Return sessions of the same group that are about to be forked from this one."""
        with self.pool.lock:
            self.group.members += number
        return [RemoteSession(self.group) for _ in range(number)]

    def request(self, kind: int, **fields: Any) -> Future[Reply]:
        """Send a request.

        Raises:
            SessionLost: the session was closed.
            SandboxError: this process was forked from the one that opened the session.
        """
        self.pool.check_process()
        if self.closed:
            raise SessionLost("this session is closed; open a new interpreter")
        return self.container.request(kind, {"session": self.key, **fields})

    def interrupt_later(self, cell: int) -> None:
        """Stop a cell that nobody waits for any more. Takes no lock, so that garbage collection may call it."""

        def stop() -> None:
            with contextlib.suppress(SandboxError):  # the session is closed, and the cell ended with it
                self.request(INTERRUPT, cell=cell)

        self.pool.wake.put(stop)

    def forget(self) -> None:
        """Note that nobody holds the session any more. Takes no lock, since it runs during garbage collection."""
        self.pool.forgotten.append(self.close)
        self.pool.wake.put(None)

    def mark_closed(self) -> bool:
        """Note that the session is closed; returns False if it was before. The caller leaves the group."""
        with self.pool.lock:
            if self.closed:
                return False
            self.closed = True
            self.pool.counts["closed"] += 1
            if self.container.lost and self.container.state != "ended" and not self.pool.closed:
                self.pool.counts["lost"] += 1  # before the pool itself has noticed
        return True

    def close(self) -> Future[Reply] | None:
        """End the session; returns the future of the server's confirmation, or None if none will come."""
        if not self.mark_closed():
            return None
        # a forked child must not write to the stream, which belongs to its parent
        if self.container.lost or not self.pool.is_own_process():
            self.group.leave()
            return None
        future = self.container.request(CLOSE, {"session": self.key})
        future.add_done_callback(lambda _: self.group.leave())
        return future


# weak, so that a pool that nobody holds is collected
_all: weakref.WeakSet[Pool] = weakref.WeakSet()


class Pool:
    """The containers of one sandbox, spread over engines, and the requests that wait for a slot.

    All decisions are taken under one lock and acted upon outside it: futures are resolved, and containers spoken to,
    only while it is not held.

    Attributes:
        containers: those that are starting, open or draining.
        backend: the name of the backend; "auto" is resolved at the first start.
        isolation: of the container that was opened last.
        lock: guards the counters, the waiting requests and the containers.
        counts: what has happened so far; see `Sandbox.stats`.
        keys: for new sessions; the server knows a session by its key.
        wake: what the monitor waits for: actions that it runs, or None, which makes it tick at once.
        forgotten: the `close` methods of sessions that were garbage collected while open.
        owner: the process that opened the pool; 0 before the first request.
    """

    def __init__(self, options: SandboxOptions, hosts: list[Host]) -> None:
        self.options = options
        self.hosts = hosts
        self.containers: list[Container] = []
        self.backend = ""
        self.isolation = ""
        self.lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        self.keys = itertools.count(1)
        self.wake: SimpleQueue[Action | None] = SimpleQueue()
        self.forgotten: deque[Action] = deque()
        self.closed = False
        self.owner = 0
        self._worked = False  # a container has been open before, so that a failure may be temporary
        self._fault = ""  # why the last start failed; empty after a start that worked
        self._waiting: deque[tuple[float, Future[SessionGroup]]] = deque()
        self._monitor: threading.Thread | None = None
        _all.add(self)

    # slots and sessions

    def reserve(self) -> Steps[RemoteSession]:
        """Wait for a slot; returns a session in it that the server does not know yet."""
        group = yield from self.acquire()
        with self.lock:
            self.counts["opened"] += 1
        return RemoteSession(group)

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
        self.check_process()
        self._close_forgotten()
        future: Future[SessionGroup] = Future()
        with self.lock:
            if self.closed:
                raise SandboxError(_CLOSED)
            if self._monitor is None:
                self._monitor = start_thread("sandbox monitor", self._watch)
                self.owner = os.getpid()
            self._waiting.append((time.monotonic() + self.options.wait, future))
            actions = self._dispatch()
        future.add_done_callback(self._remove_cancelled)
        _run(actions)
        if not future.done():
            self.wake.put(None)  # the monitor checks the deadline
        return future

    def _remove_cancelled(self, future: Future[SessionGroup]) -> None:
        if future.cancelled():
            with self.lock:
                self._waiting = deque(entry for entry in self._waiting if entry[1] is not future)

    def count(self, name: str, by: int = 1) -> None:
        """Add to a counter; see `Sandbox.stats`."""
        with self.lock:
            self.counts[name] += by

    def _close_forgotten(self) -> None:
        while self.forgotten:
            self.forgotten.popleft()()

    # decisions: everything here needs the lock

    def _dispatch(self) -> list[Action]:
        """Assign slots, start and end containers; the caller runs the actions without the lock."""
        actions: list[Action] = []
        while self._waiting:
            best = max(self.containers, key=lambda one: one.free, default=None)
            if best is None or not best.free:
                break
            _, future = self._waiting.popleft()
            if future.set_running_or_notify_cancel():
                group = SessionGroup(self, best)
                best.groups.add(group)  # now, so that the next request does not see the slot as free
                actions.append(partial(future.set_result, group))
        if not self.closed:
            actions += [container.start for container in self._grow()]
        for container in self.containers:
            if container.state == "draining" and not container.groups:
                container.state = "ended"
                actions.append(container.end)
        return actions

    def _live(self) -> list[Container]:
        return [one for one in self.containers if one.state in ("starting", "open")]

    def _grow(self) -> list[Container]:
        """Return new containers for the waiting requests, as many as are needed and the options allow.

        A container on a host that has failed before does not count; another host is tried at the same time.
        """
        live, made = self._live(), list[Container]()
        # slots that are about to come count, except on hosts that have failed before
        need = len(self._waiting) - sum(one.slots for one in live if one.state == "starting" and not one.host.fault)
        while need > 0 and len(live) + len(made) < self.options.containers:
            host = self._least_loaded(live + made)
            if host is None:
                break
            made.append(Container(self, host, self.options.sessions))
            need -= 0 if host.fault else self.options.sessions
        self.containers += made
        return made

    def _least_loaded(self, live: list[Container]) -> Host | None:
        tried = {id(one.host) for one in live if one.state == "starting" and one.host.fault}
        now = time.monotonic()
        # a host that has failed gets one trial at a time
        usable = [host for host in self.hosts if host.closed_until <= now and id(host) not in tried]
        return min(usable, key=lambda host: sum(one.host is host for one in live), default=None)

    def _wears_out(self, container: Container) -> bool:
        """Start to drain a container that has lost its slots, one at a time unless it has none at all."""
        alone = not any(one.state == "draining" for one in self.containers)
        degraded = 2 * container.slots < container.capacity and alone
        if container.state != "open" or not (container.slots <= 0 or degraded):
            return False
        container.state = "draining"
        return True

    def _remove(self, container: Container) -> bool:
        """Drop a container that has ended; returns whether its end was unexpected."""
        unexpected = container.state in ("open", "draining")
        container.state = "ended"
        if container in self.containers:
            self.containers.remove(container)
        return unexpected

    def _has_failed(self, container: Container, error: BaseException) -> bool:
        """Drop a container that has not started; returns whether the waiting requests should fail."""
        self._remove(container)
        container.host.failed(str(error))
        self._fault = str(error)
        if len(self.hosts) > 1:  # the message names each engine that has failed
            what = "sandbox server" if self.options.backend == "http" else "Docker engine"
            faults = "\n".join(f"  - {host}: {host.fault}" for host in self.hosts if host.fault)
            self._fault = f"no {what} can be used:\n{faults}"
        bad_option = isinstance(error, (ValueError, TypeError))
        may_recover = self._worked or any(not host.fault for host in self.hosts)
        if not isinstance(error, PythonExiting) and (self._live() or (may_recover and not bad_option)):
            _log.warning("a sandbox container has not started (%s): %s", container.host, error)
            return False
        for host in self.hosts:  # the next request tries again at once, without the pause after a failure
            host.worked()
        return True

    def _start_error(self, error: BaseException) -> BaseException:
        """Return the exception for one waiting request after a failure; each gets a copy, as raising changes it."""
        if len(self.hosts) > 1 and not isinstance(error, (ValueError, TypeError)):
            return SandboxUnavailable(self._fault)
        kind = type(error) if isinstance(error, (SandboxError, ValueError, TypeError)) else SandboxError
        copy = kind(str(error))
        copy.__cause__ = error
        return copy

    def _too_late(self) -> SandboxError:
        options, live = self.options, self._live()
        if self._fault and not any(one.state == "open" for one in live):
            return SandboxUnavailable(f"no container has started within {options.wait:g} s: {self._fault}")
        held = sum(len(one.groups) for one in self.containers)
        return SandboxFull(
            f"no session became free within {options.wait:g} s: {held} are open (each with its forks) in {len(live)} "
            f"of {options.containers} containers with {options.sessions} slots each, and {len(self._waiting)} more "
            "requests wait. Close sessions, or open the sandbox with more containers= or sessions="
        )

    # what containers report, from threads of theirs

    def start_stream(self, host: Host) -> Stream:
        """Start a server and return the stream to it; may take long."""
        if not self.backend:  # remembered, so that the isolation never changes while the sandbox is open
            chosen = len(self.hosts) > 1 or self.hosts[0].name is not None
            engine = "http" if self.options.backend == "http" else "docker"
            self.backend = engine if chosen else choose(self.options.backend)
        return start(self.backend, replace(self.options, host=host.name))

    def on_open(self, container: Container, facts: dict[str, Any]) -> None:
        """Use a container that has started, unless its isolation is not what the backend must provide."""
        if fault := isolation_fault(self.backend, facts):
            self.on_start_failure(container, SandboxError(f"the sandbox ({self.backend}) is not isolated: {fault}"))
            container.give_up("it is not isolated")
            return
        warn_of_unenforced_limits(facts.get("unenforced", ()), self.options.limits)
        with self.lock:
            if container.state != "starting":
                return
            # the server may have fewer than were asked for
            container.slots = container.capacity = min(container.slots, facts["slots"])
            container.state = "open"
            container.host.worked()
            self._worked, self._fault, self.isolation = True, "", container.isolation
            actions = self._dispatch()
        _run(actions)

    def on_start_failure(self, container: Container, error: BaseException) -> None:
        """Drop a container that has not started: try another host, or again, or fail the waiting requests."""
        with self.lock:
            if container.state != "starting":
                return
            if self._has_failed(container, error):
                waiting, self._waiting = self._waiting, deque()
                actions = _failures((future for _, future in waiting), lambda: self._start_error(error))
            else:
                actions = self._dispatch()
        _run(actions)

    def on_end(self, container: Container) -> None:
        """Drop a container that is gone, and count the sessions that were lost with it."""
        with self.lock:
            if self._remove(container) and not self.closed:
                lost = sum(group.members for group in container.groups)
                self.counts.update(replaced=1, lost=lost)
                _log.warning("a sandbox container was lost, with %d sessions: %s", lost, container.lost)
            actions = self._dispatch()
        _run(actions)

    def on_ping_reply(self, container: Container, reply: Reply) -> None:
        """Note a container's answer to a ping, and drain the container if it is worn out."""
        with self.lock:
            container.missed_pings = 0
            container.slots = min(reply["slots"], container.capacity)
            self.counts["recycled"] += self._wears_out(container)
            actions = self._dispatch()
        _run(actions)

    # the monitor: deadlines of waiting requests, health of the containers

    def _watch(self) -> None:
        """Watch the pool until it is closed; calls that could block run in short-lived threads."""
        busy, next_ping = False, time.monotonic() + PING_INTERVAL
        while not self.closed:
            action = None
            with contextlib.suppress(Empty):
                action = self.wake.get(timeout=_TICK_INTERVAL if busy else PING_INTERVAL)
            try:
                if action is not None:
                    action()
                busy = self.tick()
                if time.monotonic() >= next_ping:
                    next_ping = time.monotonic() + PING_INTERVAL
                    self._ping_all()
            except PythonExiting:
                pass  # the pool is about to be closed
            except Exception:  # waiting requests still need the monitor, whatever went wrong
                _log.exception("the monitor of a sandbox failed; it goes on")

    def tick(self) -> bool:
        """Fail requests that have waited too long, retry failed starts; returns whether requests wait."""
        self._close_forgotten()
        with self.lock:
            late: list[Future[SessionGroup]] = []
            growing = any(one.state == "starting" and not one.host.fault for one in self.containers)
            # in the order of their deadlines, since all wait equally long
            while self._waiting and self._waiting[0][0] <= time.monotonic() and not growing:
                late.append(self._waiting.popleft()[1])
            actions = _failures(late, self._too_late) + self._dispatch()
            busy = bool(self._waiting)
        _run(actions)
        return busy

    def _ping_all(self) -> None:
        for container in list(self.containers):
            if container.stream is None or container.lost:
                continue
            starting = container.state == "starting"
            timeout = container.stream.start_seconds if starting else PING_TIMEOUT
            if container.missed_pings * PING_INTERVAL > timeout:
                container.give_up(f"it has not {'started' if starting else 'answered'} for {timeout:g} s")
                self.on_end(container)
                continue
            container.missed_pings += 1  # set to 0 by its next answer
            if not starting:  # each round, also before the last is answered: it may hang in a dead connection
                start_thread("sandbox ping", self._ping, container)

    def _ping(self, container: Container) -> None:
        def on_reply(reply: Future[Reply]) -> None:
            if reply.exception() is None:
                self.on_ping_reply(container, reply.result())

        container.request(PING, {}).add_done_callback(on_reply)

    # what users ask, and the process

    def stats(self) -> dict[str, int]:
        """Return current counts and totals; see `Sandbox.stats`."""
        self._close_forgotten()
        with self.lock:
            names = ("opened", "forks", "closed", "runs", "lost", "replaced", "recycled")
            counts = {name: self.counts[name] for name in names}
            starting = sum(one.slots for one in self.containers if one.state == "starting")
            to_come = starting + (self.options.containers - len(self._live())) * self.options.sessions
            now = {
                "sessions": counts["opened"] + counts["forks"] - counts["closed"],
                "containers": sum(one.state != "starting" for one in self.containers),
                "free": sum(one.free for one in self.containers) + to_come,
                "waiting": len(self._waiting),
            }
        return now | counts

    def close(self) -> None:
        """End all containers and fail the waiting requests; may be called twice."""
        with self.lock:
            self.closed = True
            containers = list(self.containers)
            waiting, self._waiting = self._waiting, deque()
            actions = _failures((future for _, future in waiting), lambda: SandboxError(_CLOSED))
            for container in containers:  # one that is starting ends itself once it sees this state
                if container.state == "starting":
                    container.state = "ended"
        if not self.is_own_process():
            return
        _run([*actions, *(container.end for container in containers)])
        self.wake.put(None)
        deadline = time.monotonic() + _END_SECONDS  # for all together
        for container in containers:
            container.join(max(0.0, deadline - time.monotonic()))
        if self._monitor is not None and self._monitor is not threading.current_thread():
            self._monitor.join(_END_SECONDS)

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

    def abandon(self) -> None:
        """In a forked child: the containers belong to the parent, whose threads may hold the lock and the queue."""
        self.lock, self.wake = threading.Lock(), SimpleQueue()
        for container in self.containers:
            if container.stream is not None:
                container.stream.abandon()


def _run(actions: Iterable[Action]) -> None:
    for action in actions:
        action()


def _failures(futures: Iterable[Future[SessionGroup]], error: Callable[[], BaseException]) -> list[Action]:
    alive = [future for future in futures if future.set_running_or_notify_cancel()]
    return [partial(future.set_exception, error()) for future in alive]


def _abandon_all() -> None:
    for pool in list(_all):
        pool.abandon()


def _close_all() -> None:
    for pool in list(_all):
        # a process that was forked from the owner must not close the owner's containers
        if pool.is_own_process():
            pool.close()


os.register_at_fork(after_in_child=_abandon_all)
atexit.register(_close_all)
