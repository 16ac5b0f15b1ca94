"""Where the seconds of a training step go: generation, tools, scoring, update; ARPO and GRPO in one run.

    python -m benchmarks.loop [--steps 3] [--recipe arithmetic-cpu]

The first step of each is left out (it warms caches). Prints medians a step, and writes them to
benchmarks/results/loop.json. Tools overlap with generation; each column is the wall time during which at least one of
its kind was going on.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

from arpo_trainer.run.recipes import read_settings
from arpo_trainer.run.train import train
from arpo_trainer.training.recorder import versions

COLUMNS = ("seconds_step", "seconds_generate", "seconds_tools", "seconds_score", "seconds_update")
COUNTS = ("tokens_unique", "tokens_copied", "branches", "tool_calls")
RESULTS = Path(__file__).parent / "results"


def measure(recipe: str, algorithm: str, steps: int, folder: Path) -> dict[str, float]:
    """Train a few steps and return the medians."""
    settings = read_settings(recipe, [])
    settings |= {
        "output_dir": str(folder / algorithm),
        "algorithm": algorithm,
        "max_steps": steps + 1,
        "eval_tasks": 0,
        "save_final_model": False,
        "trace_every": 0,
    }
    train(settings)
    lines = (folder / algorithm / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[1:]
    rows = [json.loads(line) for line in lines]
    return {name: statistics.median(row[name] for row in rows) for name in (*COLUMNS, *COUNTS)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--recipe", default="arithmetic-cpu")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        found: dict[str, Any] = {
            algorithm: measure(arguments.recipe, algorithm, arguments.steps, Path(scratch))
            for algorithm in ("arpo", "grpo")
        }
    print(f"{'median a step':<18}" + "".join(f"{name:>10}" for name in found))
    for name in (*COLUMNS, *COUNTS):
        print(f"{name:<18}" + "".join(f"{found[algorithm][name]:>10.2f}" for algorithm in found))
    RESULTS.mkdir(exist_ok=True)
    facts = {
        "steps": arguments.steps,
        "recipe": arguments.recipe,
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "versions": versions(),
        "medians": found,
    }
    (RESULTS / "loop.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
