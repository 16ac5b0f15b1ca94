"""Algorithms are rows: budget, branch method, advantage and loss, each by name.

The engine looks at the first two alone; the others are defaults of `ARPOConfig`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from arpo_trainer.algorithms.branching import BRANCHES, BranchMethod
from arpo_trainer.algorithms.budgets import BUDGETS
from arpo_trainer.name_check import check_name


@dataclass(frozen=True)
class Algorithm:
    """How a group is rolled out, and how it is learned from.

    Attributes:
        budget: one of `budgets.BUDGETS`.
        branch: one of `branching.BRANCHES`; None never branches.
        advantage: one of `advantages.ADVANTAGES`.
        loss: one of `losses.LOSSES`.
        entropy_weight: a of AEPO's entropy-aware advantage; 0 leaves it out.
    """

    budget: str
    branch: str | None
    advantage: str = "grpo"
    loss: str = "clipped"
    entropy_weight: float = 0.0

    @property
    def method(self) -> BranchMethod | None:
        """The branch method."""
        return BRANCHES[self.branch] if self.branch else None


ALGORITHMS: dict[str, Algorithm] = {
    "grpo": Algorithm("grpo", None),
    "arpo": Algorithm("arpo", "arpo"),
    "aepo": Algorithm("aepo", "aepo", loss="aepo", entropy_weight=0.2),
    "dapo": Algorithm("grpo", None, loss="dapo"),
    "reinforce++": Algorithm("grpo", None, advantage="reinforce++"),
    "arpo-ranked": Algorithm("arpo", "arpo-ranked"),
    "random": Algorithm("arpo", "random"),
    "tree-grpo": Algorithm("arpo", "tree-grpo", advantage="tree-grpo"),
    "arpo-reference": Algorithm("arpo", "arpo-reference", loss="clipped-reference"),
    "aepo-reference": Algorithm("arpo", "aepo-reference", loss="aepo-reference"),  # their factor was never on
}


def get_algorithm(name: str, budget: str | None = None, branch: str | None = None) -> Algorithm:
    """Return an algorithm, its parts replaced by those given.

    Raises:
        ValueError: an unknown name; or a budget that keeps something for branches without a branch method, or the
            other way round.
    """
    check_name("algorithm", name, list(ALGORITHMS))
    row = ALGORITHMS[name]
    if budget is not None:
        check_name("budget", budget, list(BUDGETS))
    if branch is not None:
        check_name("branch", branch, list(BRANCHES))
    budget, branch = budget or row.budget, branch or row.branch
    if (budget == "grpo") != (branch is None):
        raise ValueError(
            f"budget {budget!r} does not go with branch {branch!r}: 'grpo' keeps nothing for branches, the others do"
        )
    return replace(row, budget=budget, branch=branch)
