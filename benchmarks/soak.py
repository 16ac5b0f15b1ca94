"""Does it hold? Many calls over many sessions, some of them hostile: wrong results and leaks are counted.

    python -m benchmarks.soak [--calls 20000] [--sessions 64] [--hostile 0.05]

Each worker keeps a session with a running total, which every honest call adds to and checks; it forks now and then,
and goes on in the fork. Hostile calls come from a session of their own, in other families. At the end everything is
closed and compared with the start: containers, processes and memory in the container, descriptors and memory here.
Exits with 1 if anything is wrong. Numbers go to benchmarks/results/soak.json.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import docker

from sandbox import Limits, Sandbox, SandboxError, SyncInterpreter
from sandbox.server.wire import PING

RESULTS = Path(__file__).parent / "results"
HOSTILE = (
    "while True: pass",
    "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
    "x = []\nwhile True: x.append(bytearray(1 << 20))",
    "import os, signal\nos.kill(-1, signal.SIGKILL)",
    "import os\nfor p in range(2, 1000):\n    try: os.kill(p, 9)\n    except OSError: pass",
    "print('x' * (50 << 20))",
    "open('big', 'wb').write(b'x' * (200 << 20))",
    "import os\nfor i in range(100000): open(f'f{i}', 'w').close()",
    "import os\nos._exit(3)",
    "import ctypes\nctypes.string_at(1)",
    "import os\nos.close(199)",
    "import os\nos.write(199, b'garbage' * 1000)",
    "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: time.sleep(1000)\n    os._exit(0)",
    "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(100,)).start()",
    "import sys\nsys.setrecursionlimit(10**9)\ndef f(): f()\nf()",
    "open('/dev/shm/left', 'wb').write(b'x' * (1 << 20))",
)


class Soak:
    """The workers and what they count."""

    def __init__(self, sandbox: Sandbox, calls: int, hostile: float) -> None:
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._sandbox = sandbox
        self._left = calls
        self._hostile = hostile
        self._lock = threading.Lock()

    def _take(self) -> bool:
        with self._lock:
            self._left -= 1
            return self._left >= 0

    def _count(self, what: str) -> None:
        with self._lock:
            self.counts[what] += 1

    def work(self, seed: int) -> None:
        """Make calls until all are made."""
        chance = random.Random(seed)
        session, total = self._begin(seed)
        while self._take():
            if chance.random() < self._hostile:
                self._attack(chance)
                continue
            total += (number := chance.randrange(1000))
            try:
                value = session.run(f"total += {number}\n(name, total, open('file').read())", 60).value
                if value != str((f"worker {seed}", total, f"file {seed}")):
                    self.wrong.append(f"worker {seed}: {value!r}, not {total}")
                self._count("honest")
                if chance.random() < 0.02:
                    (copy,) = session.fork(1)
                    session.close()
                    session = copy
                    self._count("forks")
            except SandboxError as error:
                self.wrong.append(f"worker {seed}: {type(error).__name__}: {error}")
                session, total = self._begin(seed)
        session.close()

    def _begin(self, seed: int) -> tuple[SyncInterpreter, int]:
        session = self._sandbox.interpreter_sync()
        session.run(f"name = 'worker {seed}'\ntotal = 0\nwith open('file', 'w') as f: f.write('file {seed}')", 60)
        return session, 0

    def _attack(self, chance: random.Random) -> None:
        with self._sandbox.interpreter_sync() as session:
            outcome = session.run(chance.choice(HOSTILE), 1.0)
        self._count(f"hostile: {outcome.status}")


def here() -> dict[str, int]:
    """Return descriptors, threads and resident memory (MB) of this process."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": int(status["Threads"]),
        "memory": int(status["VmRSS"].split()[0]) >> 10,
    }


def settle(sandbox: Sandbox) -> dict[str, Any]:
    """Wait until the container has come to rest, and return its condition."""
    condition: dict[str, Any] = {}
    for _ in range(100):
        condition = sandbox._pool.containers[0].request(PING, {}).result(30)
        if condition["sessions"] == 0 and condition["free"] == condition["slots"]:
            break
        time.sleep(0.1)
    return condition


def soak(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run it and return what was found."""
    limits = Limits(memory="4g", session_memory=512 << 20, grace=0.5, processes=64)
    client = docker.from_env()
    with Sandbox.open_sync("docker", limits, containers=1, sessions=128) as sandbox:
        warm = Soak(sandbox, 10 * arguments.sessions, arguments.hostile)
        _all_at_once(warm, arguments.sessions)
        containers = {one.id for one in client.containers.list(filters={"label": "arpo.sandbox=1"})}
        before = {**settle(sandbox), "here": here()}
        run = Soak(sandbox, arguments.calls, arguments.hostile)
        started = time.perf_counter()
        _all_at_once(run, arguments.sessions)
        seconds = time.perf_counter() - started
        after = {**settle(sandbox), "here": here()}
        same = containers == {one.id for one in client.containers.list(filters={"label": "arpo.sandbox=1"})}
        stats = sandbox.stats()
    return {
        "calls": arguments.calls,
        "sessions": arguments.sessions,
        "seconds": round(seconds, 1),
        "counts": run.counts,
        "wrong": run.wrong[:20],
        "wrong_results": len(run.wrong),
        "before": before,
        "after": after,
        "same_containers": same,
        "stats": stats,
    }


def _all_at_once(run: Soak, workers: int) -> None:
    threads = [threading.Thread(target=run.work, args=(seed,)) for seed in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def faults(found: dict[str, Any]) -> list[str]:
    """Return what is wrong with the result."""
    before, after = found["before"], found["after"]
    judged = {
        f"{found['wrong_results']} wrong results": found["wrong_results"] > 0,
        "the container was replaced": not found["same_containers"],
        f"processes: {before['processes']} -> {after['processes']}": after["processes"] > before["processes"],
        f"slots retired: {after['retired']}": after["retired"] > 0,
        f"sessions left: {after['sessions']}": after["sessions"] > 0,
        f"slots free: {after['free']} of {after['slots']}": after["free"] < after["slots"],
        f"memory of the container: {before['memory']} -> {after['memory']}": after["memory"]
        > 1.05 * before["memory"] + (4 << 20),
        f"here: {before['here']} -> {after['here']}": after["here"]["descriptors"] > before["here"]["descriptors"]
        or after["here"]["memory"] > 1.05 * before["here"]["memory"] + 1,
    }
    return [fault for fault, present in judged.items() if present]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--sessions", type=int, default=64)
    parser.add_argument("--hostile", type=float, default=0.05)
    arguments = parser.parse_args()
    found = soak(arguments)
    wrong = faults(found)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "soak.json").write_text(json.dumps({**found, "faults": wrong}, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(found, indent=2))
    print("all well" if not wrong else "\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
