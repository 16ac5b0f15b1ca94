"""Aggregates of runs: known values, intervals that hold as often as they say, and pages drawn from stored runs."""

import json
import math
from pathlib import Path
from typing import Any

import numpy
import pytest

from benchmarks.laboratory.comparison_files import draw_comparison, write_comparison
from benchmarks.laboratory.equal_cost import compare_records
from benchmarks.laboratory.run_aggregates import difference, improvement, interquartile_mean, tail_level
from benchmarks.laboratory.run_store import load_comparison
from scripts import estimator_tables, laboratory_tables, real_model_tables, scale_tables, whole_path_tables
from scripts.laboratory_tables import RESULTS, ROOT

TRIALS = 200


def normal_runs(seed: int, seeds: int, envs: int, mean: float = 0.5) -> list[numpy.ndarray]:
    rng = numpy.random.default_rng([seed, round(1000 * mean)])
    return [rng.normal(mean + 0.1 * env, 0.1, seeds) for env in range(envs)]


def test_the_interquartile_mean_leaves_out_a_quarter_on_each_side() -> None:
    assert interquartile_mean([9.0, 1.0, 2.0, 4.0]) == 3.0
    assert interquartile_mean(numpy.arange(10.0)) == numpy.arange(2.0, 8.0).mean()
    assert interquartile_mean([1.0, 2.0, 6.0]) == 3.0
    assert interquartile_mean([[0.0, 1.0, 2.0, 9.0]] * 3).tolist() == [1.5] * 3


def test_the_probability_of_improvement_counts_ties_half_and_each_environment_once() -> None:
    assert improvement([[1.0, 3.0]], [[0.0, 3.0]]).value == pytest.approx((1 + 0 + 1 + 0.5) / 4)
    assert improvement([[1.0], [0.0, 0.0, 0.0]], [[0.0], [1.0]]).value == 0.5
    certain = improvement([[1.0, 2.0, 3.0]], [[0.0, 0.1, 0.2]])
    assert certain.value == certain.high == 1.0
    assert 0.3 < certain.low < 0.6  # three of three say little


@pytest.mark.parametrize(("seeds", "envs", "paired"), [(3, 1, True), (3, 4, False), (5, 1, True), (10, 4, True)])
def test_intervals_of_equal_algorithms_contain_0_in_about_95_of_100(seeds: int, envs: int, paired: bool) -> None:
    held = 0
    for trial in range(TRIALS):
        found = difference(normal_runs(trial, seeds, envs), normal_runs(trial + 999, seeds, envs), paired, seed=trial)
        held += found.low <= 0.0 <= found.high
    assert 0.90 <= held / TRIALS < 1.0


def test_pairs_remove_what_seeds_have_in_common() -> None:
    common = numpy.random.default_rng(0).normal(0.5, 0.2, 10)
    first, second = [common + 0.05], [common]
    assert difference(first, second, paired=True).low > 0 > difference(first, second).low


def test_the_quantiles_move_out_for_few_seeds_and_are_plain_for_many() -> None:
    levels = [tail_level([seeds]) for seeds in (3, 5, 10, 1000)]
    assert levels == sorted(levels)
    assert levels[-1] == pytest.approx(0.025, abs=2e-4)
    assert math.isnan(tail_level([1, 1]))


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ([[0.1, 0.2]], [[0.1]], "equal numbers"),
        ([[0.1]], [[math.nan]], "not a finite number"),
        ([[]], [[0.1]], "no run"),
    ],
)
def test_what_cannot_be_compared_is_refused(first: list, second: list, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        difference(first, second, paired=True)


@pytest.mark.parametrize(
    ("script", "pages"),
    [
        (laboratory_tables, laboratory_tables.PAGES),
        (estimator_tables, [estimator_tables.PAGE]),
        (real_model_tables, real_model_tables.PAGES),
        (scale_tables, scale_tables.PAGES),
        (whole_path_tables, [whole_path_tables.PAGE]),
    ],
)
def test_the_pages_have_the_tables_of_the_stored_results(script: Any, pages: Any) -> None:
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert script.page_with_tables(text) == text


def test_all_results_of_real_models_are_shown() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in real_model_tables.PAGES)
    assert [name for name in real_model_tables.results() if f"<!-- {name}: written by" not in pages] == []


def test_the_pictures_are_those_of_the_stored_results() -> None:
    pictures = real_model_tables.pictures()
    pictures[ROOT / "docs/images/laboratory.svg"] = (RESULTS["tables"].parent / "differences.svg").read_text()
    for file, text in pictures.items():
        assert file.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("folder", ["smollm2-routine", "smollm2-multihop"])  # the small ones: others take seconds each
def test_numbers_and_figures_are_those_of_the_stored_runs(folder: str, tmp_path: Path) -> None:
    """What is drawn comes from the JSON alone, and the page loads nothing."""
    pytest.importorskip("matplotlib")
    result = RESULTS[folder]
    plan, records = load_comparison(result.parent)
    baseline = json.loads(result.read_text(encoding="utf-8"))["baseline"]
    paths = write_comparison(compare_records(plan, records, baseline=baseline), tmp_path)
    drawn = {path.name: path.read_bytes() for path in paths}
    assert list(drawn) == ["comparison.json", "comparison.html", "curves.svg", "differences.svg"]
    for name in ("comparison.json", "curves.svg", "differences.svg"):
        assert (result.parent / name).read_bytes() == drawn[name], f"draw {result.parent} again"
    assert [path.read_bytes() for path in draw_comparison(tmp_path / "comparison.json")] == list(drawn.values())[2:]
    page = drawn["comparison.html"].decode()
    assert "src=" not in page
    assert "http://" not in page.replace("http://www.w3.org", "")
