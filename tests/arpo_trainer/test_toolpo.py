"""ToolPO: extra credit on the tokens of tool calls."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from arpo_trainer import RolloutTree
from arpo_trainer.toolpo import action_reward, call_marks, fold_preference, toolpo_advantages
from arpo_trainer.tree import Trajectory
from tests.arpo_trainer.test_tree import small_tree

WORDS = ["<think>", "maybe", "<pyth", "on>", "</think>", "so", "1+1", "</python>", "42", "<python>"]


def decode(ids: Sequence[int]) -> str:
    return "".join(WORDS[i] for i in ids)


def called(ids: list[int]) -> RolloutTree:
    tree = RolloutTree([1])
    call = tree.add_span(None, "model", ids, logprobs=[-1.0] * len(ids), entropies=[0.5] * len(ids)).index
    result = tree.add_span(call, "environment", [8], tool={"name": "python", "status": "ok", "seconds": 0.1}).index
    answer = tree.add_span(result, "model", [9, 8], logprobs=[-1.0] * 2, entropies=[0.5] * 2).index
    tree.trajectories = [Trajectory(answer, reward=1.0)]
    return tree


def test_a_call_begins_at_its_tag_even_if_that_is_several_tokens() -> None:
    assert call_marks(called([5, 2, 3, 6, 7]), decode, ["<python>"]) == [[0, 1, 1, 1, 1], [0], [0, 0]]


def test_a_tag_in_a_thought_is_no_call() -> None:
    assert call_marks(called([0, 1, 2, 3, 4, 5, 9, 6, 7]), decode, ["<search>", "<python>"])[0] == [0] * 6 + [1] * 3


def test_a_call_without_a_known_tag_is_the_whole_turn() -> None:
    assert call_marks(called([5, 6, 7]), decode, ["<search>"])[0] == [1, 1, 1]


def test_the_action_s_advantage_goes_to_marked_tokens_only_and_neither_is_scaled() -> None:
    tree = small_tree()
    marks = [[int(span.index == 0)] * len(span.ids) for span in tree.spans]
    rows = toolpo_advantages(tree, [1.0, 0.0, None], [2.0, -1.0, None], marks)
    assert rows[0] == [0.5 + 1.5] * 2 + [0.5] * 7
    assert rows[1] == [-0.5 - 1.5] * 2 + [-0.5] * 4
    assert rows[2] == [0.0, 0.0]


def test_both_parts_follow_the_attribution() -> None:
    tree = small_tree()
    marks = [[1] * len(span.ids) for span in tree.spans]
    rows = toolpo_advantages(tree, [1.0, 0.0, None], [2.0, -1.0, None], marks, "hard")
    assert rows[0][:5] == rows[1][:5] == [0.0] * 5
    assert rows[1][5:] == [-2.0]


def test_the_action_s_reward() -> None:
    assert action_reward([1, 0, 1], fold_preference(3.0, 1.0)) == 2.5
    assert action_reward([1, 1], 0.5, call_weight=0.5, fold_weight=2.0) == 2.0


def test_marks_and_lengths_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"one list a span \(7\)"):
        toolpo_advantages(small_tree(), [1.0, 0.0, None], [0.0, 0.0, None], [[1]] * 7)
    with pytest.raises(ValueError, match="not both 0"):
        fold_preference(0, 0)
