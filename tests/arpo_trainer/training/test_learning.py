"""How trees are learned from, in TRL's own loop: advantages, the entropy factor, losses by moved anchors."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from arpo_env import ToolEnv
from arpo_trainer import ARPOTrainer, RolloutTree
from arpo_trainer.algorithms.advantages import batch_advantages, silent_groups
from arpo_trainer.algorithms.credit import token_advantages, weight_scale
from arpo_trainer.training.rollout_batch import Moments, RolloutBatch, entropy_factor, tree_moments
from tests.arpo_trainer.test_tree import small_tree
from tests.arpo_trainer.training.test_trainer import GROUP, Watched, config


def odd(completion_ids: list[list[int]], **_: Any) -> list[float]:
    """A reward that every trajectory has another one of."""
    return [float(sum(ids) % 7) for ids in completion_ids]


def train(tiny_model: Any, tokenizer: Any, folder: Path, **settings: Any) -> Watched:
    env, args = ToolEnv("arpo/Arithmetic-v0", level=3), config(folder, **{"max_steps": 1, **settings})
    trainer = Watched(tiny_model, env, reward_funcs=odd, args=args, processing_class=tokenizer)
    trainer.train()
    return trainer


def expected(trees: list[RolloutTree], advantage: str, attribution: str) -> list[list[float]]:
    rewards = [[odd([tree.row(n).ids])[0] for n in range(GROUP)] for tree in trees]
    lengths = [[sum(tree.row(n).mask) for n in range(GROUP)] for tree in trees]
    groups = batch_advantages(advantage, rewards, lengths, [tree.starts() for tree in trees])
    return [row for tree, own in zip(trees, groups, strict=True) for row in token_advantages(tree, own, attribution)]


@pytest.mark.parametrize(
    ("advantage", "attribution", "entropy_weight"),
    [
        ("grpo", "hard", 0.0),
        ("grpo", "soft", 0.2),
        ("tree-grpo", "soft", 0.0),
        ("reinforce++", "soft", 0.0),
        ("grpo-no-std", "fork", 0.0),
    ],
)
@pytest.mark.usefixtures("isolation")
def test_a_token_s_advantage_is_that_of_the_named_functions(
    tiny_model: Any, tokenizer: Any, tmp_path: Path, advantage: str, attribution: str, entropy_weight: float
) -> None:
    """Times an entropy factor, whose mean and deviation are those of the batch."""
    settings = {"advantage": advantage, "attribution": attribution, "entropy_weight": entropy_weight}
    trees, batch = train(tiny_model, tokenizer, tmp_path, **settings).kept[0]
    scale, moments = weight_scale(trees, attribution), tree_moments(trees)
    rows = [tree.row(number) for tree in trees for number in range(GROUP)]
    for row, own, got in zip(rows, expected(trees, advantage, attribution), batch["advantages"], strict=True):
        factor = scale * entropy_factor(torch.tensor(row.entropies), moments, entropy_weight)
        assert got[: len(own)].tolist() == pytest.approx((torch.tensor(own) * factor).tolist(), abs=1e-4)
        assert got[len(own) :].abs().sum() == 0
    assert batch["advantages"].abs().max() > 0.1


def test_a_row_that_no_function_could_score_gives_no_credit() -> None:
    """Its advantage of 0 would count as a result in the mean over a shared span."""
    tree, nan = small_tree(), float("nan")
    batch = RolloutBatch([tree, tree], rewards=[1.0, nan, nan, 1.0, 0.0, nan])
    first, second = batch.scored_trees()
    assert token_advantages(first, [0.5, 0.0, 0.0], "hard")[0] == [0.5] * 9
    assert token_advantages(second, [0.5, -0.5, 0.0], "hard")[0][0] == 0.0
    assert tree.trajectories[1].valid


def test_what_broke_has_no_reward_also_where_a_function_gave_it_one() -> None:
    """In place: TRL takes means and deviations itself where they are of the whole batch."""
    trees: Any = [SimpleNamespace(trajectories=[SimpleNamespace(valid=valid) for valid in (True, False, True)])]
    batch, rewards = RolloutBatch(trees), torch.tensor([[1.0], [5.0], [0.0]])
    batch.score(rewards, torch.tensor([2.0]))
    assert rewards.isnan().flatten().tolist() == [False, True, False]
    assert batch.group_rewards() == [[2.0, None, 0.0]]


def test_equal_rewards_teach_nothing_also_where_the_batch_scales_them() -> None:
    """TRL's are the rounding of the mean over a small deviation there."""
    trajectories = [SimpleNamespace(valid=True)] * 2
    args = SimpleNamespace(advantage="grpo", action_weight=0.0, multi_objective_aggregation="sum_then_normalize")
    trees: Any = [SimpleNamespace(trajectories=trajectories)] * 2
    alone, batch = SimpleNamespace(gather=lambda values: values), RolloutBatch(trees, rewards=[0.7, 0.7, 0.0, 1.0])
    trainer: Any = SimpleNamespace(_scale=None, rollout_batch=batch, args=args, accelerator=alone)
    found = ARPOTrainer._group_advantages(trainer, torch.tensor([1e-3, 1e-3, -0.5, 0.5]))
    assert found == [[0.0, 0.0], [-0.5, 0.5]]
    assert silent_groups(trainer.rollout_batch.group_rewards()) == 1


def moments_of(values: torch.Tensor) -> Moments:
    counted = values.double()
    return Moments(counted.numel(), counted.sum().item(), counted.square().sum().item())


def test_the_factor_is_bounded_and_carries_no_gradient() -> None:
    values = torch.tensor([[0.0, 1e6, -1e6]], requires_grad=True)
    factor = entropy_factor(values, Moments(100, 0.0, 99.0))
    assert factor[0].tolist() == pytest.approx([1.0, 1.6, 0.4])
    assert not factor.requires_grad
    assert entropy_factor(torch.rand(3, 5), Moments()).isfinite().all()  # of no token at all
    # a single token, no variance, and one that is rounding only leave advantages as they are
    for given in map(torch.tensor, ([0.7], [0.1] * 1000, [0.0, 0.0], [5.0, 5.0000005])):
        assert entropy_factor(given, moments_of(given)).tolist() == pytest.approx([1.0] * len(given), abs=1e-6)
    # one that could turn an advantage around is refused
    for weight, limit in ((0.2, 5.0), (1.0, 3.0), (-0.1, 1.0), (0.2, -1.0)):
        with pytest.raises(ValueError, match=r"use weight=0\.2, limit=3"):
            entropy_factor(torch.rand(3, 5), Moments(), weight, limit)


def test_entropies_of_sampling_are_counted_once_a_copy_and_invalid_ones_not_at_all() -> None:
    tree = small_tree()
    rows = [tree.row(number) for number in (0, 1)]
    counted = [value for row in rows for value, own in zip(row.entropies, row.mask, strict=True) if own]
    assert tree_moments([tree]) == moments_of(torch.tensor(counted))
    assert len(counted) == 8
