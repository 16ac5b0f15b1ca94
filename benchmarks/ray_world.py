"""What `ray_rollouts.py` plays, and where: a policy that sleeps, a tool that remembers its calls, and a small cluster.

Turns and their entropies are functions of the context and the seed, and so are the seconds that an engine takes for
them: trees are equal bit for bit whoever plays them, except for the timeline.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from pathlib import Path
from typing import Any

from arpo_env import Tool, ToolEnv, ToolResult
from arpo_env.tools.tool import function_schema
from arpo_trainer.backends.base import Generation, OnWindow, Request
from arpo_trainer.rollout.settings import RolloutSettings
from arpo_trainer.tree import RolloutTree, Stopwatch


def look(at: str) -> str:
    """Look at something.

    Args:
        at: what.
    """
    raise NotImplementedError(at)


class CountingTool(Tool):
    """A tool whose state is how often it was called."""

    name, schema, repeatable, keeps_time = "look", function_schema(look), True, True

    def __init__(self) -> None:
        self.calls = 0

    async def call(self, **arguments: Any) -> ToolResult:
        """Say how often it was called."""
        self.calls += 1
        return ToolResult(f"{self.calls}: {arguments['at']}")

    async def reset(self, setup: str) -> None:
        """Forget the calls."""
        self.calls = 0

    async def fork(self, n: int) -> list[Tool]:
        """Return copies with the same number of calls."""
        copies = [CountingTool() for _ in range(n)]
        for copy in copies:
            copy.calls = self.calls
        return list(copies)

    async def close(self) -> None:
        """There is nothing to give back."""


class SleepingPolicy:
    """An engine that has `rows` places and takes `seconds` for a turn, half to one and a half times as long.

    Args:
        tokenizer: encodes the turns.
        seconds: of a turn, on average.
        rows: turns at once.
    """

    trains, wants_messages = True, False

    def __init__(self, tokenizer: Any, seconds: float, rows: int = 8) -> None:
        self.tokenizer, self.seconds, self.rows = tokenizer, seconds, rows
        self.time = Stopwatch()

    async def begin(self) -> None:
        """Make the places; they belong to the event loop of the rollout."""
        self._places = asyncio.Semaphore(self.rows)

    async def end(self) -> None:
        """There is nothing to give back."""

    async def generate(self, request: Request, on_window: OnWindow | None = None) -> Generation:
        """Write a call or an answer, as the context and the seed say."""
        rng = random.Random(f"{request.ids[-40:]}/{len(request.ids)}/{request.seed}")
        text = "<think>d</think><answer>\\boxed{3}</answer>"
        if rng.random() < 0.6:
            text = f"<think>c</think><look>{rng.randrange(100)}</look>"
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"][: request.max_tokens]
        entropies = [rng.random() * 3] * len(ids)
        async with self._places:
            with self.time.running():
                await asyncio.sleep(self.seconds * rng.uniform(0.5, 1.5))
        if on_window:
            on_window(entropies[: request.window])
        return Generation(ids, [-0.1] * len(ids), entropies, "stop")


def counting_env() -> ToolEnv:
    """Return an environment with the counting tool."""
    return ToolEnv("arpo/Arithmetic-v0", tools=[CountingTool], max_tool_calls=4, max_turns=6)


def tree_settings(**changes: Any) -> RolloutSettings:
    """Return settings of small trees."""
    return RolloutSettings(**{"num_generations": 4, "initial_rollouts": 2, "max_completion_length": 600, **changes})


def without_times(tree: RolloutTree) -> str:
    """Return a tree as JSON without its timeline and the seconds of its tool calls, which are measured."""
    for span in tree.spans:
        if span.tool:
            span.tool["seconds"] = 0.0
    events, tree.timeline = tree.timeline, []
    try:
        return tree.to_json()
    finally:
        tree.timeline = events


class Nodes:
    """A Ray cluster of raylets on this machine.

    Args:
        cpus: of each node that workers may be on.
        count: number of these nodes; there is one more, the head, without CPUs.
        folder: where Ray keeps its sessions; a short path.
    """

    def __init__(self, cpus: int, count: int = 2, folder: str = "/tmp/arpo-ray") -> None:
        os.environ["RAY_TMPDIR"] = folder  # also of the file with the address, which `ray.init("auto")` reads
        (Path(folder) / "ray").mkdir(parents=True, exist_ok=True)
        from ray.cluster_utils import Cluster

        shared = {"object_store_memory": 100_000_000}
        head = {"num_cpus": 0, "include_dashboard": False, **shared}
        self.cluster = Cluster(initialize_head=True, head_node_args=head)
        self.nodes = [self.cluster.add_node(num_cpus=cpus, **shared) for _ in range(count)]

    @property
    def address(self) -> str:
        """Where the cluster is."""
        return str(self.cluster.address)

    def kill(self, number: int) -> None:
        """Kill a raylet with SIGKILL; its actors end when they notice."""
        raylet = self.nodes[number].all_processes["raylet"][0].process
        os.kill(raylet.pid, signal.SIGKILL)
        raylet.wait()  # as long as it is a zombie, its actors take it for alive

    def close(self) -> None:
        """End the cluster."""
        self.cluster.shutdown()
