"""What the published code does, as plain functions: to compare with, and to check that the reference modes are it.

The branch rules themselves are rows of `branching.BRANCHES`; the order of rounds is `ledger`'s and `brancher`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arpo_env import ToolEnv
    from arpo_trainer.algorithms.registry import Algorithm

_RENDERINGS = {"arpo-tags": "arpo-tags-reference"}


def arpo_branch_probability(delta_entropy: float, probability: float, weight: float) -> float:
    """Return how likely the published ARPO makes one copy: clip(p_b + w dH, 0, 1)."""
    return min(1.0, max(0.0, probability + weight * delta_entropy))


def aepo_branch_probability(
    delta_entropy: float, probability: float, weight: float, consecutive: int, slope: float = 0.05
) -> float:
    """Return how likely the published AEPO makes one copy: clip(1 - p_b / penalty + w dH, 0, 1).

    Args:
        delta_entropy: dH.
        probability: p_b; the larger, the rarer: its direction is the opposite of ARPO's.
        weight: w.
        consecutive: c of the prompt.
        slope: of the penalty max(0, 1 - slope c).
    """
    penalty = max(0.0, 1.0 - slope * consecutive)
    if penalty == 0.0:
        return 0.0 if probability > 0 else 1.0
    return min(1.0, max(0.0, 1.0 - probability / penalty + weight * delta_entropy))


def consecutive_counters(rounds: Sequence[Sequence[int]], prompts: int) -> list[list[int]]:
    """Return AEPO's counters after each round.

    They are per prompt: one that got a new trajectory counts up, the others start over; a round in which nobody got
    one leaves them all as they are. (A group played by our engine is a batch of its own: c only counts up.)

    Args:
        rounds: for each round, the prompts that got at least one new trajectory.
        prompts: how many there are.
    """
    counters, history = [0] * prompts, []
    for served in rounds:
        if served:
            counters = [counters[number] + 1 if number in served else 0 for number in range(prompts)]
        history.append(list(counters))
    return history


def as_published(env: ToolEnv, algorithm: Algorithm) -> ToolEnv:
    """Return an environment whose results are written as the algorithm's published code writes them.

    It is the same one where the algorithm is ours, or the protocol is not the published tags.
    """
    rendering = _RENDERINGS.get(env.protocol.name)
    published = algorithm.method is not None and algorithm.method.published
    return env.with_protocol(rendering) if published and rendering else env


def response_mask(response: Sequence[int], eos: int) -> list[int]:
    """Return 1 up to and including the first end token, 0 after it; without one, 1 everywhere, padding included."""
    end = response.index(eos) if eos in response else len(response) - 1
    return [int(position <= end) for position in range(len(response))]


def loss_mask(response: Sequence[int], result_mask: Sequence[int], eos: int) -> list[int]:
    """Return what the published loss counts: the model's tokens (1 in `result_mask`) up to the first end token."""
    return [a * b for a, b in zip(response_mask(response, eos), result_mask, strict=True)]


def reward_position(response: Sequence[int], eos: int) -> int:
    """Return the position that the published code puts the reward on: the last one of the response mask."""
    return sum(response_mask(response, eos)) - 1
