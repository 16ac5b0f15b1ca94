"""What does a round of self-critic DPO do to a tiny policy? Success on tasks that it has not seen, before and after.

    python -m benchmarks.self_critic [--seeds 5] [--tasks 500]

The policy (the laboratory's of level `short`) walks through a world of doors at random. A round samples 256 tasks 16
times, independently or as trees of 8 starts that branch at random, and learns the pairs with the recipe
`dpo-bifurcation-cpu` at the same settings. A seed has its own world, samples and order. Written to
benchmarks/results/self_critic.json after each; what is in there is not run again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from arpo_trainer.evaluation.eval_session import run_evaluation
from arpo_trainer.evaluation.eval_settings import EvalModel, EvalSettings
from arpo_trainer.preference.dpo_run import dpo
from arpo_trainer.run.recipes import read_settings
from arpo_trainer.statistics import clustered_interval
from benchmarks.laboratory.lab_policy import PolicySettings, lab_policy

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "self_critic.json"
ARMS: dict[str, dict[str, Any]] = {
    "independent": {"algorithm": "grpo", "rollout": {}},
    "trees": {"algorithm": "random", "rollout": {"initial_rollouts": 8}},
    "trees, forked pairs only": {"algorithm": "random", "rollout": {"initial_rollouts": 8}, "pair_kind": "fork"},
}
MEANS = ("before", "after", "pairs", "learnt_tokens")
SAMPLING = {"temperature": 1.0, "top_p": 1.0, "repetition_penalty": 1.0}


def success(model: Path, settings: dict[str, Any], tasks: int, folder: Path) -> float:
    """Return the share of held-out tasks that one sample each solves."""
    lengths = {name: settings[name] for name in ("max_turn_length", "max_completion_length")}
    options = {**settings["env_kwargs"], "split": "test"}
    asked = EvalSettings((settings["env"],), options, tasks=tasks, rollout={**SAMPLING, **lengths})
    played = run_evaluation(asked, [EvalModel("policy", "transformers", str(model))], folder)
    return statistics.fmean(float((row.episodes[0].reward or 0.0) >= 1) for row in played.rows)


def arm(name: str, seed: int, policy: Path, tasks: int, folder: Path) -> dict[str, Any]:
    """Return success before and after a round, and what was learnt."""
    recipe = read_settings("dpo-bifurcation-cpu", command="dpo")
    options = {**recipe["env_kwargs"], "seed": seed}
    settings = {**recipe, **ARMS[name], "model": str(policy), "seed": seed, "env_kwargs": options, "threads": 1}
    settings |= {"output_dir": str(folder / "round"), "save_strategy": "no", "disable_tqdm": True}
    before = success(policy, settings, tasks, folder / "before")
    dpo(settings)
    facts = json.loads((folder / "round" / "dpo.json").read_text(encoding="utf-8"))
    after = success(folder / "round" / "model", settings, tasks, folder / "after")
    names = ("pairs", "pairs_from_forks", "learnt_tokens", "right", "trajectories")
    counts = {key: facts["data"][key] for key in names}
    return {"arm": name, "seed": seed, "before": before, "after": after, **counts, "steps": facts["steps"]}


def write(tasks: int, runs: list[dict[str, Any]]) -> None:
    """Write what is there, with the mean of each arm and the interval of its gain over seeds."""
    rows = []
    for name in ARMS:
        of_arm = [run for run in runs if run["arm"] == name]
        if len(of_arm) > 1:
            gain = clustered_interval([[run["after"] - run["before"]] for run in of_arm])
            means = {key: statistics.fmean(run[key] for run in of_arm) for key in MEANS}
            rows.append({"arm": name, "seeds": len(of_arm), **means, "gain": [gain.mean, gain.low, gain.high]})
    RESULTS.write_text(json.dumps({"tasks": tasks, "arms": rows, "runs": runs}, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Run the arms that are not in the file yet, and write each when it has ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tasks", type=int, default=500)
    given = parser.parse_args()
    policy = lab_policy(PolicySettings("short"))
    stored = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {}
    runs = stored["runs"] if stored.get("tasks") == given.tasks else []
    for seed in range(given.seeds):
        for name in ARMS:
            if any((run["arm"], run["seed"]) == (name, seed) for run in runs):
                continue
            with tempfile.TemporaryDirectory() as folder:
                runs.append(arm(name, seed, policy, given.tasks, Path(folder)))
            write(given.tasks, runs)
            sys.stdout.write(f"{runs[-1]}\n")


if __name__ == "__main__":
    main()
