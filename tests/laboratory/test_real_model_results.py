"""What docs/results/qwen.md shows is drawn from benchmarks/results/real_models.json."""

from __future__ import annotations

from scripts.real_model_tables import PAGE, page_with_tables


def test_the_page_has_the_tables_of_the_stored_results() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page_with_tables(page) == page
