"""`load_files`: the contents of a task's files, for the directory of an interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePath

from sandbox import Limits
from sandbox.files.initial_files import Files


def load_files(paths: Sequence[str], limits: Limits) -> tuple[Files, str]:
    """Return the contents by name, and a note for the model about files that are too large ("" if there are none).

    Args:
        paths: of the files; blocks while they are read.
        limits: of the sandbox: bytes of one file and of all together.

    Raises:
        OSError: a file cannot be read.
    """
    contents: dict[str | PurePath, bytes | str | Path] = {}
    left_out, room = [], limits.disk
    for path in map(Path, paths):
        size = path.stat().st_size
        if size > min(limits.file_size, room):
            left_out.append(f"{path.name} ({size:,} bytes)")
            continue
        contents[path.name] = path.read_bytes()
        room -= size
    note = f"(too large for the working directory, and not in it: {', '.join(left_out)})" if left_out else ""
    return contents, note
