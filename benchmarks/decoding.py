"""What a decoding step of the transformers backend costs beside the model, this version beside another one, in one run.

    python -m benchmarks.decoding [--against FOLDER] [--rounds 5] [--rows 64] [--tokens 24]

FOLDER is another checkout of this project (`git worktree add FOLDER COMMIT`). The model has random weights and two
small layers, but SmolLM2's 49,152 tokens: most of a step is sampling and stop strings. Each round measures both
versions, one after the other, each in a new process with one thread:

- ms: CPU milliseconds of the model's thread for one token of all rows, with four stop strings that never come
- ms, ends: of these, those for finding out whether turns are over
- operations, N rows: operations of PyTorch for one token of N rows; on a GPU each launches a kernel or so
- bytes: the most memory that sampling takes beside the logits, for each of them

Medians over the rounds are printed and written to benchmarks/results/decoding.json. Needs `make model`, for the
tokenizer.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
import weakref
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
RESULTS = HERE.parent / "results" / "decoding.json"
STOPS = ("</search>", "</python>", "</answer>", "</tool_call>")


def measure(rows: int, tokens: int) -> dict[str, float]:
    """Measure one round with the `arpo_trainer` that this process imports."""
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    from arpo_trainer.models import get_model

    torch.set_num_threads(1)
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(get_model())
    sizes: dict[str, Any] = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    }
    # so large that few tokens are likely, as with a model that has learned
    config = LlamaConfig(vocab_size=len(tokenizer), num_hidden_layers=2, initializer_range=1.0, **sizes)
    model = LlamaForCausalLM(config).eval()
    found = {name: 1000 * seconds / (tokens - 2) for name, seconds in _seconds(model, tokenizer, rows, tokens).items()}
    for count in (1, 512):
        found[f"operations, {count} rows"], _ = _metered(model, tokenizer, count, "_compute")
    found["bytes"] = _metered(model, tokenizer, rows, "_draw")[1] / (rows * len(tokenizer))
    return found


def _seconds(model: Any, tokenizer: Any, rows: int, tokens: int) -> dict[str, float]:
    """Return the CPU seconds of all steps but the first and the last, and of their search for ends."""
    spent = {"ms": 0.0, "ms, ends": 0.0}

    def timed(name: str) -> Any:
        def around(plain: Any, *given: Any) -> Any:
            begun = time.thread_time()
            made = plain(*given)
            spent[name] += time.thread_time() - begun
            return made

        return around

    around = {"_compute": (1, timed("ms")), "_take": (rows, timed("ms, ends"))}
    _generate(model, tokenizer, rows, tokens, around)
    return spent


def _metered(model: Any, tokenizer: Any, rows: int, method: str) -> tuple[int, int]:
    """Return the number of operations of a step or a draw, and the most bytes of tensors that it has made at once."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    from arpo_trainer.backends import sampling

    sampling._TOGETHER = 2**60  # all rows at once, as on a GPU
    operations = most = now = 0
    there: set[int] = set()

    class Meter(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal operations, now, most
            operations += 1
            made = func(*args, **(kwargs or {}))
            if isinstance(made, torch.Tensor) and made.untyped_storage()._cdata not in there:
                storage = made.untyped_storage()
                there.add(storage._cdata)
                weakref.finalize(storage, gone, storage._cdata, storage.nbytes())
                now += storage.nbytes()
                most = max(most, now)
            return made

    def gone(storage: int, size: int) -> None:
        nonlocal now
        there.discard(storage)
        now -= size

    def metered(step: Any, *given: Any) -> Any:
        with Meter():
            return step(*given)

    _generate(model, tokenizer, rows, 3, {method: (1, metered)})
    return operations, most


def _generate(model: Any, tokenizer: Any, rows: int, tokens: int, around: dict[str, tuple[int, Any]]) -> None:
    """Generate turns of `tokens` tokens, but make some methods' calls of all steps but the first and the last in a way.

    Args:
        model: generates.
        tokenizer: decodes.
        rows: how many turns.
        tokens: how many tokens of each.
        around: method -> (calls in a step, what calls it).
    """
    from arpo_trainer.backends import TransformersBackend
    from arpo_trainer.backends.base import Request

    backend = TransformersBackend(model, tokenizer, max_rows=rows, eos_token_ids={-1})

    def wrap(method: str, calls: int, way: Any) -> None:
        plain, numbers = getattr(backend, method), itertools.count()
        steps = range(calls, calls * (tokens - 1))
        setattr(backend, method, lambda *given: way(plain, *given) if next(numbers) in steps else plain(*given))

    for method, (calls, way) in around.items():
        wrap(method, calls, way)

    async def main() -> None:
        await backend.begin()
        await asyncio.gather(*(backend.generate(Request((5, 6, 7), tokens, STOPS, seed=row)) for row in range(rows)))
        await backend.end()

    asyncio.run(main())


def compare(trees: dict[str, Path], rounds: int, given: list[str]) -> dict[str, dict[str, float]]:
    """Return the medians for each version."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in trees}
    for _ in range(rounds):
        for name, tree in trees.items():
            environment = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
            command = [sys.executable, "-P", str(HERE), "--worker", *given]
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
            found[name].append(json.loads(done.stdout.splitlines()[-1]))
    return {
        name: {key: round(statistics.median(one[key] for one in every), 2) for key in every[0]}
        for name, every in found.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, help="another checkout of this project")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        print(json.dumps(measure(arguments.rows, arguments.tokens)))
        return
    trees = {"now": HERE.parents[1], **({"before": arguments.against.resolve()} if arguments.against else {})}
    table = compare(trees, arguments.rounds, ["--rows", str(arguments.rows), "--tokens", str(arguments.tokens)])
    for key, value in table["now"].items():
        before = table.get("before", {}).get(key)
        print(f"{key:<24}{value:>9.4g}" + (f"{before:>9.4g}{value / before:>8.2f}" if before else ""))
    facts = {"cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1), "rounds": arguments.rounds}
    facts |= {"rows": arguments.rows, "tokens": arguments.tokens}
    RESULTS.write_text(json.dumps({**facts, **table}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
