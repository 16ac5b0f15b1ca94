"""What the published code does, as plain functions, to check the reference modes against.

The branch rules themselves are rows of `branching.BRANCHES`; `branch_budget` and `branch_scheduler` have the order of
rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arpo_env import ToolEnv
    from arpo_trainer.algorithms.registry import Algorithm

_RENDERINGS = {"arpo-tags": "arpo-tags-reference"}


def arpo_branch_probability(delta_entropy: float, probability: float, weight: float) -> float:
    """Return the probability that the published ARPO makes one copy: clip(p_b + w dH, 0, 1)."""
    return min(1.0, max(0.0, probability + weight * delta_entropy))


def aepo_branch_probability(
    delta_entropy: float, probability: float, weight: float, consecutive: int, slope: float = 0.05
) -> float:
    """Return the probability that the published AEPO makes one copy: clip(1 - p_b / penalty + w dH, 0, 1).

    Args:
        delta_entropy: dH.
        probability: p_b; a larger one makes branches rarer, the opposite of ARPO's.
        weight: w.
        consecutive: c of the prompt.
        slope: of the penalty max(0, 1 - slope c).
    """
    penalty = max(0.0, 1.0 - slope * consecutive)
    # the product is 0 whatever is drawn, and reaches p_b only if that is 0
    if penalty == 0.0:
        return 0.0 if probability > 0 else 1.0
    return min(1.0, max(0.0, 1.0 - probability / penalty + weight * delta_entropy))


def consecutive_counters(rounds: Sequence[Sequence[int]], prompts: int) -> list[list[int]]:
    """Return AEPO's counters after each round.

    There is one counter per prompt: it counts up when the prompt gets a new trajectory, and starts over otherwise. A
    round without new trajectories changes none. (Each group of our engine is its own batch, so c only counts up.)

    Args:
        rounds: for each round, the prompts that got at least one new trajectory.
        prompts: number of prompts.
    """
    counters, history = [0] * prompts, []
    for served in rounds:
        if served:
            counters = [counters[number] + 1 if number in served else 0 for number in range(prompts)]
        history.append(list(counters))
    return history


def as_published(env: ToolEnv, algorithm: Algorithm) -> ToolEnv:
    """Return an environment that writes results as the published code of the algorithm does.

    It is the given environment unless the algorithm is a reference and the protocol is that of the published tags.
    """
    rendering = _RENDERINGS.get(env.protocol.name)
    published = algorithm.method is not None and algorithm.method.published
    return env.with_protocol(rendering) if published and rendering else env


def response_mask(response: Sequence[int], eos: int) -> list[int]:
    """Return 1 up to and including the first end token, 0 after it; without one, 1 everywhere, padding included."""
    end = response.index(eos) if eos in response else len(response) - 1
    return [int(position <= end) for position in range(len(response))]


def loss_mask(response: Sequence[int], result_mask: Sequence[int], eos: int) -> list[int]:
    """Return the tokens that the published loss counts: those of the model (1 in `result_mask`) up to the first end."""
    return [a * b for a, b in zip(response_mask(response, eos), result_mask, strict=True)]


def reward_position(response: Sequence[int], eos: int) -> int:
    """Return the position of the reward in the published code: the last one of the response mask."""
    return sum(response_mask(response, eos)) - 1
