"""Is an evaluation that is killed three times the evaluation that was not? A real model, real tasks.

    python -m benchmarks.eval_resume [--data ../shared/data/arpo/eval/gsm8k] [--tasks 100] [--samples 4]

SmolLM2-135M-Instruct answers GSM8K tasks and MultiHop tasks with the local index, recording what it generates. The
command is killed with SIGKILL after a tenth, a third and two thirds of the episodes, and resumed. Then the same
evaluation is replayed from the recording without a break, without weights, and without a network (in a network
namespace of its own, where the user may make one). Each episode has to be there once, and results.json has to be the
same bytes. Written to benchmarks/results/eval_resume.json.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "eval_resume.json"
DATA = ROOT.parent / "shared" / "data" / "arpo" / "eval" / "gsm8k"
SHORT = ["--set", "max_turn_length=128", "max_completion_length=768"]


def command(env: list[str], folder: Path, model: str, given: argparse.Namespace, *more: str) -> list[str]:
    """Return the command line of an evaluation."""
    amount = ["--tasks", str(given.tasks), "-n", str(given.samples), "--cache", str(folder.parent / "record.sqlite")]
    arpo = [sys.executable, "-m", "arpo_trainer.cli", "eval"]
    return [*arpo, *env, *SHORT, *amount, "--model", model, "--output", str(folder), *more]


def kill_after(line: list[str], rows: int, episodes: Path) -> None:
    """Start a command, and kill it when that many episodes are stored."""
    process = subprocess.Popen(line, stderr=subprocess.DEVNULL)
    while process.poll() is None and not (episodes.is_file() and episodes.read_bytes().count(b"\n") >= rows):
        time.sleep(0.05)
    assert process.poll() is None, "it ended before it was killed"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def without_network() -> list[str]:
    """Return the prefix of a command that runs without a network, or [] where that needs rights that are missing."""
    prefix = ["unshare", "--net"]
    able = (
        shutil.which("unshare") and subprocess.run([*prefix, "true"], check=False, capture_output=True).returncode == 0
    )
    return prefix if able else []


def without_weights(model: Path, folder: Path) -> None:
    """Fill a folder with the tokenizer and configuration of a model alone."""
    folder.mkdir()
    for file in model.iterdir():
        if "safetensors" not in file.name:
            (folder / file.name).symlink_to(file)


def measure(env: list[str], given: argparse.Namespace) -> dict[str, Any]:
    """Play, kill, resume and replay one environment."""
    from arpo_trainer.evaluation.episode_store import load_eval_run, rows_of
    from arpo_trainer.models import get_model

    with tempfile.TemporaryDirectory() as scratch:
        place, total = Path(scratch), given.tasks * given.samples
        # recorded under the path of the model, so the replay has to name the same one
        model = place / "SmolLM2-135M-Instruct"
        model.symlink_to(get_model())
        began = time.perf_counter()
        for share in (0.1, 0.33, 0.67):
            broken = command(env, place / "broken", str(model), given, "--resume")
            kill_after(broken, int(share * total), place / "broken" / "episodes.jsonl")
        subprocess.run(
            command(env, place / "broken", str(model), given, "--resume"), check=True, stdout=subprocess.DEVNULL
        )
        played = time.perf_counter() - began
        keys = collections.Counter(row.key for row in rows_of(place / "broken" / "episodes.jsonl"))
        model.unlink()
        without_weights(get_model(), model)
        replay = command(env, place / "whole", str(model), given, "--cache-mode", "replay")
        began = time.perf_counter()
        subprocess.run([*without_network(), *replay], check=True, stdout=subprocess.DEVNULL)
        one, two = ((place / name / "results.json").read_bytes() for name in ("broken", "whole"))
        facts = load_eval_run(place / "broken").facts
        return {
            "episodes": len(keys),
            "each_once": set(keys.values()) == {1} and len(keys) == total,
            "sittings": facts["sittings"],
            "same_results": one == two,
            "without_network": bool(without_network()),
            "seconds": round(played, 1),
            "replay_seconds": round(time.perf_counter() - began, 1),
            "score": json.loads(one)["scores"][0]["score"],
            "calls": json.loads(one)["scores"][0]["calls"],
        }


def main() -> None:
    """Measure both environments, and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, default=DATA, help="the folder of GSM8K's files; default: beside the project"
    )
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--samples", type=int, default=4)
    given = parser.parse_args()
    cases = {"MultiHop": ["arpo/MultiHop-v0"], "GSM8K": ["arpo/GSM8K-v0", "--env-set", f"data={given.data}"]}
    found: dict[str, Any] = {"tasks": given.tasks, "samples": given.samples}
    for name, env in cases.items():
        found[name] = measure(env, given)
        print(name, json.dumps(found[name]), flush=True)
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    assert all(found[name]["each_once"] and found[name]["same_results"] for name in cases)


if __name__ == "__main__":
    main()
