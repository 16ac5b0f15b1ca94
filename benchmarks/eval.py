"""What an evaluation costs beside the model: this harness beside inspect_ai's and verifiers', on the same tasks.

    make adapters PEERS="inspect_ai verifiers"     # makes their environments
    python -m benchmarks.eval [--tasks 500] [--rounds 3]

A scripted policy plays Arithmetic episodes of one to six turns with real Python calls, behind an OpenAI-compatible
endpoint in a process of its own, whose answers take as long as those of a real one (log-normal, median 0.6 s, 95 %
below 2.1 s; the same for the same turn in every run). Each harness plays all tasks with 64 episodes at once, in a
process and an environment of its own, and writes its own logs. The peers play the environment through the adapters of
this library, in this process; verifiers' own way would start a program for each episode.

CPU seconds are those of the harness and its children, without endpoint and containers, and without imports. The limit
is the time that the answers themselves take if 64 episodes at once wait for nothing else. Medians over the rounds are
written to benchmarks/results/eval.json.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import heapq
import json
import math
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "eval.json"
PYTHONS = {"arpo": ".venv", "inspect_ai": ".venv-peers/inspect_ai", "verifiers": ".venv-peers/verifiers"}
AT_ONCE, MEDIAN, SPREAD = 64, 0.6, 0.76
OPTIONS = {"level": 2, "split": "test"}


def delay(number: int, turn: int) -> float:
    """Return the seconds that the answer to a turn takes: log-normal, the same in every run."""
    digest = hashlib.sha256(f"{number}/{turn}".encode()).digest()
    one, two = (int.from_bytes(part) / 2**64 for part in (digest[:8], digest[8:16]))
    normal = math.sqrt(-2 * math.log(one + 1e-12)) * math.cos(2 * math.pi * two)
    return MEDIAN * math.exp(SPREAD * normal)


def script(tasks: int) -> Any:
    """Return the scripted policy."""
    from arpo_env import EnvFactory
    from tests.adapters.scripts import Script

    return Script(EnvFactory("arpo/Arithmetic-v0", **OPTIONS), tasks)


# the endpoint


async def serve(tasks: int) -> None:
    """Serve the scripted policy until standard input ends; the port is the first line of the output."""
    policy = script(tasks)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readline():
            length = 0
            while (line := await reader.readline()).strip():
                if line.lower().startswith(b"content-length:"):
                    length = int(line.partition(b":")[2])
            body = await reader.readexactly(length)
            reply = await _reply(policy, json.loads(body)) if head.startswith(b"POST") else {"data": []}
            data = json.dumps(reply).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(data))
            writer.write(data)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await asyncio.to_thread(sys.stdin.read)


async def _reply(policy: Any, request: dict[str, Any]) -> dict[str, Any]:
    messages = request["messages"]
    message = policy.message(messages)
    number = policy.number_of(next(str(m["content"]) for m in messages if m["role"] == "user"))
    await asyncio.sleep(delay(number, sum(m["role"] == "assistant" for m in messages)))
    for stop in request.get("stop") or ():
        message["content"] = message["content"].removesuffix(stop)  # which a server does not send
    usage = {"prompt_tokens": 300, "completion_tokens": 40, "total_tokens": 340}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return {"id": "x", "object": "chat.completion", "created": 0, "model": "stub", "usage": usage, "choices": [choice]}


def limit(tasks: int) -> float:
    """Return the seconds that the answers take by themselves, with 64 episodes at once in the order of the tasks."""
    from tests.adapters.scripts import turns_of

    policy = script(tasks)
    turns = [turns_of_one(policy, number) for number in range(tasks)]
    assert sum(turns) == turns_of(policy)
    free = [0.0] * AT_ONCE
    for number, count in enumerate(turns):
        heapq.heappush(free, heapq.heappop(free) + sum(delay(number, turn) for turn in range(count)))
    return max(free)


def turns_of_one(policy: Any, number: int) -> int:
    """Return how many turns the policy takes for a task."""
    from tests.adapters.scripts import KINDS

    turns = {"right": 2, "state": 3, "wrong": 2, "malformed": 2, "unknown tool": 2}
    return turns.get(KINDS[number % len(KINDS)], policy.factory().budget.turns)


# the harnesses


def play_arpo(tasks: int, url: str, folder: Path) -> list[float]:
    """Play with `arpo eval`."""
    from arpo_trainer.evaluation.eval_session import run_evaluation
    from arpo_trainer.evaluation.eval_settings import EvalModel, EvalSettings

    settings = EvalSettings(("arpo/Arithmetic-v0",), OPTIONS, tasks=tasks, concurrency=AT_ONCE)
    model = EvalModel("stub", "endpoint", "smollm2-135m", (url,), "stub")
    found = run_evaluation(settings, [model], folder / "run")
    return [row.episodes[0].reward or 0.0 for row in found.rows]


def play_inspect_ai(tasks: int, url: str, folder: Path) -> list[float]:
    """Play with inspect's `eval`."""
    from inspect_ai import eval as inspect_eval
    from inspect_ai.model import GenerateConfig, get_model

    from arpo_env.adapters import inspect_ai as adapter

    config = GenerateConfig(max_connections=AT_ONCE)
    model = get_model("openai-api/local/stub", config=config, base_url=url, api_key="none")
    task = adapter.inspect_task(script(tasks).factory, protocol="arpo-tags", limit=tasks)
    [log] = inspect_eval(task, model=model, display="none", log_dir=str(folder), max_samples=AT_ONCE)
    samples = sorted(log.samples or [], key=lambda sample: sample.metadata["number"])
    return [float(sample.scores["reward"].value) for sample in samples]


def play_verifiers(tasks: int, url: str, folder: Path) -> list[float]:
    """Play with verifiers' `vf-eval`."""
    from verifiers.v1.cli.eval.runner import run_eval
    from verifiers.v1.configs.cli.eval import EvalConfig

    settings = {
        "env": {"taskset": {"id": "arpo-gym", "env_id": "arpo/Arithmetic-v0", "options": OPTIONS}},
        "model": "stub",
        "client": {"base_url": url, "api_key_var": "NO_KEY"},
        "select": {"limit": tasks},
        "output_dir": str(folder),
        "push": False,
        "rich": None,
        "max_concurrent": AT_ONCE,
    }
    episodes = asyncio.run(run_eval(EvalConfig.model_validate(settings)))
    return [each.traces[0].reward for each in sorted(episodes, key=lambda each: each.task.data.idx)]


HARNESSES = {"arpo": play_arpo, "inspect_ai": play_inspect_ai, "verifiers": play_verifiers}


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of its children that have ended."""
    uses = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(use.ru_utime + use.ru_stime for use in uses)


def measure(harness: str, tasks: int, url: str) -> dict[str, Any]:
    """Play all tasks once in this process, after a few for the imports."""
    play = HARNESSES[harness]
    with tempfile.TemporaryDirectory() as folder:
        play(4, url, Path(folder) / "warm")
        wall, cpu = time.perf_counter(), cpu_seconds()
        rewards = play(tasks, url, Path(folder) / "run")
        used = {"wall": time.perf_counter() - wall, "cpu": cpu_seconds() - cpu}
    return {**used, "rewards": rewards}


def run_harness(harness: str, tasks: int, url: str) -> dict[str, Any] | None:
    """Measure a harness in its own environment; None where that is missing."""
    python = ROOT / PYTHONS[harness] / "bin" / "python"
    if not python.exists():
        print(f"{harness}: {PYTHONS[harness]} is missing; make adapters PEERS={harness}", file=sys.stderr)
        return None
    command = [str(python), "-m", "benchmarks.eval", "--worker", harness, "--tasks", str(tasks), "--url", url]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, "NO_KEY": "x"})
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    """Measure all harnesses in turn, and write the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--worker", choices=HARNESSES, help=argparse.SUPPRESS)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        asyncio.run(serve(given.tasks))
        return
    if given.worker:
        print(json.dumps(measure(given.worker, given.tasks, given.url)))
        return
    server = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.eval", "--serve", "--tasks", str(given.tasks)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout
    url = f"http://127.0.0.1:{int(server.stdout.readline())}/v1"
    found: dict[str, list[dict[str, Any]]] = {}
    try:
        for number in range(given.rounds):
            for harness in list(HARNESSES)[:: 1 if number % 2 else -1]:
                if one := run_harness(harness, given.tasks, url):
                    found.setdefault(harness, []).append(one)
                    print(f"{harness}: wall {one['wall']:.1f} s, CPU {one['cpu']:.1f} s", flush=True)
    finally:
        server.communicate("")
    rewards = [run["rewards"] for runs in found.values() for run in runs]
    assert all(each == rewards[0] for each in rewards), "the harnesses scored the same episodes differently"
    bound = limit(given.tasks)
    medians = {
        harness: {
            "wall_seconds": round(statistics.median(run["wall"] for run in runs), 2),
            "cpu_ms_per_episode": round(1000 * statistics.median(run["cpu"] for run in runs) / given.tasks, 2),
        }
        for harness, runs in found.items()
    }
    for harness, median in medians.items():
        print(f"{harness}: {median['wall_seconds'] / bound:.3f} of the limit, {median['cpu_ms_per_episode']} CPU ms")
    about = {"tasks": given.tasks, "rounds": given.rounds, "at_once": AT_ONCE, "python": platform.python_version()}
    RESULTS.write_text(json.dumps({**about, "limit_seconds": round(bound, 2), "harnesses": medians}, indent=1) + "\n")


if __name__ == "__main__":
    main()
