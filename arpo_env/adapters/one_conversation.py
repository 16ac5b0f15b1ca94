"""Refuses folds and pictures where a framework holds one conversation of text that only grows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from arpo_env.env import ToolEnv


def check_one_conversation(env: ToolEnv | Mapping[str, Any]) -> None:
    """Refuse an environment that may fold or shows pictures.

    Args:
        env: the environment, or its options.

    Raises:
        ValueError: it does; says where it can be played.
    """
    folds = env.budget.folds if isinstance(env, ToolEnv) else env.get("folds", 0)
    images = env.services.show_images if isinstance(env, ToolEnv) else env.get("show_images", False)
    if images:
        raise ValueError(
            "show_images=True: this adapter passes on text alone. Leave show_images out, or play with "
            "`arpo eval --endpoint` or arpo_env.play (without in_place)"
        )
    if folds:
        raise ValueError(
            f"folds={folds}: this adapter holds one conversation that only grows, and a fold starts another one. Leave "
            "folds out, or play with arpo_trainer (train, eval, rollout) or arpo_env.play"
        )
