"""The tables of right and wrong answers, beside this file; the layouts of multiple choice; GAIA's rules."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from arpo_env.grading.answer_text import read_options
from arpo_env.grading.math_grader import ChoiceGrader, MathGrader
from arpo_env.grading.published_metrics import gaia_match
from arpo_env.grading.qa_grader import qa_scores
from envs_registry import Task
from tests.arpo_env.grading import table


async def math(answer: str, gold: str, question: str) -> bool:
    return await MathGrader().equal(answer, gold, question)


async def qa(answer: str, gold: str, question: str) -> object:
    return {(1, 1): True, (0, 0): False}.get(scores := qa_scores(answer, (gold,), question), scores)


async def choice(answer: str, gold: str, question: str) -> bool:
    return (await ChoiceGrader().grade(answer, Task("t", question or "Which?", (gold,), kind="mcq"))).value == 1


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize(("grade", "least"), [(math, 990), (qa, 2800), (choice, 140)])
def test_the_tables(grade: Callable[..., Awaitable[object]], least: int, right: bool) -> None:
    rows = list(table(f"{grade.__name__}_{'right' if right else 'wrong'}.txt"))
    assert len(rows) >= least

    async def every() -> list[object]:
        return await asyncio.gather(*(grade(*row) for row in rows))

    assert [row for row, found in zip(rows, asyncio.run(every()), strict=True) if found is not right] == []


@pytest.mark.parametrize(
    "question", ["(A) 1 (B) 2 (C) 3", "A: 1  B: 2  C: 3", "What?\nA) 1\nB) 2\nC) 3", "A. 1; B. 2; C. 3"]
)
def test_options_in_every_layout(question: str) -> None:
    assert read_options(question) == {"A": "1", "B": "2", "C": "3"}
    assert read_options("Plan B: he leaves. Who stays?") == {}


@pytest.mark.parametrize(
    ("answer", "gold", "right"),
    [
        *(("$1,204", "1204", True), ("17%", "17", True), ("17.5", "17", False), ("12 dogs", "12", False)),
        *(("a, b", "a,b", True), ("b, a", "a, b", False), ("a", "a, b", False), ("1, 2.0", "1,2", True)),
        *(("St. Petersburg", "st petersburg", True), ("sea gull", "seagull", True), ("", "5", False)),
        *(("...", "!?", False), ("!?", "!?", True), ("NaN", "nan", True)),
    ],
)
def test_gaia(answer: str, gold: str, right: bool) -> None:
    assert gaia_match(answer, gold) is right
