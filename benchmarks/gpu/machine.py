"""Is this machine right? What `arpo doctor` finds, one training step of each path, and tokens a second.

Steps are of a model of two layers, which meets the same kernels and libraries as a large one: what cannot run at all
shows here. Speeds are of the 0.5B shape with random weights. The report says what to do with what it found.
"""

from __future__ import annotations

import asyncio
import importlib.util
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import torch
from trl.trainer.utils import add_fused_lm_head

from arpo_trainer.backends import TransformersBackend
from arpo_trainer.backends.base import Request
from arpo_trainer.cli.doctor import examine
from benchmarks.gpu import training
from benchmarks.gpu.policy import make_model, write_policy
from benchmarks.packing import clock, padded, step, synthetic
from benchmarks.rollout_world import small_tokenizer

PATHS = {"bf16": "", "packed": "", "lora": "peft", "fsdp2": "", "zero2": "deepspeed", "colocate": "vllm"}  # with: what
APART = 0.1  # nats a token, in the mean: more is not rounding, also in bfloat16
_TAIL = 1500  # characters of an error that are kept


def measure(tiny: bool) -> dict[str, Any]:
    """Return what was found, and a report in lines."""
    found = examine()
    cuda = torch.cuda.is_available()
    with tempfile.TemporaryDirectory() as scratch:
        write_policy(Path(scratch), True)
        there = [name for name, package in PATHS.items() if not package or importlib.util.find_spec(package)]
        paths = {name: _path(name, Path(scratch)) for name in there if cuda or name not in training.GPU_ONLY}
    speeds = _speeds("tiny" if tiny else "0.5b", "cuda" if cuda else "cpu")
    wrong = [finding.what for finding in found if finding.needed and not finding.fine]
    wrong += [name for name, one in paths.items() if one["status"] != "ok"]
    report = [str(finding) for finding in found]
    report += [f"step {name:<12} {one['status']}, {one['seconds']} s{_said(one)}" for name, one in paths.items()]
    report += [f"tokens/s {name:<20} {speed:,.0f}" for name, speed in speeds.items()]
    report.append(
        f"NOT RIGHT: {', '.join(wrong)}. Follow the lines above; if they do not help, report the file of this part"
        if wrong
        else "This machine is right. Speeds and memory of real sizes are in the other parts: report all their files"
    )
    return {"right": not wrong, "paths": paths, "tokens_per_second": speeds, "report": report}


def _path(name: str, policy: Path) -> dict[str, Any]:
    """Take one step, and say how it went."""
    start = time.perf_counter()
    try:
        done = training.measure(name, True, steps=1, policy=policy)
    except Exception:
        return {"status": "FAILED", "seconds": _since(start), "why": traceback.format_exc()[-_TAIL:]}
    apart = done["logps, rollout - training"]
    fits = apart == "not recorded" or apart["mean"] < APART
    return {"status": "ok" if fits else "WRONG", "seconds": _since(start), "loss": done["loss"], "apart": apart}


def _said(one: dict[str, Any]) -> str:
    if one["status"] == "FAILED":
        return f": {one['why'].strip().splitlines()[-1]}"
    apart = one["apart"]
    return "" if isinstance(apart, str) else f", rollout and update are {apart['mean']:.1e} nats a token apart"


def _since(start: float) -> float:
    return round(time.perf_counter() - start, 1)


def _speeds(shape: str, device: str) -> dict[str, float]:
    """Return tokens a second of the transformers backend, and of an update with its rows flat and packed."""
    rows, new, length = (4, 8, 96) if shape == "tiny" else (64, 128, 1024)
    model = make_model(shape, device)
    requests = [Request(tuple(range(5, 5 + length // 8)), new, seed=row) for row in range(rows)]

    async def generate() -> float:
        backend = TransformersBackend(model, small_tokenizer(), max_rows=rows, eos_token_ids={-1})
        await backend.begin()
        start = clock(device)
        await asyncio.gather(*(backend.generate(request) for request in requests))
        taken = clock(device) - start
        await backend.end()
        return rows * new / taken

    asyncio.run(generate())  # the first time of everything
    speeds = {f"rollout, {rows} rows": asyncio.run(generate())}
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    batch = padded(synthetic(8, 0.5, length), device)
    for way in ("flat", "packed"):
        step(model.train(), way, *batch)  # kernels are compiled
        start = clock(device)
        step(model, way, *batch)
        speeds[f"update, {way}"] = batch[0].numel() / (clock(device) - start)
    return speeds
