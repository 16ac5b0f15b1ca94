"""The containers of one pool and the engines they run on: which are started, used, drained and dropped.

Takes no lock: everything except `start_stream` is called while the lock of the pool is held.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace

from sandbox.backends.registry import choose, start
from sandbox.backends.stream import Stream
from sandbox.config.options import PoolPlan
from sandbox.docker_engine.hosts import Host
from sandbox.errors import SandboxError, SandboxFull, SandboxUnavailable
from sandbox.pool.container import Container
from sandbox.pool.daemon_threads import PythonExiting

_IDLE_FRACTION = 8  # a container is judged by its memory while at most 1/8 of its slots are held
_BLOATED_PINGS = 3  # in a row, since one cell may need much memory for a moment
_log = logging.getLogger(__name__)


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
