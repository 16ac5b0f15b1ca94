"""Published credit over trees of reasoning steps: TreeRL, TreePO and SPO-tree.

Their nodes are what lies between two forks; here that is a segment of turns and results. Returns of 0 or 1 are replaced
by the advantages of `advantage`, which are the same up to a constant and a scale; all take differences, so the constant
cancels. `advantage: grpo-no-std` keeps the scale of the rewards.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from arpo_trainer.algorithms.credit_method import PathValues
from arpo_trainer.algorithms.tree_values import Forks, mean, span_advantages, turn_values, valid_leaves
from arpo_trainer.tree import RolloutTree


def treerl(tree: RolloutTree, advantages: Sequence[float]) -> list[float]:
    """Return TreeRL's reward of each step: global plus local advantage, over the root of its leaves.

    TreeRL (arXiv 2506.11902), eq. 2-4 and the downweighting behind them:

        GA(s) = V(s) - V(root),  LA(s) = V(s) - V(p(s)),  R(s) = (GA(s) + LA(s)) / sqrt(|L(s)|)

    V(s) is the mean over the leaves L(s) below s, p(s) the step before. Left out: the published code also adds V(s)
    itself, subtracts the mean over all tokens of the batch, and takes leave-one-out rewards. Without branches, R is
    twice the reward minus the mean.

    Args:
        tree: with G trajectories.
        advantages: of each trajectory, shape (G,).

    Returns:
        Shape (spans,); 0 where no valid trajectory passes.
    """
    values, leaves = span_advantages(tree, advantages), valid_leaves(tree)
    root = mean(_of_valid(tree, advantages))
    result = []
    for index, start in enumerate(Forks.of(tree).segment_starts(tree)):
        above = tree.spans[start].parent
        before = root if above is None else values[above]
        reward = (values[index] - root) + (values[index] - before)
        result.append(reward / math.sqrt(len(leaves[index])) if leaves[index] else 0.0)
    return result


def treepo(tree: RolloutTree, advantages: Sequence[float]) -> PathValues:
    """Return TreePO's advantage of each trajectory, the same for all of its tokens.

    TreePO (arXiv 2508.17445), eq. 4-5, with G_1 > G_2 > ... the trajectories that share the steps of trajectory i:

        A_i = sum_j A_ij / (|J| std),  A_ij = R_i - mean(R of G_j)

    G_1 is the whole group. As in the published code, a group of the trajectory alone does not count. Left out: the
    deviation over the batch (`advantage` has one of the group) and the rejection of prompts without signal, which have
    advantage 0 here anyway.

    Args:
        tree: with G trajectories.
        advantages: of each trajectory, shape (G,).

    Returns:
        For each trajectory one number per span of its path.
    """
    leaves = valid_leaves(tree)
    everyone = [number for number, trajectory in enumerate(tree.trajectories) if trajectory.valid]
    result = []
    for number, own in enumerate(advantages):
        path, groups = tree.path(number), [everyone]
        for span in path:
            if 1 < len(leaves[span.index]) < len(groups[-1]):
                groups.append(leaves[span.index])
        baseline = mean([mean([advantages[member] for member in group]) for group in groups])
        result.append([own - baseline] * len(path))
    return result


def spo(tree: RolloutTree, advantages: Sequence[float]) -> list[float]:
    """Return V at the end of each segment minus V at its start (SPO-tree).

    SPO (arXiv 2505.23564), eq. 2 and sec. 5, V from the leaves to the root:

        A(seg k) = V(s_{t_{k+1}}) - V(s_{t_k});  V(n) = mean of V over the children of n,  A(n) = V(n) - V(Pa(n))

    A node is trained on once, so the row weighs its copies with `once`. Left out: the variant divided by the deviation
    of the siblings, the mask of tokens with a high probability, and the replay buffer. Its segments have a fixed number
    of tokens; here they lie between forks. Without branches, A is the reward minus the mean.

    Args:
        tree: with G trajectories.
        advantages: of each trajectory, shape (G,).

    Returns:
        Shape (spans,); 0 where no valid trajectory passes.
    """
    values, forks, leaves = turn_values(tree, advantages), Forks.of(tree), valid_leaves(tree)
    root = mean(forks.following(None, values, advantages))
    result = []
    for index, start in enumerate(forks.segment_starts(tree)):
        above = tree.spans[start].parent
        before = root if above is None else values[above]
        result.append(values[index] - before if leaves[index] else 0.0)
    return result


def _of_valid(tree: RolloutTree, advantages: Sequence[float]) -> list[float]:
    return [own for own, trajectory in zip(advantages, tree.trajectories, strict=True) if trajectory.valid]
