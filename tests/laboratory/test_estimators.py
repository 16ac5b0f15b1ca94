"""Estimators judged against true values, with trees of the real engine; errors of credit; the command; the tables."""

import json
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
import pytest

from arpo_trainer.algorithms.credit import CREDITS, Credit, PathValues
from arpo_trainer.tree import RolloutTree
from benchmarks.laboratory import estimators
from benchmarks.laboratory.__main__ import main
from benchmarks.laboratory.credit_errors import CreditSample, credit_errors, jackknife
from benchmarks.laboratory.estimators import EstimatorStudy, judge_estimators
from benchmarks.laboratory.exact_values import exact_values
from benchmarks.laboratory.grid_run import AlgorithmChoice
from benchmarks.laboratory.logit_table import LogitTable, batch_cosines, last_seen, squared_mean
from benchmarks.laboratory.tiny_model import tiny_model, tiny_tokenizer
from tests.laboratory.scripted_policy import ScriptedPolicy, scripted_ground

SHUFFLES = random.Random(0)


def shuffled(tree: RolloutTree, advantages: Sequence[float]) -> PathValues:
    order = SHUFFLES.sample(list(advantages), len(advantages))
    return [[own] * len(tree.path(number)) for number, own in enumerate(order)]


@pytest.fixture
def ground(monkeypatch: pytest.MonkeyPatch) -> estimators.Ground:
    """Worlds with a scripted policy in place of a model."""
    return scripted_ground(monkeypatch)


def study(*methods: AlgorithmChoice, **options: Any) -> EstimatorStudy:
    return EstimatorStudy("short", methods, tasks=2, **{"groups": 8, **options})


def test_shuffled_credit_is_told_apart_from_grpo(ground: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CREDITS, "shuffled", Credit(shuffled))
    methods = judge_estimators(
        study(AlgorithmChoice("grpo", "grpo"), AlgorithmChoice("broken", "grpo", {"attribution": "shuffled"}))
    )
    good, broken = (methods["methods"][label]["reward"] for label in ("grpo", "broken"))
    for name, sign in (("mse", -1), ("rank", 1), ("slope", 1), ("wrong_sign", -1)):
        (ours, error), (theirs, other) = good["turn"][name], broken["turn"][name]
        assert sign * (ours - theirs) > 3 * (error**2 + other**2) ** 0.5, name
    assert good["cosine"]["all_groups"][0] > broken["cosine"]["all_groups"][0] + 0.3


def test_grpo_has_no_bias_towards_anything(ground: Any) -> None:
    found = judge_estimators(study(AlgorithmChoice("grpo", "grpo"), groups=12))["methods"]["grpo"]
    value, error = found["reward"]["turn"]["slope"]
    assert abs(value - 15 / 16) < 4 * error  # a trajectory is part of the mean it is compared with
    assert found["trees"]["tokens_not_known"] < 0.02
    value, error = found["trees"]["leaf_mean_bias"]
    assert abs(value) < 4 * error


def test_the_same_seed_gives_the_same_numbers(ground: Any) -> None:
    first, second = (judge_estimators(study(AlgorithmChoice("arpo", "arpo"), groups=2)) for _ in range(2))
    assert first == second


def test_the_gradient_of_the_table_is_that_of_the_value(ground: Any) -> None:
    """A step along a row of the table changes the value as the gradient says."""
    values, step = ground.values[0], 1e-4
    table = LogitTable()
    gradient = table.exact(values, last_seen(values))
    first = max(gradient, key=lambda number: abs(gradient[number]))
    seen, prefix, token = next(entry for entry, number in table.entries.items() if number == first)
    env, policy = ground.env, ScriptedPolicy(ground.env)

    class Moved:
        def token_probabilities(self, histories: Any, turns: Any) -> Any:
            found = policy.token_probabilities(histories, turns)
            column = numpy.array([turn[: len(prefix)] == prefix for turn in turns])
            chosen = numpy.array([turn[len(prefix)] == token for turn in turns])
            for row, history in enumerate(histories):
                if history[-len(seen) :] == seen:
                    share = found[row, column & chosen, len(prefix)].max()
                    scale = numpy.where(chosen, numpy.exp(step), 1.0) / (1 + share * (numpy.exp(step) - 1))
                    found[row, column, len(prefix)] *= scale[column]
            return found

    task = env.tasks.task(0)
    moved = exact_values(env, task, policy.renderer, Moved(), smallest=1e-6)
    assert (moved.start.value - values.start.value) / step == pytest.approx(gradient[first], rel=0.02)


def test_a_policy_that_does_something_else_is_refused(tmp_path: Path) -> None:
    tiny_tokenizer().save_pretrained(tmp_path)
    tiny_model().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="could not be enumerated"):
        judge_estimators(study(AlgorithmChoice("a", "grpo"), policy=tmp_path))


GROUPS, CELLS = 400, 10


def made_up(bias: float, noise: float, slope: float = 1.0) -> CreditSample:
    """Each group samples each cell once; the true advantages are those of the cells."""
    rng = numpy.random.default_rng(0)
    group, cell = numpy.divmod(numpy.arange(GROUPS * CELLS), CELLS)
    true = numpy.linspace(-0.5, 0.4, CELLS)[cell]
    given = slope * true + bias + noise * rng.standard_normal(len(true))
    return CreditSample(group, cell, 1.0 + (cell % 2), given, true, cell == 5)


def test_bias_and_variance_are_told_apart() -> None:
    found = credit_errors(made_up(bias=0.2, noise=0.5))
    assert found["bias"] == pytest.approx(0.2, abs=0.03)
    assert found["squared_bias"] == pytest.approx(0.04, abs=0.01)
    assert found["variance"] == pytest.approx(0.25, abs=0.02)
    assert found["mse"] == pytest.approx(found["squared_bias"] + found["variance"])
    assert found["slope"] == pytest.approx(1, abs=0.1)
    assert found["worthless_bias"] == pytest.approx(0.2, abs=0.1)


def test_signs_and_ranks() -> None:
    right, turned = credit_errors(made_up(0.0, 0.0, 2.0)), credit_errors(made_up(0.0, 0.0, -1.0))
    assert (right["wrong_sign"], right["rank"], right["slope"]) == pytest.approx((0, 1, 2))
    assert (turned["wrong_sign"], turned["rank"], turned["slope"]) == pytest.approx((1, -1, -1))
    assert credit_errors(made_up(0.0, 0.0, 0.0))["silent"] == 1


def test_the_jackknife_of_a_mean_is_its_standard_error() -> None:
    values = numpy.random.default_rng(1).standard_normal(64)
    value, error = jackknife(lambda groups: {"mean": float(values[groups].mean())}, 64, 4)["mean"]
    assert value == pytest.approx(values.mean())
    # 16 rounds of four groups
    assert error == pytest.approx(values.reshape(16, 4).mean(axis=1).std(ddof=1) / 4)
    assert math.isnan(jackknife(lambda groups: {"mean": 1.0}, 4, 4)["mean"][1])


def test_directions_of_batches() -> None:
    rng = numpy.random.default_rng(2)
    exact = numpy.array([1.0, 0.0, 0.0])
    rows = exact + rng.standard_normal((900, 3))
    small, large = batch_cosines(rows, exact, 2.5)[0], batch_cosines(rows, exact, 50)[0]
    assert small < large < 1
    assert squared_mean(rows) == pytest.approx(1, abs=0.2)
    assert squared_mean(rows - exact) == pytest.approx(0, abs=0.02)


FORM = ["estimators", "--groups", "2", "--tasks", "2"]


def test_tables_and_json(ground: Any, tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "new" / "estimators.json"
    methods = ["grpo", "fork=random:attribution=fork,branch_alpha=0.9"]
    assert main([*FORM, "--algorithms", *methods, "--set", "num_generations=8", "--output", str(file)]) == 0
    printed = capsys.readouterr().out
    assert "VARIANCE" in printed
    assert "WORTHLESS PUSH" in printed
    data = json.loads(file.read_text())
    assert data["study"]["methods"]["fork"] == {"algorithm": "random", "attribution": "fork", "branch_alpha": 0.9}
    assert data["methods"]["grpo"]["cost_per_group"]["trajectories"] == 8


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--algorithms", "a=arpo:attribution=frok"], "did you mean 'fork'"),
        (["--set", "knobs.slipp=0.1"], "did you mean 'slip'"),
        (["--algorithms", "grpo", "grpo"], "given twice: grpo"),
        (["--algorithms", "a=grpo:temperature=0.7"], "temperature changes the true values"),
    ],
)
def test_bad_input_is_named(capsys: Any, words: list[str], error: str) -> None:
    assert main([*FORM, *words]) == 1
    assert error in capsys.readouterr().err
