"""`nearest_hint` of `envs_registry.nearest_name`, for the modules of this package."""

from __future__ import annotations

from envs_registry.nearest_name import nearest_hint

__all__ = ["nearest_hint"]
