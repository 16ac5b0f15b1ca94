"""A setup may compute the gold answer, and must not hold it."""

import pytest

from envs_registry import Task
from envs_registry.generated.arithmetic import ArithmeticSource
from envs_registry.task import check_setup, shown_answer


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
