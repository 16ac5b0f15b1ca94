"""The demo at larger size: the recipe arithmetic-cpu on the GPU, 32 prompts x 16 trajectories a step.

Needs a sandbox (ARPO_SANDBOX chooses it, as everywhere) and SmolLM2-135M-Instruct, which `make model` fetches.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.gpu.parts import NotHereError

SIZE = {
    "num_generations": 16,
    "initial_rollouts": 8,
    "per_device_train_batch_size": 16,
    "gradient_accumulation_steps": 32,
    "max_steps": 12,
    "eval_tasks": 200,
    "packing": True,
    "max_rows": 256,
}
TINY = {
    "num_generations": 4,
    "initial_rollouts": 2,
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 1,
    "max_steps": 1,
    "eval_tasks": 2,
    "cold_start_examples": 8,
    "cold_start_epochs": 1,
}


def measure(tiny: bool) -> dict[str, Any]:
    """Train, and return accuracy before and after, seconds of a step, tokens a second."""
    from arpo_trainer.models import get_model
    from sandbox import SandboxUnavailable, default_sandbox

    try:
        isolation = default_sandbox().isolation
        get_model()
    except (SandboxUnavailable, RuntimeError) as error:
        raise NotHereError(str(error)) from error
    with tempfile.TemporaryDirectory() as folder:
        settings = {**(TINY if tiny else SIZE), "output_dir": folder, "save_final_model": False}
        given = [text for name, value in settings.items() for text in ("--set", f"{name}={json.dumps(value)}")]
        command = [sys.executable, "-m", "arpo_trainer.cli", "train", "--recipe", "arithmetic-cpu", *given]
        subprocess.run(command, check=True, cwd=Path(__file__).resolve().parents[2])
        evaluations, steps = (_lines(Path(folder) / name) for name in ("eval.jsonl", "metrics.jsonl"))
    shown = ("accuracy", "accuracy_low", "accuracy_high", "tool_calls")
    numbers = ("seconds_rollout", "tokens_per_second", "model_idle", "branches", "packing")
    return {
        "isolation": isolation,
        "evaluations": {row["name"]: {name: row[name] for name in shown} for row in evaluations},
        "reward": [row["reward"] for row in steps],
        **{name: statistics.fmean(row[name] for row in steps if name in row) for name in numbers if name in steps[0]},
    }


def _lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
