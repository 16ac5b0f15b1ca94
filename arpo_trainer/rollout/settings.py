"""`RolloutSettings`: how trees are grown."""

from __future__ import annotations

from dataclasses import dataclass, replace

from arpo_trainer.algorithms.budgets import split_budget
from arpo_trainer.algorithms.registry import Algorithm, get_algorithm
from arpo_trainer.type_check import check_types


@dataclass(frozen=True)
class RolloutSettings:
    """How trees are grown; ARPO's defaults.

    Attributes:
        algorithm: a row of `algorithms.ALGORITHMS`: "arpo", "aepo", "grpo", "random", "tree-grpo", ...
        num_generations: M, trajectories a group.
        initial_rollouts: N, how many start at the prompt, where the budget does not decide that.
        branch_width: Z, paths that leave a branching point, the original included.
        alpha: base of the branch score; of a random rule, the probability.
        beta: weight of the entropy rise.
        tau: threshold; a score above it branches.
        entropy_window: k, tokens whose entropy is looked at.
        temperature: of sampling; 0 is greedy.
        max_turn_tokens: new tokens in one turn.
        max_completion_length: tokens after the prompt, the environment's included; fewer if its `max_tokens` is less.
        max_invalid: share of a rollout's trajectories that may fail. A dead sandbox fails those that call the tool
            and spares the others: learning from what is left would teach not to call it.
        seed: of everything that is drawn.
        budget: instead of the algorithm's, one of `budgets.BUDGETS`.
        branch: instead of the algorithm's, one of `branching.BRANCHES`.
        budget_beta: weight of the entropy difference in AEPO's budget.
        branch_penalty: slope of AEPO's penalty for high-entropy steps in a row.
        branch_quota: most branches of one root and all its descendants. None is ceil((M - N) / N), so that every root
            can have its share; but no quota in `tree-grpo` and the reference rows. 0 is no quota.
        turn_timeout: seconds that a step, a reset or a fork of an environment may take; our tools have limits of their
            own, this one is for what has none.
        retries: how often an episode whose machinery failed is played again up to where it was, where that is safe.
    """

    algorithm: str = "arpo"
    num_generations: int = 16
    initial_rollouts: int = 8
    branch_width: int = 2
    alpha: float = 0.5
    beta: float = 0.2
    tau: float = 0.5
    entropy_window: int = 20
    temperature: float = 1.0
    max_turn_tokens: int = 256
    max_completion_length: int = 1024
    max_invalid: float = 0.2
    seed: int = 0
    budget: str | None = None
    branch: str | None = None
    budget_beta: float = 0.5
    branch_penalty: float = 0.05
    branch_quota: int | None = None
    turn_timeout: float = 900.0
    retries: int = 1

    def __post_init__(self) -> None:
        check_types(self, self.__annotations__)
        split_budget(self.parts.budget, self.num_generations, self.initial_rollouts)
        for name, low in (("branch_width", 1), ("entropy_window", 1), ("max_turn_tokens", 1),
                          ("max_completion_length", 1), ("temperature", 0), ("branch_penalty", 0),
                          ("retries", 0), ("turn_timeout", 0.001)):  # fmt: skip
            if getattr(self, name) < low:
                raise ValueError(f"{name} must be at least {low}, got {getattr(self, name)}")
        if self.branch_quota is not None and self.branch_quota < 0:
            raise ValueError(f"branch_quota must be at least 1, or 0 for no quota; got {self.branch_quota}")
        if self.branch_quota and self.parts.method is not None and self.parts.method.published:
            raise ValueError(
                f"branch_quota={self.branch_quota} does not go with branch {self.parts.branch!r}: the published code "
                "has no quota; leave it out, or take a row of ours"
            )
        if not 0 <= self.max_invalid <= 1:
            raise ValueError(f"max_invalid is a share of the trajectories, from 0 to 1; got {self.max_invalid}")

    @property
    def parts(self) -> Algorithm:
        """The budget and the branch method that hold."""
        return get_algorithm(self.algorithm, self.budget, self.branch)

    def plain(self, num_generations: int, temperature: float | None = None) -> RolloutSettings:
        """Return the same without branches, as evaluation plays: so many trajectories, all from the prompt."""
        return replace(
            self,
            algorithm="grpo",
            budget=None,
            branch=None,
            num_generations=num_generations,
            initial_rollouts=num_generations,
            temperature=self.temperature if temperature is None else temperature,
        )
