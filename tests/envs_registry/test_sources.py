"""Task sources: the generated one, GSM8K from a real file, limits and shuffles; no setup holds the gold answer."""

from pathlib import Path

import pytest

from envs_registry import Task, UnknownEnvError, get_spec, load_source
from envs_registry.generated.arithmetic import ArithmeticSource
from envs_registry.task import check_setup, shown_answer


def test_task_refuses_what_cannot_be_asked_or_scored() -> None:
    with pytest.raises(ValueError, match="blank question"):
        Task("t", " ", ("1",))
    with pytest.raises(ValueError, match="no answer"):
        Task("t", "q", (" ",))
    with pytest.raises(ValueError, match="blank answer, which an empty box would meet"):
        Task("t", "q", ("Paris", ""))
    with pytest.raises(ValueError, match=r"answers is a tuple, as in \('Paris',\); got 'Paris'"):
        Task("t", "q", "Paris")  # type: ignore[arg-type]  # each letter would be an accepted answer
    with pytest.raises(ValueError, match="kind must be one of math, qa, mcq, not 'maths'"):
        Task("t", "q", ("1",), kind="maths")  # type: ignore[arg-type]


def test_task_round_trips_as_plain_data() -> None:
    task = load_source("arithmetic", level=4).task(1)
    assert Task.from_dict(task.as_dict()) == task


def test_unknown_id_names_the_nearest() -> None:
    with pytest.raises(UnknownEnvError, match=r"Did you mean: arpo/Arithmetic-v0"):
        get_spec("arpo/Aritmetic-v0")
    with pytest.raises(UnknownEnvError, match="arpo/GSM8K-v0"):
        get_spec("gsm8k")


def test_arithmetic_splits_never_share_a_problem() -> None:
    train, test = (load_source("arithmetic", split=split) for split in ("train", "test"))
    problems = [{(t.question, t.setup) for t in map(source.task, range(600))} for source in (train, test)]
    assert not problems[0] & problems[1]
    assert min(map(len, problems)) > 550  # and they hardly repeat themselves


def test_arithmetic_mixes_levels_in_turn() -> None:
    assert [load_source("arithmetic", level="2,4").task(i).level for i in range(4)] == ["2", "4", "2", "4"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"split": "dev"}, "splits train and test"),
        ({"level": 9}, "levels 1, 2, 3, 4, 5, 6"),
        ({"level": "hard"}, "levels 1, 2, 3, 4, 5, 6"),
        ({"limit": 0}, "at least 1"),
        ({"shuffle": True}, "endless and cannot be shuffled"),
    ],
)
def test_arithmetic_refuses_what_it_has_not(options: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        load_source("arithmetic", **options)  # type: ignore[arg-type]


def test_limit_and_shuffle(tmp_path: Path) -> None:
    path = tmp_path / "gsm.jsonl"
    path.write_text("".join(f'{{"question": "q{i}?", "answer": "so #### {i}"}}\n' for i in range(30)))
    plain = load_source("gsm8k", data=str(path), limit=4)
    assert plain.size == 4
    assert [plain.task(i).question for i in range(5)] == ["q0?", "q1?", "q2?", "q3?", "q0?"]
    one, two = (load_source("gsm8k", data=str(path), shuffle=True, seed=1, limit=10) for _ in range(2))
    other = load_source("gsm8k", data=str(path), shuffle=True, limit=10)
    assert [one.task(i) for i in range(10)] == [two.task(i) for i in range(10)]
    assert [one.task(i) for i in range(10)] != [other.task(i) for i in range(10)]
    assert len({one.task(i).id for i in range(10)}) == 10
    assert [one.task(i).question for i in range(4)] != ["q0?", "q1?", "q2?", "q3?"]


def test_blank_data_is_no_way_to_the_hub() -> None:
    with pytest.raises(ValueError, match="data is blank"):
        load_source("gsm8k", data="")


@pytest.mark.parametrize(
    ("setup", "answer"),
    [
        ("answer = 'Paris'\ndel answer", "Paris"),
        ("note = 'It is Paris, of course.'", "Paris"),
        ("def capital():\n    return 'Paris'", "Paris"),
        ("x = 'Par' + 'is'", "Paris"),
        ("x = f'{1} Paris'", "Paris"),
        ("x = b'Paris'", "Paris"),
        ("class Paris: pass", "Paris"),
        ("rows = [1204, 7]", "1,204"),
        ("x = -1204", "-1204"),
        ("x = '1,204'", "1204"),
        ("text = 'Jean-Luc Godard'", "Jean Luc Godard"),
        ("answer = 5", "5"),
        ("the_answer: int = 5", "5"),
        ("gold = ['B', 'x']", "B"),
        ("facts['answer'] = 'yes'", "yes"),
        ("configure(expected=42)", "42"),
        ("def solution(): return 42", "42"),
        ("self.answer = True", "True"),
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
        ("items = [1, 2, 3, 5]", "5"),
        ("rows = ['yes', 'no']\nok = True", "yes"),
        ("metals = [{'name': 'gold', 'grams': 5}]", "5"),
        ("text = 'parisian comparison'", "Paris"),
        ("x = 12040\ny = 1204.5", "1204"),
        ("answer = sum(range(10)) * 7", "315"),
        ("answers = load()", "Paris"),
        ("# the answer is Paris\nx = 1", "Paris"),
        ("flag = False", "false"),
        ("x = (", "Paris"),
        ("", "Paris"),
    ],
)
def test_what_is_no_answer_is_let_pass(setup: str, answer: str) -> None:
    assert shown_answer(setup, (answer,)) is None
    check_setup(Task("t", "q", (answer,), setup=setup))


def test_the_line_is_told() -> None:
    assert shown_answer("x = 1\n\ny = 'Paris'", ("Paris",)) == ("Paris", 3)


@pytest.mark.parametrize("split", ["train", "test"])
def test_generated_setups_never_hold_their_answer(split: str) -> None:
    source = ArithmeticSource(split)
    tasks = [source.task(index) for index in range(600)]
    assert sum(bool(task.setup) for task in tasks) > 200
    assert [task.id for task in tasks if shown_answer(task.setup, task.answers)] == []
