"""Branching: the scale of entropies, what the documents say of it, and what the forks of a tree are worth."""

import re
from pathlib import Path

import pytest

from arpo_trainer import RolloutSettings
from arpo_trainer.algorithms.branching import (
    BRANCHES,
    ENTROPY_UNIT,
    NO_DOUBT,
    NO_DOUBT_LEVEL,
    RANKED,
    REFERENCE_VOCABULARY,
    entropy_level,
    segment_entropy,
)
from arpo_trainer.algorithms.registry import balanced_roots, branch_quota, get_algorithm
from arpo_trainer.rollout.metrics import fork_contrasts, fork_results, rollout_metrics
from arpo_trainer.tree import Decision, Origin, RolloutTree, Trajectory
from tests.arpo_trainer.algorithms.test_credit import result, turn

PAGE = Path(__file__).resolve().parents[3] / "docs" / "concepts" / "trees.md"


def test_the_scale_is_the_published_one_where_its_setting_holds() -> None:
    uneven = [0.1 * number for number in range(20)]
    assert entropy_level(uneven) == pytest.approx(segment_entropy(uneven, REFERENCE_VOCABULARY, 20))


@pytest.mark.parametrize(("tokens", "window"), [(1, 20), (60, 20), (50, 50), (3, 5)])
def test_the_scale_keeps_its_meaning_for_any_window_and_length(tokens: int, window: int) -> None:
    assert entropy_level([0.8] * tokens, window) == pytest.approx(0.8 / ENTROPY_UNIT)
    assert entropy_level([], window) == 0.0


def table(heading: str) -> list[list[float]]:
    """The numbers of the table in docs/concepts/trees.md whose first cell is this."""
    text = PAGE.read_text(encoding="utf-8")
    start = re.search(rf"^\| {re.escape(heading)} \|.*\n\|[-|]+\|\n", text, re.MULTILINE)
    assert start, heading
    rows = text[start.end() :].split("\n\n")[0].splitlines()
    return [[float(cell) for cell in row.strip("| ").split("|")] for row in rows]


def test_the_documents_say_which_rise_passes() -> None:
    """Just above the rise that the table names a point branches, just below it does not."""
    settings = RolloutSettings()
    rows = table("l")
    assert [row[0] for row in rows] == [0, 1, 2, 3, 5, 10]
    for steps, level, nats in rows:
        assert nats == pytest.approx(level * ENTROPY_UNIT, abs=0.002)
        for rise, passes in ((level + 0.002, True), (level - 0.002, False)):
            assert BRANCHES["aepo"].score(Decision(1 + rise, rise, consecutive=int(steps)), settings).branch is passes


def test_the_documents_say_what_the_budget_does() -> None:
    for nats, roots in table("H_root - H_tool, nats per token"):
        assert round(balanced_roots(16, nats / ENTROPY_UNIT, 0.0, RolloutSettings().budget_beta)) == roots


@pytest.mark.parametrize(("total", "roots", "quota"), [(16, 8, 1), (8, 3, 2), (8, 1, 7), (8, 8, 1)])
def test_the_quota_lets_all_roots_together_take_the_budget(total: int, roots: int, quota: int) -> None:
    assert branch_quota(total, roots) == quota
    assert quota * roots >= total - roots


def test_the_ranked_row_skips_what_is_settled() -> None:
    settings = RolloutSettings()
    settled = BRANCHES["arpo-ranked"].score(Decision(NO_DOUBT_LEVEL / 2, NO_DOUBT_LEVEL / 2), settings)
    assert (settled.branch, settled.reason) == (False, NO_DOUBT)
    assert BRANCHES["arpo-ranked"].score(Decision(NO_DOUBT_LEVEL * 2, NO_DOUBT_LEVEL * 2), settings).branch
    fell = BRANCHES["arpo-ranked"].score(Decision(0.5, -0.5), settings)  # the rank decides, not the threshold
    assert (fell.branch, fell.reason, fell.score) == (True, RANKED, 0.4)
    assert BRANCHES["arpo"].score(Decision(NO_DOUBT_LEVEL / 2, NO_DOUBT_LEVEL / 2), settings).branch


def grown(rewards: dict[str, float | None]) -> RolloutTree:
    """A root "0" with a fork after each of its two results, and a fork after the second result of the first branch."""
    tree = RolloutTree([1])
    first = result(tree, turn(tree, None), 2)
    second = result(tree, turn(tree, first), 2)  # of the root
    nested = result(tree, turn(tree, first), 2)  # of the branch
    for name, parent, fork in (("0", None, None), ("a", 0, first), ("b", 0, second), ("c", 1, nested)):
        above = {"0": second, "a": nested, "b": second, "c": nested}[name]
        origin: Origin = "root" if parent is None else "branch"
        tree.trajectories.append(Trajectory(turn(tree, above), origin, parent, fork, rewards[name]))
    return tree


def test_a_sister_s_value_is_the_mean_below_it() -> None:
    """The first fork compares {0, b} with {a, c}, the others one trajectory with another."""
    equal_means = grown({"0": 1.0, "b": 0.0, "a": 0.5, "c": 0.5})
    assert fork_contrasts(equal_means) == [False, True, False]
    metrics = rollout_metrics([equal_means])
    assert metrics["fork_contrast"] == pytest.approx(1 / 3)
    unknown = grown({"0": 1.0, "b": None, "a": 0.5, "c": 0.5})
    assert fork_contrasts(unknown) == [True, None, False]


def test_where_branches_leave_is_counted() -> None:
    tree = grown({"0": 1.0, "a": 0.0, "b": 0.0, "c": 0.0})
    assert fork_results(tree) == [1, 2, 2]
    metrics = rollout_metrics([tree])
    assert (metrics["branches_after/1"], metrics["branches_after/2"]) == (1, 2)
    assert metrics["fork_result"] == pytest.approx(5 / 3)
    assert not {"fork_contrast", "fork_result"} & set(rollout_metrics([RolloutTree([1])]))


def test_a_path_that_ends_at_the_fork_is_a_sister_too() -> None:
    tree = RolloutTree([1])
    fork = result(tree, turn(tree, None), 3)
    tree.trajectories = [Trajectory(fork, reward=1.0), Trajectory(fork, "branch", 0, fork, reward=0.0)]
    assert fork_contrasts(tree) == [True]


def test_an_algorithm_of_a_module_is_a_row_that_it_adds_and_nothing_else_of_it() -> None:
    assert get_algorithm("benchmarks.laboratory.paper_rows:igpo") == get_algorithm("igpo")
    with pytest.raises(ValueError, match=r"'.*paper_rows:answer_rows' is a function, not an .*Algorithm"):
        get_algorithm("benchmarks.laboratory.paper_rows:answer_rows")
    with pytest.raises(ModuleNotFoundError, match=r"no module 'own_nowhere' .*searched"):
        get_algorithm("own_nowhere:own")
