"""The third decision: from a group's rewards to an advantage for every token.

`group_advantages` turns rewards into one number a trajectory (GRPO); `token_advantages` spreads it over the tree,
soft (each copy of a shared token keeps its own trajectory's) or hard (a shared span gets the mean over the
trajectories that pass through it). Both are ARPO, sec. 3.2.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Literal

from arpo_trainer.tree import RolloutTree

EPSILON = 1e-6
Scale = Literal["group", "none"]
Attribution = Literal["soft", "hard"]


def group_advantages(rewards: Sequence[float | None], scale: Scale = "group") -> list[float]:
    """Return A_i = (R_i - mean) / (std + 1e-6), with the unbiased standard deviation (GRPO).

    Args:
        rewards: of one group, shape (G,); None marks an invalid trajectory: it stays out of mean and deviation and
            gets 0.
        scale: "none" leaves the division out.

    Returns:
        Shape (G,). A group of one has mean 0 and deviation 1, as in the published code.
    """
    valid = [reward for reward in rewards if reward is not None]
    if len(valid) < 2:
        mean, deviation = 0.0, 1.0
    else:
        mean, deviation = statistics.fmean(valid), statistics.stdev(valid)
    divisor = deviation + EPSILON if scale == "group" else 1.0
    return [0.0 if reward is None else (reward - mean) / divisor for reward in rewards]


def span_advantages(tree: RolloutTree, advantages: Sequence[float]) -> list[float]:
    """Return for each span the mean advantage over the valid trajectories through it: hard attribution.

    Args:
        tree: with G trajectories.
        advantages: of each trajectory, shape (G,).

    Returns:
        Shape (spans,); 0 where no valid trajectory passes.
    """
    means = []
    for through in tree.leaves_below():
        valid = [advantages[number] for number in through if tree.trajectories[number].valid]
        means.append(math.fsum(valid) / len(valid) if valid else 0.0)
    return means


def token_advantages(tree: RolloutTree, advantages: Sequence[float], attribution: Attribution) -> list[list[float]]:
    """Return an advantage for every token of every trajectory, environment tokens included (they are masked later).

    Args:
        tree: with G trajectories.
        advantages: of each trajectory, shape (G,).
        attribution: "soft" or "hard".

    Returns:
        G lists, each as long as its trajectory's row.

    Raises:
        ValueError: an unknown attribution, or not one advantage a trajectory.
    """
    if attribution not in ("soft", "hard"):
        raise ValueError(f"attribution must be 'soft' or 'hard', not {attribution!r}")
    if len(advantages) != len(tree.trajectories):
        raise ValueError(f"got {len(advantages)} advantages for {len(tree.trajectories)} trajectories")
    shared = span_advantages(tree, advantages)
    rows = []
    for number, own in enumerate(advantages):
        valid = tree.trajectories[number].valid
        value = {span.index: shared[span.index] if attribution == "hard" else own for span in tree.path(number)}
        rows.append([value[index] if valid else 0.0 for index in tree.row(number).span])
    return rows
