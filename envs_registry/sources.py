"""Task sources: where an environment's tasks come from, and the table of them.

A source is a sequence of tasks, perhaps endless. `load_source(name, ...)` makes one from a data set on the
Hugging Face hub, from a local file, or from a generator.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from envs_registry.task import Task


class TaskSource(Protocol):
    """A numbered supply of tasks."""

    @property
    def size(self) -> int | None:
        """How many there are; None if endless."""

    def task(self, index: int) -> Task:
        """Return task number `index`, the same one each time."""


@dataclass(frozen=True)
class ListSource:
    """Tasks held in a list."""

    tasks: Sequence[Task]

    @property
    def size(self) -> int | None:
        """How many tasks there are."""
        return len(self.tasks)

    def task(self, index: int) -> Task:
        """Return task number `index`, counted round."""
        return self.tasks[index % len(self.tasks)]


@dataclass(frozen=True)
class LimitedSource:
    """The first `limit` tasks of a source, after a seeded shuffle if `seed` is given (finite sources only)."""

    tasks: TaskSource
    limit: int | None
    seed: int | None = None

    @property
    def size(self) -> int | None:
        """The limit, or the whole size where that is smaller."""
        sizes = [size for size in (self.limit, self.tasks.size) if size is not None]
        return min(sizes) if sizes else None

    def task(self, index: int) -> Task:
        """Return task number `index` of the cut and shuffled order, counted round."""
        number = index % self.size if self.size is not None else index
        return self.tasks.task(self._order[number] if self._order else number)

    @functools.cached_property
    def _order(self) -> list[int]:
        if self.seed is None or self.tasks.size is None:
            return []
        return random.Random(self.seed).sample(range(self.tasks.size), self.tasks.size)


Loader = Callable[..., TaskSource]
_LOADERS: dict[str, Loader] = {}


def register_source(name: str, loader: Loader) -> None:
    """Add a loader, called as `loader(split=..., data=..., **options)`."""
    _LOADERS[name] = loader


def load_source(
    name: str,
    *,
    split: str = "train",
    data: str | None = None,
    limit: int | None = None,
    shuffle_seed: int | None = None,
    **options: Any,
) -> TaskSource:
    """Return the tasks of a source.

    Args:
        name: a registered source.
        split: "train", "test", ... as the source has them.
        data: a local file to read instead of the hub.
        limit: take only so many.
        shuffle_seed: shuffle with this seed before taking them.
        options: what the source itself accepts, such as `level` of the generated ones.

    Raises:
        KeyError: no such source.
        ValueError: an option, split or limit the source does not have.
    """
    if name not in _LOADERS:
        raise KeyError(f"no task source {name!r}; there are: {', '.join(sorted(_LOADERS))}")
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1, got {limit}")
    source = _LOADERS[name](split=split, data=data, **options)
    if shuffle_seed is not None and source.size is None:
        raise ValueError(f"{name} is endless and cannot be shuffled; use its `seed` for other tasks")
    if limit is None and shuffle_seed is None:
        return source
    return LimitedSource(source, limit, shuffle_seed)
