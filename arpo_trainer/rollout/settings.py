"""`RolloutSettings`: how trees are grown, under the names that the same settings have in `ARPOConfig`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from arpo_trainer.algorithms.registry import Algorithm, get_algorithm, split_budget
from arpo_trainer.backends.base import check_filters
from arpo_trainer.validation import check_name, check_types

_LOWEST = {
    "branch_width": 1,
    "entropy_window": 1,
    "max_turn_length": 1,
    "max_completion_length": 1,
    "temperature": 0,
    "branch_penalty": 0,
    "retries": 0,
    "turn_timeout": 0.001,
}


@dataclass(frozen=True)
class RolloutSettings:
    """How trees are grown. The defaults are those of ARPO.

    `ARPOConfig` has every one of these fields under the same name; `ARPOConfig.rollout_settings` copies them.

    Attributes:
        algorithm: a row of `algorithms.registry.ALGORITHMS`: "arpo", "aepo", "grpo", "random", "tree-grpo", ...
        num_generations: M, the number of trajectories per group.
        initial_rollouts: N, the number of trajectories that start at the prompt, unless the budget decides that.
        branch_width: Z, the number of paths that leave a branching point, the original included.
        branch_alpha: alpha, the base of the branch score; the probability of a random rule.
        branch_beta: beta, the weight of the entropy rise.
        branch_threshold: tau; a point branches when its score is above it.
        entropy_window: k, the number of tokens whose entropy is compared.
        temperature: of sampling; 0 is greedy.
        top_p: keeps the most likely tokens whose probabilities add up to this; 1 keeps all. This and the next three
            are for evaluation: training refuses them.
        top_k: keeps this many most likely tokens; 0 keeps all.
        min_p: keeps tokens with at least this share of the most likely token's probability; None keeps all.
        repetition_penalty: lowers the logits of tokens of the context and of the turn; 1 lowers nothing.
        max_turn_length: most new tokens in one turn; None means `max_completion_length`.
        max_completion_length: most tokens after the prompt, those of the environment included. The environment's
            `max_tokens` holds if it is lower.
        max_invalid: largest share of a rollout's trajectories that may fail. A dead sandbox fails the trajectories that
            call the tool and spares the others, so learning from the rest would teach the policy not to call it.
        seed: of everything that is drawn.
        budget: one of `budgets.BUDGETS`, in place of the algorithm's.
        branch: one of `branching.BRANCHES`, in place of the algorithm's.
        budget_beta: weight of the entropy difference in AEPO's budget.
        branch_penalty: slope of AEPO's penalty for consecutive high-entropy steps.
        branch_quota: most branches of one root and all its descendants. None means ceil((M - N) / N), so that every
            root can have its share, and no quota in the rows of `BRANCHES` with `quota=False`. 0 means no quota.
        turn_timeout: most seconds for a step, a reset or a fork of an environment. The tools of this package have
            limits of their own; this one is for tools that have none.
        retries: how often an episode is replayed after an infrastructure failure, where a replay is safe.
        branch_baseline: "root" measures the rise of entropy against the first turn of the tree (ARPO, eq. 4),
            "previous" against the turn before on the same path.
        branch_order: "rounds" spends the branch budget as if trajectories played in rounds, so that trees do not depend
            on timing; "arrival" spends it first come, first served.
    """

    algorithm: str = "arpo"
    num_generations: int = 16
    initial_rollouts: int = 8
    branch_width: int = 2
    branch_alpha: float = 0.5
    branch_beta: float = 0.2
    branch_threshold: float = 0.5
    entropy_window: int = 20
    temperature: float = 1.0
    max_turn_length: int | None = 256
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
    top_p: float = 1.0
    top_k: int = 0
    min_p: float | None = None
    repetition_penalty: float = 1.0
    branch_baseline: str = "root"
    branch_order: str = "rounds"

    def __post_init__(self) -> None:
        check_types(self, self.__annotations__)
        if self.max_turn_length is None:
            object.__setattr__(self, "max_turn_length", self.max_completion_length)  # the dataclass is frozen
        # only for its errors, which would otherwise come with the first group
        split_budget(self.parts.budget, self.num_generations, self.initial_rollouts)
        for name, low in _LOWEST.items():
            if getattr(self, name) < low:
                raise ValueError(f"{name} must be at least {low}, got {getattr(self, name)}")
        if not 0 <= self.max_invalid <= 1:
            raise ValueError(f"max_invalid is a share of the trajectories, from 0 to 1; got {self.max_invalid}")
        check_filters(self.top_p, self.top_k, self.min_p or 0.0, self.repetition_penalty)
        self._check_quota()
        self._check_order()

    def _check_order(self) -> None:
        check_name("branch_baseline", self.branch_baseline, ("root", "previous"))
        check_name("branch_order", self.branch_order, ("rounds", "arrival"))
        method, name = self.parts.method, self.parts.branch
        if self.branch_baseline == "previous" and method is not None and method.published:
            raise ValueError(
                f"branch_baseline='previous' does not go with branch {name!r}: the published code compares with the "
                "first turn. Leave branch_baseline out, or use a branch method that is not a '-reference'"
            )
        if self.branch_order == "arrival" and method is not None and (method.published or method.best):
            raise ValueError(
                f"branch_order='arrival' does not go with branch {name!r}, whose points wait for others. Leave "
                "branch_order out, or use a branch method that decides at once, such as 'arpo'"
            )

    def _check_quota(self) -> None:
        if self.branch_quota is not None and self.branch_quota < 0:
            raise ValueError(f"branch_quota must be at least 1, or 0 for no quota; got {self.branch_quota}")
        if self.branch_quota and self.parts.method is not None and self.parts.method.published:
            raise ValueError(
                f"branch_quota={self.branch_quota} does not go with branch {self.parts.branch!r}: the published code "
                "has no quota. Leave branch_quota out, or use a branch method that is not a '-reference'"
            )

    @property
    def parts(self) -> Algorithm:
        """The algorithm's row, with `budget` and `branch` replaced where they are set."""
        return get_algorithm(self.algorithm, self.budget, self.branch)

    @property
    def filters(self) -> dict[str, float]:
        """The sampling filters that are on, by name."""
        given = {name: getattr(self, name) for name in ("top_p", "top_k", "min_p", "repetition_penalty")}
        return {name: value for name, value in given.items() if value != getattr(RolloutSettings, name)}

    def plain(self, num_generations: int, temperature: float | None = None) -> RolloutSettings:
        """Return these settings without branches, for evaluation: all trajectories start at the prompt."""
        return replace(
            self,
            algorithm="grpo",
            budget=None,
            branch=None,
            num_generations=num_generations,
            initial_rollouts=num_generations,
            temperature=self.temperature if temperature is None else temperature,
        )
