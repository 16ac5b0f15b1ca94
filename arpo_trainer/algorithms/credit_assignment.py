"""The third decision, second half: from one advantage per trajectory to one per token, over the tree.

A way of giving credit is a row of `CREDITS`; a new one needs a function and a row (see `credit_method`).

| name | advantage of a token, in each copy | a copy weighs | source |
|---|---|---|---|
| soft | that of the copy's own trajectory: plain GRPO | 1 | ARPO, sec. 3.2; the default there |
| hard | the mean over the d trajectories through it | 1 | ARPO, sec. 3.2 |
| dedup | that mean | 1/d | ours |
| turn | the value backed up turn by turn, each next turn counting the same | 1 | ours |
| at2po | the same, the next turns weighted by exp(H) / sum exp(H), A_n = V_n | 1 | AT2PO (2601.04767), its code |
| fork | V minus a baseline of the sisters | visits/d | ours, `fork_credit` |
| treerl | (V - V(root) + V - V(step before)) / sqrt(d) | 1 | TreeRL (2506.11902), eq. 2-4 |
| treepo | R minus the mean of the group means along the path | 1 | TreePO (2508.17445), eq. 5 |
| spo | V at the segment's end minus V at its start | 1/d | SPO (2505.23564), eq. 2 |
| vineppo | the same, V from the branches alone | 1, branches 0 | VinePPO (2410.01679), sec. 4 |
| rtmc | Q - V of equal states in all trajectories | 1 | RTMC (2604.11037), eq. 11 |
| igpo | sum of the normalised gains and the reward still to come | 1 | IGPO (2510.14967) |
| a2tgpo | the trajectory's own, plus gains normalised at the same turn | 1 | A2TGPO (2605.06200), its code |

Summed over copies, soft and hard give the same gradient as long as nothing is clipped. "hard" counts leaves and "turn"
counts next turns, so that a branch with many leaves does not outweigh its siblings. Where the number of leaves below a
choice depends on the choice, rows whose copies weigh 1 push on choices that are worth nothing; "fork", "spo" and
"vineppo" do not (see `fork_credit`).

The last two need no tree. They need the policy's probability of the gold answer after every turn, which is measured
before credit is given (`needs_answers`, see `answer_credit`).
"""

from __future__ import annotations

from collections.abc import Sequence

from arpo_trainer.algorithms.answer_credit import a2tgpo, check_answer_scores, igpo
from arpo_trainer.algorithms.credit_method import Credit, PathValues, once, shared
from arpo_trainer.algorithms.fork_credit import fork_advantages, visit_weights
from arpo_trainer.algorithms.initial_credit import initial_only, vineppo
from arpo_trainer.algorithms.state_credit import rtmc
from arpo_trainer.algorithms.tree_credit import spo, treepo, treerl
from arpo_trainer.algorithms.tree_values import span_advantages, turn_values
from arpo_trainer.tree import RolloutTree
from arpo_trainer.validation import check_name

Attribution = str
"""A name of `CREDITS`."""


def own_advantages(tree: RolloutTree, advantages: Sequence[float]) -> PathValues:
    """Return for each span of a path the advantage of the trajectory (soft attribution)."""
    return [[own] * len(tree.path(number)) for number, own in enumerate(advantages)]


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
ATTRIBUTIONS = CREDITS.keys()


def token_advantages(tree: RolloutTree, advantages: Sequence[float], attribution: Attribution) -> list[list[float]]:
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
    row = _row(attribution)
    if len(advantages) != len(tree.trajectories):
        raise ValueError(f"got {len(advantages)} advantages for {len(tree.trajectories)} trajectories")
    if row.needs_answers:
        check_answer_scores(tree, attribution)
    values = row.values(tree, advantages)
    _check_shape(tree, attribution, values)
    weights = row.weights(tree) if row.weights else None
    rows = []
    for number, trajectory in enumerate(tree.trajectories):
        tokens: list[float] = []
        for place, span in enumerate(tree.path(number)):
            weight = weights[number][place] if weights else 1.0
            tokens += [weight * values[number][place] if trajectory.valid else 0.0] * len(span.ids)
        rows.append(tokens)
    return rows


def learned_trajectories(tree: RolloutTree, attribution: Attribution) -> list[bool]:
    """Return for each trajectory whether it is learned from: it is valid, and some copy of a span weighs something.

    "vineppo" learns nothing from branches. What is not learned from must not count in what a loss divides by.
    """
    weights = _row(attribution).weights
    weighed = weights(tree) if weights else None
    return [
        trajectory.valid and (weighed is None or any(weighed[number]))
        for number, trajectory in enumerate(tree.trajectories)
    ]


def weight_scale(trees: Sequence[RolloutTree], attribution: Attribution) -> float:
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
    weights = _row(attribution).weights
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


def _row(attribution: str) -> Credit:
    check_name("attribution", attribution, CREDITS)
    return CREDITS[attribution]


def _check_shape(tree: RolloutTree, attribution: str, values: PathValues) -> None:
    wanted = [len(tree.path(number)) for number in range(len(tree.trajectories))]
    if [len(row) for row in values] != wanted:
        raise ValueError(
            f"attribution {attribution!r} returned {[len(row) for row in values]} numbers for the trajectories; their "
            f"paths have {wanted} spans. A function that returns one number per span of the tree needs `shared`"
        )
