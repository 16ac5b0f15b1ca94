"""What one rollout hands from hook to hook of the trainer: its trees, rewards and entropies, as rows of a batch."""

from __future__ import annotations

import functools
import inspect
import logging
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from arpo_trainer.algorithms.advantages import silent_groups
from arpo_trainer.rollout.engine import gather
from arpo_trainer.rollout.metrics import mean_of_samples, rollout_metrics
from arpo_trainer.tree import RolloutTree

logger = logging.getLogger(__name__)
ROLLOUTS_WITHOUT_SIGNAL = 3
# advantages below it come from equal rewards: they are the rounding error of their mean
ROUNDING = 1e-6
# a share of the mean square: a variance below it is the rounding error of a difference of large sums
_NO_VARIANCE = 1e-10


@dataclass
class RolloutBatch:
    """One rollout: the trees of all processes, and what was measured and scored so far.

    Attributes:
        trees: of all processes, in order and equal on every process.
        seconds: how long the slowest process played.
        spent: seconds of this process by activity.
        overlap: what `RolloutAhead` measured; empty where nothing is played ahead.
        rewards: weighted reward of each trajectory, NaN where no function scored it; filled by `score`.
        parts: for each reward function its rewards of the trajectories, before weights; filled by `score`.
    """

    trees: list[RolloutTree] = field(default_factory=list)
    seconds: float = 0.0
    spent: dict[str, float] = field(default_factory=dict)
    overlap: dict[str, float] = field(default_factory=dict)
    rewards: list[float] = field(default_factory=list)
    parts: list[list[float]] = field(default_factory=list)

    def score(self, rewards: torch.Tensor, weights: torch.Tensor) -> None:
        """Keep the weighted rewards, (rows, functions), of all processes; NaN where a function gave None.

        Those of invalid trajectories become NaN in place, so that TRL ignores them.
        """
        invalid = [not trajectory.valid for tree in self.trees for trajectory in tree.trajectories]
        rewards[torch.tensor(invalid, device=rewards.device)] = torch.nan
        weighted = (rewards * weights.to(rewards.device)).nansum(dim=1)
        # nansum gives 0 for a row without any reward, which would pass for a reward of 0
        self.rewards = weighted.where(~rewards.isnan().all(dim=1), torch.nan).tolist()
        self.parts = rewards.T.tolist()

    def group_rewards(self) -> list[list[float | None]]:
        """Return the rewards of each group's trajectories; None for those that could not be scored."""
        return self._groups(self.rewards)

    def mean_rewards(self) -> list[float | None]:
        """Return the means over the independent samples: of the rewards, and of each reward function's."""
        return [mean_of_samples(self.trees, self._groups(rewards)) for rewards in (self.rewards, *self.parts)]

    def _groups(self, rewards_of_all: Sequence[float]) -> list[list[float | None]]:
        rewards = iter(rewards_of_all)
        groups = [[(next(rewards), trajectory.valid) for trajectory in tree.trajectories] for tree in self.trees]
        # `value == value` is false for NaN
        return [[value if valid and value == value else None for value, valid in group] for group in groups]

    def scored_trees(self) -> list[RolloutTree]:
        """Return the trees with the rewards of the reward functions; trajectories that none could score are invalid.

        Credit over a tree would otherwise take their advantage of 0 for a result.
        """
        return [
            replace(tree, trajectories=[replace(one, reward=r) for one, r in zip(tree.trajectories, own, strict=True)])
            for tree, own in zip(self.trees, self.group_rewards(), strict=True)
        ]

    def turn_lengths(self) -> list[list[int]]:
        """Return for each group how many tokens of each trajectory the model generated."""
        return [[sum(tree.row(n).mask) for n in range(len(tree.trajectories))] for tree in self.trees]

    def trl_rows(self, rows: range) -> dict[str, list[Any]]:
        """Return some of the trajectories as TRL's rollout function has to."""
        played = [(tree, tree.trajectories[number], tree.row(number)) for tree, number in self._trajectories(rows)]
        return {
            "prompt_ids": [tree.prompt_ids for tree, _, _ in played],
            "completion_ids": [row.ids for _, _, row in played],
            "logprobs": [row.logprobs for _, _, row in played],
            # failed samples leave with the rows that are not learned from
            "env_mask": [row.mask for _, _, row in played],
            "env_reward": [trajectory.reward for _, trajectory, _ in played],
        }

    def entropies(self, rows: range, like: torch.Tensor) -> torch.Tensor:
        """Return the sampling entropies of some trajectories, padded on the right with 0 to the shape of `like`."""
        return pad_rows([tree.row(number).entropies for tree, number in self._trajectories(rows)], like)

    def fold_mask(self, rows: range, width: int) -> torch.Tensor | None:
        """Return where some trajectories have new prompts, (rows, width), padded with 0; None if nothing was folded."""
        if not any(span.kind == "fold" for tree in self.trees for span in tree.spans):
            return None
        like = torch.zeros(len(rows), width, dtype=torch.long)
        return pad_rows([tree.row(number).fold for tree, number in self._trajectories(rows)], like)

    def metrics(self, seconds: float) -> dict[str, float]:
        """Return what is logged of the rollout; every process has to call it, with its seconds until all is scored."""
        # each process has measured its own seconds, and what is logged stands for all of them
        waited = self.overlap.get("seconds_trainer_idle", self.seconds)
        spent = gather([{**self.spent, **self.overlap, "seconds_score": max(0.0, seconds - waited)}])
        return {
            **rollout_metrics(self.trees),
            "seconds_rollout": self.seconds,
            "groups_silent": silent_groups(self.group_rewards()),
            **{name: statistics.fmean(rank[name] for rank in spent) for name in spent[0]},
        }

    def _trajectories(self, rows: range) -> Iterator[tuple[RolloutTree, int]]:
        every = [(tree, number) for tree in self.trees for number in range(len(tree.trajectories))]
        yield from every[rows.start : rows.stop]


def pad_rows(rows: Sequence[Sequence[float]], like: torch.Tensor) -> torch.Tensor:
    """Return rows of different lengths as one tensor in the shape, type and device of `like`, padded with 0."""
    padded = torch.zeros(like.shape, dtype=like.dtype)
    for place, row in enumerate(rows):
        padded[place, : len(row)] = torch.tensor(row, dtype=like.dtype)
    return padded.to(like.device)


def trim_padding(inputs: dict[str, Any]) -> dict[str, Any]:
    """Return a micro-batch without columns that are padding in every row; no number changes.

    TRL pads a whole generation batch to its longest row before it splits it: prompts (B, P) on the left, completions
    and what goes with them (B, T) on the right. Tensors of other shapes are left alone.
    """
    prompts, completions = inputs["prompt_mask"], inputs["completion_mask"]
    # both at once: on a GPU the host waits for them
    first, unused = torch.stack([_leading_padding(prompts), _leading_padding(completions.flip(1))]).tolist()
    last = completions.shape[1] - unused
    trimmed = {**inputs, **{name: inputs[name][:, first:] for name in ("prompt_ids", "prompt_mask")}}
    for name, value in inputs.items():
        # advantages may be (B,) and ratios of sequences (B, 1): they have no padding
        if name not in ("prompt_ids", "prompt_mask") and getattr(value, "shape", None) == completions.shape:
            trimmed[name] = value[:, :last]
    return trimmed


def _leading_padding(mask: torch.Tensor) -> torch.Tensor:
    """Return how many first columns are 0 in every row, but never all of them: a number."""
    return (mask.bool().any(dim=0).cumsum(0) == 0).sum().clamp(max=mask.shape[1] - 1)


# AEPO's entropy-aware advantage: the advantage of a token times 1 + a z, z its entropy in standard deviations.


@dataclass(frozen=True)
class Moments:
    """The number of some tokens, the sum of their entropies in nats, and that of the squares."""

    count: int = 0
    total: float = 0.0
    squares: float = 0.0

    @property
    def mean(self) -> float:
        """Mean entropy in nats; 0 without tokens."""
        return self.total / self.count if self.count else 0.0

    @property
    def deviation(self) -> float:
        """Unbiased standard deviation in nats; 1 if it is 0 or there are fewer than two tokens, so that z is 0."""
        if self.count < 2:
            return 1.0
        # the difference of two large numbers: a variance within the rounding error counts as none
        variance = (self.squares - self.count * self.mean**2) / (self.count - 1)
        return math.sqrt(variance) if variance > _NO_VARIANCE * self.squares / self.count else 1.0


def tree_moments(trees: Sequence[RolloutTree]) -> Moments:
    """Sum the entropies of sampling over tokens of the model in valid trajectories; copies of a token count each."""
    counted: list[float] = []
    for tree in trees:
        for span, through in zip(tree.spans, tree.leaves_below(), strict=True):
            counted += span.entropies * sum(tree.trajectories[number].valid for number in through)
    return Moments(len(counted), math.fsum(counted), math.fsum(value * value for value in counted))


def entropy_factor(entropies: torch.Tensor, moments: Moments, weight: float = 0.2, limit: float = 3.0) -> torch.Tensor:
    """Return 1 + a clamp(z, -limit, limit), z = (H - mean) / std (AEPO, arXiv 2510.14545, entropy-aware advantage).

    Mean and deviation are those of the whole global batch, so the factor depends neither on micro-batches nor on the
    number of processes. (The published code has statistics of the micro-batch and no clamp. The published runs never
    used it: their actor computes entropies only for an entropy bonus, which is switched off.) Without the clamp, the
    factor changes the sign of advantages below z = -1 / a, and the long tail of entropies would dominate the update.

    Args:
        entropies: in nats, shape (B, T).
        moments: of the global batch.
        weight: a.
        limit: largest |z|.

    Returns:
        Shape (B, T), without gradient, above 0; 1 everywhere if the moments are of a single token or have no variance.
    """
    if weight < 0 or limit < 0 or weight * limit >= 1:
        raise ValueError(
            f"weight {weight} and limit {limit}: both must be at least 0 and their product below 1, or the factor "
            "1 - weight * limit changes the sign of advantages; use weight=0.2, limit=3"
        )
    # in 16 bits the factor would have only two or three digits
    here = entropies.detach().to(torch.promote_types(entropies.dtype, torch.float32))
    z = (here - moments.mean) / moments.deviation
    return 1 + weight * z.clamp(-limit, limit)


# Rewards: a finite number, or None where a trajectory could not be scored. TRL would take NaN for None, and an infinite
# reward makes its whole group NaN.


def env_reward(completions: Sequence[Any], env_reward: Sequence[float | None], **_: Any) -> list[float | None]:
    """Return the rewards of the environment, None for invalid trajectories. This is the default reward function."""
    return list(env_reward)


class RewardCheck:
    """Refuses rewards that are not finite, on all processes together.

    An error on one process alone would leave the others waiting for it, so functions only record what they found, and
    `settle` raises once every process has scored.
    """

    def __init__(self) -> None:
        self._found: list[str] = []

    def wrap(self, functions: Any) -> Any:
        """Return reward functions, one or a list, that record such rewards; models and names are returned unchanged."""
        if isinstance(functions, list):
            return [self.wrap(function) for function in functions]
        if isinstance(functions, str | torch.nn.Module) or not callable(functions):
            return functions
        return self._recording(functions)

    def settle(self, rewards: torch.Tensor, functions: Sequence[Any]) -> None:
        """Raise for what was recorded on any process, and for what reward models returned: (rows, functions)."""
        found, self._found = gather(self._found), []
        for column, function in enumerate(functions):
            # reward models are called by TRL itself, so nothing was recorded for them
            if isinstance(function, torch.nn.Module):
                bad = (~rewards[:, column].isfinite()).nonzero().flatten().tolist()
                found += [_bad(type(function).__name__, row, rewards[row, column].item()) for row in bad[:1]]
        if found:
            raise ValueError(found[0])

    def _recording(self, function: Callable[..., Any]) -> Callable[..., Any]:
        inner = function
        # a partial has no name that could be logged
        while isinstance(inner, functools.partial):
            inner = inner.func
        name = getattr(inner, "__name__", type(inner).__name__)

        def checked(*args: Any, **kwargs: Any) -> list[float | None]:
            return self._record(name, function(*args, **kwargs))

        async def awaited(*args: Any, **kwargs: Any) -> list[float | None]:
            return self._record(name, await function(*args, **kwargs))

        waits = inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(type(inner).__call__)
        wrapped: Callable[..., Any] = awaited if waits else checked
        wrapped.__name__ = name  # TRL logs the rewards under this name
        return wrapped

    def _record(self, name: str, rewards: Sequence[Any]) -> list[float | None]:
        values = [None if reward is None else float(reward) for reward in rewards]
        bad = [row for row, value in enumerate(values) if value is not None and not math.isfinite(value)]
        self._found += [_bad(name, row, values[row]) for row in bad[:1]]
        # None until `settle` raises: NaN and infinity would spread to the group and to other processes
        return [None if row in bad else value for row, value in enumerate(values)]


def _bad(name: str, row: int, reward: float | None) -> str:
    return (
        f"the reward function {name!r} gave {reward} for row {row} of its batch: a reward is a finite number. Return "
        "None for a trajectory that cannot be scored; it is left out then"
    )


class NoSignalWarning:
    """Warns once when several rollouts in a row give no training signal, and again after one that did."""

    def __init__(self) -> None:
        self._count = 0

    def update(self, advantages: Sequence[Sequence[float]]) -> None:
        """Count a training rollout from the advantages of its groups, one per trajectory."""
        signal = any(abs(value) > ROUNDING for group in advantages for value in group)
        self._count = 0 if signal else self._count + 1
        if self._count == ROLLOUTS_WITHOUT_SIGNAL:
            logger.warning(
                "no group of the last %d rollouts gave a training signal: all trajectories of a group have the same "
                "reward, so all advantages are 0. Use tasks that the model solves sometimes, neither always nor never; "
                "raise num_generations or temperature; or start with a cold start (cold_start_examples)",
                ROLLOUTS_WITHOUT_SIGNAL,
            )
