"""What a neighbour feels: a live call's latency beside 0, 1, 8 and 64 hogs of one family, and what watching costs.

    python -m benchmarks.sandbox_neighbours [--rounds 5] [--hogs 0 1 8 64] [--against FOLDER]

The hogs are endless loops in processes, within a cell that runs, or left behind by one that has ended. One neighbour
calls `sum(range(1000))`, with a pause of 3 ms in between: p50 and p95 in ms, and their ratio to no hogs. "cell" is the
CPU in ms that a call costs, client and container together, when nothing else runs; "idle" that of a second in which
nothing is called at all. --against names another checkout, which is measured in the same run, in turn, in processes of
its own. Medians over the rounds are printed and written to benchmarks/results/sandbox_neighbours.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
RESULTS = HERE.parent / "results" / "sandbox_neighbours.json"
CALL = "sum(range(1000))"
HOGS = "import os\nfor _ in range({number}):\n    if os.fork() == 0:\n        while True: pass\n"
LONG = 60.0
WAYS = ("left behind", "in a cell")


def latencies(python: Any, calls: int) -> dict[str, float]:
    """Return the percentiles of some calls, in ms."""
    times = []
    for _ in range(calls):
        started = time.perf_counter()
        python.run(CALL)
        times.append((time.perf_counter() - started) * 1000)
        time.sleep(0.003)
    times.sort()
    return {"p50": times[len(times) // 2], "p95": times[int(len(times) * 0.95)]}


@contextlib.contextmanager
def hogs(sandbox: Any, number: int, way: str) -> Iterator[None]:
    """Have a family run some hogs."""
    with sandbox.interpreter_sync() as family:
        if number and way == WAYS[0]:
            family.run(HOGS.format(number=number))
        elif number:
            code = HOGS.format(number=number - 1) + "while True: pass"
            threading.Thread(target=_quietly, args=(family, code), daemon=True).start()
        time.sleep(0.5)
        yield


def _quietly(family: Any, code: str) -> None:
    from sandbox import SandboxError

    with contextlib.suppress(SandboxError):  # it is closed while it runs
        family.run(code, LONG)


def spent(stats: Any) -> float:
    """Return the CPU milliseconds of this process and the container so far."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    inside = stats()["cpu_stats"]["cpu_usage"]["total_usage"]
    return (own.ru_utime + own.ru_stime) * 1000 + float(inside) / 1e6


def measure_round(numbers: list[int], calls: int) -> dict[str, float]:
    """Return the numbers of one round, of the checkout that this process imports."""
    import docker

    from sandbox import Limits, Sandbox

    found: dict[str, float] = {}
    with Sandbox.open_sync("docker", Limits(memory="2g", timeout=LONG), containers=1, sessions=64) as sandbox:
        idle = [sandbox.interpreter_sync() for _ in range(32)]
        python = idle.pop()
        latencies(python, calls // 4)
        for way in WAYS:
            for number in numbers:
                with hogs(sandbox, number, way):
                    for name, value in latencies(python, calls).items():
                        found[f"{number} {way} {name}"] = value
        client = docker.from_env()
        (ours,) = client.containers.list(filters={"label": f"arpo.sandbox.client={os.getpid()}"})

        def stats() -> Any:
            return client.api.stats(ours.id, stream=False, one_shot=True)

        before = spent(stats)
        for _ in range(1000):
            python.run(CALL)
        found["cell"] = (spent(stats) - before) / 1000
        before, started = spent(stats), time.monotonic()
        time.sleep(3)
        found["idle"] = (spent(stats) - before) / (time.monotonic() - started)
    return found


def rounds_of(folder: str, arguments: argparse.Namespace) -> dict[str, float]:
    """Measure a round in a process of its own, with the checkout in a folder."""
    numbers = [str(number) for number in arguments.hogs]
    command = [sys.executable, str(HERE), "--one", "--calls", str(arguments.calls), "--hogs", *numbers]
    environment = {**os.environ, "PYTHONPATH": folder}
    done = subprocess.run(command, env=environment, cwd=folder, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=120)
    parser.add_argument("--hogs", type=int, nargs="+", default=[0, 1, 8, 64])
    parser.add_argument("--against", help="another checkout to measure in the same run")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure_round(arguments.hogs, arguments.calls)))
        return
    folders = {"now": str(HERE.parent.parent)}
    if arguments.against:
        folders = {"before": str(Path(arguments.against).resolve()), **folders}
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in folders}
    for _ in range(arguments.rounds):
        for name, folder in folders.items():
            rows[name].append(rounds_of(folder, arguments))
    table = {
        name: {what: round(statistics.median(row[what] for row in found), 3) for what in found[0]}
        for name, found in rows.items()
    }
    _print(table, arguments.hogs)
    facts = {"cores": os.cpu_count(), "kernel": platform.release(), "rounds": arguments.rounds}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({**facts, **table}, indent=2) + "\n", encoding="utf-8")


def _print(table: dict[str, dict[str, float]], numbers: list[int]) -> None:
    print(f"{'':<24}" + "".join(f"{name + ' p50':>12}{'p95':>8}{'ratio':>8}" for name in table))
    for way in WAYS:
        for number in numbers:
            line = f"{f'{number} hogs {way}':<24}"
            for found in table.values():
                p50, p95 = (found[f"{number} {way} {name}"] for name in ("p50", "p95"))
                line += f"{p50:>12.2f}{p95:>8.1f}{p50 / found[f'{numbers[0]} {way} p50']:>8.1f}"
            print(line)
    for what in ("cell", "idle"):
        print(f"{what + ', CPU ms':<24}" + "".join(f"{found[what]:>12.3f}{'':>16}" for found in table.values()))


if __name__ == "__main__":
    main()
