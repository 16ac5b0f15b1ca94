"""ToolPO: extra credit on the tokens of tool calls."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arpo_env import ToolEnv
from arpo_trainer import RolloutTree
from arpo_trainer.algorithms.credit import (
    action_advantages,
    action_rewards,
    call_marks,
    first_tag,
    fold_preference,
    fold_preferences,
    success_rewards,
)
from arpo_trainer.tree import Trajectory
from tests.arpo_trainer.test_tree import small_tree
from tests.arpo_trainer.training.test_learning import odd
from tests.arpo_trainer.training.test_trainer import GROUP, Watched, config

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


def test_a_call_begins_at_its_tag_that_is_several_tokens_and_not_in_a_thought_or_is_the_whole_turn() -> None:
    assert call_marks(called([5, 2, 3, 6, 7]), decode, first_tag("<python>")) == [[0, 1, 1, 1, 1], [0], [0, 0]]
    marks = call_marks(called([0, 1, 2, 3, 4, 5, 9, 6, 7]), decode, first_tag("<search>", "<python>"))
    assert marks[0] == [0] * 6 + [1] * 3
    assert call_marks(called([5, 6, 7]), decode, first_tag("<search>"))[0] == [1, 1, 1]


def test_the_action_s_advantage_follows_the_attribution_on_marked_tokens_only_and_is_not_scaled() -> None:
    tree = small_tree()
    marks = [[int(span.index == 0)] * len(span.ids) for span in tree.spans]
    rows = action_advantages(tree, [2.0, -1.0, None], marks)
    assert rows == [[1.5] * 2 + [0.0] * 7, [-1.5] * 2 + [0.0] * 4, [0.0, 0.0]]
    rows = action_advantages(tree, [2.0, -1.0, None], [[1] * len(span.ids) for span in tree.spans], "hard")
    assert rows[0][:5] == rows[1][:5] == [0.0] * 5
    assert rows[1][5:] == [-1.5]


def test_the_action_s_reward_is_read_from_the_components() -> None:
    tree = called([5, 2, 3, 6, 7])
    with pytest.raises(ValueError, match="'right_calls': \\(function_of_the_episode"):
        action_rewards(tree)
    tree.trajectories[0].components = {"right_calls": 2.0, "fold_preference": 0.5}
    assert action_rewards(tree) == [2.5]
    tree.trajectories[0].components = {"success": 1.0, "action": 3.0}  # of a reward that is their sum
    assert action_rewards(tree) == [3.0]
    assert success_rewards(tree, [4.0]) == [1.0]
    tree.trajectories[0].reward = None
    assert action_rewards(tree) == success_rewards(tree, [None]) == [None]


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9), st.booleans()), min_size=1, max_size=6))
def test_folding_is_preferred_where_it_is_shorter_than_the_groups_others(group: list[tuple[int, int, bool]]) -> None:
    tree = RolloutTree([1])
    for before, after, valid in group:  # `after` tokens follow a fold; 0 is no fold
        last = tree.add_span(None, "model", [5] * before, logprobs=[-0.1] * before, entropies=[0.1] * before)
        if after:
            last = tree.add_span(last.index, "fold", [1, 2, 3])  # a new prompt counts nothing
            last = tree.add_span(last.index, "model", [5] * after, logprobs=[-0.1] * after, entropies=[0.1] * after)
        parts = {"right_calls": 1.0}
        tree.trajectories.append(Trajectory(last.index, reward=0.0 if valid else None, components=parts))
    direct = [before for before, after, valid in group if valid and not after]
    mean = sum(direct) / len(direct) if direct else None
    wanted = [fold_preference(mean, before + after) if mean and after else 0.0 for before, after, _ in group]
    assert fold_preferences(tree) == pytest.approx(wanted)
    for one, reward, (*_, valid) in zip(wanted, action_rewards(tree, fold_weight=2.0), group, strict=True):
        assert reward == (pytest.approx(1.0 + 2.0 * one) if valid else None)


def ran(episode: Any) -> float:
    return float(len(episode.tools_used))


@pytest.mark.parametrize(
    "reward",
    [{"accuracy": 1.0, "right_calls": (ran, 0.0)}, {"deepagent": {"correct": lambda one: [ran(one)]}}],
    ids=["own", "named"],
)
def test_the_row_trains_with_the_action_s_advantage_on_calls_and_nowhere_else(
    reward: Any, tiny_model: Any, tokenizer: Any, tmp_path: Path, isolation: str
) -> None:
    named = "deepagent" in reward  # its sum is taken apart; success alone goes to all tokens
    before = {name: value.clone() for name, value in tiny_model.state_dict().items()}
    env = ToolEnv("arpo/Arithmetic-v0", level=3, reward=reward)
    args = config(tmp_path, algorithm="toolpo", attribution=None, initial_rollouts=None, max_steps=1)
    functions = None if named else odd
    trainer = Watched(tiny_model, env, reward_funcs=functions, processing_class=tokenizer, args=args)
    assert (trainer.args.advantage, trainer.args.attribution, trainer.args.action_weight) == ("grpo-no-std", "soft", 1)
    trainer.train()
    assert trainer.ref_model is None  # beta is 0: no reference policy is loaded
    assert any(not value.equal(before[name]) for name, value in trainer.model.state_dict().items())
    trees, batch = trainer.kept[0]
    rows, credited = iter(batch["advantages"]), 0
    for tree in trees:
        odds = [odd([tree.row(number).ids])[0] for number in range(GROUP)]
        rewards = [one.components["success"] for one in tree.trajectories] if named else odds
        marks = call_marks(tree, tokenizer.decode, first_tag("<python>"))
        actions = action_advantages(tree, action_rewards(tree), marks)
        for own, extra in zip(rewards, actions, strict=True):
            wanted = [own - sum(rewards) / GROUP + more for more in extra]
            assert next(rows)[: len(wanted)].tolist() == pytest.approx(wanted, abs=1e-4)
            credited += any(extra)
    assert credited  # somebody called more often than the others
