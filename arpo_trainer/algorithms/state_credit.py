"""`rtmc`: equal states are matched across trajectories, whether or not they share a prefix (RTMC)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from arpo_trainer.algorithms.credit_method import PathValues
from arpo_trainer.algorithms.tree_values import mean
from arpo_trainer.tree import RolloutTree

PRIOR = 2.0
"""Pseudo-visits of a state with the mean of the group (RTMC, eq. 11)."""

Pair = tuple[frozenset[Hashable], Hashable]


def rtmc(tree: RolloutTree, advantages: Sequence[float]) -> PathValues:
    """Return Q of each step minus the smoothed V of the state before it.

    RTMC (arXiv 2604.11037; eq. 11 is V'), over the rollouts of a group, each counted at its first visit of (s, a):

        Q(s, a) = 1 / N(s, a) sum of R_i over the rollouts i that take a in s,  N(s) = sum_a N(s, a)
        V(s) = 1 / N(s) sum_a N(s, a) Q(s, a),  V'(s) = (N(s) V(s) + n V_0) / (N(s) + n),  A = Q(s, a) - V'(s)

    with n = 2 and V_0 the mean of the group. The paper compares signatures: that of a state is the set of what has been
    done so far, in any order; that of an action its category, its target and, for tests, the result. They are made for
    the tools of coding agents. Here an action is the turn without its thoughts, that is, a call with its arguments, and
    the last one is the answer. A state is the set of the calls so far with their results. Left out: the discount of
    0.99 per step, which is not invariant to a constant in the rewards, and the division by the deviation of A. A prefix
    that branches share is visited by each of them. Without branches and with one turn, A is the reward minus the mean.

    Args:
        tree: with G trajectories.
        advantages: of each trajectory, shape (G,).

    Returns:
        For each trajectory one number per span of its path.
    """
    walks = [_pairs(tree, number) for number in range(len(tree.trajectories))]
    valid = [number for number, trajectory in enumerate(tree.trajectories) if trajectory.valid]
    returns: dict[Pair, list[float]] = {}
    for number in valid:
        for pair in set(walks[number]):  # a pair that is visited again counts once
            returns.setdefault(pair, []).append(advantages[number])
    prior = mean([advantages[number] for number in valid])
    smoothed = _state_values(returns, prior)
    credit = {pair: mean(found) - smoothed[pair[0]] for pair, found in returns.items()}
    return [[credit.get(pair, 0.0) for pair in walk] for walk in walks]


def _state_values(returns: dict[Pair, list[float]], prior: float) -> dict[frozenset[Hashable], float]:
    """Return V' of each state."""
    visits: dict[frozenset[Hashable], list[float]] = {}
    for (state, _), found in returns.items():
        visits.setdefault(state, []).extend(found)
    return {state: (len(found) * mean(found) + PRIOR * prior) / (len(found) + PRIOR) for state, found in visits.items()}


def _pairs(tree: RolloutTree, number: int) -> list[Pair]:
    """Return for each span of a path the state before its step and the action of that step.

    A step is what the model writes up to a result, with the result.
    """
    trajectory = tree.trajectories[number]
    # an answer that nobody has read is like no other
    last: Hashable = ("end", trajectory.leaf) if trajectory.answer is None else ("answer", trajectory.answer)
    pairs: list[Pair] = []
    state: frozenset[Hashable] = frozenset()
    length, written = 0, ""
    for span in tree.path(number):
        length += 1
        if span.kind == "model":
            written += span.text
            continue
        tool = (span.tool or {}).get("name")
        action: Hashable = (tool, written.rpartition("</think>")[2].strip())
        pairs += [(state, action)] * length
        # a fold leaves nothing of what was seen but its memories
        state = (frozenset() if span.kind == "fold" else state) | {(action, tuple(span.ids))}
        length, written = 0, ""
    return pairs + [(state, last)] * length
