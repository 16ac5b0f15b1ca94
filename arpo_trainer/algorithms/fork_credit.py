"""`fork`: sister baselines and visit weights. A choice that is worth nothing gets no push, if forks do not know it.

V(u) is the value of span u backed up fork by fork (`turn_values`): at a leaf the advantage of its trajectory, elsewhere
the mean over the sisters that follow. With the n sisters that leave the state before u, u among them,

    A(u) = V(u) - b(u)
    b(u) = (sum of the other sisters' V + b(parent of u)) / n            at a fork, n > 1
    b(u) = b(parent of u)                                                without sisters, n = 1
    b(u) = mean of the other roots' V                                    for roots
    w(u) = product of 1/n over the forks above u, for roots 1            summed over the copies of u

The term b(parent of u) is one pseudo-sister, which keeps a baseline of one or two sisters from being noise alone. A
root without another one has no baseline: its spans get 0 down to the first fork, and the sisters there have no
pseudo-sister.

Why the push on a worthless choice is 0. Let a token be drawn at a state s, g = grad log pi(a | s), and let Q(s, a) = q
for all actions a. Given s and everything outside the subtree of u, where the choice was made:
- b(u) is made of other sisters and other roots, so E[b(u) g] = b(u) E[g] = 0;
- V(u) averages each fork below with weights that add up to 1, so E[V(u) | a] = Q(s, a) = q for any number of branches
  below, and E[V(u) g] = q E[g] = 0;
- w(u) belongs to the forks above and is known before the choice.

So E[w(u) A(u) g] = 0, and the sum over the tree is an estimate of the policy gradient, since w(u) adds up to 1 over
what follows each visit of a state.

In `soft`, `hard` and `turn` the push has the factor d(u), the number of leaves below: where one action leads to further
forks and the other one ends the episode, d depends on the action, and E[d V g] is not 0. They push towards further
calls where a state is better than the group's mean, and away from them where it is worse.

Two conditions, which the row of the registry keeps. Whether a point is forked must depend on what was known there, not
on what follows: where one action is forked more often, its sisters take the value out of A, and the other action keeps
it. An entropy measured after the point (`arpo`, `arpo-ranked`) violates this, and so does a placement once all paths
have ended (`spread`): a path that went on has more points, among which it shares its branches. The coin of `random` is
tossed in the order of rounds, so that the budget and the quota that a point meets were spent before it. And advantages
that are divided by the deviation of the group share a random factor; `advantage: grpo-no-std` has none.
"""

from __future__ import annotations

from collections.abc import Sequence

from arpo_trainer.algorithms.credit_method import PathValues, on_paths
from arpo_trainer.algorithms.tree_values import Forks, mean, turn_values, valid_leaves
from arpo_trainer.tree import RolloutTree


def fork_advantages(tree: RolloutTree, advantages: Sequence[float]) -> list[float]:
    """Return A(u) = V(u) - b(u) of each span, b from its sisters (ours; see the module).

    Without branches, it is the advantage minus the mean of the others (RLOO).

    Args:
        tree: with G trajectories.
        advantages: of each trajectory, shape (G,); a constant added to all changes nothing.

    Returns:
        Shape (spans,); 0 where no valid trajectory passes, or where there is nothing to compare with.
    """
    values, forks = turn_values(tree, advantages), Forks.of(tree)
    baselines: list[float | None] = []
    for span in tree.spans:  # parents come first
        above = None if span.parent is None else baselines[span.parent]
        others = forks.following(span.parent, values, advantages, apart=span.index)
        pseudo = [] if above is None else [above]
        baselines.append(mean(others + pseudo) if others else above)
    reached = valid_leaves(tree)
    return [
        0.0 if baseline is None or not through else value - baseline
        for value, baseline, through in zip(values, baselines, reached, strict=True)
    ]


def visit_weights(tree: RolloutTree) -> PathValues:
    """Return w(u), divided equally among the valid copies of u.

    w is the product of 1 / (number of sisters) over the forks above, and 1 for roots: with it, everything that follows
    a state counts as much as one visit of that state.
    """
    forks = Forks.of(tree)
    totals: list[float] = []
    for span in tree.spans:
        totals.append(1.0 if span.parent is None else totals[span.parent] / max(1, forks.count(span.parent)))
    copies = valid_leaves(tree)
    return on_paths(tree, [total / max(1, len(through)) for total, through in zip(totals, copies, strict=True)])
