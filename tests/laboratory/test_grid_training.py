"""Runs of a grid as training takes them: settings find their place, and wrong ones the nearest name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from arpo_trainer.tree import RolloutTree, Trajectory
from benchmarks.laboratory.grid_run import GridRun

pytest.importorskip("torch")
grid_training = pytest.importorskip("benchmarks.laboratory.grid_training")
training_run = pytest.importorskip("benchmarks.laboratory.training_run")


def run_of(env: str = "short", budget: dict[str, int] | None = None, **settings: Any) -> GridRun:
    return GridRun("low", "arpo", env, 3, budget or {"calls": 9000}, settings)


def test_settings_find_their_place() -> None:
    spec = grid_training.spec_of(
        run_of(learning_rate=1e-4, groups=2, **{"policy.size": "2M", "knobs.routine": 5, "num_generations": 8})
    )
    assert (spec.algorithm, spec.label, spec.level, spec.seed, spec.groups) == ("arpo", "low", "short", 3, 2)
    assert spec.budget == {"tool_calls": 9000}
    assert spec.settings == {"learning_rate": 1e-4, "num_generations": 8}
    assert (spec.policy, spec.knobs) == ({"size": "2M"}, {"routine": 5})


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (run_of("shrt"), "did you mean 'short'"),
        (run_of(learning_rat=1), "no setting 'learning_rat'; did you mean learning_rate"),
        (run_of(**{"knobs.routines": 1}), "did you mean knobs.routine"),
        (run_of(**{"policy.level": "short"}), "no setting 'policy.level'"),
        (run_of(budget={"trajectories": 20}), "low, short: .*20"),
        (run_of(initial_rollouts=99), "low, short: "),
        (run_of(max_rows=9, max_steps=2), "low, short: max_rows, max_steps cannot be set here"),
        (run_of(groups=0), "groups must be a whole number of at least 1, got 0"),
        (run_of(test_tasks=0), "test_tasks must be a whole number"),
        (run_of(num_generations="many"), "low, short: "),
        (run_of(**{"policy.size": "3M"}), "size must be one of '0.8M'"),
        (run_of(**{"policy.demonstrations": "many"}), "demonstrations must be a whole number"),
        (run_of(**{"policy.short_share": 2.0}), "between 0 and 1, got 2.0"),
    ],
)
def test_runs_that_cannot_work_are_refused(run: GridRun, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        grid_training.GridRunCheck()(run)


def tree_of(rewards: list[float | None], origins: list[str]) -> RolloutTree:
    tree = RolloutTree([1])
    span = tree.add_span(None, "model", [2, 3], logprobs=[0.0, 0.0], entropies=[0.0, 0.0])
    pairs = zip(rewards, origins, strict=True)
    tree.trajectories = [Trajectory(span.index, origin, reward=reward) for reward, origin in pairs]  # type: ignore[arg-type]
    return tree


def test_success_counts_every_prompt_once_and_no_top_ups() -> None:
    easy = tree_of([1.0, 1.0, 1.0, 1.0], ["root", "root", "top-up", "top-up"])
    hard = tree_of([0.0, None, 0.0, 1.0], ["root", "root", "branch", "branch"])
    assert training_run.root_success([easy, hard]) == (0.5, 3)


def test_an_update_that_uses_a_rollout_twice_costs_twice() -> None:
    once, twice = training_run.CostCounter({}), training_run.CostCounter({}, 2)
    for counter in (once, twice):
        counter.add([tree_of([1.0], ["root"])])
    assert twice.total == {**once.total, "update_tokens": 2 * once.total["update_tokens"]}
    spec = grid_training.spec_of(run_of(budget={"trajectories": 1280}, num_iterations=2))
    assert training_run.run_config(spec, Path("unused")).max_steps == 2 * training_run.most_steps(spec, 64)
