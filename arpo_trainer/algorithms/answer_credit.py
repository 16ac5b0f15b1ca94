r"""Credit by what a turn tells about the answer: IGPO and A2TGPO, for trajectories without a tree.

A state is worth the policy's probability of the gold answer a = (a_1, ..., a_L), if it answered there and then:

    p(state) = exp(1/L sum_j log pi(a_j | state, answer format, a_<j))

A turn is what the model writes, with the results of its calls. Every turn but the last one earns the change of p from
its start to its end, its *gain*. The last one earns the reward of the trajectory. `training.answer_scores` measures
log p and keeps it in the tree (`Span.answer_logprob`, `RolloutTree.answer_logprob`). Moments are taken over the valid
trajectories, each with all of its turns: a turn that d of them share counts d times.

Neither paper could be read as a whole, so equations have no numbers here. What is here follows the abstracts, accounts
of the papers, and published code: IGPO's (GuoqingWang1/IGPO, `compute_grpo_outcome_advantage` and `run_llm_loop`), and
a copy of A2TGPO's (CuSO4-Chen/A-TGPO, `compute_igpo_step_advantage` and `_compute_igpo_reward`).
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence

from arpo_trainer.algorithms.advantages import EPSILON
from arpo_trainer.algorithms.credit_method import PathValues
from arpo_trainer.algorithms.tree_values import State
from arpo_trainer.tree import RolloutTree

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
    states = [None, *(path[place].index for place in turn_ends(tree, number)[:-1])]
    worth = [_probability(tree, state) for state in states]
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

    Args:
        tree: with G trajectories and measured states; `Trajectory.reward` is R.
        advantages: of each trajectory, shape (G,).

    Returns:
        For each trajectory one number per span of its path; 0 for invalid ones.

    Raises:
        ValueError: a state was not measured.
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

    Args:
        tree: with G trajectories and measured states.
        advantages: of each trajectory, shape (G,).

    Returns:
        For each trajectory one number per span of its path; 0 for invalid ones.

    Raises:
        ValueError: a state was not measured.
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


def _probability(tree: RolloutTree, state: State) -> float:
    found = answer_logprob(tree, state)
    if found is None:
        raise ValueError(f"state {state} has no probability of the gold answer; see training.answer_scores")
    return math.exp(found)


def _normalised(values: Sequence[float]) -> list[float]:
    """Return values minus their mean, over their population deviation; 0 where there is nothing to compare with."""
    if len(set(values)) < 2:
        return [0.0] * len(values)
    mean = statistics.fmean(values)
    deviation = math.sqrt(statistics.pvariance(values, mean) + VARIANCE_FLOOR) + EPSILON
    return [(value - mean) / deviation for value in values]


def _on_path(tree: RolloutTree, number: int, turns: Sequence[float]) -> list[float]:
    """Return for each span of a path the number of its turn; 0 without numbers."""
    starts = [0, *(place + 1 for place in turn_ends(tree, number))]
    if not turns:
        return [0.0] * starts[-1]
    return [value for turn, value in enumerate(turns) for _ in range(starts[turn], starts[turn + 1])]
