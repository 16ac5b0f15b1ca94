"""A sandbox: a pool of containers (or what a backend has in their place) in which sessions are opened."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, TypedDict, Unpack

from sandbox.backends.http_backend import http_addresses, is_http_address, without_password
from sandbox.docker_engine import Host, hosts_of
from sandbox.interpreter import (
    Execution,
    Files,
    FreshInterpreter,
    Interpreter,
    SyncInterpreter,
    checked_files,
    open_session,
)
from sandbox.options import BACKENDS, Limits, SandboxOptions, command_words, package_names
from sandbox.pool import Pool, Steps, finish, finish_async

BACKEND_VARIABLE = "ARPO_SANDBOX"
_default_lock = threading.Lock()
_defaults: dict[str, Sandbox] = {}  # by their settings


class PoolOptions(TypedDict, total=False):
    """Keyword arguments of `Sandbox`; see there."""

    image: str | None
    containers: int
    sessions: int
    profile: str
    runtime: str | None
    hosts: Sequence[str] | None
    wait: float
    command: Sequence[str] | str | None
    start_wait: float
    token: str | None
    packages: Sequence[str]


class Sandbox:
    """Opens Python sessions. The first container is started at the first use, or by `open`.

    May be used from any number of event loops and threads at the same time. A session, with all its forks, holds
    one slot; when all slots are held, the next request waits. A container that dies is replaced when a request needs
    it; the sessions in it are lost.

    Args:
        backend: "docker", "bubblewrap", "command", "unsafe_local", "auto" for the first of docker and bubblewrap that
            works, or the address of a sandbox server (`arpo sandbox serve`), such as "http://host:8080";
            several, separated by commas, share the sessions. The attribute has the address without the password.
        limits: what each container and its sessions may use; None is `Limits()`.
        options: further settings, each with a default:

            - image: a Docker image with python3; None uses the one of `build_image`.
            - containers: how many there may be (4); the next one is started when all others are full.
            - sessions: how many each container holds (64), not counting their forks.
            - profile: the packages that the code can import ("math"), see `build_image`.
            - packages: further packages, as pip takes them ("networkx", "rich==13.9.4"); installed at the first use.
              Not for `image` and "command", which have their own.
            - runtime: what Docker runs the containers with, such as "runsc"; None is the engine's default.
            - hosts: the Docker engines to spread the containers over: unix://, tcp:// and ssh://; None uses those of
              DOCKER_HOST, which may list several, separated by commas.
            - wait: seconds that a request waits for a free slot before it fails with `SandboxFull` (600); longer while
              a container is being started.
            - command: for the backend "command": a list of words, or a text that is split as a shell does
              it.
            - start_wait: seconds that a command may take until the server behind it answers (300).
            - token: of the sandbox server; None uses a password in its address, else the environment variable
              ARPO_SANDBOX_TOKEN.
    """

    def __init__(self, backend: str = "auto", limits: Limits | None = None, **options: Unpack[PoolOptions]) -> None:
        given: dict[str, Any] = dict(options)
        hosts, token, words = (given.pop(name, None) for name in ("hosts", "token", "command"))
        urls, password = http_addresses(backend, token) if is_http_address(backend) else ([], "")
        if not urls and backend not in BACKENDS:
            raise ValueError(
                f"there is no sandbox backend {without_password(str(backend))!r}; choose one of {', '.join(BACKENDS)}, "
                "or the address of a sandbox server, such as http://host:8080"
            )
        self.backend = ",".join(urls) or backend
        if hosts is not None and self.backend not in ("auto", "docker"):
            raise ValueError(f"hosts= is for the docker backend, not for {self.backend!r}")
        if token is not None and not urls:
            raise ValueError(f"token= is for the address of a sandbox server, not for the backend {backend!r}")
        self.limits = Limits() if limits is None else limits
        given["command"] = None if words is None else command_words(words)
        given["packages"] = package_names(given.get("packages", ()))
        kind = "http" if urls else backend
        checked = SandboxOptions(self.limits, backend=kind, token=password, **given)
        engines = hosts_of(hosts) if self.backend in ("auto", "docker") else [Host(url) for url in urls] or [Host(None)]
        self._pool = Pool(checked, engines)
        # closing waits for containers, so the monitor does it and not the thread that collects garbage
        self._finalizer = weakref.finalize(self, self._pool.wake.put, self._pool.close)
        self._finalizer.atexit = False  # the pool does it, and waits

    @classmethod
    async def open(cls, backend: str = "auto", limits: Limits | None = None, **options: Unpack[PoolOptions]) -> Sandbox:
        """Open a sandbox; see `open_sync`."""
        sandbox = cls(backend, limits, **options)
        await finish_async(sandbox._start())
        return sandbox

    @classmethod
    def open_sync(cls, backend: str = "auto", limits: Limits | None = None, **options: Unpack[PoolOptions]) -> Sandbox:
        """Open a sandbox and start its first container now; takes the arguments of `Sandbox`.

        Raises:
            SandboxUnavailable: the backend cannot be used on this machine; the message says what to install.
            SandboxError: the container does not start.
        """
        sandbox = cls(backend, limits, **options)
        finish(sandbox._start())
        return sandbox

    async def interpreter(self, setup: str = "", fresh: bool = False, files: Files | None = None) -> Interpreter:
        """Open a session; waits for a slot if all are held.

        Args:
            setup: code to run in it first.
            fresh: run each cell in a new session that starts from the setup; see `FreshInterpreter`.
            files: written before the setup runs. Maps names to contents: bytes, a text (as UTF-8), or a `pathlib.Path`
                of a local file, which is read now.

        Raises:
            ValueError: a name is outside the session's directory, or is given twice.
            OSError: a local file cannot be read; a file is above `Limits.file_size`, or all together above
                `Limits.disk`.
            SandboxFull: no slot became free within `wait` seconds.
            SandboxError: no session can be opened, or the setup code fails.
        """
        return await finish_async(self._interpreter(setup, fresh, files))

    def interpreter_sync(self, setup: str = "", fresh: bool = False, files: Files | None = None) -> SyncInterpreter:
        """Open a session; see `interpreter`."""
        return finish(self._interpreter(setup, fresh, files)).sync

    async def run(
        self, code: str, timeout: float | None = None, setup: str = "", files: Files | None = None
    ) -> Execution:
        """Run code in a session of its own, which is closed afterwards; see `interpreter` and `Interpreter.run`."""
        return await FreshInterpreter(self._pool, setup, checked_files(files, self.limits)).run(code, timeout)

    def run_sync(
        self, code: str, timeout: float | None = None, setup: str = "", files: Files | None = None
    ) -> Execution:
        """Run code in a session of its own; see `run`."""
        return FreshInterpreter(self._pool, setup, checked_files(files, self.limits)).sync.run(code, timeout)

    @property
    def isolation(self) -> str:
        """What separates the code from this machine, such as "docker(runc)+uid+landlock+seccomp", or "none"."""
        self._pool.check_process()
        if not self._pool.isolation:
            finish(self._start())
        return self._pool.isolation

    def stats(self) -> dict[str, int]:
        """Return counts.

        Current: "sessions", running "containers", "free" (sessions that can be opened without waiting) and
        "waiting" requests. Totals: sessions "opened", "closed" and "lost" with their container, "forks", "runs",
        containers "replaced" after they died and "recycled" because they were worn out.
        """
        return self._pool.stats()

    async def close(self) -> None:
        """End all sessions and containers; may be called twice."""
        # closing waits for containers, and the event loop has other tasks
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
        # taking a slot starts the first container; the slot is given back at once
        group = yield from self._pool.acquire()
        group.leave()

    def _interpreter(self, setup: str, fresh: bool, files: Files | None) -> Steps[Interpreter]:
        contents = checked_files(files, self.limits)
        if fresh:
            return FreshInterpreter(self._pool, setup, contents)
        session = yield from open_session(self._pool, setup, contents)
        return Interpreter(self._pool, session, setup, contents)


# what a file may choose: everything but passwords
_SETTINGS = ("backend", "limits", *(name for name in PoolOptions.__annotations__ if name != "token"))


def default_sandbox(settings: Sandbox | Mapping[str, Any] | None = None) -> Sandbox:
    """Return the sandbox of this process; it opens at its first use and is closed when the process ends.

    The environment variable ARPO_SANDBOX names the backend: "auto" (the default), "docker", "bubblewrap", "command",
    "unsafe_local", or the address of a sandbox server, whose token is ARPO_SANDBOX_TOKEN. A process
    forked from this one gets a sandbox of its own, and a closed one is replaced.

    Args:
        settings: arguments of `Sandbox` as a file has them, such as {"profile": "data"}, with limits as a mapping.
            There is one sandbox for each such choice. A `Sandbox` is returned as it is.

    Raises:
        ValueError: there is no such setting, or its value is invalid.
    """
    if isinstance(settings, Sandbox):
        return settings
    chosen = _checked_settings({} if settings is None else settings)
    # ARPO_SANDBOX may have changed after a sandbox was closed, so it is read anew and is no part of the key
    key = json.dumps(chosen, sort_keys=True, default=repr)
    with _default_lock:
        if key not in _defaults or _defaults[key]._pool.closed:
            _defaults[key] = Sandbox(**{"backend": os.environ.get(BACKEND_VARIABLE) or "auto", **chosen})
        return _defaults[key]


def _checked_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(settings, Mapping):
        raise ValueError(f'sandbox={settings!r}: write a mapping, such as {{"profile": "data"}}, or give a Sandbox')
    for name in settings:
        if name not in _SETTINGS:
            raise ValueError(f"a sandbox has no setting {name!r}; there are: {', '.join(_SETTINGS)}")
    chosen = dict(settings)
    if isinstance(chosen.get("limits"), Mapping):
        known = [field.name for field in fields(Limits)]
        for name in chosen["limits"]:
            if name not in known:
                raise ValueError(f"a sandbox has no limit {name!r}; there are: {', '.join(known)}")
        chosen["limits"] = Limits(**chosen["limits"])
    return chosen


def _forget_defaults() -> None:
    """In a forked child: the sandboxes are its parent's, of which another thread may have held the lock."""
    global _default_lock
    _default_lock = threading.Lock()
    _defaults.clear()


os.register_at_fork(after_in_child=_forget_defaults)
