"""What docs/results/laboratory shows is drawn from the runs that are stored beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from arpo_trainer.lab.comparison_files import RESULT, write_comparison
from arpo_trainer.lab.equal_cost import compare_records
from arpo_trainer.lab.run_store import GRID, load_comparison

STORED = Path(__file__).resolve().parents[3] / "docs" / "results" / "laboratory"
GRIDS = sorted(path.parent for path in STORED.rglob(GRID))


def test_there_are_results() -> None:
    assert GRIDS


@pytest.mark.parametrize("folder", GRIDS, ids=lambda folder: folder.name)
def test_numbers_and_figures_are_those_of_the_stored_runs(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plan, records = load_comparison(folder)
    files = {path.name for path in write_comparison(compare_records(plan, records), tmp_path)}
    stored = {path.name for path in folder.iterdir()} & files
    assert RESULT in stored
    assert any(name.endswith(".svg") for name in stored)
    for name in stored:
        assert (folder / name).read_bytes() == (tmp_path / name).read_bytes(), (
            f"arpo lab compare --draw --output {folder}"
        )
