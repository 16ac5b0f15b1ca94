"""Finds the files that are attached to the rows of a data set: beside a local data file, or on the hub."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from envs_registry.datasets.data_files import DataFileError, Row, Rows
from envs_registry.datasets.data_files import field as look_up
from envs_registry.datasets.hub import hub_files


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
