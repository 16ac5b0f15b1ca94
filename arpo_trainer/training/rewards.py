"""Rewards on their way to the trainer: the environment's own, a check of all, and an alarm where they teach nothing.

A reward is a finite number, or None where a trajectory could not be scored. NaN would pass for None in TRL, and an
infinite one makes its whole group NaN.
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
SILENT_ROLLOUTS = 3
ROUNDING = 1e-6


def env_reward(completions: Sequence[Any], env_reward: Sequence[float | None], **_: Any) -> list[float | None]:
    """Return the environment's own rewards: the default reward function; None marks an invalid trajectory."""
    return list(env_reward)


class RewardCheck:
    """Notes rewards that are no rewards, and refuses them when all processes are through: none waits for another."""

    def __init__(self) -> None:
        self._found: list[str] = []

    def wrap(self, functions: Any) -> Any:
        """Return reward functions, one or a list, that note such rewards; models and their names stay as they are."""
        if isinstance(functions, list):
            return [self.wrap(function) for function in functions]
        if isinstance(functions, str | torch.nn.Module) or not callable(functions):
            return functions
        return self._noting(functions)

    def settle(self, rewards: torch.Tensor, functions: Sequence[Any]) -> None:
        """Refuse what was noted on any process, and what reward models gave.

        Args:
            rewards: of all processes, (rows, functions).
            functions: of the trainer, one a column.

        Raises:
            ValueError: on every process; names the function and the row.
        """
        found, self._found = gather(self._found), []
        for column, function in enumerate(functions):
            if isinstance(function, torch.nn.Module):
                bad = (~rewards[:, column].isfinite()).nonzero().flatten().tolist()
                found += [_bad(type(function).__name__, row, rewards[row, column].item()) for row in bad[:1]]
        if found:
            raise ValueError(found[0])

    def _noting(self, function: Callable[..., Any]) -> Callable[..., Any]:
        inner = function
        while isinstance(inner, functools.partial):
            inner = inner.func
        name = getattr(inner, "__name__", type(inner).__name__)

        def checked(*args: Any, **kwargs: Any) -> list[float | None]:
            return self._note(name, function(*args, **kwargs))

        async def awaited(*args: Any, **kwargs: Any) -> list[float | None]:
            return self._note(name, await function(*args, **kwargs))

        waits = inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(type(inner).__call__)
        wrapped: Callable[..., Any] = awaited if waits else checked
        wrapped.__name__ = name  # TRL logs the rewards under it
        return wrapped

    def _note(self, name: str, rewards: Sequence[Any]) -> list[float | None]:
        values = [None if reward is None else float(reward) for reward in rewards]
        bad = [row for row, value in enumerate(values) if value is not None and not math.isfinite(value)]
        self._found += [_bad(name, row, values[row]) for row in bad[:1]]
        return [None if row in bad else value for row, value in enumerate(values)]


def _bad(name: str, row: int, reward: float | None) -> str:
    return (
        f"the reward function {name!r} gave {reward} for row {row} of its batch: a reward is a finite number; return "
        "None for a trajectory that cannot be scored, it is left out then"
    )


class SilenceAlarm:
    """Says so when rollout after rollout teaches nothing, once until something does."""

    def __init__(self) -> None:
        self._silent = 0

    def hear(self, advantages: Sequence[Sequence[float]]) -> None:
        """Count a training rollout, whose groups have these advantages, one a trajectory."""
        taught = any(abs(value) > ROUNDING for group in advantages for value in group)
        self._silent = 0 if taught else self._silent + 1
        if self._silent == SILENT_ROLLOUTS:
            logger.warning(
                "no group of the last %d rollouts taught anything: within each all trajectories score the same, and "
                "all advantages are 0. Take tasks that the model solves sometimes, neither always nor never; raise "
                "num_generations or temperature; or begin with a cold start (cold_start_examples)",
                SILENT_ROLLOUTS,
            )
