"""`RolloutContext`: what all groups of one rollout share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from arpo_env import ToolEnv
from arpo_trainer.backends.base import Backend
from arpo_trainer.rollout.concurrency import ConcurrencyLimits
from arpo_trainer.rollout.rendering import Renderer
from arpo_trainer.rollout.settings import RolloutSettings
from arpo_trainer.timeline import Stopwatch


@dataclass(frozen=True)
class RolloutContext:
    """What all groups of one rollout share.

    Attributes:
        backend: generates the turns.
        tokenizer: of the model.
        env: the environment whose copies are played.
        settings: how trees are grown.
        renderer: between texts and token ids.
        limits: on what runs at once.
        tool_time: runs while at least one environment is busy.
        on_trajectory: called when a trajectory has ended.
    """

    backend: Backend
    tokenizer: Any
    env: ToolEnv
    settings: RolloutSettings
    renderer: Renderer
    limits: ConcurrencyLimits
    tool_time: Stopwatch
    on_trajectory: Callable[[], object] | None = None
