"""How rollouts scale: 8 to 1,024 workers against simulated servers, tools and sandboxes, with real scheduling code.

    python -m benchmarks.scale [--part costs] [--part check] [--part workers] ...

The library's engine, scheduler, server pool, rate limiter, sandbox queue and dispatch play whole trees in virtual time
(`virtual_time`); what they wait for is simulated (`scale_servers`, `scale_sandbox`, `scale_world`). One id stands for
four tokens.

costs    CPU seconds of workers and driver, measured on this machine (`scale_costs`); the other parts charge them
check    the same load in virtual time and on the real clock, without these charges
workers  8 to 1,024 workers with a group of 4 each: servers grow with them; 50 searches per second
limits   64 workers: how much faster is it when one limit is lifted? That is what the limit costs
sizing   what one server keeps up with, for models and kinds of tasks
steps    a step of 1,024 trajectories on as many servers as that makes

Writes benchmarks/results/scale.json, each part for itself; `python -m scripts.scale_tables` writes the pages' tables.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from arpo_trainer.rollout.live_trajectory import DEFAULT_TRAJECTORIES
from benchmarks.rollout_world import DELAYS, small_tokenizer
from benchmarks.scale_costs import measured_costs
from benchmarks.scale_servers import MODELS, published_check
from benchmarks.scale_step import Load, simulate
from benchmarks.scale_world import KINDS

PARTS = ("costs", "check", "workers", "limits", "sizing", "steps")
RESULTS = Path(__file__).resolve().parent / "results" / "scale.json"
SEARCHES = 50.0  # per second: Serper's smallest plan (arpo_env/search/web.py)
WORKERS = (8, 64, 256, 1024)
IN_FLIGHT = (32, 64, 128, 256)  # trajectories per server
ENOUGH = 0.85  # of the best throughput
STEP = 1024  # trajectories
SCENARIOS: dict[str, tuple[str, str, int, dict[str, Any]]] = {  # kind, model, most workers, limits
    "search, servers grow": ("search", "7B", 1024, {}),
    "search, 50 per second": ("search", "7B", 256, {"searches": SEARCHES}),
    "math, servers grow": ("math", "1.5B", 1024, {}),
}
STEPS = ("7B", "14B")  # models for which a whole step is played
Rows = list[dict[str, Any]]


class Study:
    """The parts, with what the costs are.

    Args:
        measured: `measured_costs`.
    """

    def __init__(self, measured: Mapping[str, Any]) -> None:
        self.measured, self.tokenizer = measured, small_tokenizer()

    def run(self, load: Load, real: bool = False) -> dict[str, Any]:
        """Return the numbers of a load."""
        return simulate(load, self.measured, self.tokenizer, real)

    def check(self) -> dict[str, Any]:
        """Play small loads in virtual time and on the real clock."""
        free = ("driver", "workers")
        loads = {
            "math": Load("math", "1.5B", 4, 2, 24, slots=3, free=free),
            "search": Load("search", "1.5B", 4, 1, 10, searches=1.0, free=free),
        }
        return {name: {"virtual": self.run(load), "real": self.run(load, real=True)} for name, load in loads.items()}

    def workers(self, scenario: str) -> Iterator[Rows]:
        """Play 8 to 1,024 workers, and yield the rows so far; 32 workers, with 128 trajectories, share a server."""
        kind, model, most, limits = SCENARIOS[scenario]
        rows: Rows = []
        for number in (number for number in WORKERS if number <= most):
            load = _small(kind, model, number, -(-number // 32))
            rows.append(self.run(replace(load, **limits)))
            yield rows

    def limits(self) -> dict[str, dict[str, Any]]:
        """Play 64 workers with all limits, and with one of them lifted at a time."""
        search = _small("search", "7B", 64, 2, searches=10.0)
        math = _small("math", "1.5B", 64, 2, slots=1)
        lifts: dict[str, Callable[[Load], Load]] = {
            "all": lambda load: load,
            "servers": lambda load: replace(load, servers=2 * load.servers),
            "searches": lambda load: replace(load, searches=None),
            "sandboxes": lambda load: replace(load, slots=64),
            "CPU": lambda load: replace(load, free=("driver", "workers")),
        }
        found: dict[str, dict[str, Any]] = {}
        for load in (search, math):
            lifted = {name: lift(load) for name, lift in lifts.items()}
            found[load.kind] = {name: self.run(one) for name, one in lifted.items() if name == "all" or one != load}
        return found

    def sizing(self) -> Rows:
        """Return what a server keeps up with."""
        return [self._size(kind, model) for kind in KINDS for model in MODELS]

    def _size(self, kind: str, model: str) -> dict[str, Any]:
        # a worker plays four groups of 8 here, so that few of them are needed; the number does not matter to a server
        tried = [self.run(Load(kind, model, n // 32, 1, n // 4, at_once=4)) for n in IN_FLIGHT]
        best = max(row["trajectories_per_second"] for row in tried)
        flight, row = next(
            (n, row) for n, row in zip(IN_FLIGHT, tried, strict=True) if row["trajectories_per_second"] >= ENOUGH * best
        )
        per_second = row["trajectories_per_second"]
        core = row["workers_cpu"] * row["workers"] / per_second  # seconds of a worker's core for a trajectory
        return {
            "kind": kind,
            "model": model,
            "gpus": MODELS[model].gpus,
            "in_flight": flight,
            "trajectories_per_hour": round(3600 * per_second),
            "searches_per_second": row["searches_per_second"],
            "sandboxes": row["sandboxes"],
            "core_seconds": float(f"{core:.3g}"),
            "tried": {str(n): one["trajectories_per_second"] for n, one in zip(IN_FLIGHT, tried, strict=True)},
        }

    def steps(self, sizes: Rows) -> Iterator[Rows]:
        """Play steps of 64 groups of 16, all of them in flight at once, and yield the rows so far."""
        rows: Rows = []
        for size in (size for size in sizes if size["model"] in STEPS):
            servers, groups = -(-STEP // size["in_flight"]), STEP // 16
            # by its CPU one worker would be enough, but by default it has 256 trajectories and sessions
            workers = -(-STEP // DEFAULT_TRAJECTORIES)
            load = Load(size["kind"], size["model"], workers, servers, groups, groups // workers, 16, slots=256)
            rows.append({**self.run(load), "gpus": size["gpus"] * servers})
            yield rows


def _small(kind: str, model: str, workers: int, servers: int, **limits: Any) -> Load:
    """Return a load with one group of 4 per worker at a time, and a quarter more groups than workers."""
    return Load(kind, model, workers, servers, max(48, 5 * workers // 4), generations=4, **limits)


def main() -> None:
    """Run the parts and keep their numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", action="append", choices=PARTS, help="may be given several times; default: all")
    parser.add_argument("--scenario", action="append", choices=SCENARIOS, help="of the part workers; default: all")
    arguments = parser.parse_args()
    parts = arguments.part or PARTS
    for part in parts:
        if part == "costs":
            found: dict[str, Any] = {
                "costs": {**measured_costs(), "load": round(os.getloadavg()[0], 1)},
                "servers": published_check(),
                "delays": {name: vars(delay) for name, delay in DELAYS.items()},
                "kinds": {name: vars(kind) for name, kind in KINDS.items()},
            }
        elif part == "workers":
            for scenario in arguments.scenario or SCENARIOS:
                for rows in Study(_kept()["costs"]).workers(scenario):
                    _keep({part: {**_kept().get(part, {}), scenario: rows}})
            continue
        elif part == "steps":
            for rows in Study(_kept()["costs"]).steps(_kept()["sizing"]):
                _keep({part: rows})
            continue
        else:
            found = {part: getattr(Study(_kept()["costs"]), part)()}
        _keep(found)


def _keep(found: Mapping[str, Any]) -> None:
    RESULTS.write_text(json.dumps({**_kept(), **found}, indent=1) + "\n", encoding="utf-8")


def _kept() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    return found


if __name__ == "__main__":
    main()
