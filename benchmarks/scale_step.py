"""A step of `scale.py`: a load, what it is charged, and the numbers that come out.

Workers and servers are those of `scale_world` and `scale_servers`; `JobDispatch` gives groups to workers, as for
rollouts on Ray. A finished tree is pickled by its worker, crosses the driver's link, and is unpickled by the driver.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from arpo_trainer.ray_rollouts.rollout_workers import JobDispatch
from arpo_trainer.tree import RolloutTree
from benchmarks.scale_sandbox import Sessions, SimulatedContainer
from benchmarks.scale_servers import MODELS, TOKENS_PER_ID, SimulatedServer
from benchmarks.scale_world import KINDS, BusyClock, FleetBackend, SimulatedWorker
from benchmarks.virtual_time import run_virtual

LINK = 10e9 / 8  # bytes per second into the driver's machine; assumed: 10 Gbit/s
TOOL_CALL_SECONDS = 0.00097  # CPU of a search's request, by benchmarks/http_requests.py; a call of Python takes less
FREE = ("driver", "workers")


@dataclass(frozen=True)
class Load:
    """What is played, and on what.

    Attributes:
        kind: of the tasks.
        model: that is served.
        workers: rollout workers, with a CPU core each.
        servers: inference servers.
        groups: of the step.
        at_once: groups that a worker plays at a time.
        generations: trajectories of a group.
        searches: most per second, shared equally by the workers; None is no limit.
        slots: sandbox sessions of a worker, not counting forks.
        free: what costs nothing, of FREE.
        seed: of everything that is drawn.
    """

    kind: str
    model: str
    workers: int
    servers: int
    groups: int
    at_once: int = 1
    generations: int = 8
    searches: float | None = None
    slots: int = 64
    free: tuple[str, ...] = ()
    seed: int = 0


@dataclass
class ChargedCosts:
    """CPU seconds that are charged, from the measured ones."""

    measured: Mapping[str, Any]
    load: Load

    def of(self, who: str, seconds: float) -> float:
        """Return the seconds, or 0 if `who` costs nothing."""
        return 0.0 if who in self.load.free else seconds

    @property
    def turn(self) -> float:
        """Of a worker, for a turn, without its tokens."""
        own = self.measured["turn_seconds"] + self.measured["request_seconds"] + TOOL_CALL_SECONDS
        return self.of("workers", own)

    @property
    def token(self) -> float:
        """Of a worker, for a token."""
        return self.of("workers", self.measured["token_seconds"])

    def size(self, tokens: int) -> float:
        """Return the bytes of a pickled tree."""
        return float(self.measured["tree_bytes_a_token"] * tokens)

    def tree(self, who: str, size: float) -> float:
        """Return what a tree takes "driver" or "workers" in its call by Ray, for a size in bytes."""
        name = {"driver": "driver", "workers": "actor"}[who]
        call, whole = (float(self.measured[f"ray_{what}_{name}_seconds"]) for what in ("call", "tree"))
        return self.of(who, call + max(0.0, whole - call) * size / self.measured["ray_tree_bytes"])

    @property
    def dispatch(self) -> float:
        """Of the driver, for a group: `JobDispatch`, from the next larger number of groups under way."""
        found = {int(number): seconds for number, seconds in self.measured["dispatch_seconds"].items()}
        under_way = self.load.workers * self.load.at_once
        return self.of("driver", float(found[min((n for n in found if n >= under_way), default=max(found))]))


@dataclass
class Step:
    """One step while it is played: the parts, and what was counted so far."""

    load: Load
    costs: ChargedCosts
    tokenizer: Any
    counts: Counter[str] = field(default_factory=Counter)
    waits: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    sessions: Sessions = field(default_factory=Sessions)
    driver: BusyClock = field(default_factory=BusyClock)
    link: BusyClock = field(default_factory=BusyClock)
    marks: list[dict[str, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        load, kind = self.load, KINDS[self.load.kind]
        script = kind.script(self.tokenizer)
        names = [f"http://server-{number}" for number in range(load.servers)]
        self.servers = {name: SimulatedServer(MODELS[load.model], script) for name in names}
        settings, share = kind.settings(load.generations, load.seed), load.searches and load.searches / load.workers
        shared: Any = (self.sessions, self.waits)
        self.workers = [
            SimulatedWorker(number, kind, settings, self.tokenizer, self._backend, shared, load.slots, share)
            for number in range(load.workers)
        ]
        under_way = load.workers * load.at_once
        last = max(1, load.groups - under_way)  # from then on workers have nothing to do
        self._marked = (last // 4, last, load.groups)

    def _backend(self, cpu: BusyClock) -> FleetBackend:
        return FleetBackend(self.servers, cpu, self.costs.turn, self.costs.token)

    async def play(self) -> dict[str, Any]:
        """Play all groups; return the numbers."""
        self._began = asyncio.get_running_loop().time()
        self.marks.append(self._mark())
        dispatch = JobDispatch(self.load.groups, self.load.at_once, self._work, _no_other, self._take)
        await dispatch.run(self.workers)
        return self._numbers()

    async def _work(self, worker: SimulatedWorker, group: int) -> RolloutTree:
        await self.driver.use(self.costs.dispatch)
        tree = await worker.play(group)
        size = self.costs.size(TOKENS_PER_ID * sum(len(span.ids) for span in tree.spans))
        await worker.cpu.use(self.costs.tree("workers", size))
        await self.link.use(self.costs.of("driver", size / LINK))
        await self.driver.use(self.costs.tree("driver", size))
        self.counts["bytes"] += int(size)
        return tree

    def _take(self, _: int, tree: RolloutTree) -> None:
        self.counts["groups"] += 1
        self.counts["trajectories"] += len(tree.trajectories)
        self.counts["void"] += sum(not trajectory.valid for trajectory in tree.trajectories)
        self.counts["turns"] += sum(span.kind == "model" for span in tree.spans)
        if self.counts["groups"] in self._marked:
            self.marks.append(self._mark())

    def _mark(self) -> dict[str, float]:
        servers = self.servers.values()
        names = ("busy", "prefilling", "written", "read", "cached", "row_seconds", "queued")
        sums: dict[str, float] = {name: sum(getattr(server, name) for server in servers) for name in names}
        return {
            **sums,
            "time": asyncio.get_running_loop().time() - self._began,
            "driver": self.driver.busy,
            "link": self.link.busy,
            "workers": sum(worker.cpu.busy for worker in self.workers),
            "searches": self.waits["searches"],
            "search_waits": self.waits["seconds"],
        }

    def _numbers(self) -> dict[str, Any]:
        load, whole = self.load, self.marks[-1]
        begin, end = self.marks[1:3] if len(self.marks) > 3 else (self.marks[0], whole)
        passed = {name: end[name] - begin[name] for name in end}
        seconds, written = passed["time"], max(1.0, passed["written"])
        trajectories = self.counts["trajectories"]
        numbers = {
            "seconds": whole["time"],
            "tail": 1 - end["time"] / whole["time"],
            # not those that ended meanwhile: short ones end first
            "trajectories_per_second": written / seconds / (whole["written"] / trajectories),
            "tokens_per_second": written / seconds,
            "rows": passed["row_seconds"] / seconds / load.servers,
            "servers_idle": 1 - whole["busy"] / whole["time"] / load.servers,
            "cached": passed["cached"] / max(1.0, passed["read"]),
            "prefill": passed["prefilling"] / seconds / load.servers,
            "driver": passed["driver"] / seconds,
            "link": passed["link"] / seconds,
            "workers_cpu": passed["workers"] / seconds / load.workers,
            "searches_per_second": passed["searches"] / seconds,
            "search_wait": passed["search_waits"] / max(1.0, passed["searches"]),
            "queued": whole["queued"] / max(1, self.counts["turns"]),
            "sandbox_wait": self.sessions.waited / trajectories,
            "sandboxes": self.sessions.most,
            "void": self.counts["void"] / trajectories,
            "megabytes_a_tree": self.counts["bytes"] / load.groups / 1e6,
            "turns_a_trajectory": self.counts["turns"] / trajectories,
        }
        return {name: float(f"{value:.4g}") for name, value in numbers.items()}


async def _no_other(_: SimulatedWorker) -> None:
    """Workers are not lost here."""


async def _played(load: Load, measured: Mapping[str, Any], tokenizer: Any) -> dict[str, Any]:
    return await Step(load, ChargedCosts(measured, load), tokenizer).play()


def simulate(load: Load, measured: Mapping[str, Any], tokenizer: Any, real: bool = False) -> dict[str, Any]:
    """Play a step in virtual time, or on the real clock, and return its numbers and the CPU seconds that this took."""
    began, run = time.process_time(), asyncio.run if real else run_virtual
    with mock.patch("sandbox.pool.Container", SimulatedContainer):
        numbers: dict[str, Any] = run(_played(load, measured, tokenizer))
    shown = {name: value for name, value in vars(load).items() if value not in (None, ())}
    print(f"{shown}: {numbers['seconds']:.0f} s, {numbers['trajectories_per_second']:.3g} trajectories/s", flush=True)
    return {**shown, **numbers, "simulated_in": round(time.process_time() - began, 1)}
