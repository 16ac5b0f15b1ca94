"""Starts and feeds the processes of `arpo_env.pages.parser_process`; a page that kills one costs only that page."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import queue
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Any

from arpo_env.net.daemon_threads import DaemonThreads
from arpo_env.net.http import ServiceError

_SCRIPT = Path(__file__).with_name("parser_process.py")
_KEPT_VARIABLES = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TMPDIR", "SYSTEMROOT")
_CURE = "reading pages needs more packages: pip install 'arpo-gym[search]'"
_MOST_JOBS = 500  # of one process; lxml does not give back all its memory
_LIBRARIES = ("bs4", "lxml", "pypdf", "trafilatura")
_START = 60.0  # seconds
_GRACE = 2.0


class ParsingFailed(Exception):
    """Raised when a page cannot be parsed; the text is the reason."""


def check_libraries() -> None:
    """Make sure that a parser could start; nothing is imported.

    Raises:
        ModuleNotFoundError: a library is missing; says how to install it.
    """
    if lacking := [name for name in _LIBRARIES if importlib.util.find_spec(name) is None]:
        raise ModuleNotFoundError(f"{_CURE} (without {', '.join(lacking)})", name=lacking[0])


class Parser:
    """A few processes that parse pages, started when they are first needed.

    Args:
        processes: most at a time.
        seconds: one page may take.
        memory: bytes that one process may use.
    """

    def __init__(self, processes: int = 2, seconds: float = 15.0, memory: int = 1 << 30) -> None:
        self._seconds, self._memory = seconds, memory
        self._threads = DaemonThreads(processes, "arpo-parse")
        self._idle: queue.SimpleQueue[_Process] = queue.SimpleQueue()
        self._closed = False

    async def parse(self, kind: str, body: bytes, max_characters: int) -> dict[str, str]:
        """Return {title, date, text} of a page.

        Args:
            kind: "html" (the body is UTF-8) or "pdf".
            body: of the page.
            max_characters: after which a parser may stop.

        Raises:
            ParsingFailed: the page is at fault.
            ImportError: a library is missing.
            ServiceError: no process could be started.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._parse, kind, body, max_characters)

    def close(self) -> None:
        """End the processes; may be called twice."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        while not self._idle.empty():
            self._idle.get().end()

    def _parse(self, kind: str, body: bytes, max_characters: int) -> dict[str, str]:
        process = self._process()
        try:
            reply = process.work(kind, body, max_characters)
        except BaseException:
            process.end()
            raise
        if self._closed or process.jobs >= _MOST_JOBS or "memory" in reply.get("fault", ""):
            process.end()
        else:
            self._idle.put(process)
        if "fault" in reply:
            raise ParsingFailed(reply["fault"])
        return reply

    def _process(self) -> _Process:
        """Return an idle process that still lives, or a new one."""
        while True:
            try:
                process = self._idle.get_nowait()
            except queue.Empty:
                return _Process(self._seconds, self._memory)
            if process.alive():
                return process
            process.end()


class _Process:
    def __init__(self, seconds: float, memory: int) -> None:
        environment = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        self._seconds, self.jobs = seconds, 0
        try:
            self._process: subprocess.Popen[bytes] = subprocess.Popen(
                [sys.executable, "-P", "-B", str(_SCRIPT), str(seconds), str(memory)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
            )
        except OSError as error:
            raise ServiceError("page parser", f"its process cannot be started ({error})") from error
        try:
            ready = self._reply(_START)
        except ParsingFailed as error:
            self.end()
            raise ServiceError("page parser", "its process ended before it was ready") from error
        if "missing" in ready:
            self.end()
            raise ImportError(f"{_CURE} ({ready['missing']})")

    def work(self, kind: str, body: bytes, max_characters: int) -> dict[str, str]:
        self.jobs += 1
        head = json.dumps({"kind": kind, "max_characters": max_characters}).encode()
        return self._reply(self._seconds + _GRACE, struct.pack("!II", len(head), len(body)) + head + body)

    def _reply(self, seconds: float, job: bytes = b"") -> dict[str, Any]:
        guard = threading.Timer(seconds, self._process.kill)
        guard.daemon = True
        guard.start()
        try:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(job)
            self._process.stdin.flush()
            (length,) = struct.unpack("!I", _exactly(self._process.stdout, 4))
            reply: dict[str, Any] = json.loads(_exactly(self._process.stdout, length))
            return reply
        except (BrokenPipeError, EOFError) as error:
            raise ParsingFailed(f"reading it takes longer than {self._seconds:g} s, or breaks the reader") from error
        finally:
            guard.cancel()

    def alive(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


def _exactly(stream: IO[bytes], length: int) -> bytes:
    data = stream.read(length)
    if len(data) < length:
        raise EOFError
    return data
