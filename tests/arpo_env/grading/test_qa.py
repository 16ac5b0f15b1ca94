"""Answers in words, letters, and GAIA's rules."""

from __future__ import annotations

import asyncio
import itertools
import json
from pathlib import Path

import pytest

from arpo_env.grading import Score, make_grader
from arpo_env.grading.choice_grader import gaia_match, read_letter
from arpo_env.grading.qa_grader import qa_scores, tokens
from envs_registry import Task

ENGLISH = ("hotpotqa", "2wiki", "musique", "bamboogle", "SimpleQA")
FULL_WIDTH = str.maketrans({chr(code): chr(code + 0xFEE0) for code in range(0x30, 0x3A)})


def read(shared: Path, *names: str) -> list[tuple[str, ...]]:
    golds = []
    for name in names:
        lines = (shared / "data" / "arpo" / "eval" / name / "test.jsonl").read_text(encoding="utf-8").splitlines()
        for line in lines:
            answer = json.loads(line)["answer"]
            golds.append((answer,) if isinstance(answer, str) else tuple(map(str, answer)))
    return golds


def is_chinese(text: str) -> bool:
    return any("\u4e00" <= letter <= "\u9fff" for letter in text)


FORMS = {
    "stop": "{}.",
    "quotes": '"{}"',
    "curly quotes": "“{}”",
    "bold": "**{}**",
    "text": "\\text{{{}}}",
    "spaces": "  {} ",
    "textbf": "\\textbf{{{}}}",
    "boxed": "\\boxed{{{}}}",
    "boxed text": "\\boxed{{\\text{{{}}}}}",
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_every_real_answer_is_right_in_the_ways_models_write(form: str, shared: Path) -> None:
    golds = read(shared, *ENGLISH)
    assert len(golds) == 1225
    assert [gold for gold in golds if qa_scores(form.format(gold[0]), gold) != (1, 1)] == []


@pytest.mark.parametrize(("old", "new"), [("'", "’"), ("-", "–"), ("e", "E"), (" ", "\u00a0")])
def test_typography_does_not_matter(old: str, new: str, shared: Path) -> None:
    golds = read(shared, *ENGLISH)
    assert [gold for gold in golds if qa_scores(gold[0].replace(old, new), gold) != (1, 1)] == []


@pytest.mark.parametrize("form", ["{}。", "“{}”", "「{}」", "《{}》", "{}．", " {}"])
def test_chinese_answers(form: str, shared: Path) -> None:
    golds = [gold for gold in read(shared, "webwalker") if is_chinese(gold[0])]
    assert len(golds) > 100
    for change in (str, lambda text: text.translate(FULL_WIDTH), lambda text: text.replace("，", ",")):
        assert [gold for gold in golds if qa_scores(form.format(change(gold[0])), gold) != (1, 1)] == []


def test_a_chinese_sentence_with_the_answer_is_right(shared: Path) -> None:
    golds = [gold for gold in read(shared, "webwalker") if is_chinese(gold[0])]
    assert [gold for gold in golds if qa_scores(f"答案是{gold[0]}", gold) != (1, 1)] == []


def test_answers_of_other_questions_are_wrong(shared: Path) -> None:
    golds = read(shared, *ENGLISH)
    pairs = [(a[0], b) for a, b in itertools.pairwise(golds) if tokens(a[0]) not in map(tokens, b)]
    assert not any(qa_scores(answer, gold)[0] for answer, gold in pairs)


@pytest.mark.parametrize(
    ("answer", "gold", "em", "f1"),
    [
        ("yes it is", "yes", 1, 1),
        ("unknown", "no", 0, 0),
        ("Yes.", "yes", 1, 1),
        ("it is no", "no", 0, 0),
        ("-5", "5", 0, 0),
        ("1.2", "12", 0, 0),
        ("1,204", "1204", 1, 1),
        ("The Beatles", "beatles", 1, 1),
        ("Barack Hussein Obama", "Barack Obama", 0, 0.8),
        ("", "x", 0, 0),
        ("...", "x", 0, 0),
        ("2nd", "2", 0, 0),
        ("🇫🇷", "🇫🇷", 1, 1),
        ("🇫🇷", "🇺🇸", 0, 0),
        ("🇫🇷", "France", 0, 0),
        (" ", "🇫🇷", 0, 0),
        ("...", "", 0, 0),
    ],
)
def test_exact_match_and_f1(answer: str, gold: str, em: float, f1: float) -> None:
    assert qa_scores(answer, (gold,)) == pytest.approx((em, f1))


def test_the_best_alias_counts_and_parts_are_reported() -> None:
    task = Task("t", "q", ("New York City", "NYC"))
    assert asyncio.run(make_grader("qa").grade("nyc", task)) == Score(1.0, {"em": 1.0, "f1": 1.0})
    task = Task("t", "q", ("Albert Einstein", "Prof. A. Einstein"))
    assert asyncio.run(make_grader("qa").grade("Einstein", task)).parts == {"em": 0.0, "f1": pytest.approx(2 / 3)}


@pytest.mark.parametrize(
    ("answer", "letter"),
    [
        ("B", "B"),
        ("(B)", "B"),
        ("B.", "B"),
        ("Answer: B", "B"),
        ("B. some text", "B"),
        ("b", "B"),
        ("**B**", "B"),
        (r"\text{(C)}", "C"),
        ("The answer is (B).", "B"),
        ("B) a vitamin C pill", "B"),
        ("Option B", "B"),
        ("B or C", None),
        ("B, C", None),
        ("B. x or C", None),
        ("(A) and (B)", None),
        ("BC", None),
        ("B/C", None),
        ("Because", None),
        ("A cat", None),
        ("", None),
    ],
)
def test_one_letter_and_never_two(answer: str, letter: str | None) -> None:
    assert read_letter(answer) == letter


def test_multiple_choice() -> None:
    task = Task("t", "q", ("B",), kind="mcq")
    values = [asyncio.run(make_grader("auto").grade(answer, task)).value for answer in ("B. Rome", "C", "A or B", "")]
    assert values == [1, 0, 0, 0]


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
        ("", "!?", False),
        ("...", "!?", False),
        ("!?", "!?", True),
        ("NaN", "nan", True),
    ],
)
def test_gaia(answer: str, gold: str, right: bool) -> None:
    assert gaia_match(answer, gold) is right


def test_auto_goes_by_the_kind_of_task() -> None:
    grader = make_grader("auto")
    math = Task("t", "q", ("1204",), kind="math")
    assert asyncio.run(grader.grade("1,204.0", math)).value == 1
    assert asyncio.run(grader.grade("Curie", Task("t", "q", ("Marie Curie",)))).value == pytest.approx(2 / 3)


def test_an_unknown_grader_names_the_nearest() -> None:
    with pytest.raises(ValueError, match="did you mean 'math'"):
        make_grader("maths")


def test_a_judge_without_a_model_names_the_variables_and_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ValueError, match="OPENAI_BASE_URL and OPENAI_API_KEY") as error:
        make_grader("judge")
    assert "scorer='qa'" in str(error.value)
