"""How trees are grown: `TreeSettings`, which `ARPOConfig` has too, and `RolloutSettings`, which the engine takes."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from arpo_trainer.algorithms.branching import BranchSettings
from arpo_trainer.algorithms.registry import Algorithm, get_algorithm, split_budget
from arpo_trainer.backends.base import check_filters
from arpo_trainer.validation import check_lowest, check_types

_LOWEST = {"branch_width": 1, "entropy_window": 1, "max_turn_length": 1, "max_completion_length": 1, "temperature": 0,
           "branch_penalty": 0, "branch_quota": 0, "retries": 0, "turn_timeout": 0.001}  # fmt: skip


@dataclass(kw_only=True)
class TreeSettings(BranchSettings):
    """The settings of trees that rollouts and training share. The defaults are those of ARPO.

    Attributes:
        algorithm: how trajectories are rolled out and learned from, such as arpo, aepo or grpo. 'arpo' grows trees
            (branches after tool results), 'aepo' balances roots and branches by entropy and keeps gradients that the
            clip would drop, 'grpo' starts all at the prompt; also 'dapo', 'reinforce++', 'arpo-ranked', 'random',
            'tree-grpo', 'arpo-reference', 'aepo-reference', 'fork', 'toolpo'; or 'MODULE:NAME', one of your own.
        budget: in place of the algorithm's: 'grpo', 'arpo' (N of M), 'aepo', 'aepo-reference'.
        branch: in place of the algorithm's: 'arpo', 'aepo', 'arpo-ranked', 'random', 'tree-grpo', or a '-reference'
            method.
        initial_rollouts: N: trajectories that start at the prompt; the others are for branches. Default: half.
        branch_width: Z: paths that leave a branching point, the original included.
        branch_quota: maximum number of branches of one root and all its descendants. Default: ceil((M - N) / N), and no
            quota in 'tree-grpo', the '-reference' algorithms and some others (see Algorithms). 0 means no quota.
        budget_beta: AEPO's budget: weight of the entropy difference.
        entropy_window: k: number of tokens whose entropy is compared.
        max_turn_length: maximum number of new tokens in one turn. Default: max_completion_length.
        max_invalid: stop if more than this share of a rollout fails, because the rest would be biased.
        turn_timeout: maximum number of seconds for a step of an environment, for tools without a limit of their own.
        retries: how often an episode whose sandbox or search failed is replayed up to where it was, if its tools may be
            called twice.
    """

    algorithm: str = "arpo"
    budget: str | None = None
    branch: str | None = None
    initial_rollouts: int | None = None
    branch_width: int = 2
    branch_quota: int | None = None
    budget_beta: float = 0.5
    entropy_window: int = 20
    max_turn_length: int | None = None
    max_invalid: float = 0.2
    turn_timeout: float = 900.0
    retries: int = 1

    @functools.cached_property
    def parts(self) -> Algorithm:
        """The algorithm's row, with `budget` and `branch` replaced where they are set."""
        return get_algorithm(self.algorithm, self.budget, self.branch)


@dataclass(unsafe_hash=True, kw_only=True)
class RolloutSettings(TreeSettings):
    """How trees are grown. In `ARPOConfig` the settings below are TRL's, with TRL's defaults.

    Attributes:
        num_generations: M, the number of trajectories per group.
        temperature: of sampling; 0 is greedy.
        max_completion_length: maximum number of tokens after the prompt, those of the environment included. The
            environment's `max_tokens` holds if it is lower.
        seed: of everything that is drawn.
        top_p: keeps the most likely tokens whose probabilities add up to this; 1 keeps all. This and the next three
            are for evaluation: training refuses them.
        top_k: keeps this many most likely tokens; 0 keeps all.
        min_p: keeps tokens with at least this share of the most likely token's probability; None keeps all.
        repetition_penalty: lowers the logits of tokens of the context and of the turn; 1 lowers nothing.

    Raises:
        ValueError: settings cannot work together; names them.
    """

    num_generations: int = 16
    temperature: float = 1.0
    max_completion_length: int = 1024
    seed: int = 0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float | None = None
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        for each in (BranchSettings, TreeSettings, RolloutSettings):
            check_types(self, each.__annotations__)
        if self.max_turn_length is None:
            self.max_turn_length = self.max_completion_length
        if self.initial_rollouts is None:
            self.initial_rollouts = max(1, self.num_generations // 2)
        # only for its errors, which would otherwise come with the first group
        split_budget(self.parts.budget, self.num_generations, self.initial_rollouts)
        check_lowest(self, _LOWEST)
        if not 0 <= self.max_invalid <= 1:
            raise ValueError(f"max_invalid is a share of the trajectories, from 0 to 1; got {self.max_invalid}")
        check_filters(self.top_p, self.top_k, self.min_p or 0.0, self.repetition_penalty)
        if self.branch_quota and self.parts.published:
            raise ValueError(
                f"branch_quota={self.branch_quota} does not go with branch {self.parts.branch!r}, which does as the "
                "published code does. Leave branch_quota out, or use a branch method that is not a '-reference'"
            )

    @property
    def filters(self) -> dict[str, float]:
        """The sampling filters that are on, by name."""
        given = {name: getattr(self, name) for name in ("top_p", "top_k", "min_p", "repetition_penalty")}
        return {name: value for name, value in given.items() if value != getattr(RolloutSettings, name)}

    def plain(self, num_generations: int, temperature: float | None = None) -> RolloutSettings:
        """Return these settings without branches, for evaluation: all trajectories start at the prompt."""
        alone = replace(self, algorithm="grpo", budget=None, branch=None)
        heat = self.temperature if temperature is None else temperature
        return replace(alone, num_generations=num_generations, initial_rollouts=num_generations, temperature=heat)
