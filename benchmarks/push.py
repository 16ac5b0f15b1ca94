"""Which algorithms push on a choice that is worth nothing? Trees of the real engine, credit of the rows as they stand.

    python -m benchmarks.push [ROW ...] [--groups 1500]        # rows of the registry; ROW=ALGORITHM:attribution=NAME

The world: a first call is good or bad, which alone decides the chance of success, 0.8 or 0.2. After every result the
policy calls again or answers, each with probability 1/2, at most four calls; neither changes anything but what follows:
how many further points the path has, and the entropy of the turn. The push is the gradient of the logit of calling
again after the first result, summed over all copies, mean over groups; it is 0 for credit without bias. Groups have 8
trajectories, 4 of them from the prompt; rewards are 0 or 1 and are not divided by their deviation.

Writes results/push.json.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import random
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import benchmarks.laboratory.paper_rows  # noqa: F401  (registers rows)
from arpo_env import ToolEnv
from arpo_trainer import Engine, RolloutSettings, RolloutTree, token_advantages
from arpo_trainer.algorithms.advantages import batch_advantages
from arpo_trainer.algorithms.credit import CREDITS
from arpo_trainer.algorithms.registry import ALGORITHMS, Algorithm
from arpo_trainer.backends.base import Generation, OnWindow, Request
from arpo_trainer.tree import Stopwatch
from benchmarks.laboratory.grid_run import parse_algorithm
from benchmarks.rollout_world import FixedTool, small_tokenizer

RESULTS = Path(__file__).resolve().parent / "results" / "push.json"
SUCCESS = {"good": 0.8, "bad": 0.2}
CALLS, TOTAL, ROOTS = 4, 8, 4
RIGHT, WRONG = "<answer>right</answer>", "<answer>wrong</answer>"
# units of reward: with a deviation, which is a random factor that a group shares, nothing is without bias
PLAIN = {"grpo": "grpo-no-std", "grpo-population": "grpo-no-std"}


class Hesitant:
    """A policy that calls once, and then tosses a coin for each further call."""

    trains, wants_messages = True, False

    def __init__(self, tokenizer: Any, success: dict[str, float], calls: int) -> None:
        self.tokenizer, self.success, self.calls, self.time = tokenizer, success, calls, Stopwatch()
        self.ids = functools.cache(lambda text: tokenizer(text, add_special_tokens=False)["input_ids"])

    async def begin(self) -> None:
        """It keeps nothing."""

    async def end(self) -> None:
        """It holds nothing."""

    async def generate(self, request: Request, on_window: OnWindow | None = None) -> Generation:
        """Write a call or an answer, by the request's seed."""
        draw = random.Random(request.seed)
        text = self.tokenizer.decode(request.ids).rpartition("assistant\n")[2]
        first, calls = text.partition("<search>")[2].partition("<")[0], text.count("</search>")
        if not calls:
            turn = f"<search>{draw.choice(list(self.success))}</search>"
        elif calls < self.calls and draw.random() < 0.5:
            turn = "<search>more</search>"
        else:
            turn = RIGHT if draw.random() < self.success[first] else WRONG
        ids = list(self.ids(turn))
        entropies = [0.9 if "more" in turn else 0.3] * len(ids)  # it hesitates where it calls again
        if on_window:
            on_window(entropies[: request.window])
        return Generation(ids, [-0.7] * len(ids), entropies, "stop")


def grow(
    groups: int, row: str, success: dict[str, float] | None = None, calls: int = CALLS, total: int = TOTAL
) -> list[RolloutTree]:
    """Grow groups as a row does, with rewards of 1 for a right answer and 0 for a wrong one."""
    tokenizer = small_tokenizer()
    env = ToolEnv("arpo/Arithmetic-v0", tools=[lambda: FixedTool("search", "seen")], max_tool_calls=calls)
    engine = Engine(
        Hesitant(tokenizer, success or SUCCESS, calls),
        tokenizer,
        env,
        RolloutSettings(algorithm=row, num_generations=total, initial_rollouts=ROOTS),
    )
    trees = asyncio.run(engine.rollout([env.tasks.task(0)] * groups))
    for trajectory in (one for tree in trees for one in tree.trajectories):
        trajectory.reward = float(trajectory.answer == "right")
    return trees


def pushes(trees: Sequence[RolloutTree], algorithm: Algorithm) -> dict[str, list[float]]:
    """Return the push of each group, after a good and after a bad first call."""
    found: dict[str, list[float]] = {name: [] for name in SUCCESS}
    name = PLAIN.get(algorithm.advantage, algorithm.advantage)
    for tree in trees:
        lengths = [[sum(tree.row(number).mask) for number in range(len(tree.trajectories))]]
        [own] = batch_advantages(name, [tree.rewards], lengths, [tree.starts()])
        total = dict.fromkeys(SUCCESS, 0.0)
        for number, row in enumerate(token_advantages(tree, own, algorithm.attribution)):
            call, result, choice, *_ = tree.path(number)
            place = len(call.ids) + len(result.ids)
            total["good" if "good" in call.text else "bad"] += row[place] * (0.5 if "search" in choice.text else -0.5)
        for first, push in total.items():
            found[first].append(push)
    return found


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and its standard error."""
    return statistics.fmean(values), statistics.stdev(values) / len(values) ** 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    usual = [name for name, row in ALGORITHMS.items() if not CREDITS[row.attribution].prepare]
    usual += [f"random-{name}=random:attribution={name}" for name in ("hard", "turn", "dedup")]
    usual += [f"{name}-fork={name}:attribution=fork" for name in ("arpo", "arpo-ranked", "spread")]
    parser.add_argument("rows", nargs="*", default=usual, metavar="ROW")
    parser.add_argument("--groups", type=int, default=1500)
    arguments = parser.parse_args()
    found = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {}
    for choice in map(parse_algorithm, arguments.rows):
        algorithm = replace(ALGORITHMS[choice.algorithm], **choice.settings)
        given = pushes(grow(arguments.groups, choice.algorithm), algorithm)
        found[choice.label] = {name: [round(x, 4) for x in mean_and_error(values)] for name, values in given.items()}
        sys.stdout.write(f"{choice.label}: {json.dumps(found[choice.label])}\n")
        sys.stdout.flush()
        RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
