"""What docs/results/qwen.md shows is drawn from benchmarks/results/real_models.json."""

from __future__ import annotations

import json

from scripts.real_model_tables import PAGE, PICTURE, RESULTS, page_with_tables, path_picture


def test_the_page_has_the_tables_and_the_picture_of_the_stored_results() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page_with_tables(page) == page
    assert path_picture(json.loads(RESULTS.read_text(encoding="utf-8"))["path"]) == PICTURE.read_text(encoding="utf-8")
