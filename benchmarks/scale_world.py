"""What `scale.py` plays in: kinds of tasks, tools that wait for their turn, and workers and a driver with one CPU each.

Trees are played by the library's own code: `Group` with its scheduler, `ConcurrencyLimits`, `ServerPool`,
`RateLimiter`, and the sandbox's `Pool`. Simulated is what they wait for: servers (`scale_servers`), the seconds of a
tool, the start of a container, and the CPU seconds of a worker, which were measured (`scale_costs`) and are charged to
a clock of its own.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from arpo_env import ToolEnv
from arpo_env.errors import ServiceError
from arpo_env.net import RateLimited, RateLimiter
from arpo_env.tools.tool import Tool, ToolResult
from arpo_trainer.backends.base import Generation, OnWindow, Request
from arpo_trainer.backends.servers import ServerPool
from arpo_trainer.rollout.engine import Engine, Group, RolloutSettings
from arpo_trainer.tree import RolloutTree, Stopwatch
from benchmarks.rollout_script import Script
from benchmarks.rollout_world import DelayedTool, Delays, FixedTool
from benchmarks.scale_sandbox import SandboxTool, Sessions, sandbox_pool
from benchmarks.scale_servers import TOKENS_PER_ID, SimulatedServer

PATIENCE = 60.0  # seconds that a search waits for its turn, the default of `Http`


@dataclass(frozen=True)
class TaskKind:
    """A kind of task; all numbers of tokens and calls are assumptions. Delays are those of `rollout_world`.

    Attributes:
        name: of the kind.
        calls: most calls; each number from 1 on is as likely as the others.
        searches: share of calls that search; the others run Python.
        median: tokens of a turn.
        p99: likewise.
        found: tokens of a search's result.
        longest: tokens of a trajectory.
    """

    name: str
    calls: int
    searches: float
    median: int
    p99: int
    found: int
    longest: int

    def script(self, tokenizer: Any) -> Script:
        """Return the script, in ids."""
        median, p99 = self.median / TOKENS_PER_ID, self.p99 / TOKENS_PER_ID
        return Script(tokenizer, self.calls, median, p99, shortest=20, longest=1000, searches=self.searches)

    def settings(self, generations: int, seed: int) -> RolloutSettings:
        """Return settings of ARPO, in ids: half of the trajectories are roots, and a window has 20 tokens."""
        return RolloutSettings(
            algorithm="arpo",
            num_generations=generations,
            initial_rollouts=generations // 2,
            entropy_window=20 // TOKENS_PER_ID,
            max_turn_length=1000,
            max_completion_length=self.longest // TOKENS_PER_ID,
            max_invalid=1.0,
            seed=seed,
        )


KINDS = {
    "math": TaskKind("math", 4, 0.0, 300, 1500, 0, 8192),
    "search": TaskKind("search", 10, 0.8, 200, 1000, 1200, 16384),
}


@dataclass
class BusyClock:
    """Something that does one thing after the other: a CPU, a network link.

    Attributes:
        busy: seconds of work so far.
        waited: seconds that callers waited before their work began.
    """

    busy: float = 0.0
    waited: float = 0.0
    _free_at: float = 0.0

    async def use(self, seconds: float) -> None:
        """Work for some seconds, when the work that was asked for earlier is done."""
        if seconds <= 0:
            return
        now = asyncio.get_running_loop().time()
        begins = max(now, self._free_at)
        self._free_at = begins + seconds
        self.busy += seconds
        self.waited += begins - now
        await asyncio.sleep(self._free_at - now)


class SearchTool(DelayedTool):
    """A search that waits for its turn at the provider, as `Http` does.

    Args:
        delays: of the calls.
        limiter: of the worker; None is no limit.
        waits: seconds of waiting, searches, and those that were refused.
        letters: of a result.
    """

    def __init__(self, delays: Delays, limiter: RateLimiter | None, waits: dict[str, float], letters: int) -> None:
        super().__init__(FixedTool("search", "fact " * (letters // 5)), delays)
        self.limiter, self.waits, self.letters = limiter, waits, letters

    async def call(self, **arguments: Any) -> ToolResult:
        """Wait for the turn, then for the answer.

        Raises:
            ServiceError: the turn would come too late, which voids the sample.
        """
        asked = time.monotonic()
        try:
            if self.limiter:
                await self.limiter.acquire(PATIENCE)
        except RateLimited as error:
            self.waits["refused"] += 1
            raise ServiceError("search", "too many requests are waiting for their turn") from error
        self.waits["seconds"] += time.monotonic() - asked
        self.waits["searches"] += 1
        return await super().call(**arguments)

    async def fork(self, n: int) -> list[Tool]:
        """Return others like it."""
        return [SearchTool(self.delays, self.limiter, self.waits, self.letters) for _ in range(n)]


@dataclass
class FleetBackend:
    """Generates on the simulated servers through a `ServerPool`, and charges the worker's CPU."""

    servers: Mapping[str, SimulatedServer]
    cpu: BusyClock
    turn_seconds: float
    token_seconds: float
    time: Stopwatch = field(default_factory=Stopwatch)
    trains: bool = True
    wants_messages: bool = False

    def __post_init__(self) -> None:
        self.pool = ServerPool(list(self.servers), 120.0, {})

    async def begin(self) -> None:
        """It keeps nothing."""

    async def end(self) -> None:
        """It holds nothing."""

    async def generate(self, request: Request, on_window: OnWindow | None = None) -> Generation:
        """Generate on the server of the group."""
        await self.cpu.use(self.turn_seconds)
        made = await self.pool.ask(request.group, lambda url: self.servers[url].generate(request, on_window))
        await self.cpu.use(self.token_seconds * len(made.ids) * TOKENS_PER_ID)
        return made


class SimulatedWorker:
    """A rollout worker: an engine with environments, a sandbox and a search limit of its own, as `RolloutActor` has.

    Args:
        number: of the worker; it begins with another server than its neighbours.
        kind: of the tasks.
        settings: how trees are grown.
        tokenizer: of the script.
        backend: made from the worker's CPU.
        shared: sandbox sessions and waits of all workers.
        slots: of its sandbox.
        searches_per_second: its share of the provider's limit; None is no limit.
    """

    def __init__(
        self,
        number: int,
        kind: TaskKind,
        settings: RolloutSettings,
        tokenizer: Any,
        backend_of: Any,
        shared: tuple[Sessions, dict[str, float]],
        slots: int,
        searches_per_second: float | None,
    ) -> None:
        self.name, self.cpu = str(number), BusyClock()
        delays, pool = Delays(settings.seed), sandbox_pool(slots)
        limiter = searches_per_second and RateLimiter(searches_per_second)
        made = [
            lambda: SearchTool(delays, limiter or None, shared[1], kind.found // TOKENS_PER_ID),
            lambda: SandboxTool(delays, pool, shared[0]),
        ]
        env = ToolEnv("arpo/Arithmetic-v0", tools=made, max_turns=kind.calls + 2, max_tool_calls=kind.calls)
        with mock.patch.dict(os.environ, RANK=self.name):
            backend = backend_of(self.cpu)
        self.env, self.engine = env, Engine(backend, tokenizer, env, settings)
        self.limits = self.engine.concurrency()

    async def play(self, group: int) -> RolloutTree:
        """Play a group."""
        played = Group(self.engine, self.limits, self.env.tasks.task(group), 0, group)
        await played.grow()
        return played.tree
