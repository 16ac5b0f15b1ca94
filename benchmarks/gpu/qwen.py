"""The papers' path with a real model on a GPU: the stages of `benchmarks/qwen_path.py`, side by side.

Qwen2.5-Coder-0.5B learns GSM8K with Python: the cold start on the stored samples, then ARPO and GRPO with several
seeds, each a process of its own on the same GPU, with vLLM where it is installed. Every model answers the whole test
set. The runs stay in runs/qwen-gpu (or ARPO_GPU_RUNS), and what is done there is not done again.
"""

from __future__ import annotations

import importlib.util
import os
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from arpo_trainer.run.pipeline import Pipeline, Stage, run_command
from benchmarks import qwen_path
from benchmarks.gpu.parts import NotHereError
from benchmarks.qwen_path import FIRST, with_settings

MODEL = "qwen2.5-coder-0.5b"
SEEDS = (4, 5, 6)
QUESTIONS = 1319  # GSM8K's test set
VLLM = {
    "use_vllm": True,
    "vllm_mode": "colocate",
    "vllm_max_model_length": 2048,
    "vllm_gpu_memory_utilization": 0.07,  # of the GPU that all processes share
}


def measure(tiny: bool) -> dict[str, Any]:
    """Train and evaluate everything; return what `qwen_path.collect` finds, and the seconds of the whole."""
    from arpo_trainer.models import MODELS, get_model
    from envs_registry.datasets.hub import HubError
    from sandbox import SandboxUnavailable, default_sandbox

    model = MODELS[MODEL]
    try:
        isolation = default_sandbox().isolation
        if not model.is_here() and not model.gguf.exists():
            raise NotHereError(f"needs the model: arpo models get {MODEL}")
        get_model(model)
        _questions()
    except (SandboxUnavailable, HubError, OSError) as error:
        raise NotHereError(str(error)) from error
    vllm = importlib.util.find_spec("vllm") is not None
    start, folder = time.perf_counter(), Path(os.environ.get("ARPO_GPU_RUNS", "runs/qwen-gpu")).resolve()
    seeds = SEEDS[:1] if tiny else SEEDS
    play(folder, seeds, _changes(tiny, vllm))
    found = qwen_path.collect(folder, list(seeds), {})
    return {"isolation": isolation, "vllm": vllm, "seconds of the whole": time.perf_counter() - start, **found}


def _questions() -> None:
    import gymnasium as gym

    import arpo_env  # noqa: F401

    for split in ("train", "test"):
        gym.make("arpo/GSM8K-v0", split=split).close()


def _changes(tiny: bool, vllm: bool) -> list[str]:
    """Return the settings that differ from the recipe's, which is for two cores: speed alone, and more questions."""
    given: dict[str, dict[str, Any]] = {
        "sft": {},
        "train": {"per_device_train_batch_size": 16, **(VLLM if vllm else {})},
        "eval": {"tasks": QUESTIONS, "concurrency": 256},
    }
    if tiny:
        given["sft"] |= {"max_steps": 1, "dtype": "float32"}
        given["train"] |= {"max_steps": 1, "dtype": "float32", "max_completion_length": 64, "prompts_per_rollout": 2}
        given["eval"] |= {"tasks": 2}
    return [f"{stage}.{name}={value}" for stage, settings in given.items() for name, value in settings.items()]


def play(folder: Path, seeds: tuple[int, ...], more: list[str]) -> None:
    """Run all stages of all seeds, each as soon as the model that it needs is there."""
    plans = {seed: qwen_path.stages_of(folder, seed, more) for seed in (FIRST, *seeds)}
    first = plans[FIRST]
    with ThreadPoolExecutor(4 * len(plans) + 4) as pool:  # threads only wait for processes
        waits: list[Future[None]] = [pool.submit(_run, first[name]) for name in ("eval-prose", "eval-start")]
        _run(first["sft"])
        waits.append(pool.submit(_run, first["eval-sft"]))
        for seed in seeds:
            train = with_settings(plans[seed]["train"], model=str(first["sft"].folder / "model"))
            waits.append(pool.submit(_seed, folder, seed, train, plans[seed]["eval-train"]))
        for one in waits:
            one.result()


def _seed(folder: Path, seed: int, train: Stage, last: Stage) -> None:
    """Train and evaluate both ways; GRPO trains beside ARPO, and ends at what that has spent."""
    control = None if train.status == "done" else qwen_path.start_grpo(folder, seed, train, train.folder)
    try:
        _run(train)
    except BaseException:
        if control is not None:  # it would wait for ever
            control.kill()
        raise
    spent = qwen_path.read(train.folder / "run.json")["spent"]
    with ThreadPoolExecutor(1) as beside:
        evaluation = beside.submit(_run, last)
        if control is None and len(qwen_path.at_budgets(folder / f"grpo-{seed}", spent)) < len(qwen_path.BUDGETS):
            control = qwen_path.start_grpo(folder, seed, train, spent)
        if control is not None and control.wait():
            raise RuntimeError(f"GRPO with seed {seed} ended with status {control.returncode}; run this part again")
        list(qwen_path.evaluate_grpo(folder, seed, spent, last))
        evaluation.result()


def _run(stage: Stage) -> None:
    Pipeline((stage,)).run(run_command)
