"""What does each stage of the whole path add? Success on held-out tasks after synthesis and sft, ARPO, self-critic DPO.

    python -m benchmarks.whole_path bifurcation [--seeds 5]    # tiny policies; minutes
    python -m benchmarks.whole_path arithmetic                 # SmolLM2 with a scripted teacher
    python -m benchmarks.whole_path multihop

Each is the recipe `path-NAME-cpu` of `arpo run`, with its seeds set. The stages are in runs/whole-path/NAME-SEED, and a
call goes on where the last one was interrupted. Written to docs/results/whole-path.json after each seed; then
scripts/whole_path_tables.py writes the table of docs/results/whole-path.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from arpo_trainer.cli.arpo_command import main as arpo
from arpo_trainer.run.pipeline import Pipeline
from benchmarks.laboratory.lab_policy import PolicySettings, lab_policy

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results" / "whole-path.json"
STAGES = ("start", "sft", "train", "dpo")
TRAINED = ("sft", "train", "dpo")


def settings(name: str, seed: int) -> list[str]:
    """Return the settings of a seed: what is drawn in training, and in Bifurcation also the world."""
    given = [f"{stage}.seed={seed}" for stage in TRAINED]
    if name != "bifurcation":
        return given
    policy = lab_policy(PolicySettings("short"))
    worlds = ("synth.env_options", "train.env_kwargs", "dpo.env_kwargs", "eval.env_settings")
    given += [f"{stage}.seed={seed}" for stage in (*worlds, "synth")]
    return [*given, f"synth.model={policy}", f"sft.model={policy}"]


def run(name: str, seed: int, more: list[str]) -> dict[str, Any]:
    """Run the recipe for a seed, and return what its stages left behind."""
    folder, recipe = ROOT / "runs" / "whole-path" / f"{name}-{seed}", f"path-{name}-cpu"
    given = [f"output_dir={folder}", *settings(name, seed), *more]
    whole = not folder.exists()  # else an earlier call was interrupted, and its time is not known
    began, before = time.monotonic(), sum(os.times()[:4])
    if name == "bifurcation":  # all stages in this process: starting one takes longer than most stages
        Pipeline.read(recipe, given).run(arpo)
    else:
        line = [sys.executable, str(ROOT / "examples" / "scripted_teacher.py"), recipe, "--set", *given]
        subprocess.run(line, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)
    minutes = {"wall": (time.monotonic() - began) / 60, "cpu": (sum(os.times()[:4]) - before) / 60}
    return collect(folder) | {"seed": seed, "minutes": minutes if whole else None}


def collect(folder: Path) -> dict[str, Any]:
    """Return success after each stage, and what each was trained on."""
    stages = {}
    for stage in STAGES:
        (found,) = read(folder / f"eval-{stage}" / "results.json")["scores"]
        stages[stage] = {key: found["score"][key] for key in ("mean", "low", "high", "tasks")}
        stages[stage]["calls"] = sum(found["calls"].values())
    samples = read(folder / "synth" / "report.json")["samples"]
    synth = {"played": samples["played"], "rows": samples["kept"]}
    dpo = {key: read(folder / "dpo" / "dpo.json")["data"][key] for key in ("trajectories", "pairs")}
    return {"stages": stages, "synth": synth, "dpo": dpo}


def read(file: Path) -> dict[str, Any]:
    """Return the contents of a JSON file."""
    data: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return data


def main() -> None:
    """Run the seeds that are not in the file yet, and write each when it has ended."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=("bifurcation", "arithmetic", "multihop"))
    parser.add_argument("--seeds", type=int, default=None, help="default: 5 of bifurcation, 1 of the others")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="more settings, to try; not stored")
    given = parser.parse_args()
    count = given.seeds or (5 if given.name == "bifurcation" else 1)
    for seed in range(given.first, given.first + count):
        stored = read(RESULTS) if RESULTS.is_file() else {}
        runs = stored.get(given.name, [])
        if any(one["seed"] == seed for one in runs):
            continue
        found = run(given.name, seed, given.set)
        shown = {stage: round(one["mean"], 3) for stage, one in found["stages"].items()}
        sys.stdout.write(f"{given.name} {seed}: {shown} {found['synth']} {found['dpo']} {found['minutes']}\n")
        if not given.set:
            runs = sorted([*runs, found], key=lambda one: int(one["seed"]))
            RESULTS.write_text(json.dumps({**stored, given.name: runs}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
