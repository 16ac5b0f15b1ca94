"""What docs/results/whole-path.md shows is drawn from docs/results/whole-path.json."""

import json

from scripts.whole_path_tables import PAGE, RESULTS, STAGES, page_with_tables


def test_the_page_has_the_tables_of_the_stored_runs() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page_with_tables(page) == page


def test_each_stage_was_evaluated_on_enough_held_out_tasks() -> None:
    for runs in json.loads(RESULTS.read_text(encoding="utf-8")).values():
        assert all(run["stages"][stage]["tasks"] >= 60 for run in runs for stage in STAGES)
