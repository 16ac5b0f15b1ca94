"""The table of algorithms: each is a row of budget, branch method, advantage, attribution and loss, by name.

The engine uses the first two; the others are defaults of `ARPOConfig`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from arpo_trainer.algorithms.branching import BRANCHES, BranchMethod
from arpo_trainer.algorithms.budgets import BUDGETS, Budget
from arpo_trainer.validation import check_name
from envs_registry.spec import load_object, resolve_id


@dataclass(frozen=True)
class Algorithm:
    """How a group is rolled out, and how it is trained on.

    Attributes:
        budget: one of `budgets.BUDGETS`.
        branch: one of `branching.BRANCHES`; None for no branches.
        advantage: one of `advantages.ADVANTAGES`.
        loss: one of `losses.LOSSES`.
        entropy_weight: a of AEPO's entropy-aware advantage; 0 switches it off.
        attribution: one of `credit_assignment.ATTRIBUTIONS`.
        action_weight: weight of ToolPO's action advantage, on the tokens of calls; 0 switches it off.
    """

    budget: str
    branch: str | None
    advantage: str = "grpo"
    loss: str = "clipped"
    entropy_weight: float = 0.0
    attribution: str = "soft"
    action_weight: float = 0.0

    @property
    def budget_rule(self) -> Budget:
        """The row of the budget."""
        return BUDGETS[self.budget]

    @property
    def method(self) -> BranchMethod | None:
        """The row of the branch method, or None."""
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
    "aepo-reference": Algorithm(
        "arpo", "aepo-reference", loss="aepo-reference"
    ),  # their entropy factor was never switched on
    "spread": Algorithm("arpo", "spread"),
    # a coin places their forks, and no deviation divides: `fork_credit` says why anything else would push
    "fork": Algorithm("arpo", "random", advantage="grpo-no-std", attribution="fork"),
    "at2po": Algorithm("arpo", "at2po", loss="gspo-turn", attribution="at2po"),
    "treerl": Algorithm("arpo", "treerl", attribution="treerl"),
    "treepo": Algorithm("arpo", "treepo", attribution="treepo"),
    "rtmc": Algorithm(
        "grpo", None, attribution="rtmc"
    ),  # it makes no forks: states that independent trajectories share are its tree
    "igpo": Algorithm("grpo", None, attribution="igpo"),
    "a2tgpo": Algorithm("grpo", None, advantage="grpo-population", loss="gspo-turn", attribution="a2tgpo"),
    "vineppo": Algorithm("arpo", "vine", advantage="grpo-no-std", attribution="vineppo"),
    "spo": Algorithm("arpo", "vine", advantage="grpo-no-std", attribution="spo"),
    "toolpo": Algorithm("grpo", None, advantage="grpo-no-std", action_weight=1.0),
}


def get_algorithm(name: str, budget: str | None = None, branch: str | None = None) -> Algorithm:
    """Return an algorithm, with its budget and branch method replaced by those that are given.

    Args:
        name: a row of `ALGORITHMS`, or "MODULE:NAME": a row that the module adds, or an `Algorithm` in it.
        budget: a row of `BUDGETS`.
        branch: a row of `BRANCHES`.

    Raises:
        ModuleNotFoundError: there is no such module.
        ValueError: a name is unknown, or the budget keeps something for branches and there is no branch method, or the
            other way round.
    """
    known = resolve_id(name) if ":" in str(name) else name
    if known == name or known in ALGORITHMS:
        check_name("algorithm", known, list(ALGORITHMS))
        row = ALGORITHMS[known]
    elif not isinstance(row := load_object(name, "algorithm"), Algorithm):
        raise ValueError(
            f"algorithm {name!r} is a {type(row).__name__}, not an arpo_trainer.algorithms.registry.Algorithm"
        )
    if budget is not None:
        check_name("budget", budget, list(BUDGETS))
    if branch is not None:
        check_name("branch", branch, list(BRANCHES))
    budget, branch = budget or row.budget, branch or row.branch
    # places kept for branches need a method that makes branches, and a method needs places
    if BUDGETS[budget].keeps_branches != (branch is not None):
        alone = ", ".join(repr(name) for name, row in BUDGETS.items() if not row.keeps_branches)
        raise ValueError(
            f"budget {budget!r} does not go with branch {branch!r}: {alone} keeps nothing for branches, the others do"
        )
    return replace(row, budget=budget, branch=branch)
