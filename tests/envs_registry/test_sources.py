"""Task sources: a generated one, limits and shuffles; no setup holds the gold answer; what two sources share."""

from pathlib import Path
from typing import Any

import pytest

from envs_registry import Task, load_source
from envs_registry.contamination import overlap, question_key, without
from envs_registry.generated.arithmetic import ArithmeticSource
from envs_registry.sources import ListSource
from envs_registry.task import check_setup, shown_answer


@pytest.mark.parametrize(
    ("question", "answers", "kind", "words"),
    [
        *((" ", ("1",), "qa", "blank question"), ("q", (" ",), "qa", "no answer")),
        ("q", ("Paris", ""), "qa", "blank answer, which an empty box would meet"),
        ("q", "Paris", "qa", "answers is a tuple"),  # each letter would be an accepted answer
        *(("q", (5,), "math", "are texts, as in '5'; got 5"), (None, ("1",), "qa", "are texts.*got None")),
        ("cut \ud83d", ("1",), "qa", r"'cut \\ud83d' holds half of a surrogate pair; take it out"),
        ("q", ("1",), "maths", "kind must be one of math, qa, mcq, not 'maths'"),
    ],
)
def test_task_refuses_what_cannot_be_asked_or_scored(question: Any, answers: Any, kind: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Task("t", question, answers, kind=kind)


def test_arithmetic_splits_never_share_a_problem() -> None:
    train, test = (load_source("arithmetic", split=split) for split in ("train", "test"))
    problems = [{(t.question, t.setup) for t in map(source.task, range(600))} for source in (train, test)]
    assert not problems[0] & problems[1]
    assert min(map(len, problems)) > 550  # and they hardly repeat themselves


def test_arithmetic_mixes_levels() -> None:
    assert [load_source("arithmetic", level="2,4").task(i).level for i in range(4)] == ["2", "4", "2", "4"]


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("arithmetic", {"split": "dev"}, "splits train and test"),
        ("arithmetic", {"level": "hard"}, "levels 1, 2, 3, 4, 5, 6"),
        ("arithmetic", {"notes": 0}, "notes must be a whole number from 1 to 7"),
        ("arithmetic", {"notes": 8}, "notes must be a whole number from 1 to 7"),
        *(("arithmetic", {"limit": 0}, "at least 1"), ("arithmetic", {"shuffle": True}, "endless")),
        ("multihop", {"level": 5}, "2, 3, 4, 'mixed'"),
        *(("multihop", {"split": "dev"}, "train and test"), ("multihop", {"world_size": 10}, "200 to 50,000")),
        ("bifurcation", {"choices": 9}, "choices must be a whole number between 2 and 8, got 9"),
        ("bifurcation", {"slip": "much"}, r"slip must be a number between 0\.0 and 1\.0, got 'much'"),
        ("bifurcation", {"level": "shrt"}, "long-many, stochastic; not 'shrt'; did you mean 'short'"),
        ("bifurcation", {"decision": 2}, r"no option 'decision' \(did you mean 'decisions'\?\)"),
    ],
)
def test_a_generator_refuses_what_it_has_not(name: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        load_source(name, **options)


def test_limit_and_shuffle(tmp_path: Path) -> None:
    path = tmp_path / "gsm.jsonl"
    path.write_text("".join(f'{{"question": "q{i}?", "answer": "so #### {i}"}}\n' for i in range(30)))

    def asked(count: int, **options: Any) -> list[str]:
        source = load_source("gsm8k", data=str(path), **options)
        assert source.size == options["limit"]
        return [source.task(index).question for index in range(count)]

    plain = asked(5, limit=4)
    assert plain == ["q0?", "q1?", "q2?", "q3?", "q0?"]
    one, two, other = (asked(10, limit=10, shuffle=True, seed=seed) for seed in (1, 1, 0))
    assert one == two
    assert one != other
    assert len(set(one)) == 10
    assert one[:5] != plain
    with pytest.raises(ValueError, match="data is blank"):  # no way to the hub
        load_source("gsm8k", data="")


@pytest.mark.parametrize(
    ("setup", "answer"),
    [
        *(("answer = 'Paris'\ndel answer", "Paris"), ("def capital():\n    return 'Paris'", "Paris")),
        *(("x = 'Par' + 'is'", "Paris"), ("x = f'{1} Paris'", "Paris"), ("x = b'Paris'", "Paris")),
        *(("class Paris: pass", "Paris"), ("text = 'Jean-Luc Godard'", "Jean Luc Godard")),
        *(("rows = [1204, 7]", "1,204"), ("x = -1204", "-1204"), ("x = '1,204'", "1204")),
        *(("the_answer: int = 5", "5"), ("gold = ['B', 'x']", "B"), ("facts['answer'] = 'yes'", "yes")),
        *(("configure(expected=42)", "42"), ("def solution(): return 42", "42"), ("self.answer = True", "True")),
    ],
)
def test_an_answer_that_is_written_in_the_setup_is_refused(setup: str, answer: str) -> None:
    found = shown_answer(setup, ("something else", answer))
    assert found[0] == answer
    with pytest.raises(ValueError, match=r"line \d+ of its setup holds the gold answer .*; compute it there"):
        check_setup(Task("t", "q", (answer,), setup=setup))


@pytest.mark.parametrize(
    ("setup", "answer"),
    [
        *(("items = [1, 2, 3, 5]", "5"), ("metals = [{'name': 'gold', 'grams': 5}]", "5")),
        *(("text = 'parisian comparison'", "Paris"), ("x = 12040\ny = 1204.5", "1204"), ("flag = False", "false")),
        *(("answer = sum(range(10)) * 7", "315"), ("# the answer is Paris\nx = 1", "Paris"), ("x = (", "Paris")),
    ],
)
def test_what_is_no_answer_is_let_pass(setup: str, answer: str) -> None:
    assert shown_answer(setup, (answer,)) is None
    check_setup(Task("t", "q", (answer,), setup=setup))


@pytest.mark.parametrize("split", ["train", "test"])
def test_generated_setups_never_hold_their_answer(split: str) -> None:
    tasks = [ArithmeticSource(split).task(index) for index in range(600)]
    assert sum(bool(task.setup) for task in tasks) > 200
    assert [task.id for task in tasks if shown_answer(task.setup, task.answers)] == []


# the same question in two sources

LONG = "In which year did the invented explorer Ada Nowhere cross the great imaginary desert of Zorb on foot"


def source(name: str, *questions: str, setup: str = "") -> ListSource:
    return ListSource([Task(f"{name}-{n}", text, ("1",), setup=setup) for n, text in enumerate(questions)])


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        *(("Who wrote  it?", "who wrote it", True), ("Let $8$ , and", "Let $8$, and", True)),
        *(("Ｗho is “X”？", 'Who is "X"?', True), ("哪一年？", "哪一年", True)),
        *(("What is 12 + 3?", "What is 12 - 3?", False), ("Compute $1.5 + 2$", "Compute $15+2$", False)),
        *(("What is 1 12?", "What is 11 2?", False), ("Find $x^2$", "Find $x_2$", False)),
        ("$x=-3$, find it", "$x=3$, find it", False),
    ],
)
def test_the_same_question_in_another_dress_and_one_with_another_sign(one: str, other: str, same: bool) -> None:
    assert (question_key(one) == question_key(other)) is same
    assert overlap(source("a", one), source("b", other)).count == same


def test_counts_are_of_evaluation_tasks_and_pairs_name_both() -> None:
    found = overlap(source("train", "x?", "X", "y?"), source("eval", "x", "z", "y"))
    pairs = [(one.id, other.id) for one, other in found.exact]
    assert pairs == [("train-0", "eval-0"), ("train-1", "eval-0"), ("train-2", "eval-2")]
    assert str(found).startswith("2 of 3 evaluation tasks are trained on (x; x; y)")
    # questions about variables need the same variables
    train = source("a", "How long is the list?", setup="items = [1]")
    for setup, count in (("items = [1, 2]", 0), ("items = [1]", 1)):
        assert overlap(train, source("b", "How long is the list?", setup=setup)).count == count


def test_similar_questions_are_counted_apart_and_dropped_as_well() -> None:
    train = source("train", "x?", f"{LONG}?", "y?", "short one")
    found = overlap(train, source("eval", "x", f"{LONG}, and with whom?", "short two"))
    assert (found.count, found.near_count) == (1, 1)
    assert [task.question for task in without(train, found).tasks] == ["y?", "short one"]
    with pytest.raises(ValueError, match="nothing is left"):
        without(source("a", "x"), overlap(source("a", "x"), source("b", "x")))
    with pytest.raises(ValueError, match="give it a `limit`"):
        overlap(load_source("arithmetic"), source("b", "x"))
