"""Algorithms are rows: a budget and a branch method, by name; advantage and loss are settings of the trainer."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from arpo_trainer.branching import BRANCHES, BranchMethod
from arpo_trainer.budgets import BUDGETS


@dataclass(frozen=True)
class Algorithm:
    """How a group is rolled out.

    Attributes:
        budget: one of `budgets.BUDGETS`.
        branch: one of `branching.BRANCHES`; None never branches.
    """

    budget: str
    branch: str | None

    @property
    def method(self) -> BranchMethod | None:
        """The branch method."""
        return BRANCHES[self.branch] if self.branch else None


ALGORITHMS: dict[str, Algorithm] = {
    "grpo": Algorithm("grpo", None),
    "arpo": Algorithm("arpo", "arpo"),
    "aepo": Algorithm("aepo", "aepo"),
    "random": Algorithm("arpo", "random"),
    "tree-grpo": Algorithm("arpo", "tree-grpo"),
    "arpo-reference": Algorithm("arpo", "arpo-reference"),
    "aepo-reference": Algorithm("arpo", "aepo-reference"),
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
    return Algorithm(budget, branch)


def check_name(what: str, given: str, known: list[str]) -> None:
    """Refuse a name that is not known.

    Raises:
        ValueError: names the nearest one.
    """
    if given not in known:
        near = difflib.get_close_matches(str(given), known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"{what} must be one of {', '.join(map(repr, known))}; not {given!r}{hint}")
