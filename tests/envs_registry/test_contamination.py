"""Overlap: the same question in another dress is found, another question is not."""

import pytest

from envs_registry import Task, load_source
from envs_registry.contamination import overlap, question_key, without
from envs_registry.sources import ListSource

LONG = "In which year did the invented explorer Ada Nowhere cross the great imaginary desert of Zorb on foot"


def source(name: str, *questions: str, setup: str = "") -> ListSource:
    return ListSource([Task(f"{name}-{n}", text, ("1",), setup=setup) for n, text in enumerate(questions)])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Who wrote  it?", "who wrote it"),
        ("Let $8$ , and", "Let $8$, and"),
        ("Ｗho is “X”？", 'Who is "X"?'),
        ("哪一年？", "哪一年"),
    ],
)
def test_the_same_question_in_another_dress(one: str, other: str) -> None:
    assert question_key(one) == question_key(other)
    assert overlap(source("a", one), source("b", other)).count == 1


def test_counts_are_of_evaluation_tasks_and_pairs_name_both() -> None:
    found = overlap(source("train", "x?", "X", "y?"), source("eval", "x", "z", "y"))
    assert [(one.id, other.id) for one, other in found.exact] == [
        ("train-0", "eval-0"),
        ("train-1", "eval-0"),
        ("train-2", "eval-2"),
    ]
    assert (found.count, found.evaluated) == (2, 3)
    assert str(found).startswith("2 of 3 evaluation tasks are trained on (x; x; y)")


def test_similar_questions_are_counted_apart() -> None:
    found = overlap(source("train", f"{LONG}?", "short one"), source("eval", f"{LONG}, and with whom?", "short two"))
    assert (found.count, found.near_count) == (0, 1)


def test_questions_about_variables_need_the_same_variables() -> None:
    train = source("a", "How long is the list?", setup="items = [1]")
    assert overlap(train, source("b", "How long is the list?", setup="items = [1, 2]")).count == 0
    assert overlap(train, source("b", "How long is the list?", setup="items = [1]")).count == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("What is 12 + 3?", "What is 12 - 3?"),
        ("Compute $1.5 + 2$", "Compute $15+2$"),
        ("Solve x < 3", "Solve x > 3"),
        ("What is 1 12?", "What is 11 2?"),
        ("Find $x^2$", "Find $x_2$"),
        ("1/2 of it", "12 of it"),
        ("If $x=-3$, find it", "If $x=3$, find it"),
    ],
)
def test_a_sign_makes_another_question(one: str, other: str) -> None:
    assert question_key(one) != question_key(other)


def test_without_drops_the_same_and_the_similar() -> None:
    train = source("train", "x?", f"{LONG}?", "y?")
    left = without(train, overlap(train, source("eval", "x", f"{LONG}, and with whom?")))
    assert [task.question for task in left.tasks] == ["y?"]


def test_what_cannot_be_compared_or_trained_on_is_refused() -> None:
    with pytest.raises(ValueError, match="give it a `limit`"):
        overlap(load_source("arithmetic"), source("b", "x"))
    train = source("train", "x")
    with pytest.raises(ValueError, match="nothing is left"):
        without(train, overlap(train, train))
