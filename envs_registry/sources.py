"""Task sources: where an environment's tasks come from, and the table of them.

A source is a sequence of tasks, perhaps endless. `load_source(name, ...)` makes one from a data set on the
Hugging Face hub, from a local file, or from a generator.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
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


class UnknownOptionError(ValueError):
    """Raised for an option that a task source does not have.

    Attributes:
        option: its name.
    """

    def __init__(self, source: str, option: str, options: Iterable[str]) -> None:
        super().__init__(f"{source} has no option {option!r}; its options are {', '.join(options)}")
        self.option = option


Loader = Callable[..., TaskSource]
_LOADERS: dict[str, Loader] = {}
GENERATORS = ("arithmetic", "multihop")  # modules of this package, imported when first asked for


def register_source(name: str, loader: Loader) -> None:
    """Add a loader, called as `loader(split=..., data=..., **options)`; both are left out where nobody gave them.

    A loader with a parameter `seed` generates its tasks: the seed is its own, and there is nothing to shuffle.
    """
    _LOADERS[name] = loader


def has_source(name: str) -> bool:
    """Say whether there is a task source of this name."""
    return name in _LOADERS or name in GENERATORS


def load_source(
    name: str,
    *,
    split: str | None = None,
    data: str | Path | None = None,
    limit: int | None = None,
    shuffle: bool = False,
    seed: int = 0,
    **options: Any,
) -> TaskSource:
    """Return the tasks of a source.

    Args:
        name: a registered source.
        split: "train", "validation" or "test", as the source has them; None is its first.
        data: a local file or folder to read instead of the hub.
        limit: take only so many.
        shuffle: shuffle before taking them; generated tasks have no order to change.
        seed: of the shuffle; of the supply itself where tasks are generated.
        options: what the source itself accepts, such as `level`.

    Raises:
        KeyError: no such source.
        UnknownOptionError: an option the source does not have.
        ValueError: a split or limit it does not have.
    """
    loader = _loader(name)
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise ValueError(f"limit must be at least 1, and a whole number, got {limit!r}")
    generated = "seed" in inspect.signature(loader).parameters
    if generated and shuffle:
        raise ValueError(f"{name} is endless and cannot be shuffled; use its `seed` for other tasks")
    if seed and not generated and not shuffle:
        raise ValueError(f"{name} has an order of its own: seed={seed} works with shuffle=True only")
    chosen = {"split": split, "data": data, "seed": seed if generated else None}
    given = {key: value for key, value in chosen.items() if value is not None}
    _check_names(name, loader, options)
    _check_taken(name, loader, given)
    source = loader(**given, **options)
    return source if limit is None and not shuffle else LimitedSource(source, limit, seed if shuffle else None)


def _check_names(name: str, loader: Loader, options: Mapping[str, Any]) -> None:
    """Refuse what the loader's signature does not name, unless it takes any name and checks them itself."""
    parameters = inspect.signature(loader).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    for option in options:
        if option not in parameters:
            raise UnknownOptionError(name, option, parameters)


def _check_taken(name: str, loader: Loader, given: Mapping[str, Any]) -> None:
    """Refuse a split or a data file where the loader has no parameter for it."""
    parameters = inspect.signature(loader).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    if "split" in given and "split" not in parameters:
        raise ValueError(
            f"{name} has no splits: leave split={given['split']!r} out, or register its tasks by split, as in "
            "tasks={'train': ..., 'test': ...}"
        )
    if "data" in given and "data" not in parameters:
        raise ValueError(f"{name} reads no data file: leave data={str(given['data'])!r} out")


def _loader(name: str) -> Loader:
    if name in GENERATORS and name not in _LOADERS:
        importlib.import_module(f"envs_registry.{name}")
    if name not in _LOADERS:
        raise KeyError(f"no task source {name!r}; there are: {', '.join(sorted({*_LOADERS, *GENERATORS}))}")
    return _LOADERS[name]
