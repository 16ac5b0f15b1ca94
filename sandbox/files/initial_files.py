"""Files that a session has from the start: checks them, and yields the requests that write them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

from sandbox.config.limits import Limits
from sandbox.files.file_transfer import check_size, write_pieces
from sandbox.validation import checked_name

Files = Mapping[str | PurePath, bytes | str | Path]
"""Names, relative to the session's directory, and contents: bytes, a text (as UTF-8), or the path of a local file."""


def checked_files(files: Files | None, limits: Limits) -> dict[str, bytes]:
    """Return the contents by normalized name; local files are read now.

    Raises:
        TypeError: `files` is not a mapping, or a content has another type.
        ValueError: a name leaves the directory, is given twice, or is also a directory of another file.
        OSError: a local file cannot be read; EFBIG for a file above `Limits.file_size`, and for all files together
            above `Limits.disk`.
    """
    if files is None:
        return {}
    if not isinstance(files, Mapping):
        raise TypeError(f"files has to be a mapping of names to contents, not {type(files).__name__}")
    contents: dict[str, bytes] = {}
    for given, content in files.items():
        name = PurePosixPath(checked_name(given)).as_posix()
        if name in contents:
            raise ValueError(f"the file {name!r} is given twice")
        contents[name] = _content(name, content, limits.file_size)
    for name in contents:
        for parent in PurePosixPath(name).parents:
            if str(parent) in contents:
                raise ValueError(f"{str(parent)!r} cannot be both a file and the directory of {name!r}")
    check_size("all files together", sum(map(len, contents.values())), limits.disk)
    return contents


def _content(name: str, content: bytes | str | Path, most: int) -> bytes:
    if isinstance(content, Path):
        content = _read(name, content, most)
    elif isinstance(content, str):
        content = content.encode()
    elif not isinstance(content, (bytes, bytearray, memoryview)):
        kinds = "bytes, a str or a pathlib.Path"
        raise TypeError(f"the content of the file {name!r} has to be {kinds}, not {type(content).__name__}")
    content = bytes(content)
    check_size(name, len(content), most)
    return content


def _read(name: str, path: Path, most: int) -> bytes:
    # O_NONBLOCK: opening a FIFO must not wait for a writer
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError(f"the content of the file {name!r}: {str(path)!r} is not a regular file")
        # one byte more tells that it is too large; the reported size alone does not, since files of /proc have none
        content = file.read(most + 1)
        check_size(name, max(len(content), os.fstat(file.fileno()).st_size), most)
        return content


def write_requests(files: Mapping[str, bytes]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the requests that write files, in pieces."""
    for name, content in files.items():
        yield from write_pieces(name, content)
