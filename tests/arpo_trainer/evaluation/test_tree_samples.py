"""Scores of trees of a policy whose accuracy is 0.5: 0.2 if it answers at once, 0.8 after a call, half of each."""

import json
import math
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from arpo_trainer.backends.base import Generation, Request
from arpo_trainer.cli.play_commands import summary_table
from arpo_trainer.evaluation.episode_store import EpisodeStore, UnitKey, load_eval_run
from arpo_trainer.evaluation.eval_metrics import results, values_of
from arpo_trainer.evaluation.log_formats import exported_sets
from arpo_trainer.rollout.metrics import rollout_metrics
from arpo_trainer.tree import RolloutTree, Stopwatch
from benchmarks.laboratory.training_run import root_success
from tests.arpo_trainer import folding_policy
from tests.arpo_trainer.text_policy import TextPolicy

CALL = "<think>s</think><search>x</search>"


@dataclass
class Coin(TextPolicy):
    """Calls or answers by chance, and is less sure after a call, which forks there."""

    tokenizer: Any
    gold: str
    time: Stopwatch = field(default_factory=Stopwatch)

    async def generate(self, request: Request, on_window: Any = None) -> Generation:
        called = "<result>\n" in self.tokenizer.decode(request.ids)
        rng = random.Random(request.seed)
        answer = self.gold if rng.random() < (0.8 if called else 0.2) else "unknown"
        text = f"<think>d</think><answer>\\boxed{{{answer}}}</answer>" if called or rng.random() < 0.5 else CALL
        return self.said(request, text, 2.0 if called else 0.1, on_window)


def grown(tokenizer: Any, algorithm: str, tasks: int) -> list[RolloutTree]:
    env, [task], _ = folding_policy.multihop(0, count=1, search_results=1)
    chosen = {"algorithm": algorithm, "num_generations": 8, "initial_rollouts": 4}
    return folding_policy.play(Coin(tokenizer, task.answers[0]), env, [task] * tasks, 4000, **chosen)


@pytest.mark.parametrize(("algorithm", "tasks", "planned"), [("arpo", 200, 4), ("aepo", 80, 1)])
def test_every_number_of_a_tree_is_the_policy_s(
    algorithm: str, tasks: int, planned: int, tokenizer: Any, tmp_path: Path
) -> None:
    trees = grown(tokenizer, algorithm, tasks)
    with EpisodeStore(tmp_path) as store:
        for number, tree in enumerate(trees):
            store.add(UnitKey("a", "MultiHop", f"t{number}", 0), number, tree)
    (tmp_path / "run.json").write_text(json.dumps({"kind": "eval"}))
    run = load_eval_run(tmp_path)
    [found] = results(run.rows, run.facts)["scores"]
    samples = tasks * planned
    near = 3 * 0.5 / math.sqrt(samples)
    exported = [each.entry.reward for one in exported_sets(run, "a") for each in one.episodes()]
    by_task = [value for each in values_of(run.rows).values() for value in each]
    metrics = rollout_metrics(trees)
    shares = {
        "results.json": found["score"]["mean"],
        "pages": sum(by_task) / samples,
        "exports": sum(each or 0.0 for each in exported) / samples,
        "training": metrics["accuracy"],
        "training's calls": metrics["tool_calls"],
        "laboratory": root_success(trees)[0],
        "arpo rollout": float(dict(summary_table(trees))["ACCURACY"].split()[0]),
    }
    assert shares == {name: pytest.approx(0.5, abs=near) for name in shares}
    assert metrics["reward"] == pytest.approx(metrics["accuracy"])
    pairs = {"pass@2": 0.75, "pass^2": 0.25} if planned > 1 else {}
    assert found["pass"] == pytest.approx(found["pass"] | pairs, abs=1.5 * near)
    # what forked is there and counted apart
    assert (found["score"]["samples"], found["episodes"], len(exported)) == (samples, 8 * tasks, samples)
    leaves = [each.components["accuracy"] for tree in trees for each in tree.trajectories]
    assert metrics["accuracy_leaves"] == pytest.approx(sum(leaves) / len(leaves))
