"""The page of models says what the code does with the chat templates that TRL ships."""

import re

from scripts.models_table import PAGE, page_with_table, templates


def test_the_table_of_models_is_up_to_date() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == page_with_table(page), "run: python -m scripts.models_table"
    assert set(re.findall(r"`([a-z0-9_]+)`", page)) >= set(templates())


def test_tests_and_recipes_that_the_page_names_are_there() -> None:
    root = PAGE.parents[2]
    page = PAGE.read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)`", page)
    recipes = re.findall(r"`(arpo-[\w.-]+-[\w-]+)`", page)
    assert named
    assert [path for path in named if not (root / path).exists()] == []
    assert [name for name in recipes if not (root / "arpo_trainer" / "recipes" / f"{name}.yaml").exists()] == []
    assert recipes
