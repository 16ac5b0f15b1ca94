"""`arpo_tree`: our credit over trees as an advantage estimator of verl, and AEPO's clip as a policy loss, `aepo`.

    actor_rollout_ref.model.external_lib=arpo_trainer.adapters.verl_credit
    algorithm.adv_estimator=arpo_tree
    actor_rollout_ref.actor.policy_loss.loss_mode=aepo          # for AEPO

verl imports this module in its trainer and workers, because `external_lib` names it. The rows have to come from
`verl_agent_loop.ArpoAgentLoop`: its algorithm says how advantages are computed, and its `extra_fields["arpo"]` where
each row lies in its tree. verl 0.9 hands an estimator rewards, mask and prompt of each row and nothing else. So
`PPOTrainer._compute_advantage` is wrapped here: it fetches the extra fields of the batch for the estimator.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import torch

from arpo_env.adapters import load_peer
from arpo_trainer.algorithms.advantages import batch_advantages
from arpo_trainer.algorithms.credit import CREDITS, token_advantages, weight_scale
from arpo_trainer.algorithms.losses import Loss, shifted_old_logps
from arpo_trainer.algorithms.registry import Algorithm, get_algorithm
from arpo_trainer.training.rollout_batch import RolloutBatch, entropy_factor, pad_rows, tree_moments
from arpo_trainer.tree import RolloutTree, Trajectory
from arpo_trainer.validation import check_name, look_up

core_algos: Any = load_peer("verl.trainer.ppo.core_algos")
trainer_base: Any = load_peer("verl.trainer.ppo.v1.trainer_base")

NAME = "arpo_tree"
# of `algorithm.arpo_tree`, in place of the algorithm's
SETTINGS = ("advantage", "attribution", "entropy_weight")


@dataclass(frozen=True)
class _Batch:
    """What the estimator needs besides what verl gives it: `extra_fields["arpo"]` and entropies of each row."""

    facts: Sequence[Mapping[str, Any]]
    entropies: torch.Tensor | None
    token_mean: bool


_batch: ContextVar[_Batch | None] = ContextVar("batch", default=None)


_compute: Any = trainer_base.PPOTrainer._compute_advantage


@functools.wraps(_compute)
def _compute_advantage(self: Any, batch: Any, metrics: dict[str, Any]) -> Any:
    if self.config.algorithm.adv_estimator != NAME:
        return _compute(self, batch, metrics)
    wanted = ["extra_fields", "entropy"]
    data = trainer_base.tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=wanted)
    data = data.to_padded_tensor()
    facts = [fields.get("arpo") for fields in data.pop("extra_fields").tolist()]
    if None in facts:
        raise ValueError(f"adv_estimator={NAME} needs rows of ArpoAgentLoop: set their agent_name to 'arpo_agent'")
    mode = self.config.actor_rollout_ref.actor.loss_agg_mode
    token = _batch.set(_Batch(facts, data.get("entropy"), mode == "token-mean"))
    try:
        return _compute(self, batch, metrics)
    finally:
        _batch.reset(token)


trainer_base.PPOTrainer._compute_advantage = _compute_advantage


@core_algos.register_adv_est(NAME)  # type: ignore[untyped-decorator]
def arpo_tree(
    token_level_rewards: torch.Tensor, response_mask: torch.Tensor, index: Iterable[str], config: Any, **_: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the advantages that `ARPOTrainer` gives to the same trees, shape (rows, response length), and them again.

    Args:
        token_level_rewards: of verl, shape (rows, response length); their sum is a trajectory's reward.
        response_mask: 1 for tokens that are learned from, likewise.
        index: the prompt (`uid`) of each row.
        config: `algorithm` of verl's configuration. `norm_adv_by_std_in_grpo=False` leaves out the deviation;
            `arpo_tree` may have `advantage`, `attribution` and `entropy_weight` in place of the algorithm's.
        **_: of verl.

    Raises:
        RuntimeError: another trainer than verl's present one calls it.
        ValueError: the settings do not go together.
    """
    batch = _batch.get()
    if batch is None:
        raise RuntimeError(
            f"adv_estimator={NAME} learns of the trees in verl's present trainer only: trainer.use_v1=True"
        )
    rows: dict[str, list[int]] = defaultdict(list)  # of each tree
    for number, (fact, uid) in enumerate(zip(batch.facts, index, strict=True)):
        if fact["uid"] == uid:  # verl fills a batch up with empty copies of a row, under another uid
            rows[fact["tree"]].append(number)
    algorithm = _algorithm({batch.facts[own[0]]["algorithm"] for own in rows.values()}, config)
    entropies = batch.entropies if algorithm.entropy_weight else torch.zeros_like(token_level_rewards)
    if entropies is None:
        raise ValueError(
            f"entropy_weight={algorithm.entropy_weight} needs entropies, which verl computes with log pi_old: set "
            f"algorithm.rollout_correction.bypass_mode=False, or algorithm.{NAME}.entropy_weight=0"
        )
    scores = token_level_rewards.sum(dim=-1).tolist()
    trees = [_tree([(batch.facts[row], scores[row], entropies[row]) for row in own]) for own in rows.values()]
    lengths, starts = RolloutBatch(trees).turn_lengths(), [tree.starts() for tree in trees]
    groups = batch_advantages(algorithm.advantage, [tree.rewards for tree in trees], lengths, starts)
    values: list[list[float]] = [[] for _ in scores]
    for own, tree, group in zip(rows.values(), trees, groups, strict=True):
        # the trajectories of the rows come first in a tree
        for row, tokens in zip(own, token_advantages(tree, group, algorithm.attribution), strict=False):
            values[row] = tokens
    advantages = pad_rows(values, token_level_rewards)
    if batch.token_mean:  # it divides by a number of tokens in which every copy counts 1
        advantages *= weight_scale(trees, algorithm.attribution)
    if algorithm.entropy_weight:
        advantages *= entropy_factor(entropies, tree_moments(trees), algorithm.entropy_weight)
    advantages *= response_mask
    return advantages, advantages


def _algorithm(names: set[str], config: Any) -> Algorithm:
    """Return the row of the algorithm that has played the batch, as verl's configuration changes it."""
    if len(names) != 1:
        raise ValueError(f"the rows were played with {len(names)} algorithms, {sorted(names)}; give their loops one")
    given = dict(config.get(NAME) or {})
    for name in given:
        check_name(f"a setting of algorithm.{NAME}", name, SETTINGS)
    row = replace(get_algorithm(*names), **given)
    if not config.get("norm_adv_by_std_in_grpo", True):
        if row.advantage in ("grpo-population", "tree-grpo", "reinforce++"):
            raise ValueError(
                f"advantage={row.advantage!r} divides by a deviation: leave norm_adv_by_std_in_grpo at True"
            )
        row = replace(row, advantage="grpo-no-std") if row.advantage == "grpo" else row
    if row.action_weight or look_up("attribution", row.attribution, CREDITS).prepare:
        raise ValueError(f"algorithm {names} needs more than a tree and its rewards; train with ARPOTrainer")
    return row


def _tree(rows: Sequence[tuple[Mapping[str, Any], float, torch.Tensor]]) -> RolloutTree:
    """Return the tree of some rows (`extra_fields["arpo"]`, reward, entropies), without its tokens."""
    tree, places = RolloutTree([]), dict[int, int]()
    for fact, reward, entropies in rows:
        first, parent = 0, None
        for index, kind, length in fact["path"]:
            if index not in places:
                own = entropies[first : first + length].tolist() if kind == "model" else []
                span = tree.add_span(parent, kind, [0] * length, logprobs=[0.0] * len(own), entropies=own)
                places[index] = span.index
            first, parent = first + length, places[index]
        tree.trajectories.append(Trajectory(parent or 0, reward=reward if fact["valid"] else None))
    # what verl has left out is as a trajectory that failed: nothing asks where that lies
    left_out = rows[0][0]["size"] - len(rows)
    tree.trajectories += [Trajectory(tree.trajectories[0].leaf) for _ in range(left_out)]
    return tree


@core_algos.register_policy_loss("aepo")  # type: ignore[untyped-decorator]
def aepo(
    old_log_prob: torch.Tensor,
    log_prob: torch.Tensor,
    advantages: torch.Tensor,
    response_mask: torch.Tensor,
    loss_agg_mode: str = "token-mean",
    config: Any = None,
    rollout_is_weights: torch.Tensor | None = None,
) -> tuple[torch.Tensor, dict[str, Any]]:
    """Return verl's clipped loss, with the gradient above the upper bound kept and scaled to it (see `losses`).

    The bounds are `clip_ratio_low` and `clip_ratio_high`. verl's `clip_ratio_c` cuts off ratios above 3 where A < 0, as
    the published AEPO does; the paper has no such bound. `actor/ppo_kl` is taken after the shift of log pi_old.
    """
    low, high = (config.clip_ratio if b is None else b for b in (config.clip_ratio_low, config.clip_ratio_high))
    old, kept = shifted_old_logps(
        Loss("aepo", low=low, high=high), log_prob, old_log_prob, advantages, response_mask.to(log_prob.dtype)
    )
    loss, metrics = core_algos.compute_policy_loss_vanilla(
        old, log_prob, advantages, response_mask, loss_agg_mode, config, rollout_is_weights
    )
    share = kept.sum() / response_mask.sum().clamp(min=1)
    return loss, {**metrics, "actor/kept_gradients": share.item()}
