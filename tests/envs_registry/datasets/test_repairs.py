"""Faults of published files: what was meant comes back, what is right already is left alone."""

from collections import Counter

import pytest

from envs_registry.datasets.loading import answers, clean, cut_off


@pytest.mark.parametrize(
    "text",
    [
        r"so \boxed{3}, \beta, \binom{4}{2}",
        r"\frac{m}{n} for all \forall x",
        r"\triangle ABC, 3 \times 4, \theta, \text{cm}, \tfrac12",
        r"\left( 1 \right) \rangle",
        r"\vec v, \varphi",
        r"a \neq b, x \notin S, \nabla f",
        r"\alpha and \angle ABC",
    ],
)
def test_latex_whose_backslash_was_read_as_an_escape_comes_back(text: str) -> None:
    read = text
    for letter, control in zip("abfnrtv", "\a\b\f\n\r\t\v", strict=True):
        read = read.replace(f"\\{letter}", control)
    repairs: Counter[str] = Counter()
    assert read != text
    assert clean(read, repairs) == text
    assert repairs["backslash read as a control character"] == 1


@pytest.mark.parametrize("text", ["first line\nequal parts", "a\tperimeter\tan apple", "line\n\n    not code", "x < y"])
def test_ordinary_white_space_stays(text: str) -> None:
    repairs: Counter[str] = Counter()
    assert clean(text, repairs) == text
    assert not +repairs


def test_other_faults_of_a_text_are_mended_and_counted() -> None:
    repairs: Counter[str] = Counter()
    assert clean(" di\vfference\u200b:<br/>one\r\ntwo ", repairs) == "difference:\none\ntwo"
    assert +repairs == {
        "control character": 1,
        "invisible character": 1,
        "<br> for a new line": 1,
        "carriage return": 1,
        "white space around a text": 1,
    }


@pytest.mark.parametrize(
    ("values", "kind", "wanted"),
    [
        ([70], "math", ("70",)),
        ([70.0], "math", ("70",)),
        (["['Paris', 'Paname']"], "qa", ("Paris", "Paname")),
        (["[1, 2]"], "math", ("[1, 2]",)),
        (["[4,\\infty)"], "math", ("[4,\\infty)",)),
        ([["Li Ye", " Li Ye ", "", "Ye"], ["Ye", "Y."]], "qa", ("Li Ye", "Ye", "Y.")),
        (["The final answer is \\(\\boxed{D}\\)."], "math", ("D",)),
        (["$-\\frac{5}{2}$"], "math", ("-\\frac{5}{2}",)),
        (["$5$ or $6$"], "math", ("$5$ or $6$",)),
        (["$268 million"], "qa", ("$268 million",)),
        ([None, " "], "qa", ()),
    ],
)
def test_answers_of_all_forms(values: list[object], kind: str, wanted: tuple[str, ...]) -> None:
    assert answers(values, kind, Counter()) == wanted


def test_a_cut_formula_is_told_from_a_whole_one() -> None:
    assert all(map(cut_off, ["1}^N", "(37", "36\\}", "-5\\right\\}", "2)"]))
    assert not any(map(cut_off, ["[1, 2)", "\\left( 3, \\frac{\\pi}{2} \\right]", "\\{1, 2\\}", "x^{2}"]))
