"""A sandbox: a pool of containers (or what takes their place) that hands out sessions."""

from __future__ import annotations

import asyncio
import atexit
import weakref
from collections.abc import Sequence
from typing import Any, TypedDict, Unpack

from sandbox.backends.docker_hosts import Host, hosts_of
from sandbox.config.limits import Limits
from sandbox.config.pool_plan import Plan
from sandbox.config.server_options import Options
from sandbox.errors import SandboxError, SessionLost
from sandbox.execution import Execution
from sandbox.files.file_transfer import check_reply
from sandbox.files.initial_files import Files, checked_files, writes
from sandbox.fresh_interpreter import FreshInterpreter, check_setup
from sandbox.interpreter import Interpreter, SyncInterpreter
from sandbox.pool.pool import Pool
from sandbox.pool.session_group import Session
from sandbox.server.wire import OPEN, RUN
from sandbox.sync_async import Steps, finish, finish_async
from sandbox.validation import checked_cell

_TRIES = 3
_ANSWER = 30.0
_open: weakref.WeakSet[Sandbox] = weakref.WeakSet()


class PoolOptions(TypedDict, total=False):
    """What `Sandbox` takes by name; see there."""

    containers: int
    sessions: int
    profile: str
    runtime: str | None
    hosts: Sequence[str] | None
    recycle_after: int
    wait: float
    loopback: bool


class Sandbox:
    """Hands out Python sessions; opened at the first use, or by `open`.

    May be used from any number of event loops and threads at the same time. A session, with all its forks, holds
    one of the slots; when all are held the next request waits for its turn. A container that dies is replaced
    at the next need; the sessions in it are lost.

    Args:
        backend: "docker", "bubblewrap", "unsafe_local", or "auto" for the first of the first two that works.
        limits: what each container and its sessions may use.
        image: a Docker image with python3; None takes the one of `build_image`.
        containers: how many containers there may be; the next one is started when all others are full.
        sessions: how many sessions each holds, their forks not counted.
        profile: the packages that the code finds, see `build_image`.
        runtime: what Docker runs the containers with, such as "runsc"; None is the engine's own.
        hosts: the Docker engines to spread the containers over: unix://, tcp:// and ssh://; None takes those of
            DOCKER_HOST, which may list several with commas.
        recycle_after: a container that has served so many sessions is replaced, when the last of them is closed.
        wait: seconds that a request waits for a free slot before it fails with `SandboxFull`; longer while a
            container is just being started.
        loopback: whether the code may open TCP and UDP sockets. They reach no network, but every session of the
            same container, and their buffers are memory of the kernel that no limit counts: take `sessions=1`
            with code that is not trusted. (unsafe_local: they are always there, and reach the network.)
    """

    def __init__(
        self,
        backend: str = "auto",
        limits: Limits | None = None,
        image: str | None = None,
        *,
        containers: int = 4,
        sessions: int = 64,
        profile: str = "math",
        runtime: str | None = None,
        hosts: Sequence[str] | None = None,
        recycle_after: int = 10_000,
        wait: float = 600.0,
        loopback: bool = False,
    ) -> None:
        if hosts is not None and backend not in ("auto", "docker"):
            raise ValueError(f"hosts= is for the docker backend, not for {backend!r}")
        self.backend = backend
        self.limits = Limits() if limits is None else limits
        options = Options(self.limits, sessions, profile, image, runtime, loopback=loopback)
        plan = Plan(backend, options, containers, recycle_after, wait)
        engines = hosts_of(hosts) if backend in ("auto", "docker") else [Host(None)]
        self._pool = Pool(plan, engines)
        self._finalizer = weakref.finalize(self, self._pool.wake.put, self._pool.close)
        self._finalizer.atexit = False
        _open.add(self)

    @classmethod
    async def open(
        cls,
        backend: str = "auto",
        limits: Limits | None = None,
        image: str | None = None,
        **options: Unpack[PoolOptions],
    ) -> Sandbox:
        """Open a sandbox; see `open_sync`."""
        sandbox = cls(backend, limits, image, **options)
        await finish_async(sandbox._start())
        return sandbox

    @classmethod
    def open_sync(
        cls,
        backend: str = "auto",
        limits: Limits | None = None,
        image: str | None = None,
        **options: Unpack[PoolOptions],
    ) -> Sandbox:
        """Open a sandbox, and its first container, now rather than at its first use; takes what `Sandbox` takes.

        Raises:
            SandboxUnavailable: there is no such sandbox on this machine; the message says what to install.
            SandboxError: it does not start.
        """
        sandbox = cls(backend, limits, image, **options)
        finish(sandbox._start())
        return sandbox

    async def interpreter(self, setup: str = "", fresh: bool = False, files: Files | None = None) -> Interpreter:
        """Open a session; waits for its turn if all are taken.

        Args:
            setup: code to run in it first.
            fresh: run each cell in a new session that starts from the setup; see `FreshInterpreter`.
            files: written before the setup runs, names and contents: bytes, a text (as UTF-8), or a `pathlib.Path` of
                a local file, which is read now.

        Raises:
            ValueError: a name that is not in the session's directory, or given twice.
            OSError: a local file can not be read; files above `Limits.file_size` or, together, `Limits.disk`.
            SandboxFull: none has become free within `wait` seconds.
            SandboxError: there is no session to be had, or the setup code fails.
        """
        return await finish_async(self._interpreter(setup, fresh, files))

    def interpreter_sync(self, setup: str = "", fresh: bool = False, files: Files | None = None) -> SyncInterpreter:
        """Open a session; see `interpreter`."""
        return finish(self._interpreter(setup, fresh, files)).sync

    async def run(
        self, code: str, timeout: float | None = None, setup: str = "", files: Files | None = None
    ) -> Execution:
        """Run code in a session of its own, which is gone afterwards; see `interpreter` and `Interpreter.run`."""
        return await FreshInterpreter(self, setup, checked_files(files, self.limits)).run(code, timeout)

    def run_sync(
        self, code: str, timeout: float | None = None, setup: str = "", files: Files | None = None
    ) -> Execution:
        """Run code in a session of its own; see `run`."""
        return FreshInterpreter(self, setup, checked_files(files, self.limits)).sync.run(code, timeout)

    @property
    def isolation(self) -> str:
        """What stands between the code and this machine, such as "docker(runc)+uid+landlock+seccomp", or "none"."""
        self._pool.check_process()
        if not self._pool.fleet.isolation:
            finish(self._start())
        return self._pool.fleet.isolation

    @property
    def lost(self) -> str:
        """Why the sandbox can not be used any more, which is that it was closed; empty while it can.

        A container that has died is no reason: the next session is opened in another.
        """
        return "the sandbox is closed" if self._pool.closed else ""

    def stats(self) -> dict[str, int]:
        """Return counts.

        Of now: "sessions", "containers" that run, "free" (sessions that can be opened before one has to wait) and
        "waiting" requests. Since the beginning: sessions "opened", "closed" and "lost" with their container,
        "forks", "runs", and containers "replaced" after they died and "recycled" for their age.
        """
        return self._pool.stats()

    def condition(self) -> list[dict[str, Any]]:
        """Ask each running container how it is; takes a moment.

        Returns:
            For each container: bytes of "memory" in use and "memory_limit" (0: none), "processes", live "sessions",
            usable "slots", how many of them are "free", and "retired" ones, which could not be cleaned.

        Raises:
            SandboxError: a container does not answer.
        """
        self._pool.check_process()
        return [future.result(_ANSWER) for future in self._pool.ping()]

    async def close(self) -> None:
        """End all sessions and containers; may be called twice."""
        await asyncio.to_thread(self.close_sync)

    def close_sync(self) -> None:
        """End all sessions and containers; may be called twice."""
        self._pool.close()

    async def __aenter__(self) -> Sandbox:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close_sync()

    def _start(self) -> Steps[None]:
        family = yield from self._pool.enter()
        family.leave()

    def _interpreter(self, setup: str, fresh: bool, files: Files | None) -> Steps[Interpreter]:
        contents = checked_files(files, self.limits)
        if fresh:
            return FreshInterpreter(self, setup, contents)
        return Interpreter(self, (yield from self._session(setup, contents)), setup, contents)

    def _session(self, setup: str, files: dict[str, bytes]) -> Steps[Session]:
        """Open a session, write its files and run the setup in it."""
        fields = checked_cell(setup, None, self.limits)
        session = yield from self._empty_session()
        try:
            for kind, piece in writes(files):
                check_reply((yield session.request(kind, **piece)), piece["path"])
            if setup:
                check_setup((yield session.request(RUN, setup=True, **fields)))
        except BaseException:
            session.close()
            raise
        return session

    def _empty_session(self) -> Steps[Session]:
        for _ in range(_TRIES):
            session = self._pool.first_session((yield from self._pool.enter()))
            try:
                yield session.request(OPEN)
            except BaseException as error:
                session.close()
                if session.lost and isinstance(error, SandboxError):
                    continue  # nothing has run in it yet: another container will do
                raise
            return session
        raise SessionLost(f"{_TRIES} containers have ended, one after the other, before a session was opened in them")


def _close_all() -> None:
    for sandbox in list(_open):
        if sandbox._pool.is_ours():
            sandbox.close_sync()


atexit.register(_close_all)
