"""Turns user-defined tasks into a task source: a list, a source, a function, a data file, or one of these per split."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from envs_registry.datasets.loading import DATA_SETS, DataSet, Play, Repairs, load, task_of_row
from envs_registry.datasets.rows import Row
from envs_registry.sources import ListSource, Loader, TaskSource
from envs_registry.spec import EnvSpec
from envs_registry.task import Kind, Task

Tasks = Iterable[Task] | TaskSource | Callable[..., Iterable[Task] | TaskSource] | str | Path | Mapping[str, Any]
_KINDS: tuple[tuple[str, Kind], ...] = (("math", "math"), ("qa", "qa"), ("mcq", "mcq"))
_FOLDER_SPLITS = ("train", "validation", "test")


def own_loader(spec: EnvSpec, tasks: Tasks) -> Loader:
    """Return a loader of these tasks; its parameters are the options of the source (see `register_source`).

    Args:
        spec: spec of the environment; its scorer decides the kind of tasks that come from a file without a kind column.
        tasks: tasks in any form that `arpo_env.register` accepts.

    Raises:
        ValueError: the tasks have none of these forms, or there are none.
    """
    if isinstance(tasks, Mapping):
        return _by_split(spec, tasks)
    if isinstance(tasks, str | Path):
        return _file(spec, tasks)
    # Before functions and iterables, since a source may be callable or iterable as well.
    if _is_source(tasks):
        source: Any = tasks
        return lambda: source
    if callable(tasks):
        return _function(spec, tasks)
    if isinstance(tasks, Iterable):
        # Listed once and now: an iterator can be read only once, and faults show at registration.
        held = _listed(spec.id, tasks)
        return lambda: held
    raise ValueError(
        f"the tasks of {spec.id} must be a list of Task, a task source, a function that returns one of these, a data "
        f"file, or one of these for each split; not {tasks!r:.80}"
    )


def own_splits(tasks: Tasks) -> tuple[str, ...]:
    """Return the splits of user-defined tasks, the default first; empty if they have no splits."""
    if isinstance(tasks, Mapping):
        return tuple(tasks)
    if isinstance(tasks, str | Path) and Path(tasks).expanduser().is_dir():
        return _FOLDER_SPLITS
    return ()


def _by_split(spec: EnvSpec, tasks: Mapping[str, Any]) -> Loader:
    if not tasks:
        raise ValueError(f"the tasks of {spec.id} are an empty mapping; give at least one split, as in 'train'")
    loaders = {name: own_loader(spec, value) for name, value in tasks.items()}

    def load_split(split: str = next(iter(tasks))) -> TaskSource:
        if split not in loaders:
            raise ValueError(f"{spec.id} has the splits {', '.join(loaders)}; not {split!r}")
        return loaders[split]()

    return load_split


def row_reader(spec: EnvSpec) -> Callable[[Row, int, str], Task | None]:
    """Return a function that makes tasks of an environment from rows: `read(row, number, where)`.

    Rows are read as those of the environment's own data set, else as those of a user's file.
    """
    data_set = DATA_SETS.get(spec.source)
    data_set = dataclasses.replace(data_set, steps=(as_question, *data_set.steps)) if data_set else _own_set(spec)
    return functools.partial(task_of_row, data_set)


def as_question(row: Row, repairs: Repairs) -> Row:
    """Take the question out of `prompt`, a text or messages, and the answer out of `solution`, as TRL names them.

    Raises:
        ValueError: the prompt has other messages than the question.
    """
    found = dict(row)
    if "prompt" in row and not {"question", "problem"} & row.keys():
        found["question"] = row["prompt"] if isinstance(row["prompt"], str) else _only_question(row["prompt"])
    if "solution" in row and not {"answer", "answers", "golden_answers"} & row.keys():
        found["answer"] = row["solution"]
    return found


def _only_question(messages: Any) -> str:
    roles = [message.get("role") if isinstance(message, Mapping) else None for message in messages or [None]]
    if roles != ["user"] or not isinstance(messages[0].get("content"), str):
        raise ValueError(
            f"column 'prompt': {messages!r:.80} is not one message of the user with a text. The environment writes the "
            "instructions and plays the turns: leave the messages of the system and of the assistant out"
        )
    question: str = messages[0]["content"]
    return question


def _own_set(spec: EnvSpec, splits: tuple[str, ...] = ("train",)) -> DataSet:
    # A grader object, or a scorer such as "judge", does not tell the kind.
    kind = dict(_KINDS).get(spec.scorer, "qa") if isinstance(spec.scorer, str) else "qa"
    # Own files are read like a published set; the hub and the limits of play are not used.
    return DataSet(
        name=spec.id,
        description=spec.description,
        hub="",
        splits=tuple((name, name) for name in splits),
        play=Play((), "", 1, 1),
        size="",
        licence=spec.licence,
        level="level" if spec.levels else "",
        levels=spec.levels,
        category="category",
        kind=kind,
        kind_column="kind",
        kinds=_KINDS,
        files=("files",),
        start_url="start_url",
        steps=(as_question,),
    )


def _file(spec: EnvSpec, path: str | Path) -> Loader:
    whole = not Path(path).expanduser().is_dir()
    data_set = _own_set(spec, ("train",) if whole else _FOLDER_SPLITS)

    # Two functions, since options are read from the signature, and a single file has no splits.
    def load_folder(*, split: str | None = None, data: str | Path = path, level: int | str | None = None) -> TaskSource:
        return load(data_set, split=split, data=data, level=level)

    def load_file(*, data: str | Path = path, level: int | str | None = None) -> TaskSource:
        return load(data_set, data=data, level=level)

    return load_file if whole else load_folder


def _function(spec: EnvSpec, function: Callable[..., Any]) -> Loader:
    @functools.wraps(function, assigned=("__module__", "__doc__"), updated=())
    def load_made(**options: Any) -> TaskSource:
        made = function(**options)
        return made if _is_source(made) else _listed(spec.id, made)

    # The parameters of the function become options of the environment, so they have to show through.
    load_made.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]  # a class has one, too
    return load_made


def _is_source(tasks: object) -> bool:
    # A class of sources has these attributes as well, but is a function that makes a source.
    return not inspect.isclass(tasks) and hasattr(tasks, "size") and callable(getattr(tasks, "task", None))


def _listed(env_id: str, tasks: Any) -> ListSource:
    # Both are iterable, but would give letters and keys.
    if isinstance(tasks, str | Mapping) or not isinstance(tasks, Iterable):
        raise ValueError(f"the function with the tasks of {env_id} gave {tasks!r:.80}, not a list of Task or a source")
    held = list(tasks)
    wrong = next((task for task in held if not isinstance(task, Task)), None)
    if wrong is not None:
        raise ValueError(
            f"the tasks of {env_id} hold {wrong!r:.80}, not a Task; write envs_registry.Task(id, question, answers)"
        )
    if not held:
        raise ValueError(f"the tasks of {env_id} are an empty list; give at least one Task")
    return ListSource(held)
