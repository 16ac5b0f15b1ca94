"""What does packing save? A training step (forward and backward) on packed trees beside the same rows flat.

    python -m benchmarks.packing [--traces FOLDER/traces.jsonl] [--model FOLDER] [--quick]

Synthetic trees: 2 to 16 rows of one length, of which 20 to 80 % is shared (half of that by all rows, half by two
neighbours). Real trees: the largest ones of a traces file, one group a step. Each number is a process of its own, both
ways in turn; time is CPU time (on CUDA: wall time, synchronised), the median of the rounds after one to warm up. The
ideal is the ratio of tokens: all rows' beside those computed. Peak memory is what the step adds to the loaded model and
its gradients. On CUDA packing runs on FlexAttention. Prints a table, and adds each case to results/packing.json.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import os
import re
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch

from arpo_trainer.packing import packed_logps
from arpo_trainer.training.recorder import versions
from arpo_trainer.tree import read_traces

RESULTS = Path(__file__).parent / "results"
PROMPT = 8  # of a synthetic row
Row = tuple[list[int], list[int]]


def synthetic(leaves: int, share: float, length: int, vocabulary: int = 1000) -> list[Row]:
    """Rows of equal length; `share` of each is shared, half of it by all of them and half by pairs."""
    generator = torch.Generator().manual_seed(leaves)

    def draw(count: int) -> list[int]:
        return torch.randint(3, vocabulary, (count,), generator=generator).tolist()

    common = round(length * share * (0.5 if leaves > 2 else 1))
    pair = round(length * share) - common
    trunk, rows = draw(common), []
    for leaf in range(leaves):
        if leaf % 2 == 0:
            branch = draw(pair)
        row = trunk + branch + draw(length - common - pair)
        rows.append((row[:PROMPT], row[PROMPT:]))
    return rows


def recorded(path: Path, count: int, most: int) -> list[list[Row]]:
    """The rows of the largest groups in a traces file that have no more than `most` tokens in all."""
    groups = [
        [(tree.prompt_ids, tree.row(number).ids) for number in range(len(tree.trajectories))]
        for tree in read_traces(path)
    ]
    sizes = [sum(len(prompt) + len(ids) for prompt, ids in group) for group in groups]
    fitting = sorted((size, i) for i, size in enumerate(sizes) if size <= most)
    return [groups[i] for _, i in fitting[-count:]]


def padded(rows: list[Row], device: str) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Rows as TRL pads them: ids and mask (B, P + T), and T."""
    left, right = max(len(prompt) for prompt, _ in rows), max(len(ids) for _, ids in rows)
    ids = torch.zeros(len(rows), left + right, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for number, (prompt, completion) in enumerate(rows):
        place = slice(left - len(prompt), left + len(completion))
        ids[number, place], mask[number, place] = torch.tensor(prompt + completion), 1
    return ids.to(device), mask.to(device), right


def load(settings: dict[str, Any]) -> Any:
    """The model with TRL's head, its gradients allocated."""
    from transformers import AutoConfig, AutoModelForCausalLM
    from trl.trainer.utils import add_fused_lm_head

    dtype = getattr(torch, settings["dtype"])
    if settings["model"] == "tiny":
        sizes = {"vocab_size": 50000, "hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 4}
        model = AutoModelForCausalLM.from_config(
            AutoConfig.for_model("llama", **sizes, num_attention_heads=4, num_key_value_heads=2), dtype=dtype
        )
    else:
        model = AutoModelForCausalLM.from_pretrained(settings["model"], dtype=dtype, attn_implementation="sdpa")
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    if settings["checkpointing"]:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    return model.to(settings["device"]).train()


def step(model: Any, way: str, ids: torch.Tensor, mask: torch.Tensor, keep: int) -> int:
    """One forward and backward; returns how many positions went through the model."""
    if way == "packed":
        packed = packed_logps(model, ids, mask, keep, compute_entropy=True)
        packed.logps.mean().backward()
        return packed.computed
    labels = ids.masked_fill(mask == 0, -100)
    labels[:, :-keep] = -100
    output = model(input_ids=ids, attention_mask=mask, labels=labels, fused_lm_head=True)
    output.log_probs[:, -keep:].mean().backward()
    return ids.numel()


def clock(device: str) -> float:
    if device != "cuda":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def forget_peak(device: str) -> int:
    """Reset the peak and return the memory in use, in bytes."""
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def peak(device: str) -> int:
    return torch.cuda.max_memory_allocated() if device == "cuda" else _status("VmHWM")


def _status(name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) * 1024 if found else 0


def measure(way: str, rows: list[Row], settings: dict[str, Any]) -> dict[str, float]:
    """Seconds (median), peak memory and positions of one way of doing a step; runs in a process of its own."""
    torch.set_num_threads(settings["threads"])
    model, device = load(settings), settings["device"]
    batch = padded(rows, device)
    step(model, way, *padded([(prompt, ids[:16]) for prompt, ids in rows[:2]], device))
    before, seconds = forget_peak(device), []
    for _ in range(settings["rounds"] + 1):
        start = clock(device)
        computed = step(model, way, *batch)
        seconds.append(clock(device) - start)
    return {"seconds": statistics.median(seconds[1:]), "bytes": peak(device) - before, "computed": computed}


def case(name: str, rows: list[Row], settings: dict[str, Any]) -> dict[str, Any]:
    """Both ways of one batch, and what the comparison says."""
    result: dict[str, Any] = {"name": name, "rows": len(rows), "tokens": sum(len(p) + len(c) for p, c in rows)}
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn, max_tasks_per_child=1) as pool:
        for way in ("flat", "packed"):
            result[way] = pool.submit(measure, way, rows, settings).result()
    result["ideal"] = result["tokens"] / result["packed"]["computed"]
    result["ratio"] = result["flat"]["seconds"] / result["packed"]["seconds"]
    result["memory"] = result["flat"]["bytes"] / max(1, result["packed"]["bytes"])
    show(result)
    return result


def show(result: dict[str, Any]) -> None:
    flat, packed = result["flat"], result["packed"]
    print(
        f"| {result['name']} | {result['tokens']} | {packed['computed']} | {flat['seconds']:.2f} | "
        f"{packed['seconds']:.2f} | {result['ratio']:.2f}x | {result['ideal']:.2f}x | "
        f"{100 * result['ratio'] / result['ideal']:.0f} % | {flat['bytes'] / 2**20:.0f} | "
        f"{packed['bytes'] / 2**20:.0f} |",
        flush=True,
    )


def batches(arguments: argparse.Namespace) -> dict[str, list[Row]]:
    if arguments.traces:
        found = recorded(arguments.traces, arguments.groups, arguments.most)
        return {f"recorded {number + 1}: {len(rows)} rows": rows for number, rows in enumerate(found)}
    return {
        f"{leaves} rows of {arguments.length}, {share:.0%} shared": synthetic(leaves, share, arguments.length)
        for leaves in arguments.leaves
        for share in arguments.shares
    }


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, help="measure recorded trees instead of synthetic ones")
    parser.add_argument("--groups", type=int, default=5, help="how many recorded trees")
    parser.add_argument("--most", type=int, default=8192, help="leave out recorded trees with more tokens in all")
    parser.add_argument("--model", help="a folder, a hub id, or 'tiny'; by default the demo model")
    parser.add_argument("--leaves", type=int, nargs="+", default=[2, 4, 8, 16])
    parser.add_argument("--shares", type=float, nargs="+", default=[0.2, 0.5, 0.8])
    parser.add_argument("--length", type=int, default=512, help="tokens in a synthetic row")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", help="float32 on a CPU, bfloat16 on CUDA")
    parser.add_argument("--checkpointing", action="store_true", help="with gradient checkpointing")
    parser.add_argument("--quick", action="store_true", help="two small cases on a tiny model, nothing written")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.model, arguments.leaves, arguments.shares, arguments.length = "tiny", [4], [0.5, 0.8], 256
        arguments.groups = 2
    return arguments


def main() -> None:
    arguments = read_arguments()
    if arguments.model is None:
        from arpo_trainer.models import get_model

        arguments.model = str(get_model())
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
    settings = {name: getattr(arguments, name) for name in ("model", "rounds", "threads", "device", "checkpointing")}
    settings["dtype"] = arguments.dtype or ("bfloat16" if arguments.device == "cuda" else "float32")
    print("| batch | tokens | computed | flat s | packed s | ratio | ideal | of ideal | flat MB | packed MB |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    facts = {"settings": settings | {"model": Path(arguments.model).name}, "versions": versions()}
    kinds = {"recorded": arguments.traces, "checkpointing": arguments.checkpointing, "cuda": arguments.device == "cuda"}
    kind = "".join(f"-{name}" for name, holds in kinds.items() if holds)
    for name, rows in batches(arguments).items():
        found = case(name, rows, settings)
        if not arguments.quick:
            keep(RESULTS / f"packing{kind}.json", facts, found)


def keep(path: Path, facts: dict[str, Any], found: dict[str, Any]) -> None:
    """Write a case beside those that were measured before with the same settings and versions."""
    before = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    same = all(before.get(name) == value for name, value in facts.items())
    others = [one for one in before["cases"] if one["name"] != found["name"]] if same else []
    path.write_text(json.dumps({**facts, "cases": [*others, found]}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
