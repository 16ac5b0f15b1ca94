"""`FileExtractor` reads files as text in child processes, so that a file which breaks its reader costs only itself."""

from __future__ import annotations

import asyncio
import atexit
import functools
import importlib.util
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from arpo_env.errors import ServiceError
from arpo_env.worker_pool import PoolClosed, WorkerDied, WorkerError, WorkerPool, WorkerStartError, WorkerTimeout
from envs_registry.install_line import install_line
from sandbox import Limits
from sandbox.interpreter import Files

SECONDS = 20.0  # of CPU time, for one call
MEMORY = 1 << 30  # bytes of address space of a process
_WALL = 3.0  # times the CPU time: what a call may take on a machine that is busy
_GRACE = 2.0  # seconds more
_PATIENCE = 120.0  # seconds that a call waits for others
_MOST_JOBS = 200  # per process; the readers do not give back all their memory
_LIBRARIES = {  # imported module -> name for pip
    "pypdf": "pypdf",
    "cryptography": "cryptography",
    "openpyxl": "openpyxl",
    "docx": "python-docx",
    "pptx": "python-pptx",
    "PIL": "pillow",
}
# A process that reads foreign files gets no keys from the environment.
_KEPT_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TMPDIR")
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from arpo_env.task_files.readers import main; main({}, {})"
)


class ExtractionFailed(Exception):
    """Raised when a file cannot be read; the text is the reason, for the model."""


@dataclass(frozen=True)
class Extract:
    """A piece of a file as text, and where to go on."""

    label: str  # what the file is, as in "PDF, 12 pages"
    text: str
    part: str  # page, slide or sheet, or ""
    line: int  # from 1; 0 at the end of the file
    picture: str = ""  # as a data URL


def check_libraries() -> None:
    """Raise ModuleNotFoundError, with the cure, if a library is not installed; nothing is imported."""
    if lacking := [module for module in _LIBRARIES if importlib.util.find_spec(module) is None]:
        raise _missing(lacking[0])


def _missing(module: str) -> ModuleNotFoundError:
    cure = f"{install_line('files')} (without {_LIBRARIES.get(module, module)})"
    return ModuleNotFoundError(f"reading the files of tasks needs more packages: {cure}", name=module)


class FileExtractor:
    """Reads files in a few processes, started when they are first needed.

    Args:
        processes: maximum number of processes.
        seconds: CPU time of one call, so that the limit does not depend on what else the machine does.
        memory: bytes of address space that one process may use.
    """

    def __init__(self, processes: int = 2, seconds: float = SECONDS, memory: int = MEMORY) -> None:
        self._seconds = seconds
        self._pool = WorkerPool(
            # -P: the current directory, which may hold foreign files, is no place for modules
            [sys.executable, "-P", "-B", "-c", _PROGRAM.format(seconds, memory), json.dumps(sys.path)],
            processes=processes,
            seconds=_WALL * seconds + _GRACE,
            environment={name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
            | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            worn_out=lambda jobs, reply: jobs >= _MOST_JOBS or b"too much memory" in reply[:200],
        )

    async def extract(
        self, path: str, inside: str = "", part: str = "", line: int = 1, characters: int = 8000, seen: bool = False
    ) -> Extract:
        """Return a piece of a file.

        Args:
            path: the file on this machine.
            inside: path of a member, if the file is an archive.
            part: page, slide or sheet to begin with; "" for the first.
            line: line to begin with, from 1.
            characters: maximum number of characters.
            seen: return pictures, too.

        Raises:
            ExtractionFailed: the file cannot be read, or has no such part.
            ModuleNotFoundError: a library is missing; the message says how to install it.
            ServiceError: the file is not there any more, no process could be started, too many files wait for one, or
                the machine is too busy.
        """
        job = {"path": path, "inside": inside, "part": part, "line": line, "characters": characters, "seen": seen}
        reply = await self._reply(json.dumps(job).encode())
        if "lacks" in reply:
            raise _missing(reply["lacks"])
        if "lost" in reply:
            raise ServiceError("file reader", f"{path} cannot be opened: {reply['lost']}")
        if "fault" in reply:
            raise ExtractionFailed(reply["fault"])
        return Extract(**reply)

    async def _reply(self, job: bytes) -> dict[str, Any]:
        try:
            async with asyncio.timeout(_PATIENCE + _WALL * self._seconds) as limit:
                reply: dict[str, Any] = json.loads(await self._run(job))
                return reply
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise ServiceError("file reader", "too many files wait for it; read fewer at once") from error
        except (WorkerStartError, PoolClosed) as error:
            raise ServiceError("file reader", str(error)) from error
        except WorkerTimeout as error:
            raise ServiceError("file reader", f"the machine is too busy or the disk too slow: {error}") from error
        except WorkerError as error:
            reason = f"reading it takes longer than {self._seconds:g} s or too much memory, or breaks the reader"
            raise ExtractionFailed(reason) from error

    async def _run(self, job: bytes) -> bytes:
        started = time.monotonic()
        try:
            return await self._pool.run(job)
        except WorkerDied:
            # It may have been killed from outside; a file that breaks the reader breaks it again.
            if time.monotonic() - started > self._seconds:
                raise
            return await self._pool.run(job)

    def close(self) -> None:
        """End the processes; may be called twice."""
        self._pool.close()


@functools.cache
def shared_extractor() -> FileExtractor:
    """Return the extractor of this process, started at first use and closed at exit."""
    extractor, owner = FileExtractor(), os.getpid()
    atexit.register(lambda: extractor.close() if os.getpid() == owner else None)
    return extractor


# In a forked process its threads do not exist, and its processes belong to the parent.
os.register_at_fork(after_in_child=shared_extractor.cache_clear)


# `load_files`: the contents of a task's files, for the directory of an interpreter.


def load_files(paths: Sequence[str], limits: Limits) -> tuple[Files, str]:
    """Return the contents by name, and a note for the model about files above the sandbox's limits ("" without).

    It blocks while files are read, and raises OSError where one cannot be.
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
