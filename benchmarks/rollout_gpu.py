"""Rollouts of a real model's size on a GPU, with the transformers backend: tokens a second, and how idle the GPU is.

    python benchmarks/rollout_gpu.py [--shape 0.5b] [--shape 1.5b] [--engine ours] [--engine barrier] [--rounds 1]
    python benchmarks/rollout_gpu.py --tiny            # tries it out on a CPU, writes nothing

The models have the shapes of Qwen2 and random weights; nothing is downloaded. 16 prompts x 8 trajectories; the model
computes every token, and a script says how long turns are and what they call (rollout_script.py), with tools that take
their time. Ours plays ARPO, the engine of rounds the published rule. Reported: wall time, tokens/s over it, the share
of it in which the backend had nothing to do ("idle"), the mean of what NVML says every 0.1 s ("gpu_idle"; needs
pynvml), and the peak of memory. Writes benchmarks/results/rollout_gpu.json.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.remove(str(Path(__file__).resolve().parent))  # or its sandbox.py would pass for the package
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from arpo_env import ToolEnv
from arpo_trainer.backends import TransformersBackend
from arpo_trainer.engine import Engine
from arpo_trainer.recording import versions
from arpo_trainer.settings import RolloutSettings
from benchmarks.barrier import BarrierEngine
from benchmarks.rollout_script import Script, ScriptedBackend
from benchmarks.rollout_world import Delays, fixed_tools, small_tokenizer

RESULTS = Path(__file__).parent / "results" / "rollout_gpu.json"
SHAPES: dict[str, dict[str, int]] = {
    "0.5b": {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14},
    "1.5b": {"hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12},
    "tiny": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2},
}
ENGINES = {"ours": (Engine, "arpo"), "barrier": (BarrierEngine, "arpo-reference")}
EVERY = 0.1  # seconds between two looks at the GPU


def make_model(shape: str, device: str) -> Any:
    """Return a model of this shape with random weights, in bfloat16 on a GPU."""
    torch.manual_seed(0)
    vocabulary = 50_000 if shape == "tiny" else 151_936
    config = Qwen2Config(
        vocab_size=vocabulary, num_key_value_heads=2, max_position_embeddings=32_768, tie_word_embeddings=True,
        bos_token_id=None, eos_token_id=None, pad_token_id=None, **SHAPES[shape],
    )  # fmt: skip
    config._attn_implementation = "sdpa"
    kind = torch.bfloat16 if device == "cuda" else torch.float32
    with torch.device(device):
        return Qwen2ForCausalLM(config).to(kind).eval()


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


def measure(
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
        algorithm=algorithm, num_generations=generations, initial_rollouts=generations // 2, max_turn_tokens=600,
        max_completion_length=6000, max_invalid=1.0, seed=seed,
    )  # fmt: skip
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", action="append", choices=[name for name in SHAPES if name != "tiny"])
    parser.add_argument("--engine", action="append", choices=list(ENGINES))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--speed", type=float, default=1.0, help="the tools' seconds are divided by it")
    parser.add_argument("--tiny", action="store_true", help="a tiny model, 2 prompts x 4 trajectories, on the CPU too")
    given = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and not given.tiny:
        raise SystemExit("no GPU is to be seen; --tiny runs without one")
    tokenizer, size = small_tokenizer(), (2, 4) if given.tiny else (16, 8)
    found: dict[str, list[dict[str, float]]] = {}
    for shape in ["tiny"] if given.tiny else given.shape or ["0.5b", "1.5b"]:
        model = make_model(shape, device)
        for seed in range(given.rounds):
            for engine in given.engine or ENGINES:
                numbers = measure(model, tokenizer, engine, seed, size, 10.0 if given.tiny else given.speed)
                found.setdefault(f"{shape} {engine}", []).append(numbers)
                shown = "".join(f"  {key} {value:.4g}" for key, value in numbers.items())
                print(f"{shape} {engine:8}round {seed}:{shown}", flush=True)
    if not given.tiny:
        name = torch.cuda.get_device_name()
        facts = {"device": name, "speed": given.speed, "versions": versions(), "runs": found}
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
