"""What a call costs: our sessions beside the usual ways to run Python for an agent, in one run.

    python -m benchmarks.sandbox_speed [--rounds 3] [--callers 1 8 64] [--smolagents FOLDER]

For `print(1)` and a factorisation with sympy, and 1, 8 and 64 callers at once: latency p50 and p95 in ms, CPU in ms a
call (this process, its children and the container; Docker's own processes beside it), calls a second, errors. Rounds of
all subjects alternate; the medians over the rounds are printed and written to benchmarks/results/sandbox_speed.json.
Last, what forks cost. smolagents is measured where it can be imported (--smolagents names a folder with it). bubblewrap
does not wait for what it has started, so its CPU time is not known.
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

import docker

from sandbox import Limits, Sandbox, SyncInterpreter, build_image
from sandbox.backends.processes import why_no_bubblewrap

SNIPPETS = {"print": "print(1)", "sympy": "import sympy\nprint(sympy.factorint(10**12 + 39))"}
EXPECTED = {"print": "1", "sympy": "{1000000000039: 1}"}
RESULTS = Path(__file__).parent / "results"
COLUMNS = ("p50", "p95", "cpu", "docker", "rate", "errors")
_TICK = 1000 / os.sysconf("SC_CLK_TCK")
Call = Callable[[str], str]


class Machine:
    """Adds up the CPU time that calls cost, wherever it is spent."""

    def __init__(self, containers: list[str]) -> None:
        self._client = docker.from_env()
        self._containers = containers
        names = ("dockerd", "containerd", "containerd-shim", "containerd-shim-runc-v2", "runc")
        self._daemons = [pid for pid in _pids() if _name(pid) in names]

    def spent(self) -> tuple[float, float]:
        """Return milliseconds so far: of this process, its children and the containers; of Docker's own processes."""
        own = sum(
            getattr(resource.getrusage(who), part)
            for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
            for part in ("ru_utime", "ru_stime")
        )
        stats = (self._client.api.stats(one, stream=False, one_shot=True) for one in self._containers)
        inside = sum(one["cpu_stats"]["cpu_usage"]["total_usage"] for one in stats)
        return own * 1000 + inside / 1e6, sum(_cpu_of(pid) for pid in self._daemons)


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _cpu_of(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) * _TICK


def run_round(call: Call, what: str, callers: int, calls: int, machine: Machine) -> dict[str, float]:
    """Make calls from some threads at once, and measure each and all."""

    def one(_: int) -> tuple[float, bool]:
        started = time.perf_counter()
        try:
            right = call(SNIPPETS[what]).strip() == EXPECTED[what]
        except Exception as error:  # counted
            sys.stderr.write(f"{type(error).__name__}: {str(error)[:200]}\n")
            right = False
        return (time.perf_counter() - started) * 1000, right

    with ThreadPoolExecutor(callers) as pool:
        list(pool.map(one, range(callers)))
        (cpu, daemons), started = machine.spent(), time.perf_counter()
        answers = list(pool.map(one, range(calls)))
        seconds = time.perf_counter() - started
        after = machine.spent()
    times = sorted(elapsed for elapsed, _ in answers)
    return {
        "p50": times[len(times) // 2],
        "p95": times[int(len(times) * 0.95)],
        "cpu": (after[0] - cpu) / calls,
        "docker": (after[1] - daemons) / calls,
        "rate": calls / seconds,
        "errors": float(sum(not right for _, right in answers)),
    }


def subjects(sandbox: Sandbox, container: str) -> dict[str, Call]:
    """Return what is compared, by name; what this machine lacks is left out."""
    import queue

    idle: queue.SimpleQueue[SyncInterpreter] = queue.SimpleQueue()
    for _ in range(64):
        idle.put(sandbox.interpreter_sync())

    def live(code: str) -> str:
        session = idle.get()
        try:
            return session.run(code, 120).stdout
        finally:
            idle.put(session)

    def fresh(code: str) -> str:
        return sandbox.run_sync(code, 120).stdout

    def exec_in_container(code: str) -> str:
        return _output(["docker", "exec", container, "python3", "-c", code])

    def host_python(code: str) -> str:
        return _output([sys.executable, "-c", code])

    found: dict[str, Call] = {
        "live session": live,
        "fresh session": fresh,
        "docker exec": exec_in_container,
        "python -c": host_python,
    }
    if not why_no_bubblewrap():
        places = ["--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
        prefix = ["bwrap", "--unshare-all", "--die-with-parent", "--clearenv", *places, sys.executable, "-c"]
        found["bubblewrap"] = lambda code: _output([*prefix, code])
    smol = _smolagents()
    if smol is not None:
        found["smolagents"] = smol
    return found


def _output(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout


def _smolagents() -> Call | None:
    try:
        from smolagents.local_python_executor import LocalPythonExecutor
    except ImportError:
        return None

    def call(code: str) -> str:
        executor = LocalPythonExecutor(["sympy", "sympy.*"])
        executor.send_tools({})
        return str(executor(code).logs)

    return call


def bare_fork(session: SyncInterpreter) -> dict[str, float]:
    """Measure fork and exit of a process like the zygote: latency p50 and CPU, in ms."""
    code = """
import os, time
def once():
    started = time.perf_counter()
    child = os.fork()
    if child == 0: os._exit(0)
    os.waitpid(child, 0)
    return (time.perf_counter() - started) * 1000
for _ in range(20): once()
before = sum(os.times()[:4]); times = sorted(once() for _ in range(400))
times[200], (sum(os.times()[:4]) - before) / 400 * 1000
"""
    p50, cpu = eval(str(session.run(code, 120).value))
    return {"p50": p50, "cpu": cpu}


def forks(sandbox: Sandbox, megabytes: int, times: int = 60) -> float:
    """Return the median milliseconds of fork(1) of a session with a heap of that size."""
    with sandbox.interpreter_sync() as session:
        session.run(f"heap = bytearray({megabytes} << 20)")
        found = []
        for _ in range(times):
            started = time.perf_counter()
            (copy,) = session.fork(1)
            found.append((time.perf_counter() - started) * 1000)
            copy.close()
    return statistics.median(found)


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return all numbers."""
    client = docker.from_env()
    plain = client.containers.run(
        build_image(), ["python3", "-c", "import time; time.sleep(1e6)"], network_mode="none", detach=True
    )
    limits = Limits(memory="6g", timeout=120)
    table: dict[str, Any] = {}
    try:
        with Sandbox.open_sync("docker", limits, containers=1, sessions=128) as sandbox:
            ours = client.containers.list(filters={"label": f"arpo.sandbox.client={os.getpid()}"})
            machine = Machine([plain.id, *(one.id for one in ours)])
            calls = subjects(sandbox, str(plain.id))
            for callers in arguments.callers:
                for what in SNIPPETS:
                    rows: dict[str, list[dict[str, float]]] = {name: [] for name in calls}
                    for _ in range(arguments.rounds):
                        for name, call in calls.items():
                            quick = name.endswith("session") or name == "smolagents"
                            count = max(callers, 400 if quick else 64 if callers > 1 else 16)
                            rows[name].append(run_round(call, what, callers, count, machine))
                    table[f"{what} {callers}"] = {name: _medians(found) for name, found in rows.items()}
                    table[f"{what} {callers}"].get("bubblewrap", {}).pop("cpu", None)
                    _print_part(f"{what}, {callers} at once", table[f"{what} {callers}"])
            with sandbox.interpreter_sync() as session:
                bare = [bare_fork(session) for _ in range(arguments.rounds)]
            table["bare fork"] = _medians(bare)
            table["fork"] = {f"{size} MB": forks(sandbox, size) for size in (0, 10, 100, 500)}
            table["isolation"] = sandbox.isolation
    finally:
        plain.remove(force=True)
    return table


def _medians(rows: list[dict[str, float]]) -> dict[str, float]:
    return {name: round(statistics.median(row[name] for row in rows), 3) for name in rows[0]}


def _print_part(title: str, rows: dict[str, dict[str, float]]) -> None:
    print(f"\n{title:<22}" + "".join(f"{name:>10}" for name in COLUMNS))
    for name, row in rows.items():
        print(f"{name:<22}" + "".join(f"{row.get(column, float('nan')):>10.2f}" for column in COLUMNS), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--callers", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--smolagents", help="a folder that has smolagents installed")
    arguments = parser.parse_args()
    if arguments.smolagents:
        sys.path.append(arguments.smolagents)
    table = measure(arguments)
    print("\nbare fork and exit of a session:", table["bare fork"])
    print("fork(1), median ms, by heap:", {size: round(ms, 2) for size, ms in table["fork"].items()})
    facts = {
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "kernel": platform.release(),
        "rounds": arguments.rounds,
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "sandbox_speed.json").write_text(json.dumps({**facts, **table}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
