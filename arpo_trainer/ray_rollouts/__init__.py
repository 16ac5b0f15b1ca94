"""Rollouts on Ray: actors on any node play groups (engine, environments, sandboxes) and hand back their trees."""

from typing import TYPE_CHECKING

from arpo_env.lazy_names import lazy_names
from arpo_trainer.optional_dependencies import naming_extras

if TYPE_CHECKING:
    from arpo_trainer.ray_rollouts.rollout_workers import RayEngine, RolloutWorkers

__all__ = ["RayEngine", "RolloutWorkers"]

__getattr__ = lazy_names(__name__, naming_extras)
