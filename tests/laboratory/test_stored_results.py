"""What the pages of the laboratory show is drawn from the runs that are stored."""

import json
from pathlib import Path

import pytest

from benchmarks.laboratory.comparison_files import write_comparison
from benchmarks.laboratory.equal_cost import compare_records
from benchmarks.laboratory.run_store import load_comparison
from scripts.laboratory_tables import PAGES, RESULTS, ROOT, page_with_tables


def test_the_pages_have_the_tables_and_the_figure_of_the_comparison() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert "written by scripts/laboratory_tables.py" in text
        assert page_with_tables(text) == text
    figure = ROOT / "docs" / "images" / "laboratory.svg"
    assert figure.read_bytes() == (RESULTS["tables"].parent / "differences.svg").read_bytes()


@pytest.mark.parametrize("folder", ["smollm2-routine", "smollm2-multihop"])  # the small ones: others take seconds each
def test_numbers_and_figures_are_those_of_the_stored_runs(folder: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    result = RESULTS[folder]
    plan, records = load_comparison(result.parent)
    baseline = json.loads(result.read_text(encoding="utf-8"))["baseline"]
    drawn = {path.name for path in write_comparison(compare_records(plan, records, baseline=baseline), tmp_path)}
    stored = {result.name, *(path.name for path in result.parent.glob("*.svg"))}
    assert len(stored) == 3
    for name in stored & drawn:
        assert (result.parent / name).read_bytes() == (tmp_path / name).read_bytes(), f"draw {result.parent} again"
    assert stored <= drawn
