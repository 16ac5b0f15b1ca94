"""Estimators judged against true values, with trees of the real engine and a policy without a model."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
import pytest

from arpo_trainer.algorithms.credit import CREDITS, Credit, PathValues
from arpo_trainer.tree import RolloutTree
from benchmarks.laboratory import estimators
from benchmarks.laboratory.estimators import EstimatorStudy, judge_estimators
from benchmarks.laboratory.exact_values import exact_values
from benchmarks.laboratory.grid_run import AlgorithmChoice
from benchmarks.laboratory.logit_table import LogitTable, last_seen
from benchmarks.laboratory.tiny_model import tiny_model, tiny_tokenizer
from tests.laboratory.scripted_policy import ScriptedPolicy, scripted_ground

SHUFFLES = random.Random(0)


def shuffled(tree: RolloutTree, advantages: Sequence[float]) -> PathValues:
    """Give each trajectory the advantage of another one."""
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
    for kind, name, sign in (
        ("turn", "mse", -1),
        ("turn", "rank", 1),
        ("turn", "slope", 1),
        ("turn", "wrong_sign", -1),
    ):
        (ours, error), (theirs, other) = good[kind][name], broken[kind][name]
        assert sign * (ours - theirs) > 3 * (error**2 + other**2) ** 0.5, name
    assert good["cosine"]["all_groups"][0] > broken["cosine"]["all_groups"][0] + 0.3


def test_grpo_has_no_bias_towards_anything(ground: Any) -> None:
    found = judge_estimators(study(AlgorithmChoice("grpo", "grpo"), groups=12))["methods"]["grpo"]
    value, error = found["reward"]["turn"]["slope"]
    assert abs(value - 15 / 16) < 4 * error  # a trajectory is part of the mean it is compared with
    assert found["trees"]["tokens_not_known"] < 0.02
    value, error = found["trees"]["leaf_mean_bias"]
    assert abs(value) < 4 * error


def test_soft_and_hard_are_the_same_and_trees_are_grown_once(ground: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    grown: list[Any] = []
    grow = estimators.grow

    def counted(*given: Any) -> Any:
        grown.append(given)
        return grow(*given)

    monkeypatch.setattr(estimators, "grow", counted)
    given = {"branch_alpha": 0.9}
    methods = judge_estimators(
        study(
            AlgorithmChoice("soft", "random", given),
            AlgorithmChoice("hard", "random", {**given, "attribution": "hard"}),
            groups=3,
        )
    )["methods"]
    assert len(grown) == 1
    soft, hard = (methods[label]["reward"]["turn"] for label in ("soft", "hard"))
    assert [pair[0] for pair in soft.values()] == pytest.approx([pair[0] for pair in hard.values()], abs=1e-4)
    assert methods["soft"]["trees"]["forks_per_group"][0] > 1


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


@pytest.mark.parametrize(
    ("methods", "options", "error"),
    [
        ([AlgorithmChoice("a", "grpo"), AlgorithmChoice("a", "arpo")], {}, "given twice: a"),
        ([AlgorithmChoice("a", "grpo")], {"groups": 0}, "groups must be at least 1"),
        ([AlgorithmChoice("a", "grpo", {"seed": 3})], {}, "seed is no setting"),
        ([AlgorithmChoice("a", "grpo", {"temperature": 0.7})], {}, "temperature changes the true values"),
        ([], {}, "at least one method"),
    ],
)
def test_bad_studies_are_refused(methods: list[AlgorithmChoice], options: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        study(*methods, **options)


def test_a_policy_that_does_something_else_is_refused(tmp_path: Path) -> None:
    tiny_tokenizer().save_pretrained(tmp_path)
    tiny_model().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="could not be enumerated"):
        judge_estimators(study(AlgorithmChoice("a", "grpo"), policy=tmp_path))
