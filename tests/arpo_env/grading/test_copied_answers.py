"""Answers that repeat the question instead of solving it, and what a question tells about an answer."""

from __future__ import annotations

import asyncio
import random
import re

import pytest

from arpo_env.grading.math_grader import MathGrader, decide
from arpo_trainer.run.cold_start import _turns
from envs_registry.generated.arithmetic import ArithmeticSource

SIMPLIFY = r"Simplify $\sqrt{50}+\sqrt{18}$."
EXPAND = r"Expand $(x+3)(x-2)$."
OPTIONS = "What is 2 + 3? A. 3 B. 4 C. 5 D. 6"


def paid(answer: str, gold: str, question: str) -> bool:
    return asyncio.run(MathGrader().equal(answer, gold, question))


@pytest.mark.parametrize("level", range(1, 7))
def test_no_expression_of_the_task_is_paid(level: int) -> None:
    source = ArithmeticSource(level=level)
    for index in range(12):
        task, cells = source.task(index), source.solution(index)
        numbers, gold = re.findall(r"\d+", task.question), task.answers[0]
        asked = re.findall(r"[\d(][\d\s+*()-]*[\d)]", task.question)
        for text in {*cells, *asked, " + ".join(numbers), " * ".join(numbers)}:
            for form in (
                text,
                text.replace("*", r"\times"),
                text.replace(" * ", ")("),
                f"x = {text}",
                f"{text} = {text}",
            ):
                assert decide(form, gold, task.question) is False, form
        assert decide(gold, gold, task.question) is True
        assert decide(f"The answer is ${int(gold):,}$.", gold, task.question) is True


@pytest.mark.parametrize("level", range(1, 7))
def test_demonstrations_answer_with_a_value(level: int) -> None:
    source = ArithmeticSource(level=level)
    for index in range(20):
        task = source.task(index)
        *_, last = _turns(source, source.solution(index), task.answers[0], random.Random(0))
        assert re.search(r"<answer>\\boxed\{-?\d+\}</answer>$", last), last


@pytest.mark.parametrize(
    ("answer", "gold", "question", "right"),
    [
        (r"\sqrt{50}+\sqrt{18}", r"8\sqrt{2}", SIMPLIFY, False),
        (r"\sqrt{18} + \sqrt{50} + 0", r"8\sqrt{2}", SIMPLIFY, False),
        (r"x = \sqrt{18}+\sqrt{50}", r"8\sqrt{2}", SIMPLIFY, False),
        ("8*sqrt(2)", r"8\sqrt{2}", SIMPLIFY, True),
        (r"\sqrt{50}+\sqrt{18} = 8\sqrt{2}", r"8\sqrt{2}", SIMPLIFY, True),
        ("(x-2)(x+3)", "x^2+x-6", EXPAND, False),
        ("x^2 - 6 + x", "x^2+x-6", EXPAND, True),
        ("(x-2)(x+3)", "x^2+x-6", "", True),
        ("x^2+x-6", "(x+3)(x-2)", "Factor $x^2+x-6$.", False),
        ("(x-2)(x+3)", "(x+3)(x-2)", "Factor $x^2+x-6$.", True),
        ("2x-y=0", "y=2x", "Write $2x-y=0$ in slope-intercept form.", False),
        ("2x-y=0", "y=2x", "Which line is it?", True),
        ("6/8", r"\frac{3}{4}", "Reduce 6/8.", False),
        ("9/12", r"\frac{3}{4}", "Reduce 6/8.", True),
        (r"\frac{3}{4}", "0.75", r"Write $\frac{3}{4}$ as a decimal.", False),
        (r"0.\overline{3}", r"\frac{1}{3}", r"Express $0.\overline{3}$ as a fraction.", False),
        (r"3.2 \times 10^5", "320000", r"Write $3.2 \times 10^5$ in full.", False),
        ("15%", r"\frac{3}{20}", "Write 15% as a fraction.", False),
        ("5444/4", "1361", "What is 5444 divided by 4?", False),
        ("1361", "1361", "What is 5444 divided by 4?", True),
        (r"2^3 \cdot 2^7", "2^{10}", r"Write $2^3 \cdot 2^7$ as a power of 2.", False),
    ],
)
def test_copies_of_a_formula(answer: str, gold: str, question: str, right: bool) -> None:
    assert paid(answer, gold, question) is right


@pytest.mark.parametrize(
    ("answer", "gold", "question", "right"),
    [
        ("20%", "20", "What percentage of 50 is 10?", True),
        ("20%", "20", "How many apples are there?", False),
        ("20%", "0.2", "What is the probability?", True),
        ("20%", "0.2", "What percentage is it?", False),
        ("20%", "20", "A shirt is 20% off. How many dollars does it cost?", False),
        ("20", r"20\%", "", True),
        ("5 squares", "5", "How many squares fit?", True),
        ("5 gross", "5", "How many gross does he buy?", False),
        ("5 zorbs of flum", "5", "How many zorbs of flum are there?", True),
        ("5 flum", "5", "How many zorbs are there?", False),
        (r"\cos A = 0.6", r"\frac{3}{5}", r"In triangle $ABC$, find $\cos A$.", True),
        (r"\sin A = 0.6", r"\frac{3}{5}", r"In triangle $ABC$, find $\cos A$.", False),
        ("x^2 + y^2 = 7", "7", "If x + y = 3 and xy = 1, what is $x^2 + y^2$?", True),
        ("2x = 7", "7", "If 2x = 8, find x + 3.", False),
        ("She needs 5 bags.", "5", "How many bags does she need?", True),
        ("C", "5", OPTIONS, True),
        ("C. 5", "5", OPTIONS, True),
        ("B", "5", OPTIONS, False),
        ("B. 5", "5", OPTIONS, False),
        ("C or D", "5", OPTIONS, False),
        ("C. 5", r"\text{(C)}", OPTIONS, True),
        ("C. 6", r"\text{(C)}", OPTIONS, False),
        ("C. Actually D", "C", OPTIONS, False),
        ("1:36 P.M.", "1:36", "At what time P.M. are they lit?", True),
        ("13:36", "1:36", "At what time P.M. are they lit?", False),
    ],
)
def test_the_question_decides(answer: str, gold: str, question: str, right: bool) -> None:
    assert paid(answer, gold, question) is right
