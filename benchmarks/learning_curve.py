"""Which algorithm learns more from the same number of trajectories? GRPO, ARPO and AEPO on the demo, three seeds each.

    python -m benchmarks.learning_curve [--rollouts 5] [--seeds 0 1 2] [--processes 2]
    python -m benchmarks.learning_curve --draw          # only draws docs/results/learning_curve.json again

All start from the same cold-started model, get the same tasks in the same order for a seed, and play 4 prompts x 8
trajectories a rollout, from which two updates of 2 prompts each are made (so that ratios leave 1 and a clip can act).
The learning rate is a twentieth of the recipe's, with which the demo's ceiling is reached in the first two rollouts.
After each rollout the policy answers 60 held-out tasks greedily. Runs that are there already are not made again.
Writes docs/results/learning_curve.json and .svg (needs matplotlib: pip install '.[bench]').
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import multiprocessing
import shutil
import statistics
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from arpo_trainer.run.recipes import read_settings
from arpo_trainer.run.train import train
from arpo_trainer.training.recorder import versions

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"
ALGORITHMS = ("grpo", "arpo", "aepo")
COLOURS = {"grpo": "#6b7280", "arpo": "#2563eb", "aepo": "#d97706"}
UPDATES = 2  # a rollout
T95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}  # Student's t, 97.5 %, n - 1 degrees of freedom
SETTINGS: dict[str, Any] = {
    "cold_start_seed": 3,
    "packing": True,
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 2,
    "steps_per_generation": 4,
    "eval_strategy": "steps",
    "eval_tasks": 60,
    "save_final_model": False,
    "trace_every": 0,
    "threads": 1,
    "learning_rate": 1e-6,
}
EVALUATED = ("accuracy", "accuracy_low", "accuracy_high", "reward", "tool_calls", "n", "invalid")
TRAINED = (
    "reward",
    "accuracy",
    "tool_calls",
    "tool_calls/python",
    "tokens_generated",
    "tokens_copied",
    "entropy",
    "branches",
    "top_ups",
    "groups_silent",
    "kept_gradients",
    "packing",
)


def settings_of(algorithm: str, seed: int, rollouts: int, folder: Path) -> dict[str, Any]:
    """Return the settings of one run."""
    given = SETTINGS | {
        "output_dir": str(folder),
        "run_name": f"{algorithm}, seed {seed}",
        "algorithm": algorithm,
        "seed": seed,
        "max_steps": rollouts * UPDATES,
        "eval_steps": UPDATES,
    }
    return read_settings("arithmetic-cpu", []) | given


def run(algorithm: str, seed: int, rollouts: int, folder: Path) -> dict[str, Any]:
    """Train, unless that has been done, and return the run's evaluations and rollouts."""
    facts = folder / "run.json"
    if not facts.is_file() or json.loads(facts.read_text(encoding="utf-8"))["status"] != "finished":
        shutil.rmtree(folder, ignore_errors=True)  # what a killed one left
        train(settings_of(algorithm, seed, rollouts, folder))
    evaluations = [
        {"rollouts": row["step"] // UPDATES} | {name: row[name] for name in EVALUATED}
        for row in _rows(folder / "eval.jsonl")
        if row["name"] != "after"
    ]
    steps = [{name: row[name] for name in TRAINED if name in row} for row in _rows(folder / "metrics.jsonl")]
    return {"algorithm": algorithm, "seed": seed, "evaluations": evaluations, "steps": steps}


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean over seeds with its 95 % interval (Student's t)."""
    mean, n = statistics.fmean(values), len(values)
    half = T95[n] * statistics.stdev(values) / math.sqrt(n) if n > 1 else 0.0
    return mean, mean - half, mean + half


def summarise(runs: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return for each algorithm the numbers that are compared, each a mean with its interval over seeds."""
    found: dict[str, dict[str, Any]] = {}
    for algorithm in ALGORITHMS:
        own = [run for run in runs if run["algorithm"] == algorithm]
        if not own:
            continue
        later = [[row["accuracy"] for row in run["evaluations"][1:]] for run in own]
        found[algorithm] = {
            "seeds": [run["seed"] for run in own],
            "final accuracy": interval([row[-1] for row in later]),
            "mean accuracy after the start": interval([statistics.fmean(row) for row in later]),
            "final tool calls a task": interval([run["evaluations"][-1]["tool_calls"] for run in own]),
            "calls executed": interval([_total(run, "tool_calls/python") for run in own]),
            "tokens generated": interval([_total(run, "tokens_generated") for run in own]),
        }
    return found


def _total(run: dict[str, Any], name: str) -> float:
    return float(sum(row.get(name, 0.0) for row in run["steps"]))


def differences(runs: Sequence[dict[str, Any]]) -> dict[str, tuple[float, float, float]]:
    """Return accuracy minus GRPO's with the same seed, over all evaluations after the start."""
    mean = {
        (run["algorithm"], run["seed"]): statistics.fmean(row["accuracy"] for row in run["evaluations"][1:])
        for run in runs
    }
    seeds = sorted({seed for _, seed in mean})
    return {
        algorithm: interval([mean[algorithm, seed] - mean["grpo", seed] for seed in seeds if (algorithm, seed) in mean])
        for algorithm in ALGORITHMS[1:]
    }


def draw(runs: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw accuracy and tool calls against rollouts: thin lines are seeds, thick ones their mean, bars its interval."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update(
        {"svg.hashsalt": "arpo", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
    )
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 3, figsize=(10.5, 3.4), layout="constrained")
    for panel, (title, name, source) in zip(
        panels,
        (
            ("accuracy, 60 held-out tasks, greedy", "accuracy", "evaluations"),
            ("tool calls a held-out task", "tool_calls", "evaluations"),
            ("tool calls executed, all rollouts so far", "tool_calls/python", "steps"),
        ),
        strict=True,
    ):
        for place, algorithm in enumerate(ALGORITHMS):
            lines = [_line(run, name, source) for run in runs if run["algorithm"] == algorithm]
            for x, y in lines:
                panel.plot(x, y, color=COLOURS[algorithm], linewidth=0.8, alpha=0.45)
            if lines:
                means, lows, highs = zip(
                    *(interval(values) for values in zip(*(y for _, y in lines), strict=True)), strict=True
                )
                panel.plot(lines[0][0], means, color=COLOURS[algorithm], linewidth=2.2, label=algorithm.upper())
                beside = [x + (place - 1) * 0.08 for x in lines[0][0]]
                panel.vlines(beside, lows, highs, color=COLOURS[algorithm], linewidth=0.8, linestyle=(0, (3, 2)))
        panel.set_title(title, loc="left", fontsize=9)
        panel.set_xlabel("rollouts (32 trajectories each)")
        panel.set_ylim(bottom=0)
    panels[0].set_ylim(0, 1)
    panels[0].legend(frameon=False, loc="lower right")
    figure.savefig(path, metadata={"Date": None})


def _line(run: dict[str, Any], name: str, source: str) -> tuple[list[float], list[float]]:
    if source == "evaluations":
        return [row["rollouts"] for row in run[source]], [row[name] for row in run[source]]
    totals = [0.0, *itertools.accumulate(row.get(name, 0.0) for row in run[source])][::UPDATES]
    return list(range(len(totals))), totals


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollouts", type=int, default=5)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path("runs/learning-curve"), help="of the runs")
    parser.add_argument("--draw", action="store_true", help="draw what is there")
    arguments = parser.parse_args()
    kept = RESULTS / "learning_curve.json"
    if arguments.draw:
        runs = json.loads(kept.read_text(encoding="utf-8"))["runs"]
    else:
        wanted = [(algorithm, seed) for seed in arguments.seeds for algorithm in ALGORITHMS]
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(arguments.processes, mp_context=spawn, max_tasks_per_child=1) as pool:
            tasks = [
                pool.submit(run, algorithm, seed, arguments.rollouts, arguments.folder / f"{algorithm}-{seed}")
                for algorithm, seed in wanted
            ]
            runs = [task.result() for task in tasks]
        RESULTS.mkdir(parents=True, exist_ok=True)
        facts = {"settings": settings_of("NAME", 0, arguments.rollouts, Path("FOLDER")), "versions": versions()}
        facts |= {"summary": summarise(runs), "minus grpo": differences(runs), "runs": runs}
        kept.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    for algorithm, row in summarise(runs).items():
        print(algorithm, {name: [round(x, 3) for x in value] for name, value in row.items()})
    print("minus grpo", {name: [round(x, 3) for x in value] for name, value in differences(runs).items()})
    draw(runs, RESULTS / "learning_curve.svg")


if __name__ == "__main__":
    main()
