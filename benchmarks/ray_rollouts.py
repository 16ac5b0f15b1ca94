"""Rollouts on Ray beside one process: equal trees, a node that is killed, and the wall time.

    python -m benchmarks.ray_rollouts [--groups 200] [--workers 4] [--seconds 0.4] [--part equal] [--part kill] ...

A cluster of three raylets runs on this machine: the head, which has no CPUs, and two "nodes" with half of the workers
each. Engines are simulated (`ray_world`): each has 8 places and sleeps for a turn, so what is measured is what the
rollout itself takes. One process has one engine, each worker has its own.

speed  wall time of one process and of the workers, which have been started and have played a rollout before; and
       are the trees equal bit for bit, apart from measured times?
kill   kill -9 of one raylet when a third of the groups is done: is each group there exactly once, and equal? The other
       node has places for all workers.

Writes benchmarks/results/ray_rollouts.json, each part for itself.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

from arpo_env.event_loop import run
from arpo_trainer.ray_rollouts import RayEngine, RolloutWorkers
from arpo_trainer.rollout.engine import Engine
from arpo_trainer.tree import RolloutTree
from benchmarks.ray_world import Nodes, SleepingPolicy, counting_env, tree_settings, without_times
from benchmarks.rollout_world import small_tokenizer

RESULTS = Path(__file__).parent / "results" / "ray_rollouts.json"
PARTS = ("speed", "kill")


def engine_of(seconds: float, workers: RolloutWorkers | None) -> Engine:
    """Return an engine in this process, or one on the workers."""
    tokenizer = small_tokenizer()
    parts: Any = SleepingPolicy(tokenizer, seconds), tokenizer, counting_env(), tree_settings()
    return RayEngine(*parts, workers=workers) if workers else Engine(*parts)


def play(engine: Engine, groups: int, step: int = 1) -> tuple[list[RolloutTree], float]:
    """Play groups; return their trees and the seconds."""
    tasks = [engine.env.tasks.task(number) for number in range(groups)]
    began = time.perf_counter()
    return run(engine.rollout(tasks, step)), time.perf_counter() - began


def measure(arguments: argparse.Namespace, part: str, alone: list[RolloutTree], one_process: float) -> dict[str, Any]:
    """Return the numbers of one part, beside the trees of one process and its seconds."""
    nodes = Nodes(arguments.workers // 2 if part != "kill" else arguments.workers)
    try:
        began = time.perf_counter()
        with RolloutWorkers(arguments.workers, nodes.address, start_timeout=120) as workers:
            started = time.perf_counter() - began
            engine = engine_of(arguments.seconds, workers)
            play(engine, arguments.workers, step=0)  # imports, and the environment of each worker
            seen: Counter[int] = Counter()

            def count(tree: RolloutTree) -> None:
                seen[tree.meta["group"]] += 1
                if part == "kill" and seen.total() == arguments.groups // 3:
                    nodes.kill(0)

            engine.on_tree = count
            trees, seconds = play(engine, arguments.groups)
            numbers = {
                "groups": arguments.groups,
                "trajectories": sum(len(tree.trajectories) for tree in trees),
                "workers": arguments.workers,
                "seconds_of_a_turn": arguments.seconds,
                "one_process_seconds": round(one_process, 2),
                "ray_seconds": round(seconds, 2),
                "times_faster": round(one_process / seconds, 2),
                "start_seconds": round(started, 2),
                "equal": [without_times(tree) for tree in trees] == [without_times(tree) for tree in alone],
                "each_group_once": seen == Counter(range(arguments.groups)),
                "played_again": engine.replayed if isinstance(engine, RayEngine) else 0,
                "workers_at_the_end": len(workers.nodes()),
            }
    finally:
        nodes.close()
    return numbers


def main() -> None:
    """Measure the parts and keep the numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=200)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=0.4, help="that an engine takes for a turn")
    parser.add_argument("--part", action="append", choices=PARTS, help="default: all")
    arguments = parser.parse_args()
    import ray

    machine = {"cpus": os.cpu_count(), "load": round(os.getloadavg()[0], 1), "ray": ray.__version__}
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    alone, seconds = play(engine_of(arguments.seconds, None), arguments.groups)
    for part in arguments.part or PARTS:
        kept[part] = {**measure(arguments, part, alone, seconds), "machine": machine}
        print(part, json.dumps(kept[part]))
        RESULTS.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
