"""The containers of one pool, and the engines they run on: which is used, started, drained, given up.

Takes no lock: all but `start_stream` is called with the lock of the `Pool`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace

from sandbox.backends.docker_hosts import Host
from sandbox.backends.registry import choose, start
from sandbox.config.pool_plan import Plan
from sandbox.daemon_threads import PythonExiting
from sandbox.errors import SandboxError, SandboxFull, SandboxUnavailable
from sandbox.pool.connection import Stream
from sandbox.pool.container import Container

_BUSY = 8
_BLOATED = 3  # pings in a row; a hungry cell passes
_log = logging.getLogger(__name__)


class Fleet:
    """Containers that are starting, open or draining.

    Args:
        plan: how many there may be, and of what kind.
        hosts: the engines to spread them over.

    Attributes:
        backend: the one that "auto" stands for, from the first start on.
        worked: a container has been open before, so that a failure may be one that passes.
        fault: why the last start has failed; empty after one that did not.
        isolation: of the container that was opened last.
    """

    def __init__(self, plan: Plan, hosts: list[Host]) -> None:
        self.containers: list[Container] = []
        self.hosts = hosts
        self.backend = ""
        self.worked = False
        self.fault = ""
        self.isolation = ""
        self._plan = plan

    def start_stream(self, host: Host) -> Stream:
        """Start a server; takes its time."""
        if not self.backend:  # remembered: "auto" never changes the isolation under way
            chosen = len(self.hosts) > 1 or self.hosts[0].name is not None
            self.backend = "docker" if chosen else choose(self._plan.backend)
        return start(self.backend, replace(self._plan.options, host=host.address(), containers=self._plan.containers))

    def with_most_free(self) -> Container | None:
        """Return the container that a new family goes to."""
        best = max(self.containers, key=lambda one: one.free, default=None)
        return best if best is not None and best.free else None

    def live(self) -> list[Container]:
        """Return those that take new families, or will."""
        return [one for one in self.containers if one.state in ("starting", "open")]

    def room(self) -> int:
        """Return how many families could come before one has to wait."""
        unborn = self._plan.containers - len(self.live())
        coming = sum(one.slots for one in self.containers if one.state == "starting")
        return sum(one.free for one in self.containers) + coming + unborn * self._plan.options.sessions

    def is_growing(self) -> bool:
        """Whether a container is about to come, for all that is known."""
        return any(one.state == "starting" and not one.host.fault for one in self.containers)

    def grow(self, waiting: int, make: Callable[[Host, int], Container]) -> list[Container]:
        """Return new containers for those who wait, as many as they need and the plan allows.

        Nobody counts on a host that has failed before: another one is asked at the same time.
        """
        live, made = self.live(), list[Container]()
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
        usable = [host for host in self.hosts if host.closed_until <= now and id(host) not in tried]
        return min(usable, key=lambda host: sum(one.host is host for one in live), default=None)

    def wears_out(self, container: Container, memory: int = 0, limit: int = 0) -> bool:
        """Start to drain a container that has served enough, lost its slots, or kept memory; say whether.

        Only one at a time is drained, unless it is of no use at all. Memory is judged while there are few
        families that could be using it rightly.
        """
        few = len(container.families) <= container.slots // _BUSY
        if limit:
            container.bloated = container.bloated + 1 if few and limit < 2 * memory else 0
        worn = container.served >= self._plan.recycle_after or container.bloated >= _BLOATED
        alone = not any(one.state == "draining" for one in self.containers)
        degraded = 2 * container.slots < self._plan.options.sessions
        if container.state != "open" or not (container.slots <= 0 or ((worn or degraded) and alone)):
            return False
        container.state = "draining"
        return True

    def drained(self) -> list[Container]:
        """Return containers that are drained and empty, to be ended."""
        done = [one for one in self.containers if one.state == "draining" and not one.families]
        for container in done:
            container.state = "ended"
        return done

    def opened(self, container: Container) -> None:
        """Use a container."""
        container.state = "open"
        container.host.worked()
        self.worked, self.fault, self.isolation = True, "", container.isolation

    def failed(self, container: Container, error: BaseException) -> bool:
        """Drop a container that has not started; say whether there is no hope left for those who wait."""
        self.remove(container)
        container.host.failed(str(error))
        several = len(self.hosts) > 1
        self.fault = "\n".join(f"  - {host}: {host.fault}" for host in self.hosts if host.fault)
        self.fault = f"no Docker engine can be used:\n{self.fault}" if several else str(error)
        mistake = isinstance(error, (ValueError, TypeError))
        hope = self.worked or any(not host.fault for host in self.hosts)
        if not isinstance(error, PythonExiting) and (self.live() or (hope and not mistake)):
            _log.warning("a container of the sandbox has not started (%s): %s", container.host, error)
            return False
        for host in self.hosts:  # the next one who asks shall not have to wait for a second try
            host.worked()
        return True

    def error(self, error: BaseException) -> BaseException:
        """Return what one of those who wait is told about a failure."""
        if len(self.hosts) > 1 and not isinstance(error, (ValueError, TypeError)):
            return SandboxUnavailable(self.fault)
        kind = type(error) if isinstance(error, (SandboxError, ValueError, TypeError)) else SandboxError
        copy = kind(str(error))
        copy.__cause__ = error
        return copy

    def too_late(self, waiting: int) -> SandboxError:
        """Return what one is told who has waited too long; others still do."""
        plan, live = self._plan, self.live()
        if self.fault and not any(one.state == "open" for one in live):
            return SandboxUnavailable(f"no container has started within {plan.wait:g} s: {self.fault}")
        held = sum(len(one.families) for one in self.containers)
        return SandboxFull(
            f"no session became free within {plan.wait:g} s: {held} are open (each with its forks) in {len(live)} of "
            f"{plan.containers} containers for {plan.options.sessions} each, and {waiting} more requests wait; close "
            "sessions, or open the sandbox with more containers= or sessions="
        )

    def remove(self, container: Container) -> bool:
        """Drop a container that has ended; say whether it had not been told to."""
        unexpected = container.state in ("open", "draining")
        container.state = "ended"
        if container in self.containers:
            self.containers.remove(container)
        return unexpected
