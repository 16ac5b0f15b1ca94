"""Comparisons at equal cost: what a run's score is, and whether what is equal looks equal and what differs does not."""

from typing import Any

import numpy
import pytest

from benchmarks.laboratory.comparison_words import axis_rows, trouble_lines, verdict
from benchmarks.laboratory.equal_cost import compare_records
from benchmarks.laboratory.grid_run import AXES, parse_algorithm
from benchmarks.laboratory.run_curves import collapse_of, run_curve
from benchmarks.laboratory.run_store import GridPlan, Record
from tests.laboratory.synthetic_runs import record_of

ENVS = ["short", "long-critical"]


def grid_of(seeds: int = 6, shift: int = 0, better: float = 0.5, budget: dict[str, int] | None = None) -> Any:
    """A plan of GRPO, GRPO again and an algorithm of another gain, and its records."""
    algorithms = [parse_algorithm(text) for text in ("grpo", "again=grpo", "arpo")]
    plan = GridPlan(algorithms, ENVS, list(range(shift, shift + seeds)), budget or {})
    return plan, [record_of(spec, better if spec.label == "arpo" else 0.5) for spec in plan.specs()]


def run_of(
    success: list[float], final: float | None = None, episodes: int = 100, step: int = 10, **more: Any
) -> Record:
    """A record whose steps cost `step` on every axis."""
    curve = [
        {"success": value, "episodes": episodes, **{name: step * (at + 1) for name in AXES.values()}}
        for at, value in enumerate(success)
    ]
    known = {"label": "grpo", "env": "short", "seed": 0, "status": "finished", "curve": curve}
    return {**known, "final": {} if final is None else {"success": final, "episodes": 256}, **more}


def test_a_policy_has_cost_what_the_steps_before_it_have_spent() -> None:
    curve = run_curve(run_of([0.1, 0.2, 0.3, 0.4], final=0.9), "calls")
    assert curve.cost.tolist() == [0.0, 10.0, 20.0, 30.0]
    assert curve.total == 40.0
    assert curve.score(20, window=0) == 0.3
    assert curve.score(30, window=10) == 0.4
    assert curve.score(30, window=11) == pytest.approx(0.35)
    assert curve.score(19, window=5) == 0.2  # no policy is in the window: the last before it
    assert curve.score(40, window=20) == 0.4  # the last policy was measured otherwise, and counts in no window
    record = run_of([0.0, 1.0])  # points count by their episodes
    record["curve"][1]["episodes"] = 300
    assert run_curve(record, "tokens").score(20, window=20) == 0.75


def test_the_mean_on_the_way_is_the_area_under_the_curve() -> None:
    curve = run_curve(run_of([0.0, 0.2, 0.4], final=0.6), "tokens")
    assert curve.mean_up_to(30) == pytest.approx(0.3)
    assert curve.mean_up_to(15) == pytest.approx(0.15)
    assert run_curve(run_of([0.0, 0.2]), "tokens").mean_up_to(20) == pytest.approx((0.1 + 0.2) / 2)


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (run_of([0.3, 0.3, 0.2, 0.2, 0.3, 0.3], final=0.3), ""),
        (run_of([0.3, 0.3, 0.05, 0.05, 0.3], final=0.3), "success fell from 0.30 to 0.05"),
        (run_of([0.1, 0.1, 0.8, 0.8], final=0.15), "the last policy has 0.15, the best had 0.80"),
        (run_of([0.1], status="collapsed"), "the run was stopped as collapsed"),
    ],
)
def test_a_collapse_is_found_and_chance_is_none(record: Record, words: str) -> None:
    assert collapse_of(record) == words


def test_chance_alone_seldom_looks_like_a_collapse() -> None:
    rng = numpy.random.default_rng(0)
    flat = [run_of(list(rng.binomial(32, 0.15, 60) / 32), final=0.15, episodes=32) for _ in range(100)]
    assert sum(bool(collapse_of(record)) for record in flat) <= 5


def test_grpo_against_itself_is_not_told_apart_and_a_better_one_is() -> None:
    """Five grids of other seeds, at two budgets."""
    verdicts: dict[str, list[str]] = {"again": [], "arpo": []}
    for shift in range(0, 50, 10):
        plan, records = grid_of(seeds=10, shift=shift, better=0.66)
        for budget in (1600, 900):
            data = compare_records(plan, records, {"trajectories": budget}, axes=["trajectories"])
            part = data["axes"]["trajectories"]
            for label, found in verdicts.items():
                found.append(verdict(part["overall"][label]))
    assert verdicts["again"].count("") >= 0.85 * len(verdicts["again"])
    assert verdicts["arpo"].count("more") >= 0.9 * len(verdicts["arpo"])


def test_the_budget_is_what_all_runs_of_an_environment_have_spent() -> None:
    plan, records = grid_of()
    data = compare_records(plan, records)
    least = min(record["curve"][-1]["tool_calls"] for record in records if record["env"] == "short")
    assert data["axes"]["calls"]["budgets"]["short"] == least
    assert compare_records(plan, records, {"calls": 500})["axes"]["calls"]["budgets"] == dict.fromkeys(ENVS, 500)
    with pytest.raises(ValueError, match=r"budget calls=999999 is more than what .* has spent \(\d+\)"):
        compare_records(plan, records, {"calls": 999_999})
    with pytest.raises(ValueError, match=r"trajectories=63 is less than what .* \(64\).* at trajectories=64 or more"):
        compare_records(plan, records, {"trajectories": 63})


def test_a_run_that_ended_before_its_budget_sets_a_smaller_one_and_is_named() -> None:
    plan, records = grid_of(budget={"trajectories": 1600})
    assert compare_records(plan, records)["axes"]["trajectories"]["budgets"] == dict.fromkeys(ENVS, 1600)
    records[0]["curve"] = records[0]["curve"][:20]
    data = compare_records(plan, records)
    assert data["axes"]["trajectories"]["budgets"]["short"] == 1280
    assert "short is compared at 1,280 trajectories of 1,600: a run ended there" in list(trouble_lines(data))


def test_a_collapsed_run_counts_and_sets_no_budget() -> None:
    plan, records = grid_of()
    before = compare_records(plan, records)["axes"]["tokens"]
    fallen = records[0]
    fallen["curve"] = [{**point, "success": 0.0} for point in fallen["curve"][:3]]
    fallen |= {"status": "collapsed", "final": {}}
    data = compare_records(plan, records)
    after = data["axes"]["tokens"]
    assert after["budgets"]["short"] >= before["budgets"]["short"]
    assert after["environments"]["short"]["grpo"]["runs"] == 6
    assert after["environments"]["short"]["grpo"]["mean"] < before["environments"]["short"]["grpo"]["mean"]
    assert any(line.startswith("collapsed: grpo, short, seed 0") for line in trouble_lines(data))
    assert axis_rows(data, "tokens")[1][1][-1] == "1"


def test_failed_and_missing_runs_are_named_and_pairs_are_those_that_both_have() -> None:
    plan, records = grid_of()
    failed = {"status": "failed", "error": "no luck", "curve": [], "final": {}}
    data = compare_records(plan, [records[0] | failed, *records[1:-1]])
    row = data["axes"]["tokens"]["environments"]["short"]["arpo"]
    assert (row["paired"], row["runs"], row["pairs"]) == (True, 6, 5)
    assert data["missing"] == 2
    lines = "\n".join(trouble_lines(data))
    assert "failed, in no table: grpo, short, seed 0: no luck" in lines
    assert "missing: 2 of 36 runs" in lines
    with pytest.raises(ValueError, match="no run of this comparison has been finished"):
        compare_records(plan, [records[0] | failed])
    with pytest.raises(ValueError, match="baseline must be one of"):
        compare_records(plan, records, baseline="dapo")
