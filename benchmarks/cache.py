"""How fast is the cache, and what does it lose? 16 processes on one file, and writers that are killed.

    python -m benchmarks.cache [--processes 16] [--seconds 3] [--killed 8]

Values are 1.5 kB of text, each another one. A set is acknowledged once `put` has returned; then it must be there,
though its process is killed by SIGKILL amid the next. Prints sets and gets a second and the CPU time of each, then
acknowledged and lost writes, and writes benchmarks/results/cache.json. The file lies in the folder for temporary files
(TMPDIR).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import random
import signal
import sqlite3
import tempfile
import time
from pathlib import Path
from typing import Any

from arpo_env.cache import (
    Cache,
    Record,
    canonical,
)

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
SPAWN = multiprocessing.get_context("spawn")
BYTES = 1500


def text(name: str) -> str:
    """Return 1.5 kB of text that compresses as search results do, different for each name."""
    words = random.Random(name)
    return (name + " " + " ".join(f"{words.getrandbits(24):x}" for _ in range(250)))[:BYTES]


def put(cache: Cache, name: str, value: str) -> None:
    cache.store.put([cache.record("search", "benchmark", 1, {"query": name}, value)])


def get(cache: Cache, name: str) -> Any:
    record = cache.store.get(Record("search", "benchmark", "1", canonical({"query": name}), b"", 0.0).key)
    return None if record is None else cache.store.unpack(record)


def worker(file: Path, action: str, name: int, seconds: float, barrier: Any, results: Any) -> None:
    """Set or get for a time; tell how many, and the CPU time."""
    cache = Cache(file, mode="record" if action == "set" else "replay")
    values = [text(f"{name}-{number}") for number in range(500)]
    found = count = 0
    barrier.wait()
    end, cpu = time.perf_counter() + seconds, time.process_time()
    while time.perf_counter() < end:
        if action == "set":
            put(cache, f"{name}-{count}", values[count % 500])
        else:
            found += get(cache, f"{name}-{count % 100}") is not None
        count += 1
    results.put((count, found, time.process_time() - cpu))
    cache.close()


def rate(file: Path, action: str, processes: int, seconds: float) -> dict[str, float]:
    """Return operations a second of all processes together, and CPU microseconds each."""
    barrier, results = SPAWN.Barrier(processes), SPAWN.Queue()
    workers = [
        SPAWN.Process(target=worker, args=(file, action, name, seconds, barrier, results)) for name in range(processes)
    ]
    for process in workers:
        process.start()
    told = [results.get(timeout=60 + 10 * seconds) for _ in workers]
    for process in workers:
        process.join()
    count, found, cpu = (sum(column) for column in zip(*told, strict=True))
    if action == "get" and found != count:
        raise RuntimeError(f"{count - found} of {count} gets found nothing")
    return {"operations": count, "per_second": count / seconds, "cpu_us": 1e6 * cpu / count}


def write_until_killed(file: Path, name: int, told: Path) -> None:
    """Write for ever; a byte in another file acknowledges each write."""
    cache = Cache(file)
    with open(told, "ab", buffering=0) as acknowledged:
        number = 0
        while True:
            put(cache, f"{name}-{number}", text(f"{name}-{number}"))
            acknowledged.write(b"x")  # one write to a file outlives its process
            number += 1


def kill_writers(folder: Path, writers: int, seconds: float) -> dict[str, int]:
    """Kill all writers while they write, and look for what they had acknowledged."""
    file, told = folder / "killed.sqlite", [folder / f"told-{name}" for name in range(writers)]
    processes = [SPAWN.Process(target=write_until_killed, args=(file, name, told[name])) for name in range(writers)]
    for process in processes:
        process.start()
    while not all(path.exists() and path.stat().st_size for path in told):
        time.sleep(0.01)
    time.sleep(seconds)
    for process in processes:
        os.kill(process.pid or 0, signal.SIGKILL)
    for process in processes:
        process.join()
    names = [f"{name}-{number}" for name in range(writers) for number in range(told[name].stat().st_size)]
    cache = Cache(file, mode="replay")
    lost = sum(get(cache, name) != text(name) for name in names)
    whole = sqlite3.connect(file).execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    return {"acknowledged": len(names), "lost": lost, "file_whole": int(whole)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--killed", type=int, default=8, help="writers to kill")
    arguments = parser.parse_args()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for processes in (1, arguments.processes):
            for action in ("set", "get"):
                file = Path(scratch) / f"{processes}.sqlite"
                row = found[f"{action}, {processes} processes"] = rate(file, action, processes, arguments.seconds)
                print(f"{action}, {processes:>2} processes {row['per_second']:>10,.0f} /s {row['cpu_us']:>8.0f} us CPU")
        killed = found["kill -9"] = kill_writers(Path(scratch), arguments.killed, arguments.seconds)
    print(f"kill -9 of {arguments.killed} writers: {killed['acknowledged']:,} acknowledged, {killed['lost']} lost")
    RESULTS.mkdir(exist_ok=True)
    facts = {
        "value_bytes": BYTES,
        "seconds": arguments.seconds,
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "found": found,
    }
    (RESULTS / "cache.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
