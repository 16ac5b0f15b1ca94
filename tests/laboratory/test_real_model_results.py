"""What docs/results/qwen.md shows is drawn from benchmarks/results/real_models.json."""

from __future__ import annotations

from scripts.real_model_tables import PAGE, page_with_tables, pictures


def test_the_page_has_the_tables_and_the_pictures_of_the_stored_results() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page_with_tables(page) == page
    for file, text in pictures().items():
        assert file.read_text(encoding="utf-8") == text
