"""`PageParser` parses pages in child processes, so that a page which crashes the parser costs only itself."""

from __future__ import annotations

import importlib.util
import json
import os
import struct
import sys
from pathlib import Path
from typing import Any

from arpo_env.errors import ServiceError
from arpo_env.worker_pool import PoolClosed, WorkerError, WorkerPool, WorkerStartError
from envs_registry.install_line import install_line

_SCRIPT = Path(__file__).with_name("parser_process.py")
# A process that reads foreign pages gets no keys from the environment.
_KEPT_VARIABLES = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TMPDIR", "SYSTEMROOT")
_MOST_JOBS = 500  # per process; lxml does not give back all its memory
_LIBRARIES = ("bs4", "lxml", "protego", "pypdf", "trafilatura")
_GRACE = 2.0  # seconds after which a process should have ended itself


class ParsingFailed(Exception):
    """Raised when a page cannot be parsed; the text is the reason."""


def check_libraries() -> None:
    """Check that the libraries of the parser are installed; nothing is imported.

    Raises:
        ModuleNotFoundError: a library is missing; says how to install it.
    """
    if lacking := [name for name in _LIBRARIES if importlib.util.find_spec(name) is None]:
        raise ModuleNotFoundError(_how_to_install(f"without {', '.join(lacking)}"), name=lacking[0])


def _how_to_install(lack: str) -> str:
    return f"reading pages needs more packages: {install_line('search')} ({lack})"


class PageParser:
    """Parses pages in a few processes, started when they are first needed.

    Args:
        processes: most at a time.
        seconds: limit of one page.
        memory: bytes that one process may use.
    """

    def __init__(self, processes: int = 2, seconds: float = 15.0, memory: int = 1 << 30) -> None:
        self._seconds = seconds
        self._pool = WorkerPool(
            # -P keeps the script's folder off the path, where our modules could shadow libraries.
            [sys.executable, "-P", "-B", str(_SCRIPT), str(seconds), str(memory)],
            processes=processes,
            seconds=seconds + _GRACE,
            name="arpo-parse",
            environment={name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ},
            worn_out=_worn_out,
        )

    async def parse(self, kind: str, body: bytes, max_characters: int, base: str = "") -> dict[str, Any]:
        """Return {title, date, text} of a page, and its links if a base is given.

        Args:
            kind: "html" (the body is UTF-8) or "pdf".
            body: of the page.
            max_characters: number of characters after which a parser may stop.
            base: address of the page, to which its links are relative; "" does not collect links.

        Raises:
            ParsingFailed: the page cannot be parsed.
            ImportError: a library is missing.
            ServiceError: no process could be started, or the parser was closed.
        """
        head = json.dumps({"kind": kind, "max_characters": max_characters, "base": base}).encode()
        try:
            reply: dict[str, Any] = json.loads(await self._pool.run(struct.pack("!I", len(head)) + head + body))
        except WorkerStartError as error:
            if error.lacks:
                raise ImportError(_how_to_install(error.lacks)) from error
            raise ServiceError("page parser", str(error)) from error
        except PoolClosed as error:
            raise ServiceError("page parser", str(error)) from error
        except WorkerError as error:
            reason = f"reading it takes longer than {self._seconds:g} s, or breaks the reader"
            raise ParsingFailed(reason) from error
        if "fault" in reply:
            raise ParsingFailed(reply["fault"])
        return reply

    def close(self) -> None:
        """End the processes; may be called twice."""
        self._pool.close()


def _worn_out(jobs: int, reply: bytes) -> bool:
    return jobs >= _MOST_JOBS or "memory" in json.loads(reply).get("fault", "")
