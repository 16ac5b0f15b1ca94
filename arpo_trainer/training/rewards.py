"""Rewards of the trainer: the environment's own, a check of all rewards, and a warning when they give no signal.

A reward is a finite number, or None where a trajectory could not be scored. TRL would take NaN for None, and an
infinite reward makes its whole group NaN.
"""

from __future__ import annotations

import functools
import inspect
import logging
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from arpo_trainer.rollout.distributed import gather

logger = logging.getLogger(__name__)
ROLLOUTS_WITHOUT_SIGNAL = 3
# advantages below it come from equal rewards: they are the rounding error of their mean
ROUNDING = 1e-6


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
        """Raise for what was recorded on any process, and for what reward models returned.

        Args:
            rewards: of all processes, (rows, functions).
            functions: of the trainer, one per column.

        Raises:
            ValueError: on every process; names the function and the row.
        """
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
