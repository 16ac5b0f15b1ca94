"""Finds the local files of a data set, by the option `data` or by environment variables.

`ARPO_DATA_GSM8K` names the file or folder of one set, `ARPO_DATA` a folder with one file or folder per set.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from envs_registry.datasets.data_files import READERS, DataFileError

ROOT_VARIABLE = "ARPO_DATA"
_BEGINNINGS = {"validation": ("valid", "dev")}  # accepted beginnings of file names per split


def variable(source: str) -> str:
    """Return the name of the environment variable for one set."""
    return f"{ROOT_VARIABLE}_{source.upper()}"


def place_of(source: str, names: Sequence[str], data: str | Path | None) -> Path | None:
    """Return the file or folder of a set, or None if none is configured.

    Args:
        source: name of the task source.
        names: accepted names of the file or folder within `ARPO_DATA`.
        data: the path that the caller gave; it takes precedence.

    Raises:
        FileNotFoundError: the configured file or folder does not exist.
        ValueError: `data` is blank, which happens with an unset shell variable.
    """
    if data is not None and not str(data).strip():
        raise ValueError("data is blank; name a file or a folder, or leave it out")
    # The narrowest setting wins: the argument, the variable of the set, then the common folder.
    for origin, value in (("data", data), (variable(source), os.environ.get(variable(source)))):
        if value:
            path = Path(value).expanduser()
            if not path.exists():
                raise FileNotFoundError(
                    f"{origin}={str(value)!r} does not exist; give a file ({', '.join(READERS)}) or a folder of such"
                )
            return path
    root = os.environ.get(ROOT_VARIABLE)
    if not root:
        return None
    wanted = {name.casefold() for name in names}
    folder = Path(root).expanduser()
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{ROOT_VARIABLE}={root!r} is not a folder; give a folder that holds a file or folder per set"
        )
    found = [path for path in sorted(folder.iterdir()) if {path.name.casefold(), path.stem.casefold()} & wanted]
    # Something of the right name but of another type, such as an archive, is passed over.
    return next((path for path in found if path.is_dir() or path.suffix in READERS), None)


def files_of(place: Path, split: str, splits: Sequence[str]) -> list[Path]:
    """Return the files of a split: the configured file, or the files of a folder that begin with the split's name.

    A folder with attached files may instead have the file "metadata" in a folder that is named after the split, as
    GAIA's repository has it. If a folder holds a single data file, it is used unless it is named after another split.

    Raises:
        DataFileError: the folder has no file for the split; the message lists its files.
    """
    if place.is_file():
        return [place]
    files = sorted(path for path in place.rglob("*") if path.suffix in READERS and path.is_file())
    mine = [path for path in files if _begins(path, split)]
    # A split may consist of several files, as the shards of the hub do.
    if mine:
        return mine
    # Attached files may be data files as well; "metadata" is the hub's name for the file that lists the others.
    tables = [path for path in files if path.stem == "metadata" and path.parent.name.casefold() == split]
    if tables:
        return tables[:1]
    if len(files) == 1 and not any(_begins(files[0], other) for other in splits):
        return files
    listed = ", ".join(str(path.relative_to(place)) for path in files[:9]) or "none"
    raise DataFileError(
        f"{place}: no file for split {split!r}. Name a file {split}.jsonl, or give a file's path; data files: {listed}"
    )


def split_of(file: Path, splits: Sequence[str]) -> str | None:
    """Return the split after which a file is named, as in "test.jsonl" or "dev_2.csv"; None if it is named otherwise.

    Raises:
        ValueError: the set has several splits, and not the one of the name.
    """
    word = re.split("[^a-z]", file.name.casefold())[0]
    names = {"train": "train", "test": "test"} | dict.fromkeys(("validation", "valid", "val", "dev"), "validation")
    split = names.get(word)
    if split is not None and split not in splits and len(splits) > 1:
        raise ValueError(f"{file} is named {split}, and the set has {', '.join(splits)}: say which it is, with split=")
    return split if split in splits else None


def _begins(path: Path, split: str) -> bool:
    return path.name.casefold().startswith((split, *_BEGINNINGS.get(split, ())))
