"""Math answers: what is read, what is not even tried, and what copies the question. Pairs are in math_right.txt."""

import asyncio
import random
import re
from fractions import Fraction
from pathlib import Path

import pytest

from arpo_env.grading.math_formulas import is_too_expensive
from arpo_env.grading.math_grader import MathGrader, decide
from arpo_env.grading.math_values import as_number
from arpo_trainer.run.sft_run import _turns
from benchmarks.grading import cases, ours, read_golds, table
from envs_registry import Task
from envs_registry.generated.arithmetic import ArithmeticSource

HOSTILE = r"""9^{9^{9^{9}}} ¦ 10^{10^{8}} ¦ (10^{8})! ¦ \binom{10^7}{5\cdot10^6} ¦ \sum_{k=1}^{10^9}1/k ¦ 9**9**9**9
¦ \prod_{k=1}^{10^8} k ¦ \int_0^1 x^{10^7} dx ¦ (x+1)^{10000} ¦ 9!!!!! ¦ ((((((((((((((((((((9))))))))))))))))))))"""


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1,204", 1204),
        ("−3.5", Fraction(-7, 2)),
        ("7/8", Fraction(7, 8)),
        ("-\\dfrac{1}{2}", Fraction(-1, 2)),
        ("\\$12", 12),
        ("20%", 20),
        ("5.", 5),
        (".5", Fraction(1, 2)),
        ("１２", 12),
        ("$42$", 42),
        ("5 000", 5000),
        *((text, None) for text in ("1/0", "12,34", "x", "", "1 2 x", "--3", "1 1/2", "12 5", "10²", "½", "9" * 5000)),
    ],
)
def test_numbers_are_read_exactly(text: str, number: Fraction | int | None) -> None:
    assert as_number(text) == number


def test_real_golds_in_other_words_are_accepted_and_wrong_answers_are_not(shared: Path) -> None:
    golds = read_golds(shared / "data")
    assert len(golds) == 680
    rows = list(cases(golds[::9]))
    found = table(rows, asyncio.run(ours(rows)), 1.0)
    assert found["share"] >= 0.97, found["failed"]
    assert (found["wrong accepted"], found["undecided"]) == (0, 0), found["failed"]


def test_every_gold_equals_itself_and_no_neighbour(shared: Path) -> None:
    golds = read_golds(shared / "data")
    assert all(decide(gold, gold) is True for gold in golds)
    integers = [int(gold) for gold in golds if gold.isdigit()]
    assert not any(decide(str(number + 1), str(number)) for number in integers)


def test_absurd_answers_are_wrong_at_once() -> None:
    for answer in (*re.split(r"\s¦\s", HOSTILE), "9" * 1_000_000, "(" * 1_000_000):
        assert decide(answer, "9") is False


@pytest.mark.parametrize("text", ["x^{99}", "2^{100}", "10!", r"\binom{10}{3}", r"(x+1)^{10}", r"\frac{1}{\sqrt{2}}"])
def test_ordinary_formulas_are_not_absurd(text: str) -> None:
    assert not is_too_expensive(text)


def test_any_gold_answer_will_do() -> None:
    task = Task("t", "q", ("7", r"\frac{1}{2}"), kind="math")
    assert asyncio.run(MathGrader().grade("0.5", task)).value == 1
    assert asyncio.run(MathGrader().grade("0.6", task)).value == 0


@pytest.mark.parametrize("level", range(1, 7))
def test_no_expression_of_a_task_is_paid_and_demonstrations_answer_with_a_value(level: int) -> None:
    source = ArithmeticSource(level=level)
    for index in range(12):
        task, cells = source.task(index), source.solution(index)
        numbers, gold = re.findall(r"\d+", task.question), task.answers[0]
        asked = re.findall(r"[\d(][\d\s+*()-]*[\d)]", task.question)
        for text in {*cells, *asked, " + ".join(numbers), " * ".join(numbers)}:
            forms = (text, text.replace("*", r"\times"), text.replace(" * ", ")("), f"x = {text}", f"{text} = {text}")
            assert not any(decide(form, gold, task.question) for form in forms), text
        assert decide(gold, gold, task.question) is True
        assert decide(f"The answer is ${int(gold):,}$.", gold, task.question) is True
        *_, last = _turns(source, source.solution(index), gold, random.Random(0))
        assert re.search(r"<answer>\\boxed\{-?\d+\}</answer>$", last), last
