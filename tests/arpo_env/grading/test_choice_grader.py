"""Multiple choice: one letter, alone or with the text of its option."""

from __future__ import annotations

import asyncio

import pytest

from arpo_env.grading.choice_grader import ChoiceGrader, read_letter, read_options
from envs_registry import Task

QUESTION = (
    "Which city is it?\n\nAnswer Choices:\nA. Rome\nB. Paris, in France\nC. A town of Type C\nD. None of the above"
)
ALONE = [
    "B",
    "(B)",
    "B.",
    "B。",
    "答案是B",
    "答案：B",
    "选B",
    "故选B。",
    "选项B",
    "B选项",
    "Option B",
    "The correct option is (B).",
    "I choose B",
    r"\boxed{B}",
    r"\text{(B)}",
    "**B**",
    "B is correct",
    "Answer: B",
]
HEDGED = [
    "B. Actually C",
    "B. No, C",
    "B or C",
    "B, C",
    "BC",
    "B/C",
    "B; C",
    "B and C",
    "Either B or C",
    "not B",
    "B, not C",
    "B? C",
    "B. maybe c",
    "B. Wait, it's C",
    "B. the third option",
    "B. (C)",
    "B. C",
    "B - C",
    "B. or the last one",
    "B (C)",
    "A B C D",
    "B. I meant D",
    "All",
    "B. Not sure",
    "B或C",
    "不是B",
    "B. 还是C",
    "B. both",
    r"\boxed{B} \boxed{C}",
    "B. C is also possible",
    "B: also D",
    "B\nC",
    "B. wrong",
]


@pytest.mark.parametrize("answer", ALONE)
def test_a_letter_alone(answer: str) -> None:
    assert read_letter(answer) == read_letter(answer, QUESTION) == "B"


@pytest.mark.parametrize("answer", HEDGED)
def test_two_letters_or_a_letter_taken_back_are_no_answer(answer: str) -> None:
    assert read_letter(answer) is None
    assert read_letter(answer, QUESTION) is None


@pytest.mark.parametrize(
    ("answer", "letter"),
    [
        ("B. Paris, in France", "B"),
        ("(B) Paris in France", "B"),
        ("Paris, in France", "B"),
        ("B. Rome", None),
        ("C. A town of Type C", "C"),
        ("D. None of the above", "D"),
        ("none of the above", "D"),
        ("B. Madrid", None),
        ("B. Paris, in France, or Rome", None),
        ("Paris", None),
        ("Rome, Paris", None),
    ],
)
def test_the_text_after_a_letter_is_its_option(answer: str, letter: str | None) -> None:
    assert read_letter(answer, QUESTION) == letter


@pytest.mark.parametrize(
    "question", ["(A) 1 (B) 2 (C) 3", "A: 1  B: 2  C: 3", "What?\nA) 1\nB) 2\nC) 3", "A. 1; B. 2; C. 3"]
)
def test_options_in_every_layout(question: str) -> None:
    assert read_options(question) == {"A": "1", "B": "2", "C": "3"}


def test_a_plan_b_is_no_list_of_options() -> None:
    assert read_options("Plan B: he leaves. Who stays?") == {}


def test_the_grader_reads_the_question() -> None:
    task = Task("t", QUESTION, ("B",), kind="mcq")
    answers = ("B", "Paris, in France", "B. Paris, in France", "B. Rome", "C", "B. Actually C")
    values = [asyncio.run(ChoiceGrader().grade(answer, task)).value for answer in answers]
    assert values == [1, 1, 1, 0, 0, 0]


@pytest.mark.parametrize(
    ("gold", "answers", "value"),
    [
        ("B, D", ["BD", "D and B", "(B)(D)", r"\text{BD}", "选BD", "B、D"], 1),
        ("B, D", ["B", "D", "BCD", "B or D", "not BD", "ABCD", "2, 4"], 0),
        ("②④", ["②、④", "(2)(4)", "④②", "②和④"], 1),
        ("②④", ["②", "24", "②或④", "②③④"], 0),
        ("B (3x)", ["B", "3x", "(B) 3x", "x*3"], 1),
        ("B (3x)", ["A", "A 3x", "C. 3x", "3x or 2x", "B. 2x"], 0),
    ],
)
def test_gold_answers_with_text_and_with_several_letters(gold: str, answers: list[str], value: int) -> None:
    task = Task("t", "Select.", (gold,), kind="mcq")
    assert [asyncio.run(ChoiceGrader().grade(answer, task)).value for answer in answers] == [value] * len(answers)


# fmt: off
FORMS = {
    ("D", "计算 $\\sin 90^\\circ$ 的值( )\nA. 0\nB. 1/2\nC. √3/2\nD. 1"): (
        ["【答案】D", "【答案】 D", "【答案】：D", "[答案]D", "答案:【D】", "答案：D", "故答案为D", "答案应为D",
         "D选项正确", "选D项", "D正确", "D选项", "故选：D", "故选D", "正确选项是D", "本题选D", "D。", "（D）",
         "D、1", "D. 1", "D．1", "1", "答案是1", "选项D正确", "应选D", "因此选择D", "所以正确答案是D",
         "正确答案:D. 1", "综上,答案为D", "解析:选D"],
        ["C", "【答案】C", "D或C", "不选D", "D错误", "D选项错误", "除D外", "选项C正确", "非D", "A、B、C", "D不正确",
         "D. 0"],
    ),
    ("C", "The capital of Australia is\nA) Sydney\nB) Melbourne\nC) Canberra\nD) Perth"): (
        ["C", "c", "(C)", "C)", "Answer: [C]", "Ans. (C)", "**Answer**: C", "Answer: **C**",
         "The correct option is C", "C is correct", "C is the correct answer", "Option (C)", "Choice C.", "Canberra",
         "C) Canberra", "C: Canberra", "C - Canberra", "C – Canberra", "Canberra (C)", "The answer is (C) Canberra.",
         "The capital of Australia is Canberra.", "It's Canberra", "I choose C", "\\boxed{C}",
         "\\boxed{\\text{(C) Canberra}}", "Correct answer: C", "Final answer: C",
         "The answer is C because Canberra is the capital.", "(C) Canberra is the capital.", "option c", "Letter C",
         "Answer C", "C, Canberra", "answer: c) Canberra", "C)Canberra"],
        ["A", "Sydney", "Not C", "C or D", "Canberra or Sydney", "C) Sydney", "Sydney (C)", "A) Canberra",
         "All except C", "C is wrong", "not Canberra", "Canberra is not the capital", "A, C", "The answer is not C",
         "Either C or D", "None", "E", "C is incorrect", "Perth, not Canberra", "C? No, D"],
    ),
    ("BD", "Select all square numbers.\nA. 12\nB. 16\nC. 18\nD. 25"): (
        ["B, D", "B and D", "BD", "D, B", "B,D", "(B)(D)", "B、D", "B & D", "B D", "Options B and D",
         "The answers are B and D", "B. 16 and D. 25", "16 and 25", "B. 16, D. 25", "[B, D]", "\\boxed{BD}",
         "\\boxed{B, D}", "B和D", "答案：BD", "选BD", "B;D", "BD."],
        ["B", "D", "BCD", "A, B", "BC", "B or D", "B, not D", "16", "ABD", "B and C", "neither B nor D"],
    ),
}
# fmt: on


@pytest.mark.parametrize(("gold", "question"), FORMS)
def test_an_option_is_chosen_by_letter_text_or_sentence(gold: str, question: str) -> None:
    right, wrong = FORMS[gold, question]
    grader, task = ChoiceGrader(), Task("t", question, (gold,), kind="mcq")

    async def values(answers: list[str]) -> list[float]:
        return [(await grader.grade(answer, task)).value for answer in answers]

    assert [one for one, value in zip(right, asyncio.run(values(right)), strict=True) if value != 1] == []
    assert [one for one, value in zip(wrong, asyncio.run(values(wrong)), strict=True) if value != 0] == []
