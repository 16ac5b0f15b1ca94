"""The first decision: how many of a group's trajectories start at the prompt, how many are kept for branches.

Pure functions of numbers; `Group` asks `split_budget` before a prompt is played, and `probed_roots` once the first
trajectory has been, where the budget depends on it.
"""

from __future__ import annotations

import math

BUDGETS = ("grpo", "arpo", "aepo", "aepo-reference")
REFERENCE_BETA = 0.5


def split_budget(budget: str, num_generations: int, initial_rollouts: int) -> tuple[int, int | None]:
    """Return (roots to start with, reserved for branches).

    Args:
        budget: "grpo" starts everything at the prompt; "arpo" starts N = `initial_rollouts` and reserves M - N (ARPO,
            sec. 3.1); "aepo" and "aepo-reference" start one, and what it does decides: the reserve is None until then.
        num_generations: M.
        initial_rollouts: N, 1 <= N <= M; looked at by "arpo" alone.

    Raises:
        ValueError: no such budget, or N outside its range.
    """
    if budget not in BUDGETS:
        raise ValueError(f"budget must be one of {', '.join(map(repr, BUDGETS))}; not {budget!r}")
    if budget == "grpo":
        return num_generations, 0
    if budget.startswith("aepo"):
        return 1, None
    if not 1 <= initial_rollouts <= num_generations:
        raise ValueError(
            f"initial_rollouts must be between 1 and num_generations ({num_generations}), got {initial_rollouts}"
        )
    return initial_rollouts, num_generations - initial_rollouts


def balanced_roots(num_generations: int, root_entropy: float, tool_entropy: float, beta: float) -> float:
    """Return m = k * sigmoid(beta * (H_root - H_tool)), a real number (AEPO, entropy pre-monitoring).

    Args:
        num_generations: k, the group's whole budget.
        root_entropy: H_root, of the first turn; any unit, the same for both (the engine's is `entropy.ENTROPY_UNIT`).
        tool_entropy: H_tool, mean over the turns that follow a tool's result.
        beta: how strongly the difference counts.
    """
    return num_generations / (1.0 + math.exp(-beta * (root_entropy - tool_entropy)))


def probed_roots(budget: str, num_generations: int, root_entropy: float, tool_entropy: float, beta: float) -> int:
    """Return how many trajectories start at the prompt, the probe among them.

    Args:
        budget: "aepo" rounds m to the nearest whole number; "aepo-reference" is the published int(m) + 1, in which
            beta is 0.5 whatever is asked.
        num_generations: k; the result is between 1 and k.
        root_entropy: see `balanced_roots`.
        tool_entropy: likewise.
        beta: likewise.
    """
    if budget == "aepo-reference":
        whole = int(balanced_roots(num_generations, root_entropy, tool_entropy, REFERENCE_BETA)) + 1
    else:
        whole = math.floor(balanced_roots(num_generations, root_entropy, tool_entropy, beta) + 0.5)
    return max(1, min(num_generations, whole))


def branch_quota(num_generations: int, initial_rollouts: int) -> int:
    """Return the most branches of one root and all its descendants: ceil((M - N) / N), at least 1.

    With it no root can take the whole budget, and all roots together can take all of it.

    Args:
        num_generations: M.
        initial_rollouts: N.
    """
    return max(1, -(-(num_generations - initial_rollouts) // initial_rollouts))


def generated_tokens(num_generations: int, initial_rollouts: int, tokens: float, shared: float) -> float:
    """Return the tokens a group costs when M - N of its trajectories share a part of another (ARPO, sec. 3.1).

    Args:
        num_generations: M.
        initial_rollouts: N, written out in full.
        tokens: of one trajectory.
        shared: part of a branch that it shares, 0 to 1.
    """
    return tokens * (initial_rollouts + (num_generations - initial_rollouts) * (1.0 - shared))
