"""What an answer in words is paid for: the right one in any form, and one claim alone.

The pairs are in `qa_pairs`; the tests on real questions need the shared data.
"""

from __future__ import annotations

import asyncio
import calendar
import itertools
import random
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arpo_env.grading import make_grader
from arpo_env.grading.qa_grader import qa_scores, tokens
from arpo_env.grading.qa_values import is_date
from envs_registry import Task, get_spec, load_source
from tests.arpo_env.grading.qa_pairs import RIGHT, TRICKS, WRONG

SETS = [
    ("HotpotQA", "eval/hotpotqa", "validation"),
    ("2Wiki", "eval/2wiki", "validation"),
    ("MuSiQue", "eval/musique", "validation"),
    ("Bamboogle", "eval/bamboogle", "test"),
    ("WebWalker", "eval/webwalker", "test"),
    ("SimpleQA", "eval/SimpleQA", "test"),
    ("Reasoning10K", "rl/train_10k.parquet", "train"),
    ("Reasoning10K", "rl/valid.parquet", "validation"),
    ("DeepSearch1K", "rl/hard_search_1k.parquet", "train"),
]


@pytest.fixture(scope="module")
def tasks(shared: Path) -> list[Task]:
    """Every real question that is answered in words."""
    found = []
    for name, path, split in SETS:
        source = load_source(get_spec(f"arpo/{name}-v0").source, data=shared / "data/arpo" / path, split=split)
        found += [source.task(index) for index in range(source.size or 0)]
    return [task for task in found if task.kind == "qa"]


@pytest.mark.parametrize(("gold", "question"), RIGHT)
def test_the_right_answer_in_another_form_gets_full_value(gold: str, question: str) -> None:
    assert [one for one in RIGHT[gold, question] if qa_scores(one, (gold,), question) != (1, 1)] == []


@pytest.mark.parametrize(("gold", "question"), WRONG)
def test_what_does_not_answer_earns_nothing(gold: str, question: str) -> None:
    assert [one for one in WRONG[gold, question] if qa_scores(one, (gold,), question) != (0, 0)] == []


def test_every_real_answer_is_itself(tasks: list[Task]) -> None:
    assert len(tasks) > 7000
    golds = {(gold, task.question) for task in tasks for gold in task.answers}
    assert [gold for gold, question in golds if qa_scores(gold, (gold,), question) != (1, 1)] == []


@pytest.mark.parametrize("form", ["The answer is {}.", "Final answer: **{}**", '"{}"', "\\boxed{{\\text{{{}}}}}"])
def test_every_kind_of_real_answer_is_right_within_its_frame(form: str, tasks: list[Task]) -> None:
    chosen = random.Random(3).sample(tasks, 800)
    bad = [task for task in chosen if qa_scores(form.format(task.answers[0]), task.answers, task.question) != (1, 1)]
    assert bad == []


def test_real_dates_are_right_in_any_order_and_no_other_day_is_paid(tasks: list[Task]) -> None:
    golds = {gold for task in tasks for gold in task.answers if len(tokens(gold)) == 1 and is_date(tokens(gold)[0])}
    golds = {gold for gold in golds if tokens(gold)[0][0].isdigit() and len(tokens(gold)[0]) == len("1879-03-14")}
    assert len(golds) > 500
    for gold in sorted(golds):
        year, month, day = map(int, tokens(gold)[0].split("-"))
        name = calendar.month_name[month]
        forms = [
            f"{day} {name} {year:03}",
            f"{name} {day}, {year:03}",
            f"{name[:3]}. {day}, {year:03}",
            f"{year:04}-{month:02}-{day:02}",
        ]
        assert [form for form in forms if qa_scores(form, (gold,)) != (1, 1)] == []
        other = f"{name} {day % 28 + 1}, {year:03}"
        assert qa_scores(other, (gold,)) == (0, 0)


def test_no_trick_is_paid_on_real_questions(tasks: list[Task]) -> None:
    draw = random.Random(11)
    paid = []
    for task in draw.sample(tasks, 40):
        gold, mine = task.answers[0], {word for answer in task.answers for word in tokens(answer)}
        others = [other.answers[0] for other in draw.sample(tasks, 60) if not mine & set(tokens(other.answers[0]))]
        others = [other for other in others if len(other) < 60 and not any(map(str.isdigit, other))]
        # words in lower case describe a name: as a gold answer, they are not paid beside one
        others = [other for other in others if gold[0].islower() or not other[0].islower()]
        names = dict(zip("hijk", others, strict=False), g=gold, q=task.question)
        for trick in TRICKS:
            answer = trick.format(**names)
            repeated = set(tokens(answer)) <= {"no"}  # "no, no" says no
            if not repeated and qa_scores(answer, task.answers, task.question)[1]:
                paid.append((answer, gold, task.question))
    assert paid == []


@pytest.mark.parametrize(
    ("answer", "gold", "f1"),
    [
        ("Barack Hussein Obama", "Barack Obama", 0.8),
        ("Einstein", "Albert Einstein", 2 / 3),
    ],
)
def test_the_last_name_of_a_person_or_a_fuller_name_earns_f1(answer: str, gold: str, f1: float) -> None:
    assert qa_scores(answer, (gold,)) == (0, pytest.approx(f1))


def test_a_choice_between_named_things_can_be_told_by_a_short_name() -> None:
    question, gold = "Who is older, Francis Ponge or Philip Farmer?", "Francis Jean Gaston Alfred Ponge"
    assert qa_scores("Francis Ponge", (gold,), question)[1] == pytest.approx(4 / 7)
    assert qa_scores("Philip Farmer", (gold,), question)[1] == 0


WORDS = st.lists(
    st.sampled_from([f"{one}{two}an" for one, two in itertools.product("bdgklmnrst", "aeiou")]), max_size=12
)


@given(WORDS, st.data())
@settings(max_examples=100, deadline=None)
def test_no_answer_is_paid_for_two_gold_answers_that_share_no_word(words: list[str], data: st.DataObject) -> None:
    pool = sorted(set(words)) or ["banan"]
    cut = data.draw(st.integers(0, len(pool)))
    golds = [" ".join(part) for part in (pool[:cut], pool[cut:]) if part]
    answer = " ".join(words)
    assert sum(qa_scores(answer, (gold,))[1] > 0 for gold in golds) <= 1


@given(st.text(max_size=40), st.text(min_size=1, max_size=30), st.text(max_size=30))
@settings(max_examples=100, deadline=None)
def test_any_text_can_be_compared(answer: str, gold: str, question: str) -> None:
    em, f1 = qa_scores(answer, (gold,), question)
    assert 0 <= em <= f1 <= 1
    if tokens(gold):
        assert qa_scores(gold, (gold,), question) == (1, 1)


@pytest.mark.parametrize(
    "piece", ["\n", " ", "1,", "9", "one ", "$5 ", "2024年", "may ", "a.", "(", "\\boxed{", "A ", "to 1990 "]
)
def test_no_answer_is_slow(piece: str) -> None:
    started = time.process_time()
    qa_scores(piece * 20_000, ("14 March 1879", "Paris"), "Where was it, in Paris or in Rome?")
    assert time.process_time() - started < 2


def test_the_question_is_part_of_the_grade() -> None:
    task = Task("t", "Who is older, John Smith or Mary Smith?", ("John Smith",))
    values = [asyncio.run(make_grader("qa").grade(answer, task)).value for answer in ("Smith", "John Smith", "John")]
    assert values == [0, 1, pytest.approx(2 / 3)]


def test_exact_match_alone() -> None:
    task = Task("t", "q", ("Ronimira Press", "House of Sarina"))
    for answer, value in (
        ("ronimira press", 1),
        ("House of Sarina", 1),
        ("Ronimira", 0),
        ("Ronimira Press or Skua", 0),
    ):
        score = asyncio.run(make_grader("em").grade(answer, task))
        assert (score.value, score.parts["em"]) == (value, value)


def test_multihop_pays_exact_match() -> None:
    assert get_spec("arpo/MultiHop-v0").scorer == "em"
