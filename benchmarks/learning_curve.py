"""Which algorithm learns more from the same number of trajectories? GRPO, ARPO and AEPO on the demo, three seeds each.

    python benchmarks/learning_curve.py [--rollouts 8] [--seeds 0 1 2] [--processes 2]
    python benchmarks/learning_curve.py --plot          # only draws what is in docs/results/learning_curve.json

All start from the same cold-started model, get the same tasks in the same order for a seed, and play 4 prompts x 8
trajectories a rollout, from which two updates of 2 prompts each are made (so that ratios leave 1 and a clip can act).
Every second rollout the policy answers 64 held-out tasks greedily. Runs that are there already are not made again.
Writes docs/results/learning_curve.json, .csv and .svg.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

if str(Path(__file__).resolve().parent) in sys.path:  # its sandbox.py would pass for the package
    sys.path.remove(str(Path(__file__).resolve().parent))
from arpo_trainer.train import read_settings, train

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"
ALGORITHMS = ("grpo", "arpo", "aepo")
UPDATES = 2  # a rollout
SETTINGS: dict[str, Any] = {
    "cold_start_seed": 3, "packing": "tree", "per_device_train_batch_size": 8, "gradient_accumulation_steps": 2,
    "steps_per_generation": 4, "eval_strategy": "steps", "eval_tasks": 64, "save_final_model": False,
    "trace_every": 0, "threads": 1,
}  # fmt: skip
EVALUATED = ("accuracy", "accuracy_low", "accuracy_high", "reward", "tool_calls", "n", "invalid")
TRAINED = ("reward", "accuracy", "tool_calls", "calls_executed", "tokens_sampled", "tokens_trained", "entropy",
           "branches", "groups_silent", "kept_gradients", "packing", "seconds_rollout", "seconds_update")  # fmt: skip


def settings_of(algorithm: str, seed: int, rollouts: int, folder: Path) -> dict[str, Any]:
    """Return the settings of one run."""
    given = SETTINGS | {
        "output_dir": str(folder), "run_name": f"{algorithm}, seed {seed}", "algorithm": algorithm, "seed": seed,
        "max_steps": rollouts * UPDATES, "eval_steps": 2 * UPDATES,
    }  # fmt: skip
    return read_settings("arithmetic-cpu", []) | given


def run(algorithm: str, seed: int, rollouts: int, folder: Path) -> dict[str, Any]:
    """Train and return the run's evaluations and steps; taken from the folder if it was done before."""
    done = folder / "curve.json"
    if not done.is_file():
        train(settings_of(algorithm, seed, rollouts, folder))
        evaluations = [
            {"rollouts": row["step"] / UPDATES} | {name: row[name] for name in EVALUATED}
            for row in _rows(folder / "eval.jsonl") if row["name"] != "after"
        ]  # fmt: skip
        steps = [{"step": row["step"]} | {name: row[name] for name in TRAINED if name in row}
                 for row in _rows(folder / "metrics.jsonl")]  # fmt: skip
        found = {"algorithm": algorithm, "seed": seed, "evaluations": evaluations, "steps": steps}
        done.write_text(json.dumps(found), encoding="utf-8")
    result: dict[str, Any] = json.loads(done.read_text(encoding="utf-8"))
    return result


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollouts", type=int, default=8)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path("runs/learning-curve"))
    arguments = parser.parse_args()
    wanted = [(algorithm, seed) for seed in arguments.seeds for algorithm in ALGORITHMS]
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(arguments.processes, mp_context=spawn, max_tasks_per_child=1) as pool:
        runs = [
            pool.submit(run, algorithm, seed, arguments.rollouts, arguments.folder / f"{algorithm}-{seed}")
            for algorithm, seed in wanted
        ]
        found = [task.result() for task in runs]
    print(json.dumps(found)[:2000])


if __name__ == "__main__":
    main()
