"""Many clients of one sandbox server, which is killed and started again in the middle.

    python -m benchmarks.sandbox_http [--clients 64] [--calls 10000] [--backend docker]

A server (`arpo sandbox serve`) runs as a process of its own; each client has a token and a live session of its own.
Every call appends its name to a list in the session and returns the length of the list, so that a call that ran twice
would show in all later ones. After 40 % of the calls the server is killed (SIGKILL) and started again. A client whose
session is lost opens another one, and goes on with the next call; the lost call is not sent again.

Counted: calls that succeeded, calls that were reported as lost, results that are not those of exactly one run of each
call, and the cells that the second server ran, which have to be the calls that succeeded there. Then it is tried what
others can do without a token, with a wrong one, and with another client's session. Latencies are those of calls before
the server was killed, beside those of the same number of sessions without HTTP. The result is written to
benchmarks/results/sandbox_http.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import secrets
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from sandbox import Sandbox, SessionLost, SyncInterpreter

HERE = Path(__file__).resolve()
RESULTS = HERE.parent / "results" / "sandbox_http.json"
SETUP = "done = []"


class Server:
    """A server process that can be killed and started again at the same address."""

    def __init__(self, port: int, clients: Path, backend: str, log: Path) -> None:
        self.url = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "arpo_trainer.cli", "sandbox", "serve", "--port", str(port)]
        self._command = [*command, "--clients", str(clients), "--backend", backend, "--containers", "2"]
        self._log = log
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        """Start, and wait until it answers."""
        environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1])}
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(self._command, env=environment, stdout=log, stderr=log)
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            try:
                self.runs()
                return self.process
            except OSError:
                time.sleep(0.1)
        raise RuntimeError(f"the server does not start: {self._log.read_text()}")

    def runs(self) -> int:
        """Return how many cells it has run."""
        with urllib.request.urlopen(f"{self.url}/health", timeout=10) as answer:
            return int(json.load(answer)["runs"])


class Tally:
    """What all clients have seen."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.seconds: list[float] = []
        self.lock = threading.Lock()

    def note(self, what: str, seconds: float | None = None) -> int:
        """Count an event; returns the number of all calls so far."""
        with self.lock:
            self.counts[what] += 1
            if seconds is not None:
                self.seconds.append(seconds)
            return self.counts["succeeded"] + self.counts["lost"]


def play(open_session: Callable[[], SyncInterpreter], name: str, calls: int, tally: Tally, on_call: Any) -> None:
    """Make the calls of one client."""
    python, length, server = open_session(), 0, "first"
    for number in range(calls):
        begun = time.perf_counter()
        try:
            value = python.run(f"done.append('{name}-{number}'); len(done)", timeout=60).value
        except SessionLost:
            on_call(tally.note("lost"))
            python, length, server = open_session(), 0, "second"
            continue
        length += 1
        tally.note(f"succeeded on the {server} server")
        tally.note("wrong" if value != str(length) else "right")
        on_call(tally.note("succeeded", time.perf_counter() - begun))
    names = python.run("len(done) == len(set(done))").value
    tally.note("ends with every call once" if names == "True" else "ends with a call twice")
    python.close()


def milliseconds(seconds: list[float]) -> dict[str, float]:
    """Return median and 95th percentile."""
    ordered = sorted(seconds)
    return {
        "p50_ms": round(1000 * statistics.median(ordered), 2),
        "p95_ms": round(1000 * ordered[int(0.95 * len(ordered))], 2),
    }


def post(url: str, token: str = "", **fields: Any) -> int:
    """Return the status of a POST."""
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
    request = urllib.request.Request(url, json.dumps(fields).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def try_access(url: str, tokens: list[str]) -> dict[str, int]:
    """Return the statuses of requests that must be refused, and of one that must not."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {tokens[0]}"}
    request = urllib.request.Request(f"{url}/v1/sessions", b"{}", headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        path = f"{url}/v1/sessions/{json.load(answer)['session']}"
    return {
        "open without a token": post(f"{url}/v1/sessions"),
        "open with a wrong token": post(f"{url}/v1/sessions", "x" * 32),
        "run_code without a token": post(f"{url}/run_code", code="1"),
        "run in a session without a token": post(f"{path}/run", code="1"),
        "run in another client's session": post(f"{path}/run", tokens[1], code="1"),
        "fork another client's session": post(f"{path}/fork", tokens[1]),
        "close another client's session": post(f"{path}/close", tokens[1]),
        "run in the own session": post(f"{path}/run", tokens[0], code="1"),
    }


def crowd(sandboxes: list[Sandbox], calls: int, tally: Tally, on_call: Any) -> float:
    """Let all clients play; returns the seconds."""
    each = -(-calls // len(sandboxes))
    begun = time.perf_counter()
    with ThreadPoolExecutor(len(sandboxes)) as threads:
        played = [
            threads.submit(play, partial(one.interpreter_sync, SETUP), f"c{number}", each, tally, on_call)
            for number, one in enumerate(sandboxes)
        ]
        for one in played:
            one.result()
    return time.perf_counter() - begun


def without_http(backend: str, clients: int, calls: int) -> dict[str, float]:
    """Measure the same calls in a sandbox of this process."""
    tally = Tally()
    with Sandbox.open_sync(backend, containers=2) as sandbox:
        seconds = crowd([sandbox] * clients, calls, tally, lambda _: None)
    return {**milliseconds(tally.seconds), "calls_per_second": round(len(tally.seconds) / seconds)}


def with_http(server: Server, tokens: list[str], calls: int) -> dict[str, Any]:
    """Measure calls, kill the server in the middle, and start it again."""
    tally, killed = Tally(), threading.Event()
    before: dict[str, Any] = {}

    def kill_once(count: int) -> None:
        if count < 0.4 * calls or killed.is_set():
            return
        with tally.lock:
            if killed.is_set():
                return
            killed.set()
            before.update(milliseconds(tally.seconds), calls_per_second=round(count / (time.perf_counter() - begun)))
            server.process.send_signal(signal.SIGKILL)
            server.process.wait()
        threading.Thread(target=server.start).start()

    sandboxes = [Sandbox(server.url, token=token) for token in tokens]
    begun = time.perf_counter()
    seconds = crowd(sandboxes, calls, tally, kill_once)
    after = server.runs()
    for sandbox in sandboxes:
        sandbox.close_sync()
    counts = {name: count for name, count in tally.counts.items() if name != "right"}
    result = {**counts, "wrong": tally.counts["wrong"], "seconds": round(seconds, 1), "before the kill": before}
    # the second server has run, besides the calls, a setup for each session and the last look of each client
    after -= tally.counts["lost"] + len(tokens)
    return {**result, "calls that the second server has run": after}


def main() -> None:
    """Measure, print, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--backend", default="docker")
    arguments = parser.parse_args()
    tokens = [secrets.token_hex(16) for _ in range(arguments.clients)]
    with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
        clients = Path(folder, "clients")
        clients.touch(0o600)
        clients.write_text("".join(f"c{number} {token} 2\n" for number, token in enumerate(tokens)))
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        server = Server(port, clients, arguments.backend, Path(folder, "log"))
        try:
            http = with_http(server, tokens, arguments.calls)
            access = try_access(server.url, tokens)
        finally:
            server.process.send_signal(signal.SIGINT)
            server.process.wait(60)
    direct = without_http(arguments.backend, arguments.clients, arguments.calls)
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    load = round(os.getloadavg()[0], 1)
    setting = {"clients": arguments.clients, "calls": arguments.calls, "backend": arguments.backend}
    result = {"machine": machine, "load": load, **setting, "http": http, "direct": direct, "access": access}
    print(json.dumps(result, indent=1))
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
