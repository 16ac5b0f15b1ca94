"""What calls and forks cost, this version beside another one, in one run.

    python -m benchmarks.sandbox_calls [--against FOLDER] [--rounds 5]

FOLDER is another checkout of this project (`git worktree add FOLDER COMMIT`). Each round measures both, one after the
other, in a process and a container of its own. Medians over the rounds are printed and written to
benchmarks/results/sandbox_calls.json. CPU is that of the client and of the container, in ms a call; p50 is in ms.

- live: a cell in a session that is open; fork: `fork(1)` of such a session with a heap of 0 and of 500 MB; fork of 8:
  `fork(8)`, with no heap.
- fresh: `print(1)` in a session of its own; fresh with packages: the same, with the name of a package in its text, so
  that it is forked from the process that has imported them; fresh sympy: a factorisation;
  fresh integral: the first one of a session.
- bare fork: fork and exit of a session that does nothing else: what the kernel takes for a process of that size.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
RESULTS = HERE.parent / "results" / "sandbox_calls.json"
SYMPY = "import sympy\nprint(sympy.factorint(10**12 + 39))"
INTEGRAL = "import sympy\nx = sympy.Symbol('x')\nprint(sympy.integrate(x**2 * sympy.exp(x), x))"
BARE = """
import os, time
def once():
    child = os.fork()
    if child == 0: os._exit(0)
    os.waitpid(child, 0)
for _ in range(20): once()
before = sum(os.times()[:4])
for _ in range(300): once()
(sum(os.times()[:4]) - before) / 300 * 1000
"""


def measure() -> dict[str, float]:
    """Measure one round with the `sandbox` that this process imports."""
    import docker

    from sandbox import Limits, Sandbox

    with Sandbox.open_sync("docker", Limits(memory="6g", timeout=120), containers=1, sessions=128) as sandbox:
        api = docker.from_env().api
        (container,) = api.containers(filters={"label": f"arpo.sandbox.client={os.getpid()}"})

        def spent() -> float:
            used = resource.getrusage(resource.RUSAGE_SELF)
            inside = api.stats(container["Id"], stream=False, one_shot=True)["cpu_stats"]["cpu_usage"]["total_usage"]
            return (used.ru_utime + used.ru_stime) * 1000 + float(inside) / 1e6

        def calls(call: Callable[[], Any], number: int, callers: int = 1) -> tuple[float, float]:
            def one(_: int) -> float:
                started = time.perf_counter()
                call()
                return (time.perf_counter() - started) * 1000

            with ThreadPoolExecutor(callers) as pool:
                list(pool.map(one, range(2 * callers)))
                before = spent()
                times = list(pool.map(one, range(number)))
                time.sleep(0.1)  # the last sessions are still being ended
                return statistics.median(times), (spent() - before) / number

        found: dict[str, float] = {}

        def note(name: str, row: tuple[float, float]) -> None:
            found[f"{name}: p50"], found[f"{name}: cpu"] = row

        session = sandbox.interpreter_sync()
        found["bare fork: cpu"] = float(str(session.run(BARE).value))
        note("live", calls(lambda: session.run("1 + 1"), 400))
        for size in (0, 500):
            with sandbox.interpreter_sync(f"heap = bytearray({size} << 20)") as big:
                note(f"fork, {size} MB", calls(lambda big=big: [copy.close() for copy in big.fork(1)], 40))  # type: ignore[misc]
        with sandbox.interpreter_sync() as small:
            note("fork of 8, 0 MB", calls(lambda: [copy.close() for copy in small.fork(8)], 20))
        note("fresh integral, 1 callers", calls(lambda: _check(sandbox, INTEGRAL), 40))
        texts = {"fresh": "print(1)", "fresh with packages": "print(1)  # numpy, sympy", "fresh sympy": SYMPY}
        for name, text in texts.items():
            for callers in (1, 64):
                note(f"{name}, {callers} callers", calls(lambda text=text: _check(sandbox, text), 192, callers))  # type: ignore[misc]
    return found


def _check(sandbox: Any, text: str) -> None:
    execution = sandbox.run_sync(text, 120)
    if execution.status != "ok":
        raise RuntimeError(f"a call failed: {execution}")


def ratios(row: dict[str, float]) -> dict[str, float]:
    """Return what the issue of cost is about: fresh calls by bare forks, sympy by print."""
    return {
        "fresh / bare fork, cpu": row["fresh, 1 callers: cpu"] / row["bare fork: cpu"],
        "fresh with packages / bare fork, cpu": row["fresh with packages, 1 callers: cpu"] / row["bare fork: cpu"],
        "sympy / print, 64 callers, p50": row["fresh sympy, 64 callers: p50"] / row["fresh, 64 callers: p50"],
        "sympy / print with packages, 64 callers, p50": row["fresh sympy, 64 callers: p50"]
        / row["fresh with packages, 64 callers: p50"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, help="another checkout of this project")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        print(json.dumps(measure()))
        return
    trees = {"now": HERE.parents[1], **({"before": arguments.against.resolve()} if arguments.against else {})}
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in trees}
    for number in range(arguments.rounds):
        for name, tree in trees.items():
            row = _round(tree)
            rows[name].append({**row, **ratios(row)})
        print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr)
    table = {
        name: {key: round(statistics.median(row[key] for row in all_), 3) for key in all_[0]}
        for name, all_ in rows.items()
    }
    for key, value in table["now"].items():
        before = table.get("before", {}).get(key)
        print(f"{key:<46}{value:>9.2f}" + (f"{before:>9.2f}{value / before:>8.2f}" if before else ""))
    facts = {
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "rounds": arguments.rounds,
        "load": os.getloadavg()[0],
    }
    RESULTS.write_text(json.dumps({**facts, **table}, indent=2) + "\n", encoding="utf-8")


def _round(tree: Path) -> dict[str, float]:
    command = [sys.executable, str(HERE), "--worker"]
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1"}
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the measurement of {tree} has failed:\n{done.stderr[-2000:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    main()
