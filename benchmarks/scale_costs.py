"""CPU seconds that `scale.py` charges to workers and to the driver, measured on this machine with the library's code.

    python -m benchmarks.scale_costs

turn      engine, environment, parsing and tokenising, for a turn of a deep search (real lengths, a scripted policy)
token     reading a token with 20 log-probabilities from a vLLM server's stream, `VLLMServerBackend` and HTTP included
tree      bytes of a pickled tree per token; seconds to pickle and unpickle; memory of the tree, all per token
ray       a call of an actor that returns nothing, and one that returns a tree: the driver's CPU and the actor's
dispatch  `JobDispatch` for a job, with so many under way

Prints JSON. Ray is started on this machine and ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from arpo_env import ToolEnv
from arpo_trainer.backends import VLLMServerBackend
from arpo_trainer.backends.base import Request
from arpo_trainer.ray_rollouts.rollout_workers import JobDispatch
from arpo_trainer.rollout.engine import Engine, RolloutSettings
from arpo_trainer.tree import RolloutTree
from benchmarks.rollout_script import Script, SimulatedBackend
from benchmarks.rollout_world import Delays, fixed_tools, small_tokenizer
from benchmarks.virtual_time import run_virtual

EVENT_TOKENS, TOP = 32, 20


def played_trees(prompts: int = 6) -> tuple[list[RolloutTree], float]:
    """Return trees of a deep search with 8 trajectories, of some 10 turns, and the CPU seconds that they took."""
    tokenizer, delays = small_tokenizer(), Delays(0)
    env = ToolEnv("arpo/Arithmetic-v0", tools=[lambda: fixed_tools(delays)], max_turns=12, max_tool_calls=10)
    backend = SimulatedBackend(Script(tokenizer, 10, 200, 1000, longest=4000), max_rows=10_000)
    settings = RolloutSettings(
        num_generations=8, initial_rollouts=4, max_turn_length=4000, max_completion_length=16384, max_invalid=1.0
    )
    engine = Engine(backend, tokenizer, env, settings)
    tasks = [env.tasks.task(number) for number in range(prompts)]

    async def play() -> tuple[list[RolloutTree], float]:
        await engine.rollout(tasks[:1])  # imports and caches
        began = time.process_time()
        return await engine.rollout(tasks), time.process_time() - began

    return run_virtual(play())


def tree_costs() -> tuple[dict[str, float], RolloutTree]:
    """Return the costs of turns and trees, and a tree."""
    trees, seconds = played_trees()
    turns = sum(span.kind == "model" for tree in trees for span in tree.spans)
    tokens = sum(len(span.ids) for tree in trees for span in tree.spans)
    began = time.process_time()
    pickled = [pickle.dumps(tree, 5) for tree in trees]
    pickling = time.process_time() - began
    tracemalloc.start()
    kept = [pickle.loads(one) for one in pickled]
    memory = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    began = time.process_time()
    for one in pickled:
        pickle.loads(one)
    unpickling = time.process_time() - began
    return {
        "turn_seconds": seconds / turns,
        "tree_bytes_a_token": sum(map(len, pickled)) / tokens,
        "pickle_seconds_a_token": pickling / tokens,
        "unpickle_seconds_a_token": unpickling / tokens,
        "memory_bytes_a_token": memory / tokens,
        "tokens_a_tree": tokens / len(trees),
    }, kept[0]


# a server that streams as vLLM does; it runs in a process of its own


def _events(tokens: int) -> Iterator[bytes]:
    for start in range(0, tokens, EVENT_TOKENS):
        number = min(EVENT_TOKENS, tokens - start)
        names = [f"token_id:{start + place}" for place in range(number)]
        top = [{name: -0.7, **{f"token_id:{50_000 + k}": -1.234567 - k for k in range(TOP - 1)}} for name in names]
        logprobs = {
            "tokens": names,
            "token_logprobs": [-0.7] * number,
            "top_logprobs": top,
            "text_offset": [0] * number,
        }
        finish = "length" if start + number >= tokens else None
        choice = {"index": 0, "text": "word " * number, "logprobs": logprobs, "finish_reason": finish}
        yield b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"
    yield b"data: [DONE]\n\n"


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(asyncio.IncompleteReadError):  # the client has gone
        while True:
            await _reply(reader, writer)


async def _reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int((head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]) or 0)
    body = json.loads(await reader.readexactly(length) or b"{}")
    if not body:
        parts, kind = [json.dumps({"data": [{"id": "m"}]}).encode()], b"application/json"
    else:
        parts, kind = list(_events(body["max_tokens"])), b"text/event-stream"
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: " + kind + b"\r\nTransfer-Encoding: chunked\r\n\r\n")
    for part in parts:
        writer.write(b"%x\r\n%b\r\n" % (len(part), part))
        await writer.drain()
    writer.write(b"0\r\n\r\n")


async def _serve() -> None:
    server = await asyncio.start_server(_answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def _stream(port: int, requests: int, tokens: int) -> tuple[float, float]:
    """Return the CPU seconds of a request, and of a token."""
    backend = VLLMServerBackend([f"http://127.0.0.1:{port}"], tokenizer=small_tokenizer())
    spent = []
    for length in (1, tokens):
        await backend.generate(Request(tuple(range(4000)), length))
        began = time.process_time()
        for _ in range(requests):
            await backend.generate(Request(tuple(range(4000)), length))
        spent.append((time.process_time() - began) / requests)
    await backend.end()
    return spent[0], (spent[1] - spent[0]) / (tokens - 1)


def stream_costs(requests: int = 20, tokens: int = 512) -> dict[str, float]:
    """Measure reading a stream."""
    command, here = [sys.executable, "-m", "benchmarks.scale_costs", "--serve"], Path(__file__).resolve().parents[1]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=here) as server:
        try:
            assert server.stdout is not None  # it is a pipe
            request, token = asyncio.run(_stream(int(server.stdout.readline()), requests, tokens))
        finally:
            server.kill()
    return {"request_seconds": request, "token_seconds": token}


class TreeActor:
    """An actor that returns a tree."""

    def __init__(self, tree: Any) -> None:
        self.tree = tree

    def give(self, whole: bool) -> Any:
        """Return the tree, or nothing."""
        return self.tree if whole else None

    def spent(self) -> float:
        """Return the CPU seconds of this process."""
        return time.process_time()


def ray_costs(tree: RolloutTree, calls: int = 150) -> dict[str, float]:
    """Measure calls of an actor; the driver's seconds include unpickling, the actor's include pickling."""
    import ray

    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp", ignore_cleanup_errors=True) as folder:  # a short path
        ray.init(num_cpus=1, include_dashboard=False, object_store_memory=100_000_000, _temp_dir=folder)
        try:
            return {"ray_tree_bytes": len(pickle.dumps(tree, 5)), **_call_costs(ray, tree, calls)}
        finally:
            ray.shutdown()


def _call_costs(ray: Any, tree: RolloutTree, calls: int) -> dict[str, float]:
    actor, found = ray.remote(TreeActor).remote(tree), dict[str, float]()
    for name, whole in (("call", False), ("tree", True)):
        ray.get([actor.give.remote(whole) for _ in range(5)])
        began, there = time.process_time(), ray.get(actor.spent.remote())
        for _ in range(calls):
            ray.get(actor.give.remote(whole))
        found[f"ray_{name}_driver_seconds"] = (time.process_time() - began) / calls
        found[f"ray_{name}_actor_seconds"] = (ray.get(actor.spent.remote()) - there) / calls
    return found


class _Place:
    """A worker of the dispatch."""

    def __init__(self, number: int) -> None:
        self.name = str(number)


async def _dispatched(workers: int, jobs: int) -> float:
    waiting: list[asyncio.Future[int]] = []

    async def work(_: _Place, job: int) -> int:
        waiting.append(asyncio.get_running_loop().create_future())
        return await waiting[-1]

    async def finish() -> None:
        for _ in range(jobs):
            while not waiting:
                await asyncio.sleep(0)
            waiting.pop(0).set_result(0)
            for _ in range(6):  # let the dispatch see each one alone
                await asyncio.sleep(0)

    async def none(_: _Place) -> None:
        return None

    dispatch: JobDispatch[_Place, int] = JobDispatch(jobs, 1, work, none, lambda job, result: None)
    began, finishing = time.process_time(), asyncio.ensure_future(finish())
    await dispatch.run([_Place(number) for number in range(workers)])
    await finishing
    return (time.process_time() - began) / jobs


def dispatch_costs(workers: tuple[int, ...] = (8, 32, 128, 512, 1024)) -> dict[str, float]:
    """Measure the dispatch with so many groups under way."""
    return {str(number): asyncio.run(_dispatched(number, 2 * number + 100)) for number in workers}


def measured_costs() -> dict[str, Any]:
    """Measure everything."""
    trees, tree = tree_costs()
    return {**trees, **stream_costs(), **ray_costs(tree), "dispatch_seconds": dispatch_costs(), "cores": os.cpu_count()}


if __name__ == "__main__":
    if "--serve" in sys.argv:
        asyncio.run(_serve())
    else:
        print(json.dumps(measured_costs(), indent=1))
