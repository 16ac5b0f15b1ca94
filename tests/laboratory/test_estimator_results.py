"""The tables of the documents are those of the stored results."""

from scripts.estimator_tables import LEVELS, PAGE, RESULTS, page_with_tables


def test_the_page_shows_the_stored_numbers() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page_with_tables(page) == page


def test_results_hold_aggregates_alone() -> None:
    assert all((RESULTS / f"estimators-{level}.json").stat().st_size < 90_000 for level in LEVELS)
