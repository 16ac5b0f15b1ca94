"""Does the demo learn from its rewards, or from something else? The same recipe with rewards shuffled in the batch.

    python -m benchmarks.control [--recipe arithmetic-cpu]

Trains the recipe twice from the same cold start with the same seeds, at the same time, one thread each: as it is, and
with each batch's rewards dealt out at random. The first has to get better on held-out tasks, the second must not.
Prints both with 95 % intervals and writes benchmarks/results/control.json.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from arpo_trainer.run.recipes import read_settings
from arpo_trainer.run.train import train
from arpo_trainer.training.recorder import versions

RESULTS = Path(__file__).parent / "results"
KEPT = ("n", "accuracy", "accuracy_low", "accuracy_high", "reward", "reward_low", "reward_high", "tool_calls")


class ShuffledReward:
    """The environment's rewards of a batch, dealt out at random: same numbers, no meaning."""

    __name__ = "shuffled_reward"

    def __init__(self, seed: int = 0) -> None:
        self.rng = random.Random(seed)

    def __call__(self, env_reward: Sequence[float | None], **_: Any) -> list[float | None]:
        """Return a permutation of the rewards."""
        return self.rng.sample(list(env_reward), len(env_reward))


def run(recipe: str, folder: Path, shuffled: bool) -> dict[str, dict[str, float]]:
    """Train and return the evaluations by name."""
    settings = read_settings(recipe, []) | {
        "output_dir": str(folder),
        "save_final_model": False,
        "trace_every": 0,
        "threads": 1,
    }
    train(settings, ShuffledReward() if shuffled else None)
    lines = (folder / "eval.jsonl").read_text(encoding="utf-8").splitlines()
    return {row["name"]: {name: row[name] for name in KEPT} for row in map(json.loads, lines)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="arithmetic-cpu")
    arguments = parser.parse_args()
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as scratch, ProcessPoolExecutor(2, mp_context=spawn) as pool:
        tasks = {
            name: pool.submit(run, arguments.recipe, Path(scratch) / name, shuffled)
            for name, shuffled in (("as it is", False), ("rewards shuffled", True))
        }
        found = {name: task.result() for name, task in tasks.items()}
    for name, evaluations in found.items():
        for when, row in evaluations.items():
            print(
                f"{name:<18}{when:<8} accuracy {row['accuracy']:.2f} [{row['accuracy_low']:.2f}, "
                f"{row['accuracy_high']:.2f}]  reward {row['reward']:+.2f} [{row['reward_low']:+.2f}, "
                f"{row['reward_high']:+.2f}]  tool calls {row['tool_calls']:.2f}"
            )
    RESULTS.mkdir(exist_ok=True)
    facts = {"recipe": arguments.recipe, "versions": versions(), "evaluations": found}
    (RESULTS / "control.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
