"""One open sandbox per backend for the whole run; a backend that this machine lacks is skipped with its reason."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sandbox_under_test import ALL_OVER_HTTP, opened

from sandbox import Sandbox, SyncInterpreter

# what of the backend "http" is tested each time; `ARPO_TEST_HTTP=all` tests everything
_OVER_HTTP = ("test_sandbox_session", "test_sandbox_fresh", "test_sandbox_files", "test_sandbox_interrupt")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not ALL_OVER_HTTP:
        left = [one for one in items if _is_over_http(one) and one.path.stem not in _OVER_HTTP]
        config.hook.pytest_deselected(items=left)
        names = {one.nodeid for one in left}
        items[:] = [one for one in items if one.nodeid not in names]


def _is_over_http(item: pytest.Item) -> bool:
    callspec = getattr(item, "callspec", None)
    return callspec is not None and "http" in (callspec.params.get("sandbox"), callspec.params.get("isolated"))


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
