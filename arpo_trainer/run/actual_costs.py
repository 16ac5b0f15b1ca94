"""What training has really used, counted from its trees, to be held against the estimate."""

from __future__ import annotations

import resource
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

from arpo_trainer.rollout.metrics import rollout_metrics
from arpo_trainer.tree import RolloutTree

_CALLS = "tool_calls/"


class Spent:
    """Counts the rollouts of a run; evaluations are not among them."""

    def __init__(self) -> None:
        self.rollouts = self.groups = self.trajectories = 0
        self.calls: Counter[str] = Counter()
        self.sampled = 0

    def add(self, trees: Sequence[RolloutTree]) -> None:
        """Count the trees of one rollout, those of all processes."""
        measured = rollout_metrics(trees)
        self.rollouts += 1
        self.groups += len(trees)
        self.trajectories += sum(len(tree.trajectories) for tree in trees)
        self.sampled += int(measured["tokens_generated"])
        for name, count in measured.items():
            if name.startswith(_CALLS):
                self.calls[name.removeprefix(_CALLS)] += int(count)

    def restore(self, counts: dict[str, Any]) -> None:
        """Go on counting from what `as_dict` returned."""
        self.rollouts, self.groups = counts["rollouts"], counts["groups"]
        self.trajectories, self.sampled = counts["trajectories"], counts["sampled"]
        self.calls = Counter(counts["calls_of"])

    def as_dict(self) -> dict[str, Any]:
        """Return the counts, and the most memory this process has had so far, in bytes."""
        return {
            "rollouts": self.rollouts,
            "groups": self.groups,
            "trajectories": self.trajectories,
            "sampled": self.sampled,
            "calls": sum(self.calls.values()),
            "searches": self.calls["search"],
            "calls_of": dict(self.calls),
            **_memory(),
        }

    def __str__(self) -> str:
        return (
            f"{self.rollouts} rollouts, {self.trajectories:,} trajectories, {self.sampled:,} tokens sampled, "
            f"{sum(self.calls.values()):,} tool calls"
        )


def _memory() -> dict[str, int]:
    unit = 1 if sys.platform == "darwin" else 1024
    found = {"memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit}
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        found["memory_cuda"] = int(torch.cuda.max_memory_allocated())
    return found
