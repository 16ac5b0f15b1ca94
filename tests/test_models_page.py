"""The page of models says what the code does with the chat templates that TRL ships."""

import re

from scripts.models_table import PAGE, page_with_table, templates


def test_the_table_of_models_is_up_to_date_and_what_the_page_names_is_there() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == page_with_table(page), "run: python -m scripts.models_table"
    assert set(re.findall(r"`([a-z0-9_]+)`", page)) >= set(templates())
    named = re.findall(r"`(tests/[\w/]+\.py)`", page)
    named += [f"arpo_trainer/recipes/{name}.yaml" for name in re.findall(r"`(arpo-[\w.-]+-[\w-]+)`", page)]
    assert [path for path in named if not (PAGE.parents[2] / path).exists()] == []
