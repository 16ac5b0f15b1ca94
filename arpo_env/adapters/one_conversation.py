"""Refuses folds where a framework holds one conversation that only grows, and could not go on from a new prompt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from arpo_env.env import ToolEnv


def check_one_conversation(env: ToolEnv | Mapping[str, Any]) -> None:
    """Refuse an environment that may fold.

    Args:
        env: the environment, or its options.

    Raises:
        ValueError: it may; says where folds can be played.
    """
    folds = env.budget.folds if isinstance(env, ToolEnv) else env.get("folds", 0)
    if folds:
        raise ValueError(
            f"folds={folds}: this adapter holds one conversation that only grows, and a fold starts another one. Leave "
            "folds out, or play with arpo_trainer (train, eval, rollout) or arpo_env.play"
        )
