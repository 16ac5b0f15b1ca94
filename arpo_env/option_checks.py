"""Checks of the options of an environment and of its `reset`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from envs_registry import Task


def check_reset_options(options: Mapping[str, Any]) -> None:
    """Check the options of `reset`.

    Raises:
        ValueError: an option is unknown or invalid.
    """
    unknown = set(options) - {"task", "index"}
    if unknown:
        raise ValueError(f"reset takes the options 'task' and 'index', not {', '.join(sorted(unknown))}")
    if "task" in options and (not isinstance(options["task"], Task) or "index" in options):
        raise ValueError(f"reset takes either a Task as 'task' or an 'index', got {options!s:.200}")


def check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    """Raise ValueError if a value is not among the choices."""
    if value not in choices:
        raise ValueError(f"{name} must be {' or '.join(map(repr, choices))}, not {value!r}")


def check_positive(name: str, value: float | None, default: float) -> float:
    """Return the value, or the default for None; raise ValueError if it is not a positive finite number."""
    if value is None:
        return default
    if not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise ValueError(f"{name} must be a positive finite number, got {value!r}")
    return value
