"""Two of the four decisions: how a group's budget is split, and how much a point deserves a branch.

Pure functions of numbers. The engine calls `split_budget` once a prompt and `branch_score` after each tool result.
"""

from __future__ import annotations


def split_budget(algorithm: str, num_generations: int, initial_rollouts: int) -> tuple[int, int]:
    """Return (roots, reserved for branches), together `num_generations`.

    Args:
        algorithm: "grpo" starts everything at the prompt; "arpo" starts N = `initial_rollouts` and reserves M - N
            (ARPO, sec. 3.1).
        num_generations: M.
        initial_rollouts: N, 1 <= N <= M; not looked at by "grpo".

    Raises:
        ValueError: no such algorithm, or N outside its range.
    """
    if algorithm == "grpo":
        return num_generations, 0
    if algorithm != "arpo":
        raise ValueError(f"algorithm must be 'arpo' or 'grpo', not {algorithm!r}")
    if not 1 <= initial_rollouts <= num_generations:
        raise ValueError(
            f"initial_rollouts must be between 1 and num_generations ({num_generations}), got {initial_rollouts}"
        )
    return initial_rollouts, num_generations - initial_rollouts


def branch_score(delta_entropy: float, alpha: float, beta: float, consecutive: int = 0, penalty: float = 0.0) -> float:
    """Return P = (alpha + beta * dH) * (1 - penalty * l): branch iff P > tau.

    ARPO, eq. 4-5 is the case without penalty; AEPO multiplies by a factor that falls linearly in l.

    Args:
        delta_entropy: dH, the rise of entropy after the tool result, in units of ln V.
        alpha: base.
        beta: weight of the rise.
        consecutive: l, how many of the chain's last tool steps branched in a row.
        penalty: slope of the factor; 0 is ARPO.
    """
    return (alpha + beta * delta_entropy) * max(0.0, 1.0 - penalty * consecutive)
