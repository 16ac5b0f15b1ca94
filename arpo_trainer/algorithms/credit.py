"""The third decision, second half: from one advantage per trajectory to one per token, over the tree.

A way of giving credit is a row of `CREDITS`: a function of the tree, and how much each copy of a token weighs. Most
functions give a span one number for all trajectories through it: write them so, and lift them with `shared`.

| name | advantage of a token, in each copy | a copy weighs | source |
|---|---|---|---|
| soft | that of the copy's own trajectory: plain GRPO | 1 | ARPO, sec. 3.2; the default there |
| hard | the mean over the d trajectories through it | 1 | ARPO, sec. 3.2 |
| dedup | that mean | 1/d | ours |
| turn | the value backed up turn by turn, each next turn counting the same | 1 | ours |
| at2po | the same, the next turns weighted by exp(H) / sum exp(H), A_n = V_n | 1 | AT2PO (2601.04767), its code |
| fork | V minus a baseline of the sisters | visits/d | ours, `fork_advantages` |
| treerl | (V - V(root) + V - V(step before)) / sqrt(d) | 1 | TreeRL (2506.11902), eq. 2-4 |
| treepo | R minus the mean of the group means along the path | 1 | TreePO (2508.17445), eq. 5 |
| spo | V at the segment's end minus V at its start | 1/d | SPO (2505.23564), eq. 2 |
| vineppo | the same, V from the branches alone | 1, branches 0 | VinePPO (2410.01679), sec. 4 |
| rtmc | Q - V of equal states in all trajectories | 1 | RTMC (2604.11037), eq. 11 |
| igpo | sum of the normalised gains and the reward still to come | 1 | IGPO (2510.14967) |
| a2tgpo | the trajectory's own, plus gains normalised at the same turn | 1 | A2TGPO (2605.06200), its code |

Summed over copies, soft and hard give the same gradient as long as nothing is clipped. Where the number of leaves below
a choice depends on the choice, rows whose copies weigh 1 push on choices that are worth nothing; "fork", "spo" and
"vineppo" do not (see `fork_advantages`). Returns of 0 or 1 in the papers are advantages here, which are the same up to
a constant and a scale; differences of values lose the constant, and `advantage: grpo-no-std` keeps the scale. Nodes of
the papers lie between two forks; here that is a segment of turns and results.
"""

from __future__ import annotations

import itertools
import math
import statistics
from bisect import bisect_right
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

from arpo_trainer.algorithms.advantages import EPSILON, Rewards, group_advantages
from arpo_trainer.tree import RolloutTree, Span
from arpo_trainer.validation import look_up

State = int | None
"""What has happened up to the end of a span; None is the prompt."""
PathValues = list[list[float]]
"""For each trajectory one number per span of its path, from the prompt to its leaf."""
SpanFunction = Callable[[RolloutTree, Sequence[float]], list[float]]
CreditFunction = Callable[[RolloutTree, Sequence[float]], PathValues]
Weights = Callable[[RolloutTree], PathValues]


@dataclass(frozen=True)
class Credit:
    """One row of `CREDITS`. The advantage of a token is its value times its weight.

    Attributes:
        values: from a tree and the advantage of each of its G trajectories, the advantage of each span in each
            trajectory. What it returns for invalid trajectories is ignored.
        weights: how much each copy of a span counts in the sum over all rows; None where every copy counts 1. Losses
            that divide by the number of copied tokens are scaled by `weight_scale`.
        needs_answers: whether `values` reads the probability of the gold answer (`answer_gains`), which takes forward
            passes of the policy before credit is given.
    """

    values: CreditFunction
    weights: Weights | None = None
    needs_answers: bool = False


def on_paths(tree: RolloutTree, by_span: Sequence[float]) -> PathValues:
    """Give each trajectory the numbers of the spans on its path."""
    return [[by_span[span.index] for span in tree.path(number)] for number in range(len(tree.trajectories))]


def shared(function: SpanFunction) -> CreditFunction:
    """Lift a function that returns one number per span: all copies of the span get it."""
    return lambda tree, advantages: on_paths(tree, function(tree, advantages))


def once(tree: RolloutTree) -> PathValues:
    """Return weights with which a token counts once, however many valid trajectories share it."""
    return on_paths(tree, [1.0 / max(1, len(through)) for through in valid_leaves(tree)])


# Values of spans, and where the valid trajectories of a tree part. Both kinds of value are means with weights that add
# up to 1, so a constant that is added to all advantages is added to all values.


def valid_leaves(tree: RolloutTree) -> list[list[int]]:
    """Return for each span the valid trajectories through it."""
    return [[number for number in through if tree.trajectories[number].valid] for through in tree.leaves_below()]


def own_advantages(tree: RolloutTree, advantages: Sequence[float]) -> PathValues:
    """Return for each span of a path the advantage of the trajectory (soft attribution)."""
    return [[own] * len(tree.path(number)) for number, own in enumerate(advantages)]


def span_advantages(tree: RolloutTree, advantages: Sequence[float]) -> list[float]:
    """Return for each span the mean advantage of the valid trajectories through it (hard attribution); 0 without any.

    Args:
        tree: with G trajectories.
        advantages: of each trajectory, shape (G,).
    """
    return [mean([advantages[number] for number in through]) for through in valid_leaves(tree)]


def turn_values(tree: RolloutTree, advantages: Sequence[float], by_entropy: bool = False) -> list[float]:
    """Return V of each span: the advantage of its trajectory at a leaf, elsewhere the mean over what comes next.

    Args:
        tree: with G trajectories.
        advantages: of each trajectory, shape (G,).
        by_entropy: weigh the next turns by exp(H) / sum exp(H), with their entropy H estimated as the mean of minus
            log pi over their tokens (AT2PO; the form is that of its published code, `child_softmax`), instead of
            equally. A trajectory that ends where others go on has no next turn; its H is the mean of theirs.

    Returns:
        Shape (spans,); 0 where no valid trajectory passes.
    """
    values = [0.0] * len(tree.spans)
    following: list[list[tuple[float | None, float]]] = [[] for _ in tree.spans]
    for trajectory, advantage in zip(tree.trajectories, advantages, strict=True):
        if trajectory.valid:
            following[trajectory.leaf].append((None, advantage))  # no next turn, so no entropy
    for span in reversed(tree.spans):  # children come after their parents
        if following[span.index]:
            values[span.index] = _weighted_mean(following[span.index])
            if span.parent is not None:
                # results have no log-probabilities, and so no entropy
                entropy = -math.fsum(span.logprobs) / len(span.logprobs) if by_entropy and span.logprobs else None
                following[span.parent].append((entropy, values[span.index]))
    return values


@dataclass
class Forks:
    """Where the valid trajectories of a tree part.

    What follows a state are *sisters*: the spans below it through which a valid trajectory passes, and the valid
    trajectories that end there. A trajectory that goes on past a fork is a sister of the branches that leave there.

    Attributes:
        spans: the spans that follow a state.
        ends: the valid trajectories that end at a state.
    """

    spans: dict[State, list[int]] = field(default_factory=dict)
    ends: dict[State, list[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, tree: RolloutTree) -> Forks:
        """Return the forks of a tree."""
        forks = cls()
        for span, through in zip(tree.spans, valid_leaves(tree), strict=True):
            if through:
                forks.spans.setdefault(span.parent, []).append(span.index)
        for number, trajectory in enumerate(tree.trajectories):
            if trajectory.valid:
                forks.ends.setdefault(trajectory.leaf, []).append(number)
        return forks

    def count(self, state: State) -> int:
        """Return the number of sisters that follow a state."""
        return len(self.spans.get(state, ())) + len(self.ends.get(state, ()))

    def following(
        self, state: State, values: Sequence[float], advantages: Sequence[float], apart: int | None = None
    ) -> list[float]:
        """Return the values of the sisters that follow a state; the span `apart` is left out."""
        below = [values[index] for index in self.spans.get(state, ()) if index != apart]
        return below + [advantages[number] for number in self.ends.get(state, ())]

    def segment_starts(self, tree: RolloutTree) -> list[int]:
        """Return for each span the first span of its segment: the spans in a row between two forks."""
        starts: list[int] = []
        for span in tree.spans:  # parents come first
            continues = span.parent is not None and self.count(span.parent) == 1
            starts.append(starts[span.parent] if continues and span.parent is not None else span.index)
        return starts


def mean(values: Sequence[float]) -> float:
    """Return the mean; 0 without values."""
    return math.fsum(values) / len(values) if values else 0.0


def _weighted_mean(pairs: Sequence[tuple[float | None, float]]) -> float:
    """Return the mean of values, weighted by the softmax of their entropies."""
    known = [entropy for entropy, _ in pairs if entropy is not None]
    usual = mean(known)
    weights = [math.exp((usual if entropy is None else entropy) - max(known, default=0.0)) for entropy, _ in pairs]
    return math.fsum(w * value for w, (_, value) in zip(weights, pairs, strict=True)) / math.fsum(weights)


def fork_advantages(tree: RolloutTree, advantages: Sequence[float]) -> list[float]:
    """Return A(u) = V(u) - b(u) of each span, b from its sisters (ours).

    V is that of `turn_values`. With the n sisters that leave the state before u, u among them,

        b(u) = (sum of the other sisters' V + b(parent of u)) / n            at a fork, n > 1
        b(u) = b(parent of u)                                                without sisters, n = 1
        b(u) = mean of the other roots' V                                    for roots
        w(u) = product of 1/n over the forks above u, for roots 1            summed over the copies of u

    The term b(parent of u) is one pseudo-sister, which keeps a baseline of one or two sisters from being noise alone. A
    root without another one has no baseline: its spans get 0 down to the first fork, and the sisters there have no
    pseudo-sister. Without branches, A is the reward minus the mean of the others (RLOO).

    A choice that is worth nothing gets no push. Let a token be drawn at a state s, g = grad log pi(a | s), and let
    Q(s, a) = q for all actions a. Given s and everything outside the subtree of u, where the choice was made:
    b(u) is made of other sisters and other roots, so E[b(u) g] = b(u) E[g] = 0; V(u) averages each fork below with
    weights that add up to 1, so E[V(u) | a] = q for any number of branches below, and E[V(u) g] = q E[g] = 0; and w(u)
    belongs to the forks above and is known before the choice. So E[w(u) A(u) g] = 0. In `soft`, `hard` and `turn` the
    push has the factor d(u), the number of leaves below, which depends on the action where one leads to further forks.

    Two conditions, which the row of the registry keeps. Whether a point is forked must depend on what was known there,
    not on what follows: an entropy measured after the point (`arpo`, `arpo-ranked`) violates this, and so does a
    placement once all paths have ended (`spread`), since a path that went on has more points to share its branches.
    And advantages divided by the deviation of the group share a random factor; `grpo-no-std` has none.

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


# credit of published methods over trees


def treerl(tree: RolloutTree, advantages: Sequence[float]) -> list[float]:
    """Return TreeRL's reward of each step: global plus local advantage, over the root of its leaves.

    TreeRL (arXiv 2506.11902), eq. 2-4 and the downweighting behind them:

        GA(s) = V(s) - V(root),  LA(s) = V(s) - V(p(s)),  R(s) = (GA(s) + LA(s)) / sqrt(|L(s)|)

    V(s) is the mean over the leaves L(s) below s, p(s) the step before. Left out: the published code also adds V(s)
    itself, subtracts the mean over all tokens of the batch, and takes leave-one-out rewards. Without branches, R is
    twice the reward minus the mean.
    """
    values, leaves = span_advantages(tree, advantages), valid_leaves(tree)
    root = mean([own for own, trajectory in zip(advantages, tree.trajectories, strict=True) if trajectory.valid])
    rewards = [
        ((value - root) + (value - before)) / math.sqrt(len(through)) if through else 0.0
        for value, before, through in zip(values, _values_before(tree, values, root), leaves, strict=True)
    ]
    return rewards


def spo(tree: RolloutTree, advantages: Sequence[float]) -> list[float]:
    """Return V at the end of each segment minus V at its start (SPO-tree).

    SPO (arXiv 2505.23564), eq. 2 and sec. 5, V from the leaves to the root:

        A(seg k) = V(s_{t_{k+1}}) - V(s_{t_k});  V(n) = mean of V over the children of n,  A(n) = V(n) - V(Pa(n))

    A node is trained on once, so the row weighs its copies with `once`. Left out: the variant divided by the deviation
    of the siblings, the mask of tokens with a high probability, and the replay buffer. Its segments have a fixed number
    of tokens; here they lie between forks. Without branches, A is the reward minus the mean.
    """
    values, leaves = turn_values(tree, advantages), valid_leaves(tree)
    root = mean(Forks.of(tree).following(None, values, advantages))
    before = _values_before(tree, values, root)
    return [value - start if through else 0.0 for value, start, through in zip(values, before, leaves, strict=True)]


def _values_before(tree: RolloutTree, values: Sequence[float], root: float) -> list[float]:
    """Return for each span the value of the state in which its segment starts."""
    parents = [tree.spans[start].parent for start in Forks.of(tree).segment_starts(tree)]
    return [root if above is None else values[above] for above in parents]


def treepo(tree: RolloutTree, advantages: Sequence[float]) -> PathValues:
    """Return TreePO's advantage of each trajectory, the same for all of its tokens.

    TreePO (arXiv 2508.17445), eq. 4-5, with G_1 > G_2 > ... the trajectories that share the steps of trajectory i:

        A_i = sum_j A_ij / (|J| std),  A_ij = R_i - mean(R of G_j)

    G_1 is the whole group. As in the published code, a group of the trajectory alone does not count. Left out: the
    deviation over the batch (`advantage` has one of the group) and the rejection of prompts without signal, which have
    advantage 0 here anyway.
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


def vineppo(tree: RolloutTree, advantages: Sequence[float]) -> PathValues:
    """Return the change of a Monte Carlo value over each segment of an initial trajectory; 0 for branches.

    VinePPO (arXiv 2410.01679), sec. 4, with K auxiliary rollouts from a state, which are not trained on:

        V(s_t) = 1/K sum_k R(rollout k from s_t),  A(s_t, a_t) = r_t + V(s_{t+1}) - V(s_t)

    The auxiliary rollouts of a state are the branches that leave it, without the trajectory itself; a branch with
    branches of its own counts with their mean. At the prompt they are the other roots. A state without branches has no
    value, so a segment reaches from one fork to the next; the last one ends with the trajectory's own advantage.
    Without other roots the first segment gets 0. Left out: the discount (1 in the paper) and a fixed K at every step.
    Without branches, A is the reward minus the mean of the others (RLOO).
    """
    values, forks = turn_values(tree, advantages), Forks.of(tree)
    rows = []
    for number, own in enumerate(advantages):
        path = [span.index for span in tree.path(number)]
        if not (_initial(tree, number) and tree.trajectories[number].valid):
            rows.append([0.0] * len(path))
            continue
        # the value before each span, None where no branch leaves, and that at the end
        known: list[float | None] = []
        for state, following in zip([None, *path[:-1]], path, strict=True):
            others = forks.following(state, values, advantages, apart=following)
            known.append(mean(others) if others else None)
        rows.append(_changes([*known, own]))
    return rows


def initial_only(tree: RolloutTree) -> PathValues:
    """Return weights of 1 for trajectories that started at the prompt and 0 for branches."""
    return [[float(_initial(tree, number))] * len(tree.path(number)) for number in range(len(tree.trajectories))]


def _initial(tree: RolloutTree, number: int) -> bool:
    return tree.trajectories[number].origin != "branch"


def _changes(known: Sequence[float | None]) -> list[float]:
    """Return for each step the change from the last known value before it to the next known value after it."""
    changes: list[float] = []
    before = known[0]
    for step in range(len(known) - 1):
        before = before if known[step] is None else known[step]
        after = next(value for value in known[step + 1 :] if value is not None)
        changes.append(0.0 if before is None else after - before)
    return changes


PRIOR = 2.0
"""Pseudo-visits of a state with the mean of the group (RTMC, eq. 11)."""

Pair = tuple[frozenset[Hashable], Hashable]


def rtmc(tree: RolloutTree, advantages: Sequence[float]) -> PathValues:
    """Return Q of each step minus the smoothed V of the state before it; equal states match, shared prefix or not.

    RTMC (arXiv 2604.11037; eq. 11 is V'), over the rollouts of a group, each counted at its first visit of (s, a):

        Q(s, a) = 1 / N(s, a) sum of R_i over the rollouts i that take a in s,  N(s) = sum_a N(s, a)
        V(s) = 1 / N(s) sum_a N(s, a) Q(s, a),  V'(s) = (N(s) V(s) + n V_0) / (N(s) + n),  A = Q(s, a) - V'(s)

    with n = 2 and V_0 the mean of the group. The paper compares signatures made for the tools of coding agents. Here an
    action is the turn without its thoughts, that is, a call with its arguments, and the last one is the answer. A state
    is the set of the calls so far with their results, in any order. Left out: the discount of 0.99 per step, which is
    not invariant to a constant in the rewards, and the division by the deviation of A. A prefix that branches share is
    visited by each of them. Without branches and with one turn, A is the reward minus the mean.
    """
    walks = [_pairs(tree, number) for number in range(len(tree.trajectories))]
    valid = [number for number, trajectory in enumerate(tree.trajectories) if trajectory.valid]
    returns: dict[Pair, list[float]] = {}
    for number in valid:
        for pair in set(walks[number]):  # a pair that is visited again counts once
            returns.setdefault(pair, []).append(advantages[number])
    prior = mean([advantages[number] for number in valid])
    visits: dict[frozenset[Hashable], list[float]] = {}
    for (state, _), found in returns.items():
        visits.setdefault(state, []).extend(found)
    smoothed = {s: (len(found) * mean(found) + PRIOR * prior) / (len(found) + PRIOR) for s, found in visits.items()}
    credit = {pair: mean(found) - smoothed[pair[0]] for pair, found in returns.items()}
    return [[credit.get(pair, 0.0) for pair in walk] for walk in walks]


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


# Credit by what a turn tells about the answer: IGPO and A2TGPO, for trajectories without a tree. A state is worth the
# policy's probability of the gold answer a = (a_1, ..., a_L), if it answered there and then:
#
#     p(state) = exp(1/L sum_j log pi(a_j | state, answer format, a_<j))
#
# Every turn but the last one earns the change of p from its start to its end, its *gain*, and the last one earns the
# reward. `training.answer_scores` measures log p and keeps it in the tree. A turn that d trajectories share counts d
# times. Neither paper could be read as a whole: what is here follows the abstracts, accounts of the papers, and
# published code (GuoqingWang1/IGPO; a copy of A2TGPO's, CuSO4-Chen/A-TGPO).

GAIN_WEIGHT = 0.3
"""alpha of A2TGPO, as in the script of its published code (`IGPO_ADV_RESCALE_ALPHA`)."""
VARIANCE_FLOOR = 1e-8
"""Added to variances in both published codes: gains that differ by rounding are not scaled up."""


def turn_ends(tree: RolloutTree, number: int) -> list[int]:
    """Return the places on a trajectory's path at which its turns end; the last one is the end of the path."""
    path = tree.path(number)
    inner = [place for place in range(len(path) - 1) if path[place].kind != "model" and path[place + 1].kind == "model"]
    return [*inner, len(path) - 1]


def answer_states(tree: RolloutTree) -> list[State]:
    """Return the states in which credit needs the gold answer's probability: the prompt, and what turns start from."""
    found: dict[State, None] = {None: None}
    for number, trajectory in enumerate(tree.trajectories):
        if trajectory.valid:
            path = tree.path(number)
            found |= dict.fromkeys(path[place].index for place in turn_ends(tree, number)[:-1])
    return list(found)


def answer_logprob(tree: RolloutTree, state: State) -> float | None:
    """Return the mean log-probability of the gold answer's tokens in a state, in nats; None if it was not measured."""
    return tree.answer_logprob if state is None else tree.spans[state].answer_logprob


def check_answer_scores(tree: RolloutTree, attribution: str) -> None:
    """Refuse a tree whose states have not been measured.

    Raises:
        ValueError: names the attribution, a state, and what measures it.
    """
    missing = [state for state in answer_states(tree) if answer_logprob(tree, state) is None]
    if missing:
        where = "the prompt" if missing[0] is None else f"span {missing[0]}"
        raise ValueError(
            f"attribution {attribution!r} needs the probability of the gold answer after every turn, and {where} of "
            "this tree has none: ARPOTrainer measures it, and training.answer_scores.score_answers does in a tree that "
            "was rolled out without it"
        )


def answer_gains(tree: RolloutTree, number: int) -> list[float]:
    """Return the gains of a trajectory's turns, all but the last one: p(end) - p(start), each in [-1, 1].

    Raises:
        ValueError: a state was not measured.
    """
    path = tree.path(number)
    worth = []
    for state in (None, *(path[place].index for place in turn_ends(tree, number)[:-1])):
        if (found := answer_logprob(tree, state)) is None:
            raise ValueError(f"state {state} has no probability of the gold answer; see training.answer_scores")
        worth.append(math.exp(found))
    return [after - before for before, after in itertools.pairwise(worth)]


def igpo(tree: RolloutTree, advantages: Sequence[float]) -> PathValues:
    """Return the sum of what a turn and those after it earn, normalised over all turns of the group.

    IGPO (arXiv 2510.14967), its turn-level rewards and advantages:

        r_t = p(o_<=t) - p(o_<=t-1) for t < T,  r_T = R
        A_t = sum_{k>=t} gamma^(k-t) (r_k - mean) / std, mean and std over all r of all trajectories of the group

    gamma is 1, as in the published code, and `advantages` are not used: rewards are compared with gains, before any
    normalisation. In a group whose trajectories score the same the gains still tell turns apart. So does their number:
    the common mean is subtracted once for every turn that is still to come.

    Left out: its published code can also take differences of log p, and normalise gains and rewards apart; it does not
    count gains of exactly 0; and it closes a thought with a sentence of its own before the answer.
    """
    earned = [
        [*answer_gains(tree, number), trajectory.reward] if trajectory.reward is not None else []
        for number, trajectory in enumerate(tree.trajectories)
    ]
    normal = iter(_normalised([each for row in earned for each in row]))
    rows = [[next(normal) for _ in row] for row in earned]
    sums = [[math.fsum(row[turn:]) for turn in range(len(row))] for row in rows]
    return [_on_path(tree, number, row) for number, row in enumerate(sums)]


def a2tgpo(tree: RolloutTree, advantages: Sequence[float]) -> PathValues:
    """Return the trajectory's advantage, plus gains compared at the same turn and accumulated at constant variance.

    A2TGPO (arXiv 2605.06200), turn-group normalisation and variance-rescaled discounted accumulation:

        z_t = (g_t - mean) / std, over the t-th gains of the group
        A_t = A_R + alpha / sqrt(n_t) sum_{k>=t} gamma^(k-t) z_k, n_t the number of terms;  A_T = A_R

    A_R is the trajectory's advantage; the paper's divides by the population deviation (`grpo-population`). alpha is 0.3
    and gamma 1, as in its script. A turn index that only one trajectory reaches is compared with nothing: z = 0.

    Left out: the adaptive clip, which belongs to the loss (it multiplies the bounds of a turn's ratio by
    1 + 0.3 (2 sigmoid(z_t) - 1)). In the code that was read g is a difference of log p instead of p, and the first
    turn has none, because p is first measured after it; here g is what the abstract says, from the prompt on.
    """
    gains = [answer_gains(tree, n) if one.valid else [] for n, one in enumerate(tree.trajectories)]
    compared: list[list[float]] = [[] for _ in gains]
    for turn in range(max(map(len, gains), default=0)):
        there = [number for number, row in enumerate(gains) if len(row) > turn]
        for number, value in zip(there, _normalised([gains[number][turn] for number in there]), strict=True):
            compared[number].append(value)
    rows = []
    for number, (own, row) in enumerate(zip(advantages, compared, strict=True)):
        sums = [math.fsum(row[turn:]) / math.sqrt(len(row) - turn) for turn in range(len(row))]
        turns = [*(own + GAIN_WEIGHT * each for each in sums), own]
        rows.append(_on_path(tree, number, turns if tree.trajectories[number].valid else []))
    return rows


def _normalised(values: Sequence[float]) -> list[float]:
    """Return values minus their mean, over their population deviation; 0 where there is nothing to compare with."""
    if len(set(values)) < 2:
        return [0.0] * len(values)
    centre = statistics.fmean(values)
    deviation = math.sqrt(statistics.pvariance(values, centre) + VARIANCE_FLOOR) + EPSILON
    return [(value - centre) / deviation for value in values]


def _on_path(tree: RolloutTree, number: int, turns: Sequence[float]) -> list[float]:
    """Return for each span of a path the number of its turn; 0 without numbers."""
    starts = [0, *(place + 1 for place in turn_ends(tree, number))]
    if not turns:
        return [0.0] * starts[-1]
    return [value for turn, value in enumerate(turns) for _ in range(starts[turn], starts[turn + 1])]


CREDITS: dict[str, Credit] = {
    "soft": Credit(own_advantages),
    "hard": Credit(shared(span_advantages)),
    "dedup": Credit(shared(span_advantages), once),
    "turn": Credit(shared(turn_values)),
    "at2po": Credit(shared(lambda tree, advantages: turn_values(tree, advantages, by_entropy=True))),
    "fork": Credit(shared(fork_advantages), visit_weights),
    "treerl": Credit(shared(treerl)),
    "treepo": Credit(treepo),
    "spo": Credit(shared(spo), once),
    "vineppo": Credit(vineppo, initial_only),
    "rtmc": Credit(rtmc),
    "igpo": Credit(igpo, needs_answers=True),
    "a2tgpo": Credit(a2tgpo, needs_answers=True),
}


def token_advantages(tree: RolloutTree, advantages: Sequence[float], attribution: str) -> list[list[float]]:
    """Return an advantage for every token of every trajectory; those of environment tokens are masked later.

    Args:
        tree: with G trajectories.
        advantages: of each trajectory, shape (G,).
        attribution: one of `CREDITS`.

    Returns:
        G lists, each as long as its trajectory's row; 0 in the rows of invalid trajectories.

    Raises:
        ValueError: the attribution is unknown (suggests the nearest), there is not one advantage per trajectory, the
            row needs the probability of the gold answer and the tree has none, or the row's function does not return
            one number per span of each path.
    """
    row = look_up("attribution", attribution, CREDITS)
    if len(advantages) != len(tree.trajectories):
        raise ValueError(f"got {len(advantages)} advantages for {len(tree.trajectories)} trajectories")
    if row.needs_answers:
        check_answer_scores(tree, attribution)
    values, paths = row.values(tree, advantages), [tree.path(number) for number in range(len(tree.trajectories))]
    if [len(own) for own in values] != list(map(len, paths)):
        raise ValueError(
            f"attribution {attribution!r} returned {[len(own) for own in values]} numbers for the trajectories; their "
            f"paths have {list(map(len, paths))} spans. A function that returns one number per span of the tree needs "
            "`shared`"
        )
    weights = row.weights(tree) if row.weights else None
    rows = []
    for number, (trajectory, path) in enumerate(zip(tree.trajectories, paths, strict=True)):
        tokens: list[float] = []
        for place, span in enumerate(path):
            weight = weights[number][place] if weights else 1.0
            tokens += [weight * values[number][place] if trajectory.valid else 0.0] * len(span.ids)
        rows.append(tokens)
    return rows


def learned_trajectories(tree: RolloutTree, attribution: str) -> list[bool]:
    """Return for each trajectory whether it is learned from: it is valid, and some copy of a span weighs something.

    "vineppo" learns nothing from branches. What is not learned from must not count in what a loss divides by.
    """
    weights = look_up("attribution", attribution, CREDITS).weights
    weighed = weights(tree) if weights else None
    return [
        trajectory.valid and (weighed is None or any(weighed[number]))
        for number, trajectory in enumerate(tree.trajectories)
    ]


def weight_scale(trees: Sequence[RolloutTree], attribution: str) -> float:
    """Return copied tokens / sum of their weights, over the model's tokens in what is learned from in the global batch.

    A token mean divides by the copied tokens; advantages times this factor make it a mean with the weights of the row.
    For "dedup" it is copied / unique tokens. It is needed where the loss divides by all tokens of the batch (TRL's
    "dapo", "cispo"), and not where it divides by the tokens of a row ("grpo") or a constant ("dr_grpo"). In "bnpo",
    which divides by the tokens of a micro-batch, it is right on average.

    Args:
        trees: of the global batch; trajectories that could not be scored are invalid.
        attribution: one of `CREDITS`.

    Returns:
        1 if copies do not weigh differently in this row, or if all weights are 0.
    """
    weights = look_up("attribution", attribution, CREDITS).weights
    if weights is None:
        return 1.0
    copied, weighed = 0, 0.0
    for tree in trees:
        learned = learned_trajectories(tree, attribution)
        for number, row in enumerate(weights(tree)):
            if learned[number]:
                model = [(len(span.ids), w) for span, w in zip(tree.path(number), row, strict=True) if span.logprobs]
                copied += sum(n for n, _ in model)
                weighed += sum(n * weight for n, weight in model)
    return copied / weighed if weighed else 1.0


# ToolPO's action advantage: extra credit on the tokens of tool calls (DeepAgent, arXiv 2510.21618).
#
#     A(y_t) = A_succ + M(y_t) A_action,    A_succ = R_succ - mean,    A_action = R_action - mean
#
# A_succ goes to all tokens, A_action only to those of calls (and of folding thoughts). Neither is divided by a standard
# deviation. The training code was never released; this follows the paper.

# components of a reward: R_succ and R_action where the reward is their sum; else the sum of C, and S_pref
SUCCESS, ACTION, RIGHT_CALLS, FOLD_PREFERENCE = "success", "action", "right_calls", "fold_preference"


def fold_preference(direct: float, folded: float) -> float:
    """Return S_pref = (L_direct - L_fold) / (L_direct + L_fold), in [-1, 1]; above 0 if folding was shorter.

    Args:
        direct: length of the trajectory that did not fold its memory, in tokens.
        folded: length of the one that did.

    Raises:
        ValueError: a length below 0, or both 0.
    """
    if direct < 0 or folded < 0 or direct + folded == 0:
        raise ValueError(f"lengths must be at least 0 and not both 0, got {direct} and {folded}")
    return (direct - folded) / (direct + folded)


def action_reward(
    correct: Sequence[float], preference: float = 0.0, call_weight: float = 1.0, fold_weight: float = 1.0
) -> float:
    """Return R_action = l1 * sum_t C(call_t) + l2 * S_pref of one trajectory.

    Args:
        correct: C of each call: 1 if it was correct, 0 if not.
        preference: S_pref; 0 where nothing was folded.
        call_weight: l1.
        fold_weight: l2.
    """
    return call_weight * sum(correct) + fold_weight * preference


def fold_preferences(tree: RolloutTree) -> list[float]:
    """Return S_pref of each trajectory of a group, by its length in tokens; 0 for one that did not fold.

    The paper has a pair of trajectories, one that folded and one that did not. Here L_direct is the mean length of the
    valid trajectories of the group that did not fold; if there is none, nothing is preferred. A length counts what was
    written and read, and not the new prompts after folds, whose memories are counted where they were written.
    """
    paths = [tree.path(number) for number in range(len(tree.trajectories))]
    lengths = [sum(len(span.ids) for span in path if span.kind != "fold") for path in paths]
    folded = [any(span.kind == "fold" for span in path) for path in paths]
    groups = zip(lengths, folded, tree.trajectories, strict=True)
    direct = [length for length, one, trajectory in groups if trajectory.valid and not one]
    if not direct:
        return [0.0] * len(paths)
    usual = sum(direct) / len(direct)
    return [fold_preference(usual, length) if one else 0.0 for length, one in zip(lengths, folded, strict=True)]


def action_rewards(tree: RolloutTree, fold_weight: float = 1.0) -> list[float | None]:
    """Return R_action of each trajectory: the component `action` or else `right_calls`, plus S_pref.

    S_pref is the component `fold_preference` where a reward has it, else that of `fold_preferences`.

    Args:
        tree: with G trajectories.
        fold_weight: l2.

    Returns:
        Shape (G,); None for an invalid trajectory.

    Raises:
        ValueError: a trajectory has neither `action` nor `right_calls`; the message says how a reward gets them.
    """
    found: list[float | None] = []
    preferences = fold_preferences(tree)
    for number, trajectory in enumerate(tree.trajectories):
        parts = trajectory.components
        right = parts.get(ACTION, parts.get(RIGHT_CALLS))
        if not trajectory.valid:
            found.append(None)
        elif right is None:
            raise ValueError(
                f"trajectory {number} has no reward component {RIGHT_CALLS!r}, which ToolPO spreads on calls; its "
                f"components are {', '.join(parts) or 'none'}. Give the environment one, as in reward="
                f"{{'accuracy': 1.0, '{RIGHT_CALLS}': (function_of_the_episode, 0.0)}}; arpo/ToolWorld-v0 has it"
            )
        else:
            preference = parts.get(FOLD_PREFERENCE, preferences[number])
            found.append(action_reward([right], preference, fold_weight=fold_weight))
    return found


def success_rewards(tree: RolloutTree, rewards: Rewards) -> list[float | None]:
    """Return R_succ of each trajectory: the component `success` if the reward is a sum that has it, else the reward."""
    pairs = zip(tree.trajectories, rewards, strict=True)
    return [None if reward is None else one.components.get(SUCCESS, reward) for one, reward in pairs]


def action_advantages(
    tree: RolloutTree, actions: Rewards, marks: Sequence[Sequence[int]], attribution: str = "soft"
) -> list[list[float]]:
    """Return M A_action for every token of every trajectory: 0 on all tokens that are not marked.

    Args:
        tree: with G trajectories.
        actions: R_action of each, shape (G,); None for an invalid one.
        marks: M: for each span one 0 or 1 per token.
        attribution: how A_action is spread over the tree.

    Returns:
        G lists, each as long as its trajectory's row.

    Raises:
        ValueError: the marks do not fit the spans, or `token_advantages` or `group_advantages` refuses the values.
    """
    if [len(flags) for flags in marks] != [len(span.ids) for span in tree.spans]:
        raise ValueError(f"marks must be one list per span ({len(tree.spans)}), each as long as its tokens")
    rows = []
    for number, row in enumerate(token_advantages(tree, group_advantages(actions, "none"), attribution)):
        flags = [flag for span in tree.path(number) for flag in marks[span.index]]
        rows.append([flag * value for flag, value in zip(flags, row, strict=True)])
    return rows


def toolpo_advantages(
    tree: RolloutTree, success: Rewards, actions: Rewards, marks: Sequence[Sequence[int]], attribution: str = "soft"
) -> list[list[float]]:
    """Return A_succ + M A_action for every token of every trajectory.

    Args:
        tree: with G trajectories.
        success: R_succ of each, shape (G,); None for an invalid one.
        actions: as for `action_advantages`, like the others.
        marks: M.
        attribution: how both are spread over the tree; "soft" is that of the paper, which has no tree.
    """
    extra = action_advantages(tree, actions, marks, attribution)
    base = token_advantages(tree, group_advantages(success, "none"), attribution)
    return [[a + b for a, b in zip(own, more, strict=True)] for own, more in zip(base, extra, strict=True)]


def call_marks(tree: RolloutTree, decode: Callable[[Sequence[int]], str], opening: Sequence[str]) -> list[list[int]]:
    """Mark the tokens of tool calls: in each turn that a tool answered, from the opening tag of the call on.

    Args:
        tree: any.
        decode: from ids to text, special tokens included.
        opening: the tags that open a call, such as "<python>"; the first after the last "</think>" counts.

    Returns:
        For each span one 0 or 1 per token; a turn whose tag is not found is marked as a whole.
    """
    answered = {span.parent for span in tree.spans if span.kind != "model" and span.tool is not None}
    marks = []
    for span in tree.spans:
        first = _call_start(span, decode, opening) if span.index in answered else len(span.ids)
        marks.append([int(position >= first) for position in range(len(span.ids))])
    return marks


def _call_start(span: Span, decode: Callable[[Sequence[int]], str], opening: Sequence[str]) -> int:
    """Return the index of the first token of the call."""
    text = decode(span.ids)
    # 0 without a thought, since rfind returns -1 then
    thought = text.rfind("</think>") + 1
    found = [place for tag in opening if (place := text.find(tag, thought)) >= 0]
    if not found:
        return 0
    # the decoded prefix grows with the number of tokens, so the first token behind the tag is found by bisection
    return bisect_right(range(len(span.ids)), min(found), key=lambda last: len(decode(span.ids[: last + 1])))
