"""Reads files in a child process, as `read_file` does."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from arpo_env.task_files.file_extractor import Extract, FileExtractor


@pytest.fixture(scope="module")
def extractor() -> Iterator[FileExtractor]:
    made = FileExtractor(processes=1, seconds=10)
    yield made
    made.close()


@pytest.fixture
def read(extractor: FileExtractor, tmp_path: Path) -> Any:
    """Reads a file of this content; the arguments are those of `extract`."""

    def once(content: bytes, name: str = "file", **arguments: Any) -> Extract:
        (tmp_path / name).write_bytes(content)
        return asyncio.run(extractor.extract(str(tmp_path / name), **arguments))

    return once
