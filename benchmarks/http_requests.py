"""What HTTP requests to a service cost, this version beside another one, in one run.

    python -m benchmarks.http_requests [--against FOLDER] [--rounds 5] [--requests 600]

FOLDER is another checkout of this project (`git worktree add FOLDER COMMIT`). A server process of its own answers each
request after 5 ms with 2 KB of JSON. Each round measures both versions, one after the other, each in a new process:

- first: the first request, with the imports that it needs
- at once: all requests at once (64 connections), from an event loop of the caller
- in turn: as many requests one after the other, without an event loop

CPU seconds are those of the client. "threads" is the largest number of threads beside the main one. Medians over the
rounds are printed and written to benchmarks/results/http_requests.json.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
RESULTS = HERE.parent / "results" / "http_requests.json"
BODY = json.dumps({"hits": [{"title": f"title {n}", "text": "word " * 30} for n in range(10)]}).encode()
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the requests of one connection."""
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):  # the client has gone
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
            await reader.readexactly(int(length or 0))
            await asyncio.sleep(0.005)
            writer.write(ANSWER)


async def serve() -> None:
    """Print the port and serve until the process is ended."""
    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=256)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def measure(port: int, number: int) -> dict[str, float]:
    """Measure one round with the `arpo_env` that this process imports."""
    begun = time.process_time()
    from arpo_env.event_loop import run
    from arpo_env.net import Http

    http, url, body = Http("benchmark"), f"http://127.0.0.1:{port}/search", {"query": "who", "k": 10}
    most = 0

    async def one() -> None:
        nonlocal most
        reply = await http.request("POST", url, json=body)
        most = max(most, threading.active_count() - 1)
        assert len(reply.json()["hits"]) == 10

    async def at_once() -> None:
        await asyncio.gather(*(one() for _ in range(number)))

    asyncio.run(one())
    found = {"first: CPU s": time.process_time() - begun}
    for name, work in {
        "at once": lambda: asyncio.run(at_once()),
        "in turn": lambda: [run(http.request("POST", url, json=body)) for _ in range(number)],
    }.items():
        cpu, started = time.process_time(), time.perf_counter()
        work()
        found |= {f"{name}: CPU s": time.process_time() - cpu, f"{name}: s": time.perf_counter() - started}
    return {**found, "threads": most}


def _round(tree: Path, port: int, number: int) -> dict[str, float]:
    command = [sys.executable, "-P", str(HERE), "--worker", str(port), "--requests", str(number)]
    environment = os.environ | {"PYTHONPATH": str(tree)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=tree)
    if done.returncode:
        raise RuntimeError(f"{tree} failed:\n{done.stderr}")
    row: dict[str, float] = json.loads(done.stdout)
    return row


def compare(trees: dict[str, Path], rounds: int, number: int) -> dict[str, Any]:
    """Return the medians of each version."""
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in trees}
    command = [sys.executable, "-P", str(HERE), "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        try:
            for _ in range(rounds):
                for name, tree in trees.items():
                    rows[name].append(_round(tree, port, number))
        finally:
            server.kill()
    return {
        name: {key: round(statistics.median(row[key] for row in all_), 3) for key in all_[0]}
        for name, all_ in rows.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, help="another checkout of this project")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=600)
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        asyncio.run(serve())
        return
    if arguments.worker:
        print(json.dumps(measure(arguments.worker, arguments.requests)))
        return
    trees = {"now": HERE.parents[1], **({"before": arguments.against.resolve()} if arguments.against else {})}
    table = compare(trees, arguments.rounds, arguments.requests)
    for key, value in table["now"].items():
        before = table.get("before", {}).get(key)
        print(f"{key:<20}{value:>9.3g}" + (f"{before:>9.3g}{value / before:>8.2f}" if before else ""))
    facts = {"cores": os.cpu_count(), "kernel": platform.release(), "load": round(os.getloadavg()[0], 1)}
    facts |= {"rounds": arguments.rounds, "requests": arguments.requests}
    RESULTS.write_text(json.dumps({**facts, **table}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
