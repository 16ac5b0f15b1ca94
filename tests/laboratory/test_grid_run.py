"""What users write: algorithms with settings and labels, seeds, budgets."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.laboratory.grid_run import (
    AlgorithmChoice,
    GridRun,
    make_specs,
    parse_algorithm,
    parse_budget,
    parse_seeds,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("grpo", AlgorithmChoice("grpo", "grpo")),
        ("reinforce++", AlgorithmChoice("reinforce++", "reinforce++")),
        ("again=grpo", AlgorithmChoice("again", "grpo")),
        ("arpo:branch_alpha=0.6", AlgorithmChoice("arpo:branch_alpha=0.6", "arpo", {"branch_alpha": 0.6})),
        (
            "low=arpo:branch_alpha=1e-1,initial_rollouts=4,betas=[0.9, 0.95],packing=auto",
            AlgorithmChoice(
                "low",
                "arpo",
                {"branch_alpha": 0.1, "initial_rollouts": 4, "betas": [0.9, 0.95], "packing": "auto"},
            ),
        ),
    ],
)
def test_an_algorithm_may_have_settings_and_a_label(text: str, expected: AlgorithmChoice) -> None:
    assert parse_algorithm(text) == expected


@pytest.mark.parametrize(
    ("texts", "seeds"), [(["3"], [0, 1, 2]), (["3", "1"], [3, 1]), (["5-7"], [5, 6, 7]), (["0-1", "4"], [0, 1, 4])]
)
def test_seeds_are_a_number_a_list_or_ranges(texts: list[str], seeds: list[int]) -> None:
    assert parse_seeds(texts) == seeds


@pytest.mark.parametrize(
    ("parse", "given", "words"),
    [
        (parse_algorithm, "arpoo", "did you mean 'arpo'"),
        (parse_algorithm, "a b=arpo", "neither spaces nor slashes"),
        (parse_algorithm, "_a=arpo", "begins with no underscore"),
        (parse_algorithm, "arpo:", "settings are missing"),
        (parse_algorithm, "arpo:branch_alpha", "write name=value"),
        (parse_seeds, ["ten"], "--seeds ten"),
        (parse_seeds, ["1", "2", "1"], "seed given twice: 1"),
        (parse_seeds, ["0"], "0-0 is seed 0 alone"),
        (parse_budget, ["token=3"], "did you mean 'tokens'"),
        (parse_budget, ["tokens=many"], "a whole number above 0"),
    ],
)
def test_what_cannot_be_read_is_named(parse: Callable[[Any], Any], given: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse(given)


def test_runs_go_seed_by_seed_and_an_algorithms_own_settings_count_more() -> None:
    algorithms = [parse_algorithm("grpo"), parse_algorithm("x=arpo:lr=2")]
    specs = make_specs(algorithms, ["short"], [0, 1], {"tokens": 9}, {"lr": 1})
    assert [(spec.label, spec.seed) for spec in specs] == [("grpo", 0), ("x", 0), ("grpo", 1), ("x", 1)]
    assert specs[1] == GridRun("x", "arpo", "short", 0, {"tokens": 9}, {"lr": 2})


def test_an_algorithm_is_compared_with_itself_on_other_seeds() -> None:
    specs = make_specs(
        [parse_algorithm("grpo"), parse_algorithm("again=grpo:seed_offset=1000")], ["short"], [7], {}, {}
    )
    assert [(spec.seed, spec.settings) for spec in specs] == [(7, {}), (1007, {})]
    with pytest.raises(ValueError, match="again: seed_offset=-1"):
        make_specs([parse_algorithm("again=grpo:seed_offset=-1")], ["short"], [7], {}, {})


def test_runs_have_folders_of_their_own_that_every_file_system_takes() -> None:
    names = ["a:b", "a;b", "a_b", "é", "è", "x" * 300, "x" * 301, "grpo"]
    folders = {GridRun(label, "grpo", "short", 0).folder for label in names}
    assert len(folders) == len(names)
    assert all(len(folder) < 100 and re.fullmatch(r"[A-Za-z0-9_.+-]+", folder) for folder in folders)
    assert "grpo-short-0" in folders
