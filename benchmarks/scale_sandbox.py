"""Sandboxes of `scale.py`: the queue is that of a real sandbox (`Pool`), its containers are simulated.

with mock.patch("sandbox.pool.Container", SimulatedContainer):
    ...  # sessions are opened through `SandboxTool`
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

from arpo_env.tools.tool import Tool, ToolResult
from benchmarks.rollout_world import DelayedTool, Delays, FixedTool
from sandbox.docker_engine import Host
from sandbox.options import SandboxOptions
from sandbox.pool import Pool, SessionGroup, finish_async

CONTAINER_SECONDS = 2.0  # until a container runs; assumed


@dataclass
class Sessions:
    """Sandbox sessions of all workers.

    Attributes:
        open: slots that are held now.
        most: held at once so far.
        waited: seconds that calls waited for a slot.
    """

    open: int = 0
    most: int = 0
    waited: float = 0.0

    def changed(self, by: int) -> None:
        """Count slots that were taken or given back."""
        self.open += by
        self.most = max(self.most, self.open)


class SimulatedContainer:
    """Stands in for `sandbox.pool.Container`: it opens after some seconds and holds slots."""

    lost, isolation, connection = "", "none", None

    def __init__(self, pool: Pool, host: Host, slots: int) -> None:
        self.pool, self.host, self.slots, self.state = pool, host, slots, "starting"
        self.groups: set[SessionGroup] = set()
        self.missed_pings = 0

    @property
    def free(self) -> int:
        """Slots that a new group can take now."""
        return self.slots - len(self.groups) if self.state == "open" else 0

    def start(self) -> None:
        """Open in a while."""
        opened: Any = self
        asyncio.get_running_loop().call_later(
            CONTAINER_SECONDS, lambda: self.pool.on_open(opened, {"slots": self.slots})
        )

    def end(self) -> None:
        """There is nothing to end."""


def sandbox_pool(slots: int) -> Pool:
    """Return a sandbox's pool whose containers are simulated, with up to 64 slots each."""
    each = min(slots, 64)
    options = SandboxOptions(sessions=each, backend="unsafe_local", containers=-(-slots // each))
    pool = Pool(options, [Host(None)])
    pool.backend = "unsafe_local"  # of it no isolation is demanded
    monitor: Any = object()
    pool._monitor = monitor  # a thread, which would not live in virtual time; late requests are failed by `SandboxTool`
    return pool


class SandboxTool(DelayedTool):
    """A Python tool whose session holds a slot of the pool, as `PythonTool` does: from its first call, with its forks.

    Args:
        delays: of the calls.
        pool: of the worker.
        sessions: of all workers.
        group: of the session that this one was forked from.
    """

    def __init__(self, delays: Delays, pool: Pool, sessions: Sessions, group: SessionGroup | None = None) -> None:
        super().__init__(FixedTool("python", "12345678"), delays)
        self.pool, self.sessions, self.group = pool, sessions, group

    async def call(self, **arguments: Any) -> ToolResult:
        """Wait for a slot at the first call, then for the tool."""
        if self.group is None:
            asked = time.monotonic()
            loop = asyncio.get_running_loop()
            late = loop.call_later(self.pool.options.wait, self.pool.tick)
            self.group = await finish_async(self.pool.acquire())
            late.cancel()
            self.sessions.waited += time.monotonic() - asked
            self.sessions.changed(1)
        return await super().call(**arguments)

    async def fork(self, n: int) -> list[Tool]:
        """Return forks, which hold the same slot."""
        if self.group is not None:
            with self.pool.lock:
                self.group.members += n
        return [SandboxTool(self.delays, self.pool, self.sessions, self.group) for _ in range(n)]

    async def close(self) -> None:
        """Leave the slot; the last one gives it back."""
        group, self.group = self.group, None
        if group is not None:
            self.sessions.changed(-(group.members == 1))
            group.leave()
