"""One open sandbox per backend for the whole run; a backend that this machine lacks is skipped with its reason."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest

from sandbox import Limits, Sandbox, SandboxUnavailable, SyncInterpreter

LIMITS = Limits(session_memory=256 << 20, grace=0.5)


def open_or_skip(backend: str, limits: Limits = LIMITS) -> Sandbox:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            return Sandbox.open_sync(backend, limits)
    except SandboxUnavailable as error:
        pytest.skip(f"NOT TESTED on {backend}: {error}")


@pytest.fixture(
    scope="session",
    params=[pytest.param("docker", marks=pytest.mark.docker), "bubblewrap", "unsafe_local"],
)
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    opened = open_or_skip(request.param)
    yield opened
    opened.close_sync()


@pytest.fixture
def python(sandbox: Sandbox) -> Iterator[SyncInterpreter]:
    with sandbox.interpreter_sync() as interpreter:
        yield interpreter


@pytest.fixture(scope="session", params=[pytest.param("docker", marks=pytest.mark.docker), "bubblewrap"])
def isolated(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    opened = open_or_skip(request.param)
    yield opened
    opened.close_sync()
