"""What the adapters for other frameworks cost per turn, beside the environment itself, in one run.

    python benchmarks/adapters.py [--peers trl openenv ...] [--episodes 40] [--rounds 5]

The scripted policy of the contract tests plays Arithmetic episodes, two or three turns each, with real Python calls:
through the environment itself ("native"), and through the framework's own loop. Each framework runs in its own
environment (`make adapters` makes them; those that are missing are named and left out), in one process, where both
ways take turns. CPU seconds are those of the process and its children, without the containers; where the framework
talks to a model's server, the server of the script is in them. Medians over the rounds are printed and written to
benchmarks/results/adapters.json, beside those of other frameworks from before.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "adapters.json"
sys.path[:] = [path for path in sys.path if Path(path).resolve() != Path(__file__).parent]  # this file hides a package
sys.path.insert(0, str(ROOT))
# name of the tests' module -> the environment it runs in
PEERS = {
    "chat_episode": ".venv",
    "play": ".venv",
    "trl": ".venv",
    "mcp": ".venv",
    "gem": ".venv-peers/skyrl_gym",
    **{path.stem: f".venv-peers/{path.stem}" for path in sorted((ROOT / "tests/adapters/requirements").glob("*.txt"))},
}


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of its children that have ended."""
    uses = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(use.ru_utime + use.ru_stime for use in uses)


def timed(play: Callable[[], Any]) -> dict[str, float]:
    """Return the wall and CPU seconds of a call."""
    wall, cpu = time.perf_counter(), cpu_seconds()
    play()
    return {"wall": time.perf_counter() - wall, "cpu": cpu_seconds() - cpu}


def measure(peer: str, episodes: int, rounds: int) -> dict[str, Any]:
    """Measure one framework in this process, which has it installed."""
    from arpo_env import EnvFactory
    from tests.adapters.scripts import Script, native_rewards, turns_of

    module = importlib.import_module(f"tests.adapters.test_{peer}")
    protocol = getattr(module, "BENCHMARK_PROTOCOL", "arpo-tags")
    script = Script(EnvFactory("arpo/Arithmetic-v0", level=2, protocol=protocol), episodes)
    expected = native_rewards(script)
    ways: dict[str, Callable[[], Any]] = {
        "native": lambda: native_rewards(script),
        "adapter": lambda: module.play_for_benchmark(script, episodes),
    }
    # TRL plays half of the tasks, each twice
    assert set(ways["adapter"]()) <= set(expected), f"{peer}: other rewards than the environment's"
    found: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    for number in range(rounds):
        for way in list(ways)[:: 1 if number % 2 else -1]:
            found[way].append(timed(ways[way]))
    turns = turns_of(script)
    medians = {
        way: {kind: 1000 * statistics.median(each[kind] for each in runs) / turns for kind in ("wall", "cpu")}
        for way, runs in found.items()
    }
    return {"turns": turns, "ms_per_turn": medians}


def main() -> None:
    """Measure all frameworks, each in a process of its own environment."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", nargs="+", default=list(PEERS), choices=list(PEERS))
    parser.add_argument("--episodes", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(given.peers[0], given.episodes, given.rounds)))
        return
    rows: dict[str, Any] = json.loads(RESULTS.read_text())["peers"] if RESULTS.exists() else {}
    print(f"{'ms a turn':14}" + "".join(f"{way:>20}" for way in ("native", "adapter")))
    print(" " * 14 + f"{'wall':>10}{'CPU':>10}" * 2)
    for peer in given.peers:
        python = ROOT / PEERS[peer] / "bin" / "python"
        if not python.exists() or not (ROOT / f"tests/adapters/test_{peer}.py").exists():
            print(f"{peer:14}left out: there is no {python.relative_to(ROOT)}; run: make adapters PEERS={peer}")
            continue
        command = [str(python), __file__, "--one", "--peers", peer]
        command += ["--episodes", str(given.episodes), "--rounds", str(given.rounds)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
        if done.returncode:
            print(f"{peer:14}failed:\n{done.stderr[-2000:]}")
            continue
        rows[peer] = json.loads(done.stdout.splitlines()[-1])
        ways = rows[peer]["ms_per_turn"]
        cells = [ways[way][kind] for way in ("native", "adapter") for kind in ("wall", "cpu")]
        print(f"{peer:14}" + "".join(f"{cell:10.2f}" for cell in cells), flush=True)
    facts = {"python": platform.python_version(), "cores": os.cpu_count(), "sandbox": os.environ.get("ARPO_SANDBOX")}
    facts |= {"episodes": given.episodes, "rounds": given.rounds}
    RESULTS.write_text(json.dumps({"facts": facts, "peers": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
