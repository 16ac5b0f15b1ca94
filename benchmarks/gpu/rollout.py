"""Rollouts of a real model's size on a GPU, with the transformers backend: tokens a second, and how idle the GPU is.

16 prompts x 8 trajectories. The model computes every token; a script says how long turns are and what they call
(`rollout_script.py`), with tools that take their time. "ours" plays ARPO, "barrier" is the engine of rounds with the
published rule. Reported: wall time, tokens/s over it, the share of it in which the backend had nothing to do ("idle"),
the mean of what NVML says every 0.1 s ("gpu_idle"; needs pynvml), and the peak of memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import threading
import time
from collections.abc import Iterator
from typing import Any

import torch

from arpo_env import ToolEnv
from arpo_trainer.backends import TransformersBackend
from arpo_trainer.rollout.engine import Engine
from arpo_trainer.rollout.settings import RolloutSettings
from benchmarks.barrier import BarrierEngine
from benchmarks.gpu.policy import make_model
from benchmarks.rollout_script import Script, ScriptedBackend
from benchmarks.rollout_world import Delays, fixed_tools, small_tokenizer

ENGINES = {"ours": (Engine, "arpo"), "barrier": (BarrierEngine, "arpo-reference")}
EVERY = 0.1  # seconds between two looks at the GPU
SPEED = 2.0  # the tools' seconds are divided by it, so that both engines fit into the part's ten minutes


def measure(shape: str, tiny: bool) -> dict[str, Any]:
    """Return the numbers of both engines for a model of this shape."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model, tokenizer = make_model("tiny" if tiny else shape, device), small_tokenizer()
    size, speed = ((2, 4), 20.0) if tiny else ((16, 8), SPEED)
    return {"speed": speed} | {engine: rollout(model, tokenizer, engine, 0, size, speed) for engine in ENGINES}


@contextlib.contextmanager
def watching() -> Iterator[list[float]]:
    """Collect the GPU's utilisation, 0 to 1, while the block runs; stays empty where NVML cannot be asked."""
    seen: list[float] = []
    done = threading.Event()

    def look() -> None:
        while not done.wait(EVERY):
            try:
                seen.append(torch.cuda.utilization() / 100)
            except (ModuleNotFoundError, RuntimeError, AssertionError):  # no pynvml, or no GPU
                return

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        done.set()
        thread.join()


def rollout(
    model: Any, tokenizer: Any, engine: str, seed: int, size: tuple[int, int], speed: float
) -> dict[str, float]:
    """Collect all trajectories once and say how it went."""
    prompts, generations = size
    maker: Any
    maker, algorithm = ENGINES[engine]
    delays = Delays(seed, speed)
    env = ToolEnv("arpo/MultiHop-v0", tools=[lambda: fixed_tools(delays)])
    inner = TransformersBackend(
        model, tokenizer, max_rows=prompts * generations, prefix_tokens=600_000, eos_token_ids={-1}
    )
    backend = ScriptedBackend(inner, Script(tokenizer))
    settings = RolloutSettings(
        algorithm=algorithm,
        num_generations=generations,
        initial_rollouts=generations // 2,
        max_turn_length=600,
        max_completion_length=6000,
        max_invalid=1.0,
        seed=seed,
    )
    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    tasks = [env.tasks.task(number) for number in range(prompts)]
    started = time.perf_counter()
    with watching() as used:
        trees = asyncio.run(maker(backend, tokenizer, env, settings).rollout(tasks))
    wall, busy = time.perf_counter() - started, backend.time.seconds
    numbers = {
        "wall": wall,
        "idle": 1 - busy / wall,
        "tokens": backend.tokens,
        "tokens_per_second": backend.tokens / wall,
        "tokens_per_busy_second": backend.tokens / busy,
        "trajectories": sum(len(tree.trajectories) for tree in trees),
        "failed": sum(not trajectory.valid for tree in trees for trajectory in tree.trajectories),
        "calls": delays.calls,
    }
    if used:
        numbers["gpu_idle"] = 1 - statistics.fmean(used)
    if cuda:
        numbers["peak_gb"] = torch.cuda.max_memory_allocated() / 1e9
    return numbers
