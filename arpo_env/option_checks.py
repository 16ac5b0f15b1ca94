"""Checks of the options of an environment and of its `reset`."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping
from typing import Any

from envs_registry import Task, TaskSource, load_source
from envs_registry.nearest_name import nearest_hint
from envs_registry.sources import UnknownOptionError


def check_reset_options(options: Mapping[str, Any], tasks: TaskSource) -> None:
    """Check the options of `reset`.

    Raises:
        ValueError: an option is unknown or invalid, or there is no task of that number.
    """
    unknown = set(options) - {"task", "index"}
    if unknown:
        raise ValueError(f"reset takes the options 'task' and 'index', not {', '.join(sorted(unknown))}")
    if "task" in options and (not isinstance(options["task"], Task) or "index" in options):
        raise ValueError(f"reset takes either a Task as 'task' or an 'index', got {options!s:.200}")
    if options.get("index") is not None:
        try:
            index = operator.index(options["index"])
        except TypeError:
            raise ValueError(f"reset takes a whole number as 'index', got {options['index']!r:.80}") from None
        if index < 0 or (tasks.size is not None and index >= tasks.size):
            last = f"; there are {tasks.size:,}, from 0 to {tasks.size - 1}" if tasks.size else ""
            raise ValueError(f"there is no task of index {index}{last}")


def load_tasks(source: str, others: Collection[str], **options: Any) -> Any:
    """Return a task source by name.

    Args:
        source: its name.
        others: options of the environment itself, for a hint.
        options: of the source.

    Raises:
        ValueError: the source has no such option; suggests the nearest one of the environment.
    """
    try:
        return load_source(source, **options)
    except UnknownOptionError as error:
        hint = nearest_hint(error.option, others, "; did you mean {!r} of ToolEnv?", ", besides those of ToolEnv")
        raise ValueError(f"{error}{hint}") from error


def choose_task(tasks: TaskSource, options: Mapping[str, Any], draw: Callable[[int], int]) -> Task:
    """Return the task that the options of `reset` ask for, or a drawn one.

    Args:
        tasks: where it comes from.
        options: of `reset`.
        draw: draws a whole number below its argument.

    Raises:
        ValueError: an option is unknown or invalid.
    """
    check_reset_options(options, tasks)
    if isinstance(given := options.get("task"), Task):
        return given
    index = options.get("index")
    # an endless source has a task for every number, so that any range will do
    return tasks.task(draw(tasks.size or 2**31) if index is None else int(index))


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
