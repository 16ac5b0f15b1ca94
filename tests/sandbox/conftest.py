"""One open sandbox per backend for the whole run; a backend that this machine lacks is skipped with its reason."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sandbox_under_test import opened

from sandbox import Sandbox, SyncInterpreter


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "ssh: needs an SSH server")


@pytest.fixture(
    scope="session",
    params=[pytest.param("docker", marks=pytest.mark.docker), "bubblewrap", "unsafe_local", "http"],
)
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    with opened(request.param) as sandbox:
        yield sandbox


@pytest.fixture
def python(sandbox: Sandbox) -> Iterator[SyncInterpreter]:
    with sandbox.interpreter_sync() as interpreter:
        yield interpreter


@pytest.fixture(scope="session", params=[pytest.param("docker", marks=pytest.mark.docker), "bubblewrap", "http"])
def isolated(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    with opened(request.param) as sandbox:
        yield sandbox
