"""Format and answer rewards."""

from __future__ import annotations

from fractions import Fraction

import pytest

from arpo_env.rewards import as_number, grade, is_correct, paper_reward
from envs_registry import Task

MATH = Task("t", "q", ("1204",), kind="math")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1204", 1204), ("1,204", 1204), ("-3.5", Fraction(-7, 2)), ("−3.5", Fraction(-7, 2)), ("7/8", Fraction(7, 8)),
        ("\\frac{1}{2}", Fraction(1, 2)), ("-\\dfrac{1}{2}", Fraction(-1, 2)), ("$12", 12), ("\\$12", 12), ("20%", 20),
        ("5.", 5), ("12.50", Fraction(25, 2)), (".5", Fraction(1, 2)), ("１２", 12),
        ("1/0", None),
        ("12,34", None), ("x", None), ("", None), ("1 2 x", None), ("--3", None), ("$42$", 42), ("42\\%", 42),
        ("5 000", 5000), ("1 1/2", None), ("12 5", None), ("10²", None), ("½", None), ("9" * 5000, None),
    ],
)  # fmt: skip
def test_numbers_are_read_exactly(text: str, number: Fraction | int | None) -> None:
    assert as_number(text) == number


@pytest.mark.parametrize("answer", ["1204", "1,204", "1204.0", " 1204 ", "$1204"])
def test_equal_numbers_are_correct(answer: str) -> None:
    assert is_correct(answer, MATH)


@pytest.mark.parametrize("answer", ["1205", "-1204", "1.204", "12 04 bolts", ""])
def test_other_answers_are_not(answer: str) -> None:
    assert not is_correct(answer, MATH)


def test_text_is_compared_without_case_and_spacing_over_all_answers() -> None:
    task = Task("t", "q", ("New York City", "NYC"))
    assert is_correct("new  york city", task)
    assert is_correct("nyc", task)
    assert not is_correct("York", task)


@pytest.mark.parametrize(
    ("accuracy", "format_ok", "multi", "reward"),
    [(1, True, False, 1.0), (1, True, True, 1.1), (0, True, True, 0.0), (1, False, True, -1.0), (0.5, True, True, 0.6)],
)
def test_hierarchy(accuracy: float, format_ok: bool, multi: bool, reward: float) -> None:
    assert paper_reward(accuracy, format_ok, multi) == pytest.approx(reward)


def test_a_right_answer_in_a_bad_format_is_still_counted_as_right() -> None:
    graded = grade(MATH, "1204", well_formed=False, tools_used=[])
    assert graded.reward == -1
    assert graded.components == {"format": 0.0, "accuracy": 1.0, "multi_tool": 0.0}


def test_no_answer_is_a_bad_format() -> None:
    assert grade(MATH, None, well_formed=True, tools_used=["python"]).reward == -1
