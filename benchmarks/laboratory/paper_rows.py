r"""Rows of papers that were compared in the laboratory: registered by the tables' own means, for use from a clone.

    arpo train --recipe arithmetic-cpu --set algorithm=benchmarks.laboratory.paper_rows:treerl

| algorithm | branches where | credit | source |
|---|---|---|---|
| spread | as tree-grpo, evenly: few branches at a point, and a quota of every root | soft | ours |
| treepo | at every point of every path, in rounds, while the budget lasts | eq. 4-5 | TreePO (2508.17445) |
| treerl | at the least likely token of the next turn, once all paths have ended | eq. 2-4 | TreeRL (2506.11902) |
| at2po | where the next turn's entropy is highest, in rounds | next turns weighted by entropy | AT2PO (2601.04767) |
| spo, vineppo | by a coin at points of roots alone | values of segments | SPO (2505.23564), VinePPO (2410.01679) |
| rtmc | nowhere | Q - V of equal states | RTMC (2604.11037) |
| igpo, a2tgpo | nowhere | gains in the gold answer's probability | IGPO (2510.14967), A2TGPO (2605.06200) |

Papers without tools fork at any token; the engine forks live environments, after tool results only, so that their score
of a token becomes a score of the turn that follows the result. Rows that look at the turn after the point bias the
gradient through the action, where it tells the outcome.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from arpo_env.protocols.protocol import Answer, Protocol
from arpo_env.tools.tool import JsonSchema
from arpo_trainer.algorithms.advantages import EPSILON
from arpo_trainer.algorithms.branching import BRANCHES, RANKED, BranchMethod, BranchSettings
from arpo_trainer.algorithms.credit import (
    CREDITS,
    Credit,
    PathValues,
    State,
    mean,
    once,
    shared,
    sisters,
    span_advantages,
    turn_values,
    valid_leaves,
)
from arpo_trainer.algorithms.registry import ALGORITHMS, Algorithm
from arpo_trainer.rollout.engine import gather, rank_count, share
from arpo_trainer.training.trl_hooks import policy_logps, tokenizer_of
from arpo_trainer.tree import Decision, RolloutTree

EVERY_POINT = "every point branches"

# where trees branch


def _every_point(point: Decision, settings: BranchSettings) -> Decision:
    """Branch everywhere.

    TreePO (2508.17445; `generate_sequences_tree_deepth_first_vanilla_mode` of its code): after each segment every path
    that goes on continues in d = 2 copies (`branch_width`), as far as the width allows. Left out: segments of a fixed
    number of tokens (a segment is a turn), the random width of the first split, early stops, and the fallback to
    random segments of finished paths; these places become fresh roots. Here no point has more than d - 1 branches, and
    where the budget is short the points of a round are served in the drawn order.
    """
    return point.scored(1.0, 0.0, True, EVERY_POINT)


def _ranked(point: Decision, settings: BranchSettings) -> Decision:
    return point.scored(0.0, 0.0, True, RANKED)  # every point is a candidate of the row's `rank`


def evenly(points: Sequence[Decision], settings: BranchSettings) -> list[float]:
    """Spread branches over the points: those with the fewest branches first, among equals by lot."""
    return [point.uniform - point.branches for point in points]


def surprise(points: Sequence[Decision], settings: BranchSettings) -> list[float]:
    """Rank by the least likely token of the next turn.

    TreeRL (2506.11902, EPTree): of all tokens of a tree the N with the highest H(y_t) = -log pi(y_t | y_<t) are forked,
    T times each. A point's score is the maximum of that over the turn that follows it; T is `branch_width` - 1, and the
    quota of a root stands for N per tree. Left out: forks inside a turn, the masks for tokens near the end, and the
    several iterations.
    """
    return [max((-value for value in _next_turn(point)), default=0.0) for point in points]


def turn_entropy(points: Sequence[Decision], settings: BranchSettings) -> list[float]:
    """Rank by the entropy of the next turn, less a deduction for each branch that is there.

    AT2PO (2601.04767, entropy-guided tree expansion): H(n) = 1/|y| sum_t -log pi(y_t) of a turn's node n; in each round
    the K nodes with the highest H(n) - alpha b, b the branches that are there, get a sister each. In the published code
    alpha is 0.05 (`branch_penalty`) and there are two rounds. Left out: sisters of the first turn, which would be fresh
    roots, and more branches in the second round where the first has made some.
    """
    levels = [statistics.fmean([-value for value in turn]) if (turn := _next_turn(point)) else 0.0 for point in points]
    return [level - settings.branch_penalty * point.branches for level, point in zip(levels, points, strict=True)]


def _next_turn(point: Decision) -> tuple[float, ...]:
    return point.later[0] if point.later else ()


# credit over trees


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
    spans, _ = sisters(tree)[None]
    root = mean([values[index] for index in spans])
    before = _values_before(tree, values, root)
    return [value - start if through else 0.0 for value, start, through in zip(values, before, leaves, strict=True)]


def _values_before(tree: RolloutTree, values: Sequence[float], root: float) -> list[float]:
    """Return for each span the value of the state in which its segment starts: the spans in a row between two forks."""
    following, before = sisters(tree), list[float]()
    for span in tree.spans:  # parents come first
        if span.parent is None:
            before.append(root)
        else:
            alone = sum(map(len, following[span.parent])) == 1
            before.append(before[span.parent] if alone else values[span.parent])
    return before


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
    values, follow = turn_values(tree, advantages), sisters(tree)
    rows = []
    for number, own in enumerate(advantages):
        path = [span.index for span in tree.path(number)]
        if not (_initial(tree, number) and tree.trajectories[number].valid):
            rows.append([0.0] * len(path))
            continue
        # the value before each span, None where no branch leaves, and that at the end
        known: list[float | None] = []
        for state, following in zip([None, *path[:-1]], path, strict=True):
            spans, ends = follow[state]
            others = [values[n] for n in spans if n != following] + [advantages[n] for n in ends]
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


def at2po(tree: RolloutTree, advantages: Sequence[float]) -> list[float]:
    """Return V of each span, with the next turns weighted by exp(H) / sum exp(H) (AT2PO, 2601.04767; `child_softmax`).

    H is estimated as the mean of minus log pi over a turn's tokens. A trajectory that ends where others go on has no
    next turn; its H is the mean of theirs.
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
                entropy = -math.fsum(span.logprobs) / len(span.logprobs) if span.logprobs else None
                following[span.parent].append((entropy, values[span.index]))
    return values


def _weighted_mean(pairs: Sequence[tuple[float | None, float]]) -> float:
    """Return the mean of values, weighted by the softmax of their entropies."""
    known = [entropy for entropy, _ in pairs if entropy is not None]
    usual = mean(known)
    weights = [math.exp((usual if entropy is None else entropy) - max(known, default=0.0)) for entropy, _ in pairs]
    return math.fsum(w * value for w, (_, value) in zip(weights, pairs, strict=True)) / math.fsum(weights)


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
# reward. `score_answers` measures log p and keeps it in the tree. A turn that d trajectories share counts d
# times. Neither paper could be read as a whole: what is here follows the abstracts, accounts of the papers, and
# published code (GuoqingWang1/IGPO; a copy of A2TGPO's, CuSO4-Chen/A-TGPO).

KEPT = "answer_logprobs"  # in `tree.meta`: from a span's index, or "prompt", to the mean log-probability there
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
    found: float | None = tree.meta.get(KEPT, {}).get(_key(state))
    return found


def _key(state: State) -> str:
    return "prompt" if state is None else str(state)  # as JSON has keys


def answer_gains(tree: RolloutTree, number: int) -> list[float]:
    """Return the gains of a trajectory's turns, all but the last one: p(end) - p(start), each in [-1, 1].

    Raises:
        ValueError: a state was not measured.
    """
    path = tree.path(number)
    worth = []
    for state in (None, *(path[place].index for place in turn_ends(tree, number)[:-1])):
        if (found := answer_logprob(tree, state)) is None:
            raise ValueError(f"state {_key(state)} has no probability of the gold answer: `score_answers` measures it")
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


MOST_ANSWERS = 3
_FORMS = (("\\boxed{", "}"), ("<answer>\\boxed{", "}</answer>"), ("<answer>", "</answer>"), ("", ""))
_PROBE = "42"
_THOUGHT_ENDS = "\n</think>\n\n"
_TAIL = 8  # tokens in which an opened thought is looked for


@dataclass(frozen=True)
class AnswerFormat:
    """What a protocol wants around an answer."""

    before: str
    after: str


def answer_format(protocol: Protocol, schemas: Sequence[JsonSchema]) -> AnswerFormat:
    r"""Return the answer format of a protocol: the first known one that it reads as the whole answer.

    Raises:
        ValueError: the protocol reads none of them.
    """
    for before, after in _FORMS:
        action = protocol.parse(f"{before}{_PROBE}{after}", schemas)
        if isinstance(action, Answer) and action.value == _PROBE:
            return AnswerFormat(before, after)
    tried = ", ".join(f"{before}...{after}" for before, after in _FORMS)
    raise ValueError(
        f"protocol {protocol.name!r} reads none of {tried} as an answer, so the probability of a gold answer cannot be "
        "measured: let its `parse` accept one of them, or choose an attribution that needs no answers"
    )


@dataclass(frozen=True)
class AnswerRow:
    """A gold answer in a state of a tree: the ids up to the answer, and its own, at least one."""

    tree: int
    state: State
    ids: list[int]
    gold: list[int]


Logps = Callable[[Sequence[AnswerRow]], list[float]]
"""From rows to the mean log-probability of each row's answer."""


def score_answers(trees: Sequence[RolloutTree], tokenizer: Any, form: AnswerFormat, logps: Logps) -> None:
    """Measure the gold answer in all states of trees where credit needs it, and keep the numbers in the trees.

    Raises:
        ValueError: a tree's task has no answer.
    """
    rows = [row for number, tree in enumerate(trees) for row in answer_rows(number, tree, tokenizer, form)]
    best: dict[tuple[int, State], float] = {}
    for row, value in zip(rows, logps(rows), strict=True):
        best[row.tree, row.state] = max(value, best.get((row.tree, row.state), value))
    for (number, state), value in best.items():
        trees[number].meta.setdefault(KEPT, {})[_key(state)] = value


def answer_rows(number: int, tree: RolloutTree, tokenizer: Any, form: AnswerFormat) -> list[AnswerRow]:
    """Return the rows of a tree: for each state one per gold answer, at most `MOST_ANSWERS`.

    Raises:
        ValueError: its task has no answer.
    """
    answers = list(tree.task.get("answers", ()))[:MOST_ANSWERS]
    if not answers:
        raise ValueError(
            f"task {tree.task.get('id', '?')!r} has no gold answer to score: give it `answers`, or choose an "
            "attribution that needs none (such as 'soft')"
        )
    rows = []
    for state in answer_states(tree):
        context = tree.context(state)
        opened = tokenizer.decode(context[-_TAIL:]).rstrip().endswith("<think>")
        for answer in answers:
            before, gold = answer_ids(tokenizer, _THOUGHT_ENDS * opened + form.before, answer, form.after)
            rows.append(AnswerRow(number, state, context + before, gold))
    return rows


def answer_ids(tokenizer: Any, before: str, answer: str, after: str) -> tuple[list[int], list[int]]:
    """Return the ids before the answer, and those that hold the answer, as they are where all of it is written at once.

    A token that holds the end of `before` as well as the beginning of the answer counts to the answer; so does one that
    holds its end and the beginning of `after`.
    """
    head, tail = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in (before, after))
    whole = tokenizer(f"{before}{answer}{after}", add_special_tokens=False)["input_ids"]
    first = _common(whole, head)
    # at least one token is left for the answer
    last = len(whole) - min(_common(whole[::-1], tail[::-1]), len(whole) - first - 1)
    return whole[:first], whole[first:last]


def _common(ids: Sequence[int], others: Sequence[int]) -> int:
    """Return how many first ids are equal, but never all of `ids`."""
    pairs = zip(ids[:-1], others, strict=False)
    return next((place for place, (one, other) in enumerate(pairs) if one != other), min(len(ids) - 1, len(others)))


def padded(rows: Sequence[AnswerRow]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return rows as TRL pads prompts and completions.

    Returns:
        Ids, (B, P + T); 1 for tokens and 0 for padding, (B, P + T); and 1 for tokens of the answers, (B, T).
    """
    left, right = max(len(row.ids) for row in rows), max(len(row.gold) for row in rows)
    ids = torch.zeros(len(rows), left + right, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for number, row in enumerate(rows):
        place = slice(left - len(row.ids), left + len(row.gold))
        ids[number, place], mask[number, place] = torch.tensor(row.ids + row.gold), 1
    return ids, mask, mask[:, left:]


def chunked(rows: Sequence[AnswerRow], size: int, compute: Callable[..., torch.Tensor]) -> list[float]:
    """Return the mean log-probability of each row's answer, computed for `size` rows of similar length together."""
    order = sorted(range(len(rows)), key=lambda number: len(rows[number].ids))
    found = [0.0] * len(rows)
    for first in range(0, len(order), size):
        batch = order[first : first + size]
        ids, mask, gold = padded([rows[number] for number in batch])
        logps = compute(ids, mask, gold.shape[1]).float().cpu()
        for number, value in zip(batch, ((logps * gold).sum(1) / gold.sum(1)).tolist(), strict=True):
            found[number] = value
    return found


def plain_logps(model: Any, rows: Sequence[AnswerRow], temperature: float = 1.0, size: int = 16) -> list[float]:
    """Score rows with a causal language model of this process in evaluation mode, `size` in one forward pass."""

    def compute(ids: torch.Tensor, mask: torch.Tensor, width: int) -> torch.Tensor:
        ids, mask = ids.to(model.device), mask.to(model.device)
        # logits of the whole context would take most of the memory
        output = model(input_ids=ids, attention_mask=mask, logits_to_keep=width + 1)
        logits = output.logits[:, :-1].float() / temperature
        chosen: torch.Tensor = logits.log_softmax(-1).gather(-1, ids[:, -width:, None])
        return chosen[..., 0]

    with torch.no_grad():
        return chunked(rows, size, compute)


def trainer_logps(trainer: Any, rows: Sequence[AnswerRow]) -> list[float]:
    """Score rows with the policy of an `ARPOTrainer`, as it computes log pi_old: packed or flat, without gradient.

    Every process has all rows, scores a share and returns all. All of them make as many forward passes, as sharded
    weights need.
    """
    if not rows:
        return []
    own = [rows[number] for number in share(len(rows))]
    even = [*own, *[rows[0]] * (-(-len(rows) // rank_count()) - len(own))]
    # packed rows are cut to batches where they are packed, and share more if they come together
    batch: int = trainer.args.per_device_train_batch_size
    compute = partial(policy_logps, trainer, batch_size=batch)
    training = trainer.model.training
    trainer.model.eval()  # no dropout: the noise of two passes would pass for a gain
    try:
        with torch.no_grad():
            values = chunked(even, len(even) if trainer.packs else batch, compute)
    finally:
        trainer.model.train(training)
    return gather(values[: len(own)])


def measure(trainer: Any, trees: Sequence[RolloutTree]) -> None:
    """Measure the gold answer in the trees of a rollout, with the policy that learns from it, and log the mean gain.

    Raises:
        ValueError: the action advantage is on, to which these rows would add the gains; or see `answer_format` and
            `answer_rows`.
    """
    if trainer.args.action_weight:
        raise ValueError(f"action_weight with attribution={trainer.args.attribution!r}: gains would be added twice")
    form = answer_format(trainer.env.protocol, trainer.env.schemas)
    score_answers(trees, tokenizer_of(trainer), form, partial(trainer_logps, trainer))
    valid = [(tree, number) for tree in trees for number, one in enumerate(tree.trajectories) if one.valid]
    gains = [gain for tree, number in valid for gain in answer_gains(tree, number)]
    trainer.add_metric("arpo/answer_gain", mean(gains))


PAPER_BRANCHES = {
    "spread": BranchMethod(BRANCHES["tree-grpo"].score, best=True, rank=evenly),
    "vine": BranchMethod(BRANCHES["random"].score, roots_only=True),
    "treerl": BranchMethod(_ranked, best=True, rank=surprise),
    "at2po": BranchMethod(_ranked, best=True, quota=False, rank=turn_entropy, rounds=2),
    "treepo": BranchMethod(_every_point, quota=False),
}
PAPER_CREDITS = {
    "at2po": Credit(shared(at2po)),
    "treerl": Credit(shared(treerl)),
    "treepo": Credit(treepo),
    "spo": Credit(shared(spo), once),
    "vineppo": Credit(vineppo, initial_only),
    "rtmc": Credit(rtmc),
    "igpo": Credit(igpo, prepare=measure),
    "a2tgpo": Credit(a2tgpo, prepare=measure),
}
PAPER_ALGORITHMS = {
    "spread": Algorithm("arpo", "spread"),
    "at2po": Algorithm("arpo", "at2po", loss="gspo-turn", attribution="at2po"),
    "treerl": Algorithm("arpo", "treerl", attribution="treerl"),
    "treepo": Algorithm("arpo", "treepo", attribution="treepo"),
    "rtmc": Algorithm("grpo", None, attribution="rtmc"),  # states that independent trajectories share are its tree
    "igpo": Algorithm("grpo", None, attribution="igpo"),
    "a2tgpo": Algorithm("grpo", None, advantage="grpo-population", loss="gspo-turn", attribution="a2tgpo"),
    "vineppo": Algorithm("arpo", "vine", advantage="grpo-no-std", attribution="vineppo"),
    "spo": Algorithm("arpo", "vine", advantage="grpo-no-std", attribution="spo"),
}
BRANCHES |= PAPER_BRANCHES
CREDITS |= PAPER_CREDITS
ALGORITHMS |= PAPER_ALGORITHMS
