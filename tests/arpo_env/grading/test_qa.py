"""Answers in words: the right one in any form, and one claim alone. Pairs are in qa_right.txt and qa_wrong.txt.

The tests on real questions need the shared data.
"""

import asyncio
import itertools
import random
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arpo_env.grading import Score, make_grader
from arpo_env.grading.qa_grader import qa_scores
from arpo_env.grading.qa_tokens import tokens
from envs_registry import Task, get_spec, load_source
from tests.arpo_env.test_real_data import SETS

TRICKS = Path(__file__).with_name("qa_tricks.txt").read_text(encoding="utf-8").split("\n")[1:-1]
FULL_WIDTH = str.maketrans({chr(code): chr(code + 0xFEE0) for code in range(0x30, 0x3A)})


@pytest.fixture(scope="module")
def tasks(shared: Path) -> list[Task]:
    """Every real question that is answered in words."""
    found = []
    for name, path, split, _ in SETS:
        source = load_source(get_spec(f"arpo/{name}-v0").source, data=shared / "data/arpo" / path, split=split)
        found += [source.task(index) for index in range(source.size or 0)]
    return [task for task in found if task.kind == "qa"]


def is_chinese(text: str) -> bool:
    return any("\u4e00" <= letter <= "\u9fff" for letter in text)


def test_every_real_answer_is_itself(tasks: list[Task]) -> None:
    assert len(tasks) > 7000
    golds = {(gold, task.question) for task in tasks for gold in task.answers}
    assert [gold for gold, question in golds if qa_scores(gold, (gold,), question) != (1, 1)] == []


FORMS = (
    '{}. ¦ "{}" ¦ “{}” ¦ **{}** ¦ \\text{{{}}} ¦   {}  ¦ \\textbf{{{}}} ¦ \\boxed{{{}}} ¦ \\boxed{{\\text{{{}}}}}'
    " ¦ The answer is {}. ¦ Final answer: **{}**"
)
CHINESE_FORMS = "{}。 ¦ “{}” ¦ 「{}」 ¦ 《{}》 ¦ {}． ¦  {} ¦ 答案是{}"


@pytest.mark.parametrize("form", FORMS.split(" ¦ "))
def test_every_kind_of_real_answer_is_right_in_the_ways_models_write(form: str, tasks: list[Task]) -> None:
    chosen = random.Random(3).sample(tasks, 800)
    bad = [task for task in chosen if qa_scores(form.format(task.answers[0]), task.answers, task.question) != (1, 1)]
    assert bad == []


@pytest.mark.parametrize("form", CHINESE_FORMS.split(" ¦ "))
def test_chinese_answers(form: str, tasks: list[Task]) -> None:
    golds = [task.answers for task in tasks if is_chinese(task.answers[0]) and is_chinese(task.question)]
    assert len(golds) > 100
    for change in (str, lambda text: text.translate(FULL_WIDTH), lambda text: text.replace("，", ",")):
        assert [gold for gold in golds if qa_scores(form.format(change(gold[0])), gold) != (1, 1)] == []


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
            answer = trick.format(**names).replace("⏎", "\n").replace("⇥", "\t")
            repeated = set(tokens(answer)) <= {"no"}  # "no, no" says no
            if not repeated and qa_scores(answer, task.answers, task.question)[1]:
                paid.append((answer, gold, task.question))
    assert paid == []


SENIOR, PONGE = "Who is older, Francis Ponge or Philip Farmer?", "Francis Jean Gaston Alfred Ponge"


@pytest.mark.parametrize(
    ("answer", "gold", "question", "em", "f1"),
    [
        *(("Barack Hussein Obama", "Barack Obama", "", 0, 0.8), ("Philip Farmer", PONGE, SENIOR, 0, 0)),
        *(("Francis Ponge", PONGE, SENIOR, 0, 4 / 7), ("", "x", "", 0, 0), ("...", "", "", 0, 0)),
        ("John", "John Smith", "Who is older, John Smith or Mary Smith?", 0, 2 / 3),
        ("Smith", "John Smith", "Who is older, John Smith or Mary Smith?", 0, 0),
        *(("🇫🇷", "🇫🇷", "", 1, 1), ("🇫🇷", "🇺🇸", "", 0, 0)),
    ],
)
def test_parts_of_names_earn_f1_and_nothing_earns_nothing(
    answer: str, gold: str, question: str, em: float, f1: float
) -> None:
    assert qa_scores(answer, (gold,), question) == pytest.approx((em, f1))


def test_the_best_alias_counts_and_parts_are_reported() -> None:
    task = Task("t", "q", ("New York City", "NYC"))
    assert asyncio.run(make_grader("qa").grade("nyc", task)) == Score(1.0, {"em": 1.0, "f1": 1.0})
    task = Task("t", "q", ("Albert Einstein", "Prof. A. Einstein"))
    assert asyncio.run(make_grader("qa").grade("Einstein", task)).parts == {"em": 0.0, "f1": pytest.approx(2 / 3)}
    assert asyncio.run(make_grader("em").grade("Einstein", task)).value == 0.0
    assert asyncio.run(make_grader("em").grade("albert einstein", task)).value == 1.0


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


PIECES = "\n ¦   ¦ 1, ¦ 9 ¦ one  ¦ $5  ¦ 2024年 ¦ may  ¦ a. ¦ ( ¦ \\boxed{ ¦ A  ¦ to 1990 "


@pytest.mark.parametrize("piece", PIECES.split(" ¦ "))
def test_no_answer_is_slow(piece: str) -> None:
    started = time.process_time()
    qa_scores(piece * 20_000, ("14 March 1879", "Paris"), "Where was it, in Paris or in Rome?")
    assert time.process_time() - started < 2


def test_graders_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="did you mean 'math'"):
        make_grader("maths")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ValueError, match=r"OPENAI_BASE_URL and OPENAI_API_KEY.*scorer='qa'"):
        make_grader("judge")
    grader = make_grader("auto")  # it goes by the kind of task
    for kind, answer, gold, value in (("math", "1,204.0", "1204", 1), ("qa", "Curie", "Marie Curie", 2 / 3)):
        assert asyncio.run(grader.grade(answer, Task("t", "q", (gold,), kind))).value == pytest.approx(value)
    for answer, value in (("B. Rome", 1), ("C", 0), ("A or B", 0), ("", 0)):
        assert asyncio.run(grader.grade(answer, Task("t", "q", ("B",), "mcq"))).value == value
