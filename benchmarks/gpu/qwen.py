"""The papers' path with a real model on a GPU: `benchmarks/qwen_path.py` with vLLM, on GSM8K's whole test set.

Qwen2.5-Coder-0.5B learns GSM8K with Python: the cold start on the stored samples, then ARPO and GRPO with each seed:
three seeds of the recipe's 16 steps (`qwen`), or one of 100 (`qwen-100`). By estimate either takes half an hour; it
needs the model, the questions and a sandbox. The runs stay in runs/qwen-gpu (or ARPO_GPU_RUNS), some 20 GB; what is
done there is not done again: a part that was ended at its limit of time goes on.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

from benchmarks import qwen_path
from benchmarks.gpu.parts import NotHereError

MODEL = "qwen2.5-coder-0.5b"
SEEDS = (4, 5, 6)
QUESTIONS = 1319  # GSM8K's test set
VLLM = {
    "use_vllm": True,
    "vllm_mode": "colocate",
    "vllm_max_model_length": 2048,
    "vllm_gpu_memory_utilization": 0.3,
}


def measure(steps: int, count: int, tiny: bool) -> dict[str, Any]:
    """Train that many steps with so many seeds and evaluate everything; return what `qwen_path.collect` finds."""
    from arpo_trainer.models import MODELS, get_model
    from envs_registry.datasets.hub import HubError
    from sandbox import SandboxUnavailable, default_sandbox

    model = MODELS[MODEL]
    try:
        isolation = default_sandbox().isolation
        if not model.is_here() and not model.gguf.exists():
            raise NotHereError(f"needs the model: arpo models get {MODEL}")
        get_model(model)
        _check_questions()
    except (SandboxUnavailable, HubError, OSError) as error:
        raise NotHereError(str(error)) from error
    vllm = importlib.util.find_spec("vllm") is not None
    # a folder for each number of steps: a stage that is there refuses other settings
    folder = Path(os.environ.get("ARPO_GPU_RUNS", "runs/qwen-gpu")).resolve() / ("tiny" if tiny else str(steps))
    seeds = SEEDS[: 1 if tiny else count]
    for seed in seeds:
        list(qwen_path.play_seed(folder, seed, [f"train.max_steps={steps}", *_changes(tiny, vllm)], ()))
    return {"isolation": isolation, "vllm": vllm, **qwen_path.collect(folder, list(seeds), {})}


def _check_questions() -> None:
    import gymnasium as gym

    import arpo_env  # noqa: F401

    for env, split in (("GSM8K", "train"), ("GSM8K", "test"), ("MATH500", "test")):
        gym.make(f"arpo/{env}-v0", split=split).close()


def _changes(tiny: bool, vllm: bool) -> list[str]:
    """Return the settings that differ from the recipe's, which is for two cores: speed alone, and more questions."""
    given: dict[str, dict[str, Any]] = {
        "sft": {},
        "train": {"per_device_train_batch_size": 16, **(VLLM if vllm else {})},
        "eval": {"tasks": QUESTIONS, "concurrency": 256, "vllm": vllm},
    }
    if tiny:
        given["sft"] |= {"max_steps": 1, "dtype": "float32"}
        given["train"] |= {"max_steps": 1, "dtype": "float32", "max_completion_length": 64, "prompts_per_rollout": 2}
        given["eval"] |= {"tasks": 2}
    return [f"{stage}.{name}={value}" for stage, settings in given.items() for name, value in settings.items()]
