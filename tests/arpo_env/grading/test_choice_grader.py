"""Multiple choice and GAIA's rules. Pairs are in choice_right.txt and choice_wrong.txt."""

import pytest

from arpo_env.grading.answer_text import read_options
from arpo_env.grading.published_metrics import gaia_match


@pytest.mark.parametrize(
    "question", ["(A) 1 (B) 2 (C) 3", "A: 1  B: 2  C: 3", "What?\nA) 1\nB) 2\nC) 3", "A. 1; B. 2; C. 3"]
)
def test_options_in_every_layout(question: str) -> None:
    assert read_options(question) == {"A": "1", "B": "2", "C": "3"}


def test_a_plan_b_is_no_list_of_options() -> None:
    assert read_options("Plan B: he leaves. Who stays?") == {}


@pytest.mark.parametrize(
    ("answer", "gold", "right"),
    [
        ("$1,204", "1204", True),
        ("17%", "17", True),
        ("17.5", "17", False),
        ("seventeen", "17", False),
        ("a, b", "a,b", True),
        ("b, a", "a, b", False),
        ("a; b", "a, b", True),
        ("a", "a, b", False),
        ("", "5", False),
        ("1, 2.0", "1,2", True),
        ("St. Petersburg", "st petersburg", True),
        ("sea gull", "seagull", True),
        ("Rome", "Paris", False),
        ("12 dogs", "12", False),
        ("...", "!?", False),
        ("!?", "!?", True),
        ("NaN", "nan", True),
    ],
)
def test_gaia(answer: str, gold: str, right: bool) -> None:
    assert gaia_match(answer, gold) is right
