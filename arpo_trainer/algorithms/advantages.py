"""The third decision, first half: from rewards to one advantage per trajectory.

`ADVANTAGES` has the methods under one signature, for the table of algorithms: a group's rewards are compared within the
group (GRPO, RLOO), with the trajectories that branched off the same start (Tree-GRPO), or with the whole batch
(REINFORCE++). `credit` spreads the advantage of a trajectory over its tokens.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

from arpo_trainer.validation import look_up

# as in verl: added to the deviation of a group, and to the variance over tokens
EPSILON = 1e-6
WHITENING_EPSILON = 1e-8
Scale = Literal["group", "none", "population"]
Rewards = Sequence[float | None]
Estimator = Callable[[Sequence[Rewards], Sequence[Sequence[int]], Sequence[Sequence[int]]], list[list[float]]]


def group_advantages(rewards: Rewards, scale: Scale = "group") -> list[float]:
    """Return A_i = (R_i - mean) / (std + 1e-6) (GRPO, arXiv 2402.03300, sec. 4.1.2).

    Args:
        rewards: of one group, shape (G,); None marks an invalid trajectory, which is left out of mean and deviation
            and gets 0.
        scale: "group" divides by the unbiased standard deviation, as the published ARPO does; "population" by the one
            with 1/G; "none" does not divide (Dr. GRPO, ToolPO).

    Returns:
        Shape (G,). Exactly 0 if all valid trajectories have the same reward, or if only one of several is valid, since
        there is nothing to compare with. A group of one has mean 0 and deviation 1, as in the published code.
    """
    # equal rewards give exactly 0: their computed mean may differ from them by rounding, which Adam would scale up
    if not has_signal(rewards):
        return [0.0] * len(rewards)
    mean, deviation = _group_moments(_valid(rewards), population=scale == "population")
    divisor = 1.0 if scale == "none" else deviation + EPSILON
    return [0.0 if reward is None else (reward - mean) / divisor for reward in rewards]


def leave_one_out(rewards: Rewards) -> list[float]:
    """Return A_i = R_i minus the mean reward of the others in the group (RLOO, arXiv 2402.14740).

    Args:
        rewards: as in `group_advantages`.

    Returns:
        Shape (G,); without anything to compare, the same as `group_advantages` without its epsilon.
    """
    if not has_signal(rewards):
        return [0.0] * len(rewards)
    (mean, _), n = _group_moments(_valid(rewards)), len(_valid(rewards))
    # R_i - mean of the others = (R_i - mean of all) * n / (n - 1)
    stretch = n / (n - 1) if n > 1 else 1.0
    return [0.0 if reward is None else (reward - mean) * stretch for reward in rewards]


def tree_group_advantages(rewards: Rewards, starts: Sequence[int]) -> list[float]:
    """Return A_inter + A_intra: advantages in the group and in the own tree (Tree-GRPO, arXiv 2509.21240, eq. 6-7).

    A tree is everything that branched off one start. If only one trajectory of a tree is valid, there is nothing to
    compare with and A_intra is 0; the published code uses its reward instead.

    Args:
        rewards: as in `group_advantages`.
        starts: the tree of each trajectory, shape (G,): any numbers, such as those of `RolloutTree.starts`.

    Returns:
        Shape (G,); without branches the same as `group_advantages`.
    """
    result = group_advantages(rewards)
    for start in set(starts):
        members = [number for number, own in enumerate(starts) if own == start]
        if len(members) > 1:  # a tree of one would be compared with nothing
            for number, within in zip(members, group_advantages([rewards[i] for i in members]), strict=True):
                result[number] += within
    return result


def reinforce_plus_plus(groups: Sequence[Rewards], lengths: Sequence[Sequence[int]]) -> list[list[float]]:
    """Return rewards whitened over all tokens of the batch (REINFORCE++, arXiv 2501.03262).

    With gamma 1 and the reward at the last token, the return of each token is the reward of its trajectory. Mean and
    unbiased variance are taken over tokens, so a long trajectory counts more.

    Args:
        groups: rewards of each group of the global batch, from all processes; None marks an invalid trajectory.
        lengths: number of tokens of each trajectory that count in the loss.

    Returns:
        As `groups`; 0 for invalid trajectories, and for all if all rewards are the same.
    """
    flat = [reward for group in groups for reward in group]
    if len(set(_valid(flat))) < 2:  # rounding would be divided by almost nothing
        return [[0.0] * len(group) for group in groups]
    weights = [n for group in lengths for n in group]
    mean, deviation = _token_moments([(r, n) for r, n in zip(flat, weights, strict=True) if r is not None])
    return [[0.0 if reward is None else (reward - mean) / deviation for reward in group] for group in groups]


def _group_moments(valid: Sequence[float], population: bool = False) -> tuple[float, float]:
    if len(valid) == 1:
        return 0.0, 1.0
    return statistics.fmean(valid), statistics.pstdev(valid) if population else statistics.stdev(valid)


def _token_moments(rewards: Sequence[tuple[float, int]]) -> tuple[float, float]:
    tokens = sum(n for _, n in rewards)
    if tokens < 2:  # no variance; infinity makes the advantage 0
        return 0.0, math.inf
    mean = math.fsum(reward * n for reward, n in rewards) / tokens
    variance = math.fsum(n * (reward - mean) ** 2 for reward, n in rewards) / (tokens - 1)
    return mean, math.sqrt(variance + WHITENING_EPSILON)


def _by_group(function: Callable[[Rewards], list[float]]) -> Estimator:
    return lambda groups, lengths, starts: list(map(function, groups))


ADVANTAGES: dict[str, Estimator] = {
    "grpo": _by_group(group_advantages),
    "grpo-population": _by_group(partial(group_advantages, scale="population")),
    "grpo-no-std": _by_group(partial(group_advantages, scale="none")),
    "rloo": _by_group(leave_one_out),
    "tree-grpo": lambda groups, lengths, starts: list(map(tree_group_advantages, groups, starts)),
    "reinforce++": lambda groups, lengths, starts: reinforce_plus_plus(groups, lengths),
}


def batch_advantages(
    name: str,
    groups: Sequence[Rewards],
    lengths: Sequence[Sequence[int]],
    starts: Sequence[Sequence[int]] | None = None,
) -> list[list[float]]:
    """Return one advantage per trajectory, by the named method.

    Args:
        name: one of `ADVANTAGES`.
        groups: rewards of each group of the global batch, from all processes; None marks an invalid trajectory.
        lengths: number of tokens of each trajectory that count in the loss; only "reinforce++" uses them.
        starts: the tree of each trajectory in its group; only "tree-grpo" uses them. By default each trajectory is a
            tree.

    Returns:
        As `groups`.

    Raises:
        ValueError: the name is unknown; suggests the nearest.
    """
    estimate = look_up("advantage", name, ADVANTAGES)
    return estimate(groups, lengths, [range(len(group)) for group in groups] if starts is None else starts)


def has_signal(rewards: Rewards) -> bool:
    """Return whether a group gives a signal: two valid rewards differ, or it is a group of one."""
    valid = _valid(rewards)
    return len(set(valid)) > 1 or len(valid) == len(rewards) == 1


def silent_groups(groups: Sequence[Rewards]) -> int:
    """Count the groups without a signal; all their advantages are 0, except under "reinforce++"."""
    return sum(not has_signal(group) for group in groups)


def _valid(rewards: Rewards) -> list[float]:
    for number, reward in enumerate(rewards):
        if reward is not None and not math.isfinite(reward):  # such as those of another framework's reward functions
            raise ValueError(
                f"the reward of trajectory {number} is {reward}: a reward must be a finite number, or None where a "
                "trajectory could not be scored"
            )
    return [reward for reward in rewards if reward is not None]
