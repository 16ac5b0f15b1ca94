"""Limits: what is refused, when the model is told to answer, and when nothing may follow."""

from typing import Any

import pytest

from arpo_env.episode import Budget, Call, Episode, Turn
from envs_registry import Task

TASK = Task("t", "Why?", ("because",))


def episode(*calls: str, **fields: Any) -> Episode:
    """An episode with one turn a call; a name with "!" was refused."""
    turns = [Turn("x" * 40, calls=[Call(name.rstrip("!"), "refused" if "!" in name else "ok")]) for name in calls]
    return Episode(TASK, turns, **fields)


def test_calls_in_all_are_limited() -> None:
    budget = Budget(turns=9, calls=2)
    assert budget.refusal(episode("python"), "search") is None
    assert "No tool calls are left" in str(budget.refusal(episode("python", "search"), "python"))


def test_calls_of_one_tool_are_limited() -> None:
    budget = Budget(turns=9, calls=9, calls_of={"search": 1})
    assert "No calls of search" in str(budget.refusal(episode("search"), "search"))
    assert budget.refusal(episode("search"), "python") is None


def test_refused_calls_cost_nothing() -> None:
    assert Budget(turns=9, calls=1).refusal(episode("search!", "search!"), "python") is None


def test_the_model_is_told_before_its_last_turn() -> None:
    budget = Budget(turns=3, calls=9)
    assert budget.notice(episode("python")) is None
    assert "answer in the next turn" in str(budget.notice(episode("python", "python")))
    assert not budget.spent(episode("python", "python"))
    assert budget.spent(episode("python", "python", "python"))


def test_tokens_are_estimated_from_the_text() -> None:
    budget = Budget(turns=99, calls=99, tokens=200, answer_tokens=100)
    assert budget.notice(episode(*["python"] * 5)) is None  # 5 turns of 40 bytes: 50 tokens
    assert budget.notice(episode(*["python"] * 11)) is not None
    assert budget.spent(episode(*["python"] * 20))


def test_an_engine_that_counts_tokens_is_believed() -> None:
    budget = Budget(turns=99, calls=99, tokens=1, answer_tokens=100)
    assert budget.notice(episode("python", tokens_left=500)) is None
    assert budget.notice(episode("python", tokens_left=99)) is not None
    assert budget.spent(episode("python", tokens_left=0))


@pytest.mark.parametrize("limits", [{"turns": 0, "calls": 1}, {"turns": 1, "calls": 0}])
def test_a_limit_below_one_is_refused(limits: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be a whole number of at least 1"):
        Budget(**limits)
    with pytest.raises(ValueError, match=r"tool_limits\['search'\] must be a whole number of at least 1"):
        Budget(turns=1, calls=1, calls_of={"search": 0})
