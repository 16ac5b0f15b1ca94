"""The simulation of scale: a step of it, and the pages made from its results."""

import json
from pathlib import Path

import pytest

from benchmarks.rollout_world import small_tokenizer
from benchmarks.scale_step import Load, simulate
from scripts.scale_tables import PAGES, RESULTS, page_with_tables


def test_a_step_is_the_same_each_time_and_keeps_to_its_slots() -> None:
    measured = json.loads(RESULTS.read_text(encoding="utf-8"))["costs"]
    load = Load("search", "7B", workers=2, servers=1, groups=3, generations=4, searches=2.0, slots=2)
    first, second = (simulate(load, measured, small_tokenizer()) for _ in range(2))
    assert {**first, "simulated_in": 0} == {**second, "simulated_in": 0}
    assert first["void"] == 0
    assert 0 < first["sandboxes"] <= load.slots * load.workers


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_have_the_tables_of_the_results(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert page_with_tables(text) == text
