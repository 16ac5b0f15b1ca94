"""Converts the rows of a data set into tasks, and registers an environment for each `DataSet`."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, get_args

from envs_registry.contamination import question_key
from envs_registry.datasets.data_files import DataFileError, Row, Rows, column, read_rows
from envs_registry.datasets.data_files import field as look_up
from envs_registry.datasets.data_set import DataSet, Repairs, Step, answers, clean, cut_off
from envs_registry.datasets.hub import files_of, hub_files, hub_rows, place_of, split_of
from envs_registry.sources import ListSource, UnknownOptionError, register_source
from envs_registry.spec import EnvSpec, register
from envs_registry.task import Kind, Task

# Finds the files that are attached to the rows of a data set: beside a local data file, or on the hub.


def attached_files(row: Row, columns: Sequence[str], folders: Sequence[Path], where: str) -> tuple[str, ...]:
    """Return the paths of a row's files.

    Args:
        row: the row.
        columns: columns with a path or a list of paths; the first one whose files all exist is used.
        folders: where relative paths start, tried in order.
        where: names the row.

    Raises:
        DataFileError: a file was not found, or its path leads out of the folder; the message names it and the cure.
    """
    named = [names for column in columns if (names := _names(look_up(row, column)))]
    for names in named:
        found = [_place(name, folders) for name in names]
        if all(found):
            return tuple(str(path) for path in found)
    if not named:
        return ()
    lacking = next((name for name in named[0] if _place(name, folders) is None), named[0][0])
    raise DataFileError(
        f"{where}: the attached file {lacking!r} was not found in {' or '.join(map(str, folders))}. Put it there, at "
        "that path (data from the hub: download the whole repository, as `hf download REPOSITORY --repo-type dataset "
        "--local-dir FOLDER` does, and give data=FOLDER), or take it out of the row"
    )


def attached_on_hub(
    rows: Rows, columns: Sequence[str], hub: str, source: str, gated: str, revision: str | None
) -> Path | None:
    """Download the attached files of these rows; return their folder, or None if no row has any.

    Raises:
        HubError: the hub cannot be reached or refuses the files; the message says what to do.
    """
    wanted = [next((names for column in columns if (names := _names(look_up(row, column)))), []) for _, row in rows]
    paths = sorted({name for names in wanted for name in names if _is_inside(name)})
    return hub_files(hub, paths, source, gated, revision) if paths else None


def _names(value: Any) -> list[str]:
    values = value if isinstance(value, list | tuple) else [value]
    return [name for each in values if each is not None and (name := str(each).strip())]


def _place(name: str, folders: Sequence[Path]) -> Path | None:
    try:
        return next((path for path in _candidates(name, folders) if path.is_file()), None)
    except OSError:  # a name that is too long, or a folder that may not be read
        return None


def _candidates(name: str, folders: Sequence[Path]) -> Iterator[Path]:
    # A data file may come from elsewhere, so it cannot name files outside its folder.
    if _is_inside(name):
        yield from (folder.absolute() / name for folder in folders)


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and "\0" not in name


_CHINESE = re.compile("[\u3400-\u9fff]")
# A LaTeX command is matched as a whole, so that it can be told from a word.
_LATIN = re.compile(r"\\[a-zA-Z]+(?:\{[a-z*]+\})?|[a-zA-Z]{2,}")
# Chinese characters divided by Chinese characters and Latin words; LaTeX commands do not count as words
CHINESE_SHARE = 0.5


@dataclass(frozen=True)
class DataSetSource(ListSource):
    """The tasks of a data set.

    Attributes:
        origin: the local path, or the id on the hub.
        split: name of the split.
        revision: commit of the hub's repository that the rows are of; "" where it is not known, as of local files.
        rows: number of rows that were read.
        repairs: count of each kind of repaired fault, and of dropped rows ("left out: ...").
    """

    origin: str = ""
    split: str = ""
    revision: str = ""
    rows: int = 0
    repairs: dict[str, int] = field(default_factory=dict)


DATA_SETS: dict[str, DataSet] = {}  # by the name of their source


def register_data_sets(data_sets: Iterable[DataSet]) -> None:
    """Register an environment and a task source for each data set."""
    for data_set in data_sets:
        register([spec_of(data_set)])
        register_source(data_set.source, functools.partial(load, data_set))
        DATA_SETS[data_set.source] = data_set


def spec_of(data_set: DataSet) -> EnvSpec:
    """Return the environment spec of a data set."""
    return EnvSpec(
        id=f"arpo/{data_set.name}-v0",
        source=data_set.source,
        description=data_set.description,
        splits=data_set.split_names,
        levels=data_set.levels,
        size=data_set.size,
        licence=data_set.licence,
        gated=data_set.gated,
        **{entry.name: getattr(data_set.play, entry.name) for entry in dataclasses.fields(data_set.play)},
    )


def load(
    data_set: DataSet,
    *,
    split: str | None = None,
    data: str | Path | None = None,
    level: int | str | None = None,
    revision: str | None = None,
    **options: Any,
) -> DataSetSource:
    """Return the tasks of a split, from a local file or folder, else from the hub.

    Args:
        data_set: the data set.
        split: name of the split; None means the one after which a file is named, else the first split.
        data: a file or folder; None means the environment variables of `local_files`, then the hub.
        level: a level, or several as in "1,2"; None means all levels.
        revision: commit, tag or branch of the hub's repository; None means that of the set, else the newest.
        options: options of the set itself, such as `files` of GAIA.

    Raises:
        UnknownOptionError: the set does not have one of the options.
        ValueError: there is no such split or level, or a revision of local files is asked for.
        DataFileError: a file or row is broken; the message names it.
        HubError: the hub refused the data set; the message says how to get it.
    """
    place = place_of(data_set.source, (data_set.source, *data_set.known_as), data)
    if split is None and place is not None and place.is_file():
        split = split_of(place, data_set.split_names)
    split = _one_of(data_set, "split", split or data_set.split_names[0], data_set.split_names)
    levels = _levels(data_set, level)
    own = [key for key, _ in data_set.filters]
    for name in options:
        if name not in own:
            raise UnknownOptionError(data_set.name, name, ("split", "data", "level", "revision", *own))
    # A filter runs unless its option is on: the option admits the rows that the filter drops.
    steps = (*data_set.steps, *(step for name, step in data_set.filters if not options.get(name)))
    with_files = bool(data_set.files) and ("files" not in own or bool(options.get("files")))
    if revision is not None and place is not None:
        raise ValueError(f"revision={revision!r} is of the hub, but {data_set.name} is read from {place}: leave it out")
    revision = revision or data_set.revision or None
    origin, rows, commit = _read(data_set, split, place, with_files, revision)
    repairs: Repairs = Counter()
    tasks = list(_tasks(data_set, split, rows, steps, repairs))
    # After all rows were converted, so that a message can name the levels that exist.
    if levels:
        tasks = _of_levels(tasks, levels, data_set, origin)
    counts = {name: count for name, count in sorted(repairs.items()) if count}
    return DataSetSource(tasks, origin, split, commit, len(rows), counts)


def task_of_row(data_set: DataSet, row: Row, number: int, where: str) -> Task | None:
    """Return the task of a row that was read elsewhere; None if the set leaves such rows out.

    Raises:
        DataFileError: the row is broken; the message begins with `where`.
    """
    steps = (*data_set.steps, *(step for _, step in data_set.filters))
    try:
        return _task(data_set, data_set.split_names[0], number, _PlacedRow(where, row), steps, Counter())
    except DataFileError:
        raise
    except ValueError as error:
        raise DataFileError(f"{where}, {error}") from error


@dataclass(frozen=True)
class _PlacedRow:
    """A row, its place for messages, and the folders of its attached files (none if they are not loaded)."""

    where: str
    row: Row
    folders: tuple[Path, ...] = ()


def _read(
    data_set: DataSet, split: str, place: Path | None, with_files: bool, revision: str | None
) -> tuple[str, list[_PlacedRow], str]:
    if place is None:
        hub, gated = data_set.hub, data_set.gated
        name, columns = dict(data_set.splits)[split], data_set.columns
        rows, commit = hub_rows(hub, data_set.configs, name, columns, data_set.source, gated, revision)
        files = data_set.files if with_files else ()
        folder = attached_on_hub(rows, files, hub, data_set.source, gated, commit or revision) if files else None
        return hub, [_PlacedRow(f"{hub}, {where}", row, (folder,) if folder else ()) for where, row in rows], commit
    placed = []
    for file in files_of(place, split, data_set.split_names):
        folders = tuple(dict.fromkeys([place if place.is_dir() else file.parent, file.parent])) if with_files else ()
        placed += [_PlacedRow(f"{file}, {where}", row, folders) for where, row in read_rows(file)]
    return str(place), placed, ""


def _tasks(
    data_set: DataSet, split: str, rows: list[_PlacedRow], steps: tuple[Step, ...], repairs: Repairs
) -> Iterator[Task]:
    ids: set[str] = set()
    seen: set[str] = set()
    for number, placed in enumerate(rows):
        try:
            task = _task(data_set, split, number, placed, steps, repairs)
        except DataFileError:
            # It names the file and the row already.
            raise
        except ValueError as error:
            raise DataFileError(f"{placed.where}, {error}") from error
        if task is None:
            continue
        # The key of the comparison with other sets, so that punctuation alone makes no new question.
        key = question_key(task.question) if "duplicate question" in data_set.drops else ""
        if key and key in seen:
            repairs["left out: duplicate question"] += 1
            continue
        seen.add(key)
        if task.id in ids:  # the parts of a set may each number their rows from 0
            task = dataclasses.replace(task, id=f"{task.id}-row{number}")
        ids.add(task.id)
        yield task


def _task(
    data_set: DataSet, split: str, number: int, placed: _PlacedRow, steps: tuple[Step, ...], repairs: Repairs
) -> Task | None:
    where, row = placed.where, placed.row
    for step in steps:
        changed = step(row, repairs)
        if changed is None:
            return None
        row = changed
    question = clean(column(row, data_set.question, where), repairs)
    used = next(name for name in data_set.question if look_up(row, name) is not None)
    if used != data_set.question[0]:
        repairs[f"question in column {used!r}"] += 1
    kind = _kind(data_set, row)
    golds = answers((look_up(row, name) for name in data_set.answers), kind, repairs)
    # No right answer equals a formula that was cut off, so the task could only punish.
    fault = "no answer" if not golds else "cut-off answer" if kind == "math" and cut_off(golds[0]) else ""
    if fault in data_set.drops:
        repairs[f"left out: {fault}"] += 1
        return None
    if not golds:
        raise ValueError(
            f"column {' or '.join(map(repr, data_set.answers))}: holds no answer; it has {', '.join(map(repr, row))}"
        )
    given = look_up(row, data_set.row_id)
    return Task(
        id=f"{data_set.source}-{split}-{number if given in (None, '') else given}",
        question=question,
        answers=golds,
        kind=kind,
        language=_language(question),
        source=data_set.source,
        level=_level(look_up(row, data_set.level)) if data_set.level else "",
        category=str(look_up(row, data_set.category) or "").strip() if data_set.category else "",
        files=attached_files(row, data_set.files, placed.folders, where) if placed.folders else (),
        start_url=str(look_up(row, data_set.start_url) or "").strip() if data_set.start_url else "",
    )


def _kind(data_set: DataSet, row: Row) -> Kind:
    value = look_up(row, data_set.kind_column) if data_set.kind_column else None
    if value is None:
        # rows that `arpo synth` wrote say it in our words
        ours = [kind for kind in get_args(Kind) if data_set.kind_column and row.get("kind") == kind]
        return ours[0] if ours else data_set.kind
    kinds = dict(data_set.kinds)
    if value not in kinds:
        raise ValueError(f"column {data_set.kind_column!r}: {value!r} is none of {', '.join(map(repr, kinds))}")
    return kinds[value]


def _language(question: str) -> str:
    chinese = len(_CHINESE.findall(question))
    words = sum(not word.startswith("\\") for word in _LATIN.findall(question))
    # A question of formulas alone has neither characters nor words, and is not Chinese.
    return "zh" if chinese and chinese >= CHINESE_SHARE * (chinese + words) else "en"


def _level(value: Any) -> str:
    # Sets write "Level 5", "5" or 5.
    return "" if value is None else str(value).strip().lower().removeprefix("level").strip()


def _levels(data_set: DataSet, level: int | str | None) -> set[str]:
    wanted = [] if level is None else [_level(part) for part in str(level).split(",")]
    return {_one_of(data_set, "level", name, data_set.levels) for name in wanted}


def _of_levels(tasks: list[Task], levels: set[str], data_set: DataSet, origin: str) -> list[Task]:
    chosen = [task for task in tasks if task.level in levels]
    if not chosen:
        there = ", ".join(sorted({task.level for task in tasks})) or "no levels"
        raise ValueError(
            f"{origin}: no row of level {', '.join(sorted(levels))}; column {data_set.level!r} has {there}. "
            "Leave `level` out"
        )
    return chosen


def _one_of(data_set: DataSet, what: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise ValueError(f"{data_set.name} has the {what}s {', '.join(allowed) or '(none)'}; not {value!r}")
    return value
