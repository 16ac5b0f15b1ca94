"""The table of algorithms: each is a row of budget, branch method, advantage, attribution and loss, by name.

The engine uses the first two; the others are defaults of `ARPOConfig`. The budgets are here as well: how many
trajectories of a group start at the prompt, and how many are kept for branches. A budget is a row of `BUDGETS`; a new
one needs a function and a row, and nothing in the engine.

| budget | how many start at the prompt | source |
|---|---|---|
| grpo | all M | GRPO |
| arpo | N = `initial_rollouts`; M - N are kept for branches | ARPO sec. 3.1 |
| aepo | m = M sigmoid(beta (H_root - H_tool)), rounded, after a first trajectory that is kept | AEPO, pre-monitoring |
| aepo-reference | int(m) + 1 with beta = 0.5, likewise | the published code of AEPO |
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from arpo_trainer.algorithms.branching import BRANCHES, BranchMethod
from arpo_trainer.validation import check_name, look_up
from envs_registry.spec import load_object, resolve_id

REFERENCE_BETA = 0.5


@dataclass(frozen=True)
class Budget:
    """One row of `BUDGETS`.

    Attributes:
        start: from M and N, the number of trajectories that start at the prompt at once.
        decide: from M, H_root, H_tool and beta, the number of trajectories that start at the prompt in all, once the
            first one has been played and shown its entropies. None if `start` says it.
        keeps_branches: whether places are kept for branches. Kept places that no branch can claim any more return as
            fresh roots.
        published: whether `decide` wants the entropies as the published code sums them, over all turns.
    """

    start: Callable[[int, int], int]
    decide: Callable[[int, float, float, float], int] | None = None
    keeps_branches: bool = True
    published: bool = False

    def expected_roots(self, num_generations: int, initial_rollouts: int, beta: float) -> int:
        """Return how many trajectories start at the prompt, for an estimate: at equal entropies where they decide."""
        if self.decide is None:
            return self.start(num_generations, initial_rollouts)
        return round(balanced_roots(num_generations, 0.0, 0.0, beta))


def _all(num_generations: int, initial_rollouts: int) -> int:
    return num_generations


def _first_ones(num_generations: int, initial_rollouts: int) -> int:
    if not 1 <= initial_rollouts <= num_generations:
        raise ValueError(
            f"initial_rollouts must be between 1 and num_generations ({num_generations}), got {initial_rollouts}: it "
            "is the number of them that start at the prompt"
        )
    return initial_rollouts


def _one(num_generations: int, initial_rollouts: int) -> int:
    # its entropies decide how many others follow
    return 1


def _balanced(num_generations: int, root_entropy: float, tool_entropy: float, beta: float) -> int:
    # not round(), which rounds halves to even
    return math.floor(balanced_roots(num_generations, root_entropy, tool_entropy, beta) + 0.5)


def _balanced_as_published(num_generations: int, root_entropy: float, tool_entropy: float, beta: float) -> int:
    # the published code has its own constant in place of the setting
    return int(balanced_roots(num_generations, root_entropy, tool_entropy, REFERENCE_BETA)) + 1


BUDGETS: dict[str, Budget] = {
    "grpo": Budget(_all, keeps_branches=False),
    "arpo": Budget(_first_ones),
    "aepo": Budget(_one, _balanced),
    "aepo-reference": Budget(_one, _balanced_as_published, published=True),
}


def split_budget(budget: str, num_generations: int, initial_rollouts: int) -> tuple[int, int | None]:
    """Return (the number of trajectories that start at once, the number that is kept for branches).

    Args:
        budget: one of `BUDGETS`. The second number is None where the first trajectory decides it (`probed_roots`).
        num_generations: M.
        initial_rollouts: N, 1 <= N <= M; only "arpo" uses it.

    Raises:
        ValueError: an unknown budget, or N outside its range.
    """
    row = look_up("budget", budget, BUDGETS)
    roots = row.start(num_generations, initial_rollouts)
    return roots, None if row.decide else num_generations - roots


def balanced_roots(num_generations: int, root_entropy: float, tool_entropy: float, beta: float) -> float:
    """Return m = k * sigmoid(beta * (H_root - H_tool)), a real number (AEPO, entropy pre-monitoring).

    Args:
        num_generations: k, the whole budget of the group.
        root_entropy: H_root, of the first turn, in the same unit as H_tool (the engine's is `branching.ENTROPY_UNIT`).
        tool_entropy: H_tool, the mean over the turns that follow a tool's result.
        beta: weight of the difference.
    """
    return num_generations / (1.0 + math.exp(-beta * (root_entropy - tool_entropy)))


def probed_roots(budget: str, num_generations: int, root_entropy: float, tool_entropy: float, beta: float) -> int:
    """Return how many trajectories start at the prompt, from 1 to k, once one has been played; see `balanced_roots`.

    "aepo" rounds m to the nearest whole number; "aepo-reference" is the published int(m) + 1, with 0.5 for every beta.
    """
    decide = BUDGETS[budget].decide
    assert decide is not None
    # m may round to 0, although the first trajectory has been played; int(m) + 1 may be one more than k
    return max(1, min(num_generations, decide(num_generations, root_entropy, tool_entropy, beta)))


def branch_quota(num_generations: int, initial_rollouts: int) -> int:
    """Return the quota of one root and all its descendants: ceil((M - N) / N), at least 1.

    With this quota no root can take the whole budget, and all roots together can use all of it.
    """
    return max(1, -(-(num_generations - initial_rollouts) // initial_rollouts))


def generated_tokens(num_generations: int, initial_rollouts: int, tokens: float, shared: float) -> float:
    """Return the number of tokens to generate when M - N trajectories share a part of another (ARPO, sec. 3.1).

    Args:
        num_generations: M.
        initial_rollouts: N, generated in full.
        tokens: of one trajectory.
        shared: part of a branch that it shares with its parent, 0 to 1.
    """
    return tokens * (initial_rollouts + (num_generations - initial_rollouts) * (1.0 - shared))


@dataclass(frozen=True)
class Algorithm:
    """How a group is rolled out, and how it is trained on.

    Attributes:
        budget: one of `BUDGETS`.
        branch: one of `branching.BRANCHES`; None for no branches.
        advantage: one of `advantages.ADVANTAGES`.
        loss: one of `losses.LOSSES`.
        entropy_weight: a of AEPO's entropy-aware advantage; 0 switches it off.
        attribution: one of `credit.CREDITS`.
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

    @property
    def published(self) -> bool:
        """Whether it branches as a published engine does."""
        return self.method is not None and self.method.published


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
    # their entropy factor was never switched on
    "aepo-reference": Algorithm("arpo", "aepo-reference", loss="aepo-reference"),
    # a coin places their forks, and no deviation divides: `fork_advantages` says why anything else would push
    "fork": Algorithm("arpo", "random", advantage="grpo-no-std", attribution="fork"),
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
        row = look_up("algorithm", known, ALGORITHMS)
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
