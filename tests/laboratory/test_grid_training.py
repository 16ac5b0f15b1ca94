"""Runs of a grid as training takes them: settings find their place, and wrong ones the nearest name."""

from typing import Any

import pytest

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
        (run_of(**{"policy.level": "short"}), "no setting 'policy.level'"),
        (run_of(budget={"trajectories": 20}), "low, short: .*20"),
        (run_of(max_rows=9, max_steps=2), "low, short: max_rows, max_steps cannot be set here"),
        (run_of(groups=0), "groups must be a whole number of at least 1, got 0"),
        (run_of(num_generations="many"), "low, short: "),
        (run_of(**{"policy.size": "3M"}), "size must be one of '0.8M'"),
        (run_of(**{"policy.demonstrations": "many"}), "demonstrations must be a whole number"),
        (run_of(**{"policy.short_share": 2.0}), "between 0 and 1, got 2.0"),
        (run_of("arithmetic", **{"knobs.notes": 9}), "notes must be a whole number from 1 to 7, got 9"),
        (run_of("arithmetic", **{"policy.routine": 5}), "less than the 5 calls that a task needs, got 5"),
    ],
)
def test_runs_that_cannot_work_are_refused(run: GridRun, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        grid_training.GridRunCheck()(run)
