"""ToolPO's action advantage: extra credit on the tokens of tool calls (DeepAgent, arXiv 2510.21618).

    A(y_t) = A_succ + M(y_t) A_action,    A_succ = R_succ - mean,    A_action = R_action - mean

A_succ goes to all tokens, A_action only to those of calls (and of folding thoughts). Neither is divided by a standard
deviation. The training code was never released; this follows the paper. The row `toolpo` of the table of algorithms
trains with it: R_action comes from the components of the reward and the lengths in the group (`action_rewards`).

    marks = call_marks(tree, tokenizer.decode, ["<python>", "<search>"])
    rows = toolpo_advantages(tree, success, actions, marks)
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence

from arpo_trainer.algorithms.advantages import Rewards, group_advantages
from arpo_trainer.algorithms.credit import Attribution, token_advantages
from arpo_trainer.tree import RolloutTree, Span

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

    Returns:
        Shape (G,).
    """
    paths = [tree.path(number) for number in range(len(tree.trajectories))]
    lengths = [sum(len(span.ids) for span in path if span.kind != "fold") for path in paths]
    folded = [any(span.kind == "fold" for span in path) for path in paths]
    direct = [
        length
        for length, one, trajectory in zip(lengths, folded, tree.trajectories, strict=True)
        if trajectory.valid and not one
    ]
    if not direct:
        return [0.0] * len(paths)
    mean = sum(direct) / len(direct)
    return [fold_preference(mean, length) if one else 0.0 for length, one in zip(lengths, folded, strict=True)]


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
    """Return R_succ of each trajectory: the component `success` if the reward is a sum that has it, else the reward.

    Args:
        tree: with G trajectories.
        rewards: of the environment, shape (G,); None for an invalid one.
    """
    pairs = zip(tree.trajectories, rewards, strict=True)
    return [None if reward is None else one.components.get(SUCCESS, reward) for one, reward in pairs]


def action_advantages(
    tree: RolloutTree, actions: Rewards, marks: Sequence[Sequence[int]], attribution: Attribution = "soft"
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
    tree: RolloutTree,
    success: Rewards,
    actions: Rewards,
    marks: Sequence[Sequence[int]],
    attribution: Attribution = "soft",
) -> list[list[float]]:
    """Return A_succ + M A_action for every token of every trajectory.

    Args:
        tree: with G trajectories.
        success: R_succ of each, shape (G,); None for an invalid one.
        actions: R_action of each, shape (G,); None for an invalid one.
        marks: M: for each span one 0 or 1 per token.
        attribution: how both are spread over the tree; "soft" is that of the paper, which has no tree.

    Returns:
        G lists, each as long as its trajectory's row.

    Raises:
        ValueError: the marks do not fit the spans, or `token_advantages` or `group_advantages` refuses the values.
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
