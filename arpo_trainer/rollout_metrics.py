"""What a rollout looked like, in numbers."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from arpo_trainer.tree import RolloutTree


def rollout_metrics(trees: Sequence[RolloutTree]) -> dict[str, float]:
    """Summarise trees.

    Returns:
        reward, accuracy, tool_calls (means over trajectories), entropy (mean nats over the model's tokens, shared
        ones once), entropy_after_tool and entropy_first (the same over first turns and over turns after a result),
        delta_entropy (mean rise at decisions, in ln V), roots, branches, top_ups, invalid (counts), depth (most
        branchings on one path), tokens_unique, tokens_copied.
    """
    trajectories = [trajectory for tree in trees for trajectory in tree.trajectories]
    valid = [trajectory for trajectory in trajectories if trajectory.valid]
    model = [span for tree in trees for span in tree.spans if span.kind == "model"]
    decisions = [span.decision for tree in trees for span in tree.spans if span.decision]
    return {
        "reward": _mean(trajectory.reward or 0.0 for trajectory in valid),
        "accuracy": _mean(trajectory.components.get("accuracy", 0.0) for trajectory in valid),
        "tool_calls": _mean(trajectory.tool_calls for trajectory in valid),
        "entropy": _mean(entropy for span in model for entropy in span.entropies),
        "entropy_first": _mean(entropy for span in model if span.parent is None for entropy in span.entropies),
        "entropy_after_tool": _mean(e for span in model if span.parent is not None for e in span.entropies),
        "delta_entropy": _mean(decision.delta for decision in decisions),
        "roots": sum(trajectory.origin == "root" for trajectory in trajectories),
        "branches": sum(trajectory.origin == "branch" for trajectory in trajectories),
        "top_ups": sum(trajectory.origin == "top-up" for trajectory in trajectories),
        "invalid": len(trajectories) - len(valid),
        "depth": max((branch_depth(tree, number) for tree in trees for number in range(len(tree.trajectories))),
                     default=0),
        "tokens_unique": sum(tree.unique_tokens() for tree in trees),
        "tokens_copied": sum(tree.copied_tokens() for tree in trees),
    }  # fmt: skip


def branch_depth(tree: RolloutTree, number: int) -> int:
    """Return how many forks lie between a trajectory and the prompt."""
    depth, parent = 0, tree.trajectories[number].parent
    while parent is not None:
        depth, parent = depth + 1, tree.trajectories[parent].parent
    return depth


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return statistics.fmean(listed) if listed else 0.0
