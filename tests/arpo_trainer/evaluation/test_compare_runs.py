"""Comparisons of two runs: a true difference is found, none is not, and different tasks are refused."""

import random
from pathlib import Path

import pytest

from arpo_trainer.evaluation.episode_store import EvalRun, UnitRow
from arpo_trainer.evaluation.eval_metrics import compare_runs
from tests.arpo_trainer.evaluation.made_rows import FACTS, row, rows_of_values


def run(rows: list[UnitRow], name: str = "one") -> EvalRun:
    return EvalRun(Path(name), FACTS, rows, rows)


def simulated(rng: random.Random, gain: float) -> tuple[EvalRun, EvalRun]:
    """Two models on 500 tasks of very different difficulty, 4 samples each."""
    hard = [rng.betavariate(1, 1) * 0.95 for _ in range(500)]
    sides = [
        run(
            [row(f"t{n}", [float(rng.random() < share + plus) for _ in range(4)]) for n, share in enumerate(hard)], name
        )
        for name, plus in (("one", 0.0), ("two", gain))
    ]
    return sides[0], sides[1]


def test_a_difference_of_five_points_is_found_and_none_is_not() -> None:
    """Three runs; test_statistics.py counts in many how often the intervals and p-values are right."""
    rng, found, silent = random.Random(7), 0, 0
    for _ in range(3):
        [true] = compare_runs(*simulated(rng, 0.05))
        found += true.overall.p_value < 0.05 and true.overall.low > 0
        [none] = compare_runs(*simulated(rng, 0.0))
        silent += none.overall.low <= 0 <= none.overall.high
    assert found >= 2
    assert silent >= 2  # of 3; fewer has a probability of 1 in 140


def test_gained_and_lost_tasks_have_their_questions_and_broken_ones_are_counted() -> None:
    one = run(rows_of_values({"t0": [1.0, 1.0], "t1": [0.0, 1.0], "t2": [1.0], "t3": [None]}))
    two = run(rows_of_values({"t0": [0.0, 0.0], "t1": [1.0, 1.0], "t2": [1.0], "t3": [1.0]}), "two")
    [found] = compare_runs(one, two)
    assert [(each.task, each.question, each.first, each.second) for each in found.gained] == [
        ("t1", "question t1?", 0.5, 1.0)
    ]
    assert [each.task for each in found.lost] == ["t0"]
    assert (found.unscored, found.overall.tasks, found.apart) == (1, 3, 0)
    assert found.overall.difference == pytest.approx((0.5 - 1.0) / 3)
    [turned] = compare_runs(two, one)
    assert turned.overall.difference == -found.overall.difference
    assert turned.overall.p_value == found.overall.p_value
    [by_f1] = compare_runs(one, two, "f1")
    assert by_f1.overall.difference == found.overall.difference


def test_environments_are_compared_alone_and_together() -> None:
    def both(value: float) -> list[UnitRow]:
        return rows_of_values({"t0": [value], "t1": [1.0]}) + rows_of_values({"t0": [1 - value]}, env="MATH")

    [found] = compare_runs(run(both(0.0)), run(both(1.0), "two"))
    assert {env: each.difference for env, each in found.environments.items()} == {"GSM8K": 0.5, "MATH": -1.0}
    assert (found.overall.difference, found.overall.tasks) == (0.0, 3)


def test_different_tasks_are_refused_unless_only_common_ones_are_asked_for() -> None:
    one, two = rows_of_values({"t0": [1.0], "t1": [1.0]}), rows_of_values({"t1": [0.0], "t2": [1.0]})
    with pytest.raises(ValueError, match=r"different tasks: 2 are in one only .*GSM8K t0, GSM8K t2.*--common"):
        compare_runs(run(one), run(two, "two"))
    [found] = compare_runs(run(one), run(two, "two"), common=True)
    assert (found.overall.tasks, found.overall.difference, found.apart) == (1, -1.0, 2)
    two[0].question = "another one?"  # the same id in another file
    with pytest.raises(ValueError, match="no scored task in common"):
        compare_runs(run(one), run(two, "two"), common=True)


def test_other_commits_of_a_data_set_are_named(caplog: pytest.LogCaptureFixture) -> None:
    rows = rows_of_values({"t0": [1.0], "t1": [0.0]})
    one, two, local = (
        EvalRun(Path(name), {**FACTS, "environments": {"GSM8K": {"revision": revision}}}, rows, rows)
        for name, revision in (("one", "a" * 40), ("two", "b" * 40), ("local", ""))
    )
    compare_runs(one, local)
    assert not caplog.text
    compare_runs(one, two)
    assert f"GSM8K was read from the hub at {'a' * 40} and at {'b' * 40}" in caplog.text


def test_models_are_chosen_or_matched_by_label() -> None:
    rows = [*rows_of_values({"t0": [1.0]}), *rows_of_values({"t0": [0.0]}, model="b")]
    [found] = compare_runs(run(rows), run(rows), models=("a", "b"))
    assert (found.overall.difference, found.first, found.second) == (-1.0, "one: a", "one: b")
    assert [each.first for each in compare_runs(run(rows), run(rows, "two"))] == ["one: a", "one: b"]
    with pytest.raises(ValueError, match="compared with itself; name two of its models: --models a b"):
        compare_runs(run(rows), run(rows))
    with pytest.raises(ValueError, match="has no model 'c'; there is a, b"):
        compare_runs(run(rows), run(rows), models=("a", "c"))
    with pytest.raises(ValueError, match="no model of the same label: a, b and c"):
        compare_runs(run(rows), run(rows_of_values({"t0": [1.0]}, model="c"), "two"))
    with pytest.raises(ValueError, match="and no finished episode"):
        compare_runs(run(rows), run([], "two"))
