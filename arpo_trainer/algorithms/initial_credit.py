"""Credit that trains on initial trajectories alone: VinePPO. Branches only tell what they are worth.

An initial trajectory started at the prompt (origin "root" or "top-up"). The row weighs copies with `initial_only`, so
that branches leave what a loss divides by.
"""

from __future__ import annotations

from collections.abc import Sequence

from arpo_trainer.algorithms.credit_method import PathValues
from arpo_trainer.algorithms.tree_values import Forks, mean, turn_values
from arpo_trainer.tree import RolloutTree


def initial_only(tree: RolloutTree) -> PathValues:
    """Return weights of 1 for initial trajectories and 0 for branches."""
    return [[float(_initial(tree, number))] * len(tree.path(number)) for number in range(len(tree.trajectories))]


def vineppo(tree: RolloutTree, advantages: Sequence[float]) -> PathValues:
    """Return the change of a Monte Carlo value over each segment of an initial trajectory.

    VinePPO (arXiv 2410.01679), sec. 4, with K auxiliary rollouts from a state, which are not trained on:

        V(s_t) = 1/K sum_k R(rollout k from s_t),  A(s_t, a_t) = r_t + V(s_{t+1}) - V(s_t)

    The auxiliary rollouts of a state are the branches that leave it, without the trajectory itself; a branch with
    branches of its own counts with their mean. At the prompt they are the other roots. A state without branches has no
    value, so a segment reaches from one fork to the next; the last one ends with the trajectory's own advantage.
    Without other roots the first segment gets 0. Left out: the discount (1 in the paper) and a fixed K at every step.
    Without branches, A is the reward minus the mean of the others (RLOO).

    Args:
        tree: with G trajectories.
        advantages: of each trajectory, shape (G,).

    Returns:
        For each trajectory one number per span of its path; 0 for branches.
    """
    values, forks = turn_values(tree, advantages), Forks.of(tree)
    rows = []
    for number, own in enumerate(advantages):
        path = [span.index for span in tree.path(number)]
        if not (_initial(tree, number) and tree.trajectories[number].valid):
            rows.append([0.0] * len(path))
            continue
        states = [None, *path[:-1]]
        # the value before each span, None where no branch leaves, and that at the end
        known: list[float | None] = []
        for state, following in zip(states, path, strict=True):
            others = forks.following(state, values, advantages, apart=following)
            known.append(mean(others) if others else None)
        rows.append(_changes([*known, own]))
    return rows


def _initial(tree: RolloutTree, number: int) -> bool:
    return tree.trajectories[number].origin != "branch"


def _changes(known: Sequence[float | None]) -> list[float]:
    """Return for each step the change from the last known value before it to the next known value after it.

    Args:
        known: before the first step, between the steps, and after the last one, where it is known.
    """
    changes: list[float] = []
    before = known[0]
    for step in range(len(known) - 1):
        before = before if known[step] is None else known[step]
        after = next(value for value in known[step + 1 :] if value is not None)
        changes.append(0.0 if before is None else after - before)
    return changes
