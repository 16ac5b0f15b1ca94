"""Metrics of an evaluation: against brute force, in any order, and without what broke."""

import json
import random
import statistics
from pathlib import Path
from typing import Any

import pytest

from arpo_trainer.evaluation.episode_store import EvalRun, UnitRow
from arpo_trainer.evaluation.eval_metrics import compare_runs, mean_seconds, results, usage_of, values_of, write_results
from arpo_trainer.evaluation.suites import PAPER_SETS, SUITES, published, published_for, suite, suite_table
from arpo_trainer.statistics import wilson_interval
from envs_registry import get_spec
from tests.arpo_trainer.evaluation.made_rows import FACTS, entry, row, rows_of_values


def score_of(rows: Any, facts: Any = FACTS) -> dict[str, Any]:
    [score] = results(rows, facts)["scores"]
    return dict(score)


def draw(seed: int, tasks: int = 30, samples: int = 8) -> dict[str, list[float | None]]:
    rng = random.Random(seed)
    return {
        f"t{n}": [rng.choices([1.0, 0.5, 0.0, None], [4, 1, 4, 1])[0] for _ in range(samples)] for n in range(tasks)
    }


def test_partly_right_is_not_right_and_f1_is_a_mean() -> None:
    score = score_of(rows_of_values({"t0": [1.0], "t1": [0.5], "t2": [0.0], "t3": [None]}))
    assert score["score"]["mean"] == score["metrics"]["em"]["mean"] == pytest.approx(1 / 3, abs=1e-6)
    assert score["metrics"]["f1"]["mean"] == score["metrics"]["reward"]["mean"] == 0.5
    low, high = wilson_interval(1, 3)
    assert (score["score"]["low"], score["score"]["high"]) == (round(low, 6), round(high, 6))
    assert (score["broken"], score["episodes"], score["scored"]) == ({"sandbox": 1}, 4, 3)
    f1 = {**FACTS, "environments": {"GSM8K": {"metric": "f1"}}}
    assert score_of(rows_of_values({"t0": [1.0], "t1": [0.5]}), f1)["score"]["mean"] == 0.75


def test_results_are_the_same_in_any_order_and_with_any_times() -> None:
    rows = [*rows_of_values(draw(1)), *rows_of_values(draw(2), model="b"), *rows_of_values(draw(3), env="MATH")]
    rows.append(row("t0", [0.0], attempt=2))
    text = results(rows, FACTS)
    for seed in range(5):
        random.Random(seed).shuffle(rows)
        for each in rows:
            each.trace = (seed, seed)
            for episode in each.episodes:
                episode.seconds = seed
        assert results(rows, FACTS) == text
    # a whole attempt replaces an earlier one
    kept = [each for each in rows if each.attempt == 2 or each.key != rows_of_values({"t0": [0.0]})[0].key]
    assert results(kept, FACTS) == text


def test_levels_categories_and_tools() -> None:
    rows = [
        row("t0", [], level="1", category="x", episodes=[entry(1.0, calls={"python": 2}, tokens=10, turns=2)]),
        row("t1", [], level="1", category="y", episodes=[entry(0.0, calls={"search": 4}, tokens=20, turns=4)]),
        row("t2", [], level="2", category="y", episodes=[entry(1.0, tokens=30, turns=1)]),
        row("t3", [None], level="2"),
    ]
    score = score_of(rows)
    assert {name: part["mean"] for name, part in score["levels"].items()} == {"1": 0.5, "2": 1.0}
    assert {name: part["tasks"] for name, part in score["categories"].items()} == {"x": 1, "y": 2}
    assert score["calls"] == {"python": 0.666667, "search": 1.333333}
    # ARPO: accuracy * T / (T + 0.1) * 100 with T = 2; Tool-Star: right ones among those that used tools
    assert score["tool_productivity"] == pytest.approx(2 / 3 * 2 / 2.1 * 100, abs=1e-6)
    assert (score["tool_efficiency"], score["tasks_with_tools"]) == (0.5, 0.666667)
    assert (score["tokens"], score["turns"], score["outcomes"]) == (20.0, 2.333333, {"answered": 3, "failed": 1})
    assert mean_seconds(rows) == {("a", "GSM8K"): 0.0}


def test_vectors_of_tool_star_and_deepagent(shared: Path) -> None:
    stored = json.loads((shared / "spec" / "vectors.json").read_text(encoding="utf-8"))["vectors"]
    efficiency, product = (next(one for one in stored if one["id"] == f"toolstar.{name}") for name in ("te", "m1m2"))
    episodes = enumerate(zip(efficiency["inputs"]["correct"], efficiency["inputs"]["tool_calls"], strict=True))
    score = score_of(
        [row(f"t{n}", [], episodes=[entry(float(right), calls={"search": calls})]) for n, (right, calls) in episodes]
    )
    assert score["tool_efficiency"] == pytest.approx(efficiency["expected"]["TE"], abs=1e-6)
    given = product["inputs"]
    assert (score["tasks_with_tools"], score["average_actions"]) == (given["usage_rate"], given["mean_calls"])
    assert score["m1m2"] == pytest.approx(product["expected"]["value"], abs=product["tol"])
    assert score["answers_per_call"] == 0.5


def test_nothing_scored_and_one_task_are_still_json(tmp_path: Path) -> None:
    score = score_of(rows_of_values({"t0": [None]}))
    assert (score["score"], score["pass"], score["metrics"], score["tokens"]) == (None, {}, {}, None)
    rows = [row("t0", [], episodes=[entry(1.0, components={"accuracy": 1.0, "own": 7.0})])]
    write_results(tmp_path, rows, FACTS)
    read = json.loads((tmp_path / "results.json").read_text())
    assert read["scores"][0]["metrics"]["own"] == {"mean": 7.0, "low": None, "high": None, "tasks": 1, "samples": 1}


def test_a_component_of_some_graders_counts_where_it_is() -> None:
    """HLE mixes judged questions and multiple choice; an unanswered question was seen by no grader and is wrong."""
    judged, choice = {"accuracy": 1.0, "correct": 1.0}, {"accuracy": 0.0}
    rows = [
        row("t0", [], episodes=[entry(1.0, components=judged)]),
        row("t1", [], episodes=[entry(0.0, components=choice)]),
        row("t2", [], episodes=[entry(0.0, components=choice, answer=None)]),
    ]
    assert values_of(rows, "correct") == {"t0": [1.0]}
    assert values_of([rows[0], rows[2]], "correct") == {"t0": [1.0], "t2": [0.0]}
    with pytest.raises(ValueError, match="no episode has the metric 'corect'; there is accuracy, correct, reward; did"):
        values_of(rows, "corect")


def test_cost_needs_prices_and_counts_broken_episodes() -> None:
    used = {"context": 3_000_000, "cached": 1_000_000, "calls": {"search": 500}}
    rows = [row("t0", [], episodes=[entry(None, **used)], generated=1_000_000)]
    prices = {"input": 1.0, "cached": 0.25, "output": 4.0}

    def usd(search_price: float | None = 5.0, **model: Any) -> float | None:
        facts = {"models": {"a": model}, "environments": {"GSM8K": {"search_price": search_price}}}
        return usage_of(facts, rows)["usd"]

    assert usd(price=prices, kind="endpoint") == pytest.approx(2 + 0.25 + 4 + 2.5)
    assert usd(kind="transformers") == pytest.approx(2.5)
    assert usd(kind="endpoint") is None
    assert usd(None, kind="transformers") is None


@pytest.mark.parametrize("name", SUITES)
def test_suites_are_of_registered_environments_with_their_options(name: str) -> None:
    for each in suite(name):
        spec = get_spec(each.env)
        assert each.options.get("split", spec.splits[0]) in spec.splits
        assert set(each.options) <= {"split"}
        assert each.metric == ("f1" if spec.scorer == "qa" else "accuracy")
    assert {line[1] for line in suite_table() if line[0] == name} == {each.env for each in suite(name)}


@pytest.mark.parametrize(("wrong", "near"), [("deepserch", "deepsearch"), ("gaia", "arpo/GAIA-v0")])
def test_an_unknown_suite_names_the_nearest(wrong: str, near: str) -> None:
    with pytest.raises(ValueError, match=f"did you mean '{near}'"):
        suite(wrong)


def test_published_tables_are_complete_and_agree_with_their_averages() -> None:
    assert len(SUITES["papers"]) == len(PAPER_SETS) == 13
    # the averages that the paper prints beside its table 1
    printed = {
        ("Qwen2.5-3B", "ARPO"): 52.8,
        ("Qwen2.5-3B", "GRPO"): 50.4,
        ("Llama3.1-8B", "ARPO"): 55.3,
        ("Qwen2.5-7B", "ARPO"): 58.3,
        ("Qwen2.5-7B", "DAPO"): 54.8,
        ("Llama3.1-8B", "DAPO"): 50.4,
    }
    for (model, method), average in printed.items():
        rows = [r for r in published() if r["source"].endswith("table 1")]
        mine = [r for r in rows if (r["model"], r["method"]) == (model, method)]
        assert tuple(r["set"] for r in mine) == SUITES["reasoning"]
        assert statistics.fmean(r["value"] for r in mine) == pytest.approx(average, abs=0.06)


def test_what_is_not_comparable_is_said() -> None:
    fine = published_for("arpo/GAIA-v0", "accuracy", {"tasks": 103})
    assert (fine["differs"], fine["subset"]) == ([], "the 103 text-only of 165 (validation)")
    assert {"Qwen3-8B", "Qwen3-14B"} <= {each["model"] for each in fine["rows"]}
    assert len(published_for("arpo/HotpotQA-v0", "accuracy", {"tasks": 50})["differs"]) == 3
    assert published_for("arpo/HotpotQA-v0", "f1", {"tasks": 200, "options": {"data": "x"}})["differs"] == []
    assert published_for("mine/Own-v0", "accuracy", {}) == {}


def run(rows: list[UnitRow], name: str = "one") -> EvalRun:
    return EvalRun(Path(name), FACTS, rows, rows)


def test_gained_and_lost_tasks_have_their_questions_and_broken_ones_are_counted() -> None:
    one = run(rows_of_values({"t0": [1.0, 1.0], "t1": [0.0, 1.0], "t2": [1.0], "t3": [None]}))
    two = run(rows_of_values({"t0": [0.0, 0.0], "t1": [1.0, 1.0], "t2": [1.0], "t3": [1.0]}), "two")
    [found] = compare_runs(one, two)
    [gained], [lost] = found.gained, found.lost
    assert (gained.task, gained.question, gained.first, gained.second) == ("t1", "question t1?", 0.5, 1.0)
    assert lost.task == "t0"
    assert (found.unscored, found.overall.tasks, found.apart) == (1, 3, 0)
    assert found.overall.difference == pytest.approx((0.5 - 1.0) / 3)
    [turned] = compare_runs(two, one)
    assert turned.overall.difference == -found.overall.difference
    assert turned.overall.p_value == found.overall.p_value


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
    cases: list[tuple[EvalRun, tuple[str, str] | None, str]] = [
        (run(rows), None, "compared with itself; name two of its models: --models a b"),
        (run(rows), ("a", "c"), "has no model 'c'; there is a, b"),
        (run(rows_of_values({"t0": [1.0]}, model="c"), "two"), None, "no model of the same label: a, b and c"),
        (run([], "two"), None, "and no finished episode"),
    ]
    for other, models, words in cases:
        with pytest.raises(ValueError, match=words):
            compare_runs(run(rows), other, models=models)
