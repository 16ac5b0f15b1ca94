"""Task sources: where an environment's tasks come from, and the table of them.

A source is a finite or endless sequence of tasks. `load_source(name, ...)` creates one from a data set on the
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
from typing import Any, Literal, Protocol

from envs_registry.nearest_name import nearest_hint
from envs_registry.spec import get_spec, has_spec
from envs_registry.task import Task


class TaskSource(Protocol):
    """A numbered supply of tasks."""

    @property
    def size(self) -> int | None:
        """Number of tasks; None if the source is endless."""

    def task(self, index: int) -> Task:
        """Return task number `index`. The same index always gives the same task."""


@dataclass(frozen=True)
class ListSource:
    """Tasks held in a list."""

    tasks: Sequence[Task]

    @property
    def size(self) -> int | None:
        """Number of tasks."""
        return len(self.tasks)

    def task(self, index: int) -> Task:
        """Return task number `index`, modulo the size."""
        return self.tasks[index % len(self.tasks)]


@dataclass(frozen=True)
class LimitedSource:
    """The first `limit` tasks of a source, after a seeded shuffle if `seed` is given (finite sources only)."""

    tasks: TaskSource
    limit: int | None
    seed: int | None = None

    @property
    def size(self) -> int | None:
        """The smaller of the limit and the size of the source."""
        sizes = [size for size in (self.limit, self.tasks.size) if size is not None]
        return min(sizes) if sizes else None

    def task(self, index: int) -> Task:
        """Return task number `index` of the shuffled and truncated order, modulo the size."""
        number = index % self.size if self.size is not None else index
        return self.tasks.task(self._order[number] if self._order else number)

    @functools.cached_property
    def _order(self) -> list[int]:
        if self.seed is None or self.tasks.size is None:
            return []
        # Numbers are shuffled, not tasks: a source may make its tasks only when they are asked for.
        return random.Random(self.seed).sample(range(self.tasks.size), self.tasks.size)


class UnknownOptionError(ValueError):
    """Raised for an `option` that a task source does not have."""

    def __init__(self, source: str, option: str, options: Iterable[str]) -> None:
        names = list(options)
        hint = nearest_hint(option, names, " (did you mean {!r}?)")
        super().__init__(f"{source} has no option {option!r}{hint}; its options are {', '.join(names)}")
        self.option = option


Loader = Callable[..., TaskSource]
_LOADERS: dict[str, Loader | str] = {}


def register_source(name: str, loader: Loader | str) -> None:
    """Register a loader, which is called as `loader(split=..., data=..., **options)`.

    `split` and `data` are passed only if the caller gave them. A loader with a `seed` parameter is a generator: it gets
    the seed itself, and its tasks cannot be shuffled. In place of the loader there may be the name of a module that
    registers it, which is imported at first use.
    """
    _LOADERS[name] = loader


def has_source(name: str) -> bool:
    """Return whether a task source of this name exists."""
    return name in _LOADERS


def is_generated(name: str) -> bool:
    """Return whether a source generates its tasks from a seed, without an end."""
    # Read from the signature, since nothing is loaded yet that could tell its size.
    return "seed" in inspect.signature(_loader(name)).parameters


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
        name: name of a registered source.
        split: "train", "validation" or "test", as far as the source has them; None means its first split.
        data: a local file or folder to read instead of the hub.
        limit: maximum number of tasks.
        shuffle: shuffle the tasks before the limit is applied; not available for generated tasks.
        seed: seed of the shuffle, or of the generator where tasks are generated.
        options: options of the source itself, such as `level`.

    Raises:
        KeyError: there is no such source.
        UnknownOptionError: the source does not have one of the options.
        ValueError: the split or the limit is not valid for the source.
    """
    loader, generated = _loader(name), is_generated(name)
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise ValueError(f"limit must be a whole number of at least 1, got {limit!r}")
    if generated and shuffle:
        raise ValueError(f"{name} is endless and cannot be shuffled; use another `seed` to get other tasks")
    # Accepting the seed would suggest that it chose other tasks.
    if seed and not generated and not shuffle:
        raise ValueError(f"{name} has a fixed order: seed={seed} has an effect only with shuffle=True")
    chosen = {"split": split, "data": data, "seed": seed if generated else None}
    # Only what the caller gave: the defaults of a loader are its own, and it may lack these parameters.
    given = {key: value for key, value in chosen.items() if value is not None}
    _check_taken(name, loader, given, options)
    source = loader(**given, **options)
    return source if limit is None and not shuffle else LimitedSource(source, limit, seed if shuffle else None)


def _check_taken(name: str, loader: Loader, given: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """Raise for what the loader's signature lacks, unless it accepts `**options` and checks them itself."""
    parameters = inspect.signature(loader).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    for option in options:
        if option not in parameters:
            raise UnknownOptionError(name, option, parameters)
    if "split" in given and "split" not in parameters:
        raise ValueError(
            f"{name} has no splits: leave split={given['split']!r} out, or register its tasks by split, as in "
            "tasks={'train': ..., 'test': ...}"
        )
    if "data" in given and "data" not in parameters:
        raise ValueError(f"{name} reads no data file: leave data={str(given['data'])!r} out")


def _loader(name: str) -> Loader:
    if name not in _LOADERS:
        raise KeyError(f"no task source {name!r}; there are: {', '.join(sorted(_LOADERS))}")
    loader = _LOADERS[name]
    if isinstance(loader, str):
        importlib.import_module(loader)
        if isinstance(loader := _LOADERS[name], str):
            raise KeyError(f"the module {loader} has not registered the task source {name!r}, as it has to")
    return loader


# Tasks that a command line names: `named_source("arpo/MATH-v0:test=math.jsonl", "held out")`.

OF_ENDLESS = 1000  # tasks of an endless source that are taken


def named_source(text: str, use: Literal["train", "held out"]) -> tuple[str, TaskSource]:
    """Return the name and the tasks of [MODULE:]ENV[:SPLIT][=PATH]; of an endless source the first ones.

    Without a split, "train" takes the first split, and "held out" the first one that is not for training.
    """
    where, _, path = text.partition("=")
    env_id, _, split = where.partition(":")
    # MODULE:ENV and ENV:SPLIT look the same; what is no known id and reads like a module is one
    if split and not has_spec(env_id) and all(part.isidentifier() for part in env_id.split(".")):  # a module
        name, _, split = split.partition(":")
        env_id = f"{env_id}:{name}"
    spec = get_spec(env_id)
    first = next(iter(spec.splits), "")
    split = split or (first if use == "train" else next((one for one in spec.splits if one != "train"), first))
    source = load_source(spec.source, split=split or None, data=path or None)
    # comparisons read every task, and refuse endless sources
    shown = f"{spec.id}:{split}" if split else spec.id
    return shown, source if source.size is not None else LimitedSource(source, OF_ENDLESS)
