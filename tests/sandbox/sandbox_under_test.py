"""Opens the sandboxes that the tests use."""

import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Unpack

import pytest
from commands_under_test import command_for

from sandbox import Limits, Sandbox, SandboxUnavailable, SyncInterpreter
from sandbox.backends.processes import why_no_bubblewrap
from sandbox.http.json_server import HttpServer
from sandbox.http.sandbox_server import make_server
from sandbox.sandbox import PoolOptions
from sandbox.server.processes import descendants
from tests.waiting import wait_for as wait_for

LIMITS = Limits(session_memory=256 << 20, grace=0.5)

TOKEN = "a-token"
ALL_BACKENDS = os.environ.get("ARPO_TEST_BACKENDS") == "all"
"""Whether all tests run through all backends."""
_CHOSEN = os.environ.get("ARPO_SANDBOX", "")
FULL_BACKEND = _CHOSEN if _CHOSEN in ("bubblewrap", "unsafe_local") else "docker"
"""The backend that all tests run through; see `conftest`."""

behind: dict[Sandbox, Sandbox] = {}
"""For a sandbox that is reached by HTTP: the one of the server."""


servers: dict[str, HttpServer] = {}
"""The server of each address."""


def fastest() -> str:
    """The backend that stands for all where one is enough: bubblewrap starts fastest, and Docker is there mostly."""
    return "docker" if why_no_bubblewrap() else "bubblewrap"


@contextmanager
def served(inner: Sandbox, **options: Any) -> Iterator[str]:
    """Serve a sandbox by HTTP; gives the address."""
    server = make_server(inner, port=0, **options)
    servers[server.url] = server
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    yield server.url
    server.stop()
    thread.join()


def containers_of(client: int) -> list[Any]:
    """The Docker containers of a program with this process id."""
    import docker

    engine = docker.from_env()
    label = f"arpo.sandbox.client={client}"
    found = engine.containers.list(all=True, filters={"label": label}, ignore_removed=True)
    engine.close()
    return list(found)


def processes_of(sandbox: Sandbox) -> list[int]:
    """The processes of a sandbox's first container as this machine sees them: the supervisor, and all below it."""
    if sandbox.backend == "command":
        pytest.skip("what a command has started is not known here")
    sandbox = behind.get(sandbox, sandbox)
    stream: Any = sandbox._pool.containers[0].stream
    if hasattr(stream, "_container"):
        first = int(stream._client.api.inspect_container(stream._container)["State"]["Pid"])
    else:
        first = stream._process.pid
    return [first, *descendants(first)]


def open_or_skip(
    backend: str, limits: Limits = LIMITS, containers: int = 4, sessions: int = 64, **options: Unpack[PoolOptions]
) -> Sandbox:
    if backend == "command":
        options["command"] = command_for(limits, sessions, options.get("profile", "math"))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            return Sandbox.open_sync(backend, limits, containers=containers, sessions=sessions, **options)
    except SandboxUnavailable as error:
        if backend == os.environ.get("ARPO_SANDBOX"):  # `make` has found it here: nothing to skip
            raise
        pytest.skip(f"NOT TESTED on {backend}: {error}")


@contextmanager
def opened(backend: str, limits: Limits = LIMITS, containers: int = 4) -> Iterator[Sandbox]:
    """Open a sandbox, or for "http" one behind a server of this process."""
    if backend != "http":
        with open_or_skip(backend, limits, containers) as sandbox:
            yield sandbox
        return
    with (
        open_or_skip(fastest(), limits, containers) as inner,
        served(inner, token=TOKEN) as url,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("ARPO_SANDBOX_TOKEN", TOKEN)  # for tests that open another one at the same address
        with Sandbox.open_sync(url, limits) as outer:
            behind[outer] = inner
            yield outer
            del behind[outer]


def values(sessions: list[SyncInterpreter], code: str) -> list[str | None]:
    """What a cell gives in each of some sessions."""
    executions = [session.run(code) for session in sessions]
    assert [execution.error for execution in executions] == [None] * len(executions)
    return [execution.value for execution in executions]
