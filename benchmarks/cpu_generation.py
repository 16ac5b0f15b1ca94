"""Tokens per CPU second: our backends beside transformers' `generate`, which TRL's trainer calls.

    scripts/install_vllm.sh         # vLLM's build for CPUs, in .venv-vllm
    python -m benchmarks.cpu_generation [--model qwen2.5-coder-0.5b] [--rows 8 32 64] [--rounds 1] [--against FOLDER]

On one thread. Each row plays three turns of 24 tokens with a tool result of 20 tokens after the first two, from a
prompt of 200 tokens that groups of eight share: 312 tokens at its end. Weights are in float32, and a model computes in
float32, or in bfloat16 as under the trainer's `bf16` (autocast). `generate` gets the whole context again at each turn,
as in TRL's loop of tools, and casts the weights again for each token. Nothing ends early, which is the best case for
`generate`. vLLM keeps its weights in bfloat16 for the last side.

FOLDER is another checkout of this project, whose backend is measured, too. Each number is from a process of its own;
the sides take turns. Prints medians of the rounds, and writes them to benchmarks/results/cpu_generation.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
RESULTS = HERE.parent / "results" / "cpu_generation.json"
PROMPT, RESULT, TURN, TURNS, GROUP = 200, 20, 24, 3, 8
VLLM = HERE.parents[1] / ".venv-vllm" / "bin" / "python"
SIDES = ("generate float32", "generate bf16", "ours float32", "ours bf16", "vllm float32", "vllm bf16")


def contexts(tokenizer: Any, rows: int) -> list[list[int]]:
    """Return the prompts' ids; rows of a group have the same."""
    ids = tokenizer((HERE.parents[1] / "docs/architecture.md").read_text(encoding="utf-8"))["input_ids"]
    return [ids[row // GROUP * 10 :][:PROMPT] for row in range(rows)]


def generate(model: Any, rows: list[list[int]], result: list[int]) -> None:
    """Play all rows with transformers' `generate`."""
    import torch
    from transformers import GenerationConfig

    config = GenerationConfig(do_sample=True, top_k=0, max_new_tokens=TURN, min_new_tokens=TURN, pad_token_id=0)
    config.eos_token_id = model.generation_config.eos_token_id
    model.generation_config = GenerationConfig()
    for turn in range(TURNS):
        ids = torch.tensor(rows)
        made = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config)
        rows = [row + (result if turn + 1 < TURNS else []) for row in made.tolist()]


async def play(backend: Any, rows: list[list[int]], result: list[int]) -> None:
    """Play all rows with one of our backends."""
    from arpo_trainer.backends.base import Request

    async def trajectory(number: int, context: list[int]) -> None:
        for turn in range(TURNS):
            request = Request(tuple(context), TURN, ("</python>", "</answer>"), seed=number * TURNS + turn)
            context = context + (await backend.generate(request)).ids + result

    await backend.begin()
    await asyncio.gather(*(trajectory(number, context) for number, context in enumerate(rows)))
    await backend.end()


def measure(side: str, name: str, count: int) -> float:
    """Return tokens per CPU second of this process."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from arpo_trainer.backends import TransformersBackend
    from arpo_trainer.models import resolve_model

    torch.set_num_threads(1)
    path = resolve_model(name)
    tokenizer = AutoTokenizer.from_pretrained(path)
    rows, result = contexts(tokenizer, count), tokenizer(" 42" * RESULT)["input_ids"][:RESULT]
    if "vllm" in side:
        backend, model = vllm_backend(path, side, count), None
    else:
        model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        if "bf16" in side:  # as accelerate does
            model.forward = torch.autocast("cpu", torch.bfloat16)(model.forward)
        backend = TransformersBackend(model, tokenizer, max_rows=count, eos_token_ids={-1})
    begun = time.process_time()
    if "generate" in side:
        generate(model, rows, result)
    else:
        asyncio.run(play(backend, rows, result))
    return count * TURNS * TURN / (time.process_time() - begun)


def vllm_backend(path: str, side: str, count: int) -> Any:
    """Return a backend with an engine in this process, so that its CPU time is counted."""
    from vllm import LLM

    from arpo_trainer.backends import VLLMEngineBackend

    dtype, length = "bfloat16" if "bf16" in side else "float32", PROMPT + TURNS * (TURN + RESULT)
    limits = {"max_model_len": length, "max_num_seqs": count, "gpu_memory_utilization": 0.1}
    limits |= {"max_num_batched_tokens": count * length}  # on a CPU it cannot seed rows whose prompt it reads in parts
    llm = LLM(path, dtype=dtype, logprobs_mode="processed_logprobs", max_logprobs=20, enforce_eager=True, **limits)
    unused = llm.llm_engine.model_config.get_vocab_size() - 1  # a row that no text has; vLLM takes no -1
    return VLLMEngineBackend(llm, eos_token_ids={unused})


def compare(model: str, rows: int, rounds: int, sides: dict[str, Path]) -> dict[str, float]:
    """Return the median tokens per CPU second of all sides."""
    found: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(rounds):
        for side, tree in sides.items():
            environment = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
            environment |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1"}
            command = [
                str(VLLM) if "vllm" in side else sys.executable,
                "-P",
                str(HERE),
                "--worker",
                side,
                "--model",
                model,
                "--rows",
                str(rows),
            ]
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
            found[side].append(float(done.stdout.split()[-1]))
            print(f"{rows:>4} rows  {side:<20}{found[side][-1]:>8.1f}", flush=True)
    return {side: round(statistics.median(speeds), 1) for side, speeds in found.items()}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="qwen2.5-coder-0.5b")
    parser.add_argument("--rows", type=int, nargs="+", default=[8, 32, 64])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES if VLLM.exists() else SIDES[:4]))
    parser.add_argument("--against", type=Path, help="another checkout of this project")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        print(measure(arguments.worker, arguments.model, arguments.rows[0]))
        return
    sides = dict.fromkeys(arguments.sides, HERE.parents[1])
    if arguments.against:
        sides |= {f"{side}, before": arguments.against.resolve() for side in sides if "generate" not in side}
    speeds = {}
    for rows in arguments.rows:
        speeds[str(rows)] = compare(arguments.model, rows, arguments.rounds, sides)
        store(arguments.model, arguments.rounds, speeds)
    for side in sides:
        print(f"{side:<24}" + "".join(f"{one[side]:>8.1f}" for one in speeds.values()))


def store(model: str, rounds: int, speeds: dict[str, dict[str, float]]) -> None:
    """Write what was measured; what is there of other rows and sides stays if all else is the same."""
    import torch

    kept = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {}
    bf16 = torch.cpu._is_avx512_bf16_supported()
    cpu = torch.backends.cpu.get_cpu_capability() + (" with bfloat16" if bf16 else "")
    facts = {"rounds": rounds, "torch": version("torch"), "cpu": cpu}
    earlier = kept.get(model, {})
    found = earlier["tokens per CPU second"] if all(earlier.get(key) == value for key, value in facts.items()) else {}
    found = {rows: found.get(rows, {}) | speeds.get(rows, {}) for rows in sorted({*found, *speeds}, key=int)}
    kept[model] = {**facts, "tokens per CPU second": found}
    RESULTS.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
