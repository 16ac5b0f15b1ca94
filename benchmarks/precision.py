"""What float32 instead of bfloat16, and decoding without copies of keys and values, save on this CPU.

    python -m benchmarks.precision [--rows 32] [--rounds 3] [--demonstrations 2]

SmolLM2-135M-Instruct on one thread, CPU seconds of this process. One token for all rows of the transformers backend's
cache, each with about 220 tokens before it: computed in bfloat16 (autocast over float32 weights, which are cast once,
as in a rollout) and in float32, each with keys and values copied for the heads that share them, and without. And one
optimizer step of the cold start, packed, in both precisions; the first one is left out. Prints medians of interleaved
rounds, and writes them to benchmarks/results/precision.json. Needs `make model`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from transformers import AutoModelForCausalLM, TrainerCallback

from arpo_trainer.backends import kv_cache
from arpo_trainer.backends.kv_cache import accept_single_queries
from arpo_trainer.models import get_model
from arpo_trainer.run.sft_run import cold_start
from arpo_trainer.sft.trace_data import IGNORED
from arpo_trainer.training.recorder import versions

TOKENS = 220
STEPS = 4  # tokens that a reading is the mean of
PROMPT, OWN = 48, 85  # of a demonstration: tokens that all share, and its own
RESULTS = Path(__file__).parent / "results"


def load() -> Any:
    return AutoModelForCausalLM.from_pretrained(get_model(), dtype=torch.float32)


@contextlib.contextmanager
def precision(bf16: bool) -> Iterator[None]:
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16), torch.no_grad():
        yield


def decode(model: Any, rows: int, bf16: bool, copies: bool) -> float:
    """Return the CPU milliseconds of one token for all rows."""
    cache = kv_cache.SlotCache()
    config = model.config
    heads, size = config.num_key_value_heads, config.hidden_size // config.num_attention_heads
    dtype = torch.bfloat16 if bf16 else torch.float32
    for row in range(rows):
        shape = (heads, TOKENS - 4 * (row % 7), size)
        states = [(torch.randn(shape, dtype=dtype), torch.randn(shape, dtype=dtype))] * config.num_hidden_layers
        cache.join(states, TOKENS + STEPS)
    mark = (lambda mask: mask) if copies else kv_cache.single_query_mask
    with mock.patch.object(kv_cache, "single_query_mask", mark), precision(bf16):
        _token(model, cache)
        started = time.process_time()
        for _ in range(STEPS):
            _token(model, cache)
        return (time.process_time() - started) / STEPS * 1000


def _token(model: Any, cache: Any) -> None:
    new = [1] * cache.rows
    position, mask = cache.prepare(0, new, model.device)
    ids = torch.randint(5, 1000, (cache.rows, 1))
    model(input_ids=ids, position_ids=position, attention_mask=mask, past_key_values=cache, logits_to_keep=1)
    cache.advance(0, new)


class CpuSeconds(TrainerCallback):  # type: ignore[misc]  # transformers is untyped
    """Measures each optimizer step."""

    def __init__(self) -> None:
        self.steps: list[float] = []

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begin a reading."""
        self.started = time.process_time()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Keep the reading."""
        self.steps.append(time.process_time() - self.started)


def train(count: int, bf16: bool) -> float:
    """Return the CPU seconds of a step of the cold start on `count` demonstrations."""
    rng = torch.Generator().manual_seed(0)
    prompt = list(range(100, 100 + PROMPT))
    examples = []
    for _ in range(2 * count):
        own = torch.randint(5, 40_000, (OWN,), generator=rng).tolist()
        labels = [IGNORED] * (PROMPT + OWN // 2) + own[OWN // 2 :]
        examples.append({"input_ids": [*prompt, *own], "labels": labels})
    watch = CpuSeconds()
    with tempfile.TemporaryDirectory() as folder:
        cold_start(load(), None, examples, folder, epochs=1, batch_size=count, bf16=bf16, callbacks=[watch])
    return watch.steps[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--demonstrations", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    accept_single_queries()
    model = load().eval()
    kinds = {
        f"{name}, {how}": (bf16, copies)
        for name, bf16 in (("bfloat16", True), ("float32", False))
        for how, copies in (("keys copied", True), ("no copies", False))
    }
    readings: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(arguments.rounds):
        for name, options in kinds.items():
            readings[name].append(decode(model, arguments.rows, *options))
    steps = {name: train(arguments.demonstrations, name == "bfloat16") for name in ("bfloat16", "float32")}
    medians = {name: statistics.median(values) for name, values in readings.items()}
    for name, value in medians.items():
        print(f"a token of {arguments.rows} rows, {name:<24} {value:8.0f} CPU ms")
    for name, value in steps.items():
        print(f"a step on {arguments.demonstrations} demonstrations, {name:<18} {value:8.1f} CPU s")
    facts = {
        "rows": arguments.rows,
        "rounds": arguments.rounds,
        "demonstrations": arguments.demonstrations,
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "versions": versions(),
        "ms_token": readings,
        "seconds_step": steps,
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "precision.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
