"""A sandbox: one container (or what takes its place) that hands out sessions."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import threading
import weakref
from collections import Counter, deque
from concurrent.futures import Future

from sandbox.backends import choose, start
from sandbox.connection import Connection, Reply
from sandbox.errors import SandboxError
from sandbox.execution import Execution
from sandbox.interpreter import Interpreter, SyncInterpreter
from sandbox.limits import Limits
from sandbox.options import Options
from sandbox.promise import unkept_promise
from sandbox.wire import CLOSE, OPEN

_STARTING = 60.0
_ENDING = 10.0
_log = logging.getLogger(__name__)
_all: weakref.WeakSet[Sandbox] = weakref.WeakSet()


class Sandbox:
    """Hands out Python sessions; opened at the first use, or by `open`.

    May be used from any number of event loops and threads at the same time.

    Args:
        backend: "docker", "bubblewrap", "unsafe_local", or "auto" for the first of the first two that works.
        limits: what it and its sessions may use.
        image: a Docker image with python3; None takes the one of `build_image`.
    """

    def __init__(self, backend: str = "auto", limits: Limits | None = None, image: str | None = None) -> None:
        self.backend = backend
        self.limits = limits or Limits()
        self._image = image
        self._keys = itertools.count(1)
        self._counts: Counter[str] = Counter()
        self._forgotten: deque[tuple[Connection, int]] = deque()
        self._opening = threading.Lock()
        self._counting = threading.Lock()
        self._connection: Connection | None = None
        self._reader: threading.Thread | None = None
        self._closed = False
        _all.add(self)

    @classmethod
    async def open(cls, backend: str = "auto", limits: Limits | None = None, image: str | None = None) -> Sandbox:
        """Open a sandbox; see `open_sync`."""
        return await asyncio.to_thread(cls.open_sync, backend, limits, image)

    @classmethod
    def open_sync(cls, backend: str = "auto", limits: Limits | None = None, image: str | None = None) -> Sandbox:
        """Open a sandbox now rather than at its first use.

        Raises:
            SandboxUnavailable: there is no such sandbox on this machine; the message says what to install.
            SandboxError: it does not start.
        """
        sandbox = cls(backend, limits, image)
        sandbox._connect()
        return sandbox

    async def interpreter(self, setup: str = "") -> Interpreter:
        """Open a session.

        Args:
            setup: code to run in it first.

        Raises:
            SandboxError: there is no session to be had, or the setup code fails.
        """
        connection = self._usable()
        if connection is None:
            connection = await asyncio.to_thread(self._connect)
        future, key = self._start_open(connection)
        try:
            await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            self._close_when_there(connection, future, [key])
            raise
        interpreter = self._opened(connection, key)
        if setup:
            reply = await asyncio.wrap_future(interpreter._start_run(setup, None, setup=True))
            self._check_setup(interpreter._execution(reply))
        return interpreter

    def interpreter_sync(self, setup: str = "") -> SyncInterpreter:
        """Open a session; see `interpreter`."""
        connection = self._connect()
        future, key = self._start_open(connection)
        future.result()
        interpreter = self._opened(connection, key)
        if setup:
            self._check_setup(interpreter._execution(interpreter._start_run(setup, None, setup=True).result()))
        return interpreter.sync

    @property
    def isolation(self) -> str:
        """What stands between the code and this machine: "docker(runc)", "bubblewrap" or "none"."""
        return self._connect().isolation

    @property
    def lost(self) -> str:
        """Why the sandbox is gone; empty while it is not (or has not been opened yet)."""
        if self._closed:
            return "the sandbox is closed"
        return self._connection.lost if self._connection else ""

    def stats(self) -> dict[str, int]:
        """Return counts since the opening: sessions now open, and opened, closed, forks, runs in all."""
        self._close_forgotten()
        with self._counting:
            counts = {name: self._counts[name] for name in ("opened", "forks", "closed", "runs")}
        return {"sessions": counts["opened"] + counts["forks"] - counts["closed"], **counts}

    async def close(self) -> None:
        """End all sessions and the container; may be called twice."""
        await asyncio.to_thread(self.close_sync)

    def close_sync(self) -> None:
        """End all sessions and the container; may be called twice."""
        with self._opening:
            self._closed = True
            connection, reader = self._connection, self._reader
        if connection is None or reader is None or not self._same_process(connection):
            return
        connection.close()
        reader.join(_ENDING)
        if reader.is_alive():
            _log.warning("the sandbox did not end within %s s and is killed", _ENDING)
            connection.stream.kill()
            reader.join(_ENDING)

    async def __aenter__(self) -> Sandbox:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close_sync()

    def _usable(self) -> Connection | None:
        connection = self._connection
        if self._closed or connection is None:
            return None
        self._check_process(connection)
        return connection

    def _connect(self) -> Connection:
        with self._opening:
            if self._closed:
                raise SandboxError("this sandbox is closed; open another")
            if self._connection is None:
                self._connection = self._opened_connection()
            self._check_process(self._connection)
            return self._connection

    def _opened_connection(self) -> Connection:
        name = choose(self.backend)
        started: Future[Connection] = Future()
        self._reader = threading.Thread(
            target=_start_and_read, args=(name, self.limits, self._image, started), name="sandbox", daemon=True
        )
        self._reader.start()
        connection = started.result()
        try:
            facts = connection.hello.result(_STARTING)
        except TimeoutError as error:
            connection.stream.kill()
            raise SandboxError(f"the sandbox ({name}) has not said hello within {_STARTING:.0f} s") from error
        fault = unkept_promise(name, facts)
        if fault:
            connection.stream.kill()
            raise SandboxError(f"the sandbox ({name}) is not isolated: {fault}")
        return connection

    def _start_open(self, connection: Connection) -> tuple[Future[Reply], int]:
        self._close_forgotten()
        key = self._new_key()
        return connection.request(OPEN, {"session": key}), key

    def _opened(self, connection: Connection, key: int) -> Interpreter:
        self._count("opened")
        return Interpreter(self, connection, key)

    def _check_setup(self, execution: Execution) -> None:
        if execution.status != "ok":
            raise SandboxError(f"the setup code failed ({execution.status}):\n{execution.text}")

    def _new_key(self) -> int:
        return next(self._keys)

    def _count(self, name: str, by: int = 1) -> None:
        with self._counting:
            self._counts[name] += by

    def _same_process(self, connection: Connection) -> bool:
        return connection.owner == os.getpid()

    def _check_process(self, connection: Connection) -> None:
        if not self._same_process(connection):
            raise SandboxError(
                f"this sandbox belongs to process {connection.owner}, not to this one ({os.getpid()}), which was "
                "forked from it; open another here (default_sandbox() does so by itself)"
            )

    def _forget(self, connection: Connection, key: int) -> None:
        """Note that nobody holds an interpreter any more; runs during garbage collection, so takes no lock."""
        self._forgotten.append((connection, key))

    def _close_forgotten(self) -> None:
        while self._forgotten:
            connection, key = self._forgotten.popleft()
            self._count("closed")
            if self._same_process(connection) and not connection.lost:
                connection.request(CLOSE, {"session": key})

    def _close_when_there(self, connection: Connection, future: Future[Reply], keys: list[int]) -> None:
        """Close sessions that nobody waits for any more, as soon as they exist."""

        def close(done: Future[Reply]) -> None:
            if done.exception() is None:
                for key in keys:
                    connection.request(CLOSE, {"session": key})

        future.add_done_callback(close)


def _start_and_read(name: str, limits: Limits, image: str | None, started: Future[Connection]) -> None:
    """Start the server and hand out its replies: one thread, since bubblewrap ends with the thread that started it."""
    try:
        connection = Connection(start(name, Options(limits=limits, image=image)))
    except BaseException as error:  # belongs to the thread that waits
        started.set_exception(error)
        return
    started.set_result(connection)
    connection.read()


def _let_go() -> None:
    """In a forked child: the parent's sandboxes are not ours, and their locks may be held for ever."""
    for sandbox in list(_all):
        sandbox._opening, sandbox._counting = threading.Lock(), threading.Lock()
        if sandbox._connection is not None:
            sandbox._connection.stream.abandon()


os.register_at_fork(after_in_child=_let_go)
