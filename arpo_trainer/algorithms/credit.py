"""The third decision, second half: from one advantage per trajectory to one per token, over the tree.

A way of giving credit is a row of `CREDITS`: a function of the tree, and how much each copy of a token weighs. Most
functions give a span one number for all trajectories through it: write them so, and lift them with `shared`.

| name | advantage of a token, in each copy | a copy weighs | source |
|---|---|---|---|
| soft | that of the copy's own trajectory: plain GRPO | 1 | ARPO, sec. 3.2; the default there |
| hard | the mean over the d trajectories through it | 1 | ARPO, sec. 3.2 |
| dedup | that mean | 1/d | ours |
| turn | the value backed up turn by turn, each next turn counting the same | 1 | ours |
| fork | V minus a baseline of the sisters | visits/d | ours, `fork_advantages` |

Summed over copies, soft and hard give the same gradient as long as nothing is clipped. Where the number of leaves below
a choice depends on the choice, rows whose copies weigh 1 push on choices that are worth nothing; "fork" does not.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from arpo_trainer.algorithms.advantages import Rewards, group_advantages
from arpo_trainer.tree import RolloutTree
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
        prepare: called with the trainer and the trees of each training rollout, on every process, before `values`: it
            may measure what `values` needs, and keep it in `tree.meta`. Evaluations give "soft" credit then.
    """

    values: CreditFunction
    weights: Weights | None = None
    prepare: Callable[[Any, Sequence[RolloutTree]], None] | None = None


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


def turn_values(tree: RolloutTree, advantages: Sequence[float]) -> list[float]:
    """Return V of each span: the advantage of its trajectory at a leaf, elsewhere the mean over what comes next.

    Args:
        tree: with G trajectories.
        advantages: of each trajectory, shape (G,).

    Returns:
        Shape (spans,); 0 where no valid trajectory passes.
    """
    values = [0.0] * len(tree.spans)
    following: list[list[float]] = [[] for _ in tree.spans]
    for trajectory, advantage in zip(tree.trajectories, advantages, strict=True):
        if trajectory.valid:
            following[trajectory.leaf].append(advantage)
    for span in reversed(tree.spans):  # children come after their parents
        if following[span.index]:
            values[span.index] = mean(following[span.index])
            if span.parent is not None:
                following[span.parent].append(values[span.index])
    return values


def sisters(tree: RolloutTree) -> dict[State, tuple[list[int], list[int]]]:
    """Return what follows each state: spans with a valid trajectory, and the valid trajectories that end there.

    A trajectory that goes on past a fork is a sister of the branches that leave there.
    """
    found: dict[State, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for span, through in zip(tree.spans, valid_leaves(tree), strict=True):
        if through:
            found[span.parent][0].append(span.index)
    for number, trajectory in enumerate(tree.trajectories):
        if trajectory.valid:
            found[trajectory.leaf][1].append(number)
    return found


def mean(values: Sequence[float]) -> float:
    """Return the mean; 0 without values."""
    return math.fsum(values) / len(values) if values else 0.0


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

    A choice that is worth nothing gets no push, E[w(u) A(u) grad log pi] = 0: docs/concepts/credit.md has the proof and
    its two conditions, which the row of the registry keeps.

    Args:
        tree: with G trajectories.
        advantages: of each trajectory, shape (G,); a constant added to all changes nothing.

    Returns:
        Shape (spans,); 0 where no valid trajectory passes, or where there is nothing to compare with.
    """
    values, following = turn_values(tree, advantages), sisters(tree)
    baselines: list[float | None] = []
    for span in tree.spans:  # parents come first
        above = None if span.parent is None else baselines[span.parent]
        spans, ends = following[span.parent]
        others = [values[index] for index in spans if index != span.index] + [advantages[number] for number in ends]
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
    following = sisters(tree)
    totals: list[float] = []
    for span in tree.spans:
        count = max(1, sum(map(len, following[span.parent])))
        totals.append(1.0 if span.parent is None else totals[span.parent] / count)
    copies = valid_leaves(tree)
    return on_paths(tree, [total / max(1, len(through)) for total, through in zip(totals, copies, strict=True)])


CREDITS: dict[str, Credit] = {
    "soft": Credit(own_advantages),
    "hard": Credit(shared(span_advantages)),
    "dedup": Credit(shared(span_advantages), once),
    "turn": Credit(shared(turn_values)),
    "fork": Credit(shared(fork_advantages), visit_weights),
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
        ValueError: the attribution is unknown (suggests the nearest), or the row's function does not return one number
            per span of each path.
    """
    row = look_up("attribution", attribution, CREDITS)
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

    What is not learned from must not count in what a loss divides by.
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

    The lengths, in tokens, are those of a trajectory that did not fold its memory, and of one that did.
    """
    return (direct - folded) / (direct + folded)


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
    """Return R_action = sum C(call) + l2 S_pref of each trajectory: the component `action`, else `right_calls`, for C.

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
            found.append(right + fold_weight * parts.get(FOLD_PREFERENCE, preferences[number]))
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
    """
    rows = []
    for number, row in enumerate(token_advantages(tree, group_advantages(actions, "none"), attribution)):
        flags = [flag for span in tree.path(number) for flag in marks[span.index]]
        rows.append([flag * value for flag, value in zip(flags, row, strict=True)])
    return rows


def call_marks(
    tree: RolloutTree, decode: Callable[[Sequence[int]], str], call_start: Callable[[str], int]
) -> list[list[int]]:
    """Mark the tokens of tool calls: in each turn that a tool answered, from the beginning of its first call on.

    Args:
        tree: any.
        decode: from ids to text, special tokens included.
        call_start: returns the character of a turn's text at which its calls begin, such as `first_tag`; 0 if it cannot
            tell.

    Returns:
        For each span one 0 or 1 per token.
    """
    answered = {span.parent for span in tree.spans if span.kind != "model" and span.tool is not None}
    marks = []
    for span in tree.spans:
        first = len(span.ids)
        if span.index in answered:
            first = _token_at(call_start(decode(span.ids)), span.ids, decode)
        marks.append([int(position >= first) for position in range(len(span.ids))])
    return marks


def _token_at(place: int, ids: Sequence[int], decode: Callable[[Sequence[int]], str]) -> int:
    """Return the index of the token at a character."""
    # the decoded prefix grows with the number of tokens
    return place and bisect_right(range(len(ids)), place, key=lambda last: len(decode(ids[: last + 1])))


def first_tag(*tags: str) -> Callable[[str], int]:
    """Return where the first of these tags after the last "</think>" begins in a text; 0 if there is none."""

    def start(text: str) -> int:
        # 0 without a thought, since rfind returns -1 then
        thought = text.rfind("</think>") + 1
        return min((place for tag in tags if (place := text.find(tag, thought)) >= 0), default=0)

    return start
