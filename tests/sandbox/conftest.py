"""One open sandbox per backend for the whole run; a backend that this machine lacks is skipped with its reason.

With ARPO_TEST_COMMAND=docker, ssh or bubblewrap only the backend "command" is tested, with that command, and all of it
(scripts/test_commands.sh); with ARPO_TEST_COMMAND=kubernetes that backend, on the cluster of kubectl. Without it, the
few tests that take long are left out for "command".
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from commands_under_test import CHOSEN, CHOSEN_BACKEND, command_for, end_ssh
from sandbox_under_test import ALL_OVER_HTTP, LIMITS, opened

from sandbox import Sandbox, SyncInterpreter
from sandbox.backends.command import COMMAND_VARIABLE
from sandbox.backends.kubernetes import IMAGE_VARIABLE
from sandbox.images.build import build_image

DOCKER = pytest.param("docker", marks=pytest.mark.docker)
COMMAND = pytest.param("command", marks=pytest.mark.docker)
# what they test is the same code behind every stream
_LONG = (
    "test_a_tree_of_depth_ten",
    "test_the_client_keeps_no_descriptors",
    "test_a_thousand_sessions",
    "test_a_fork_behaves_as",
    "test_large_files",
    "test_every_slot_comes_back",
)

# what of the backend "http" is tested each time; ARPO_TEST_HTTP=all tests everything
_OVER_HTTP = ("test_sandbox_session", "test_sandbox_fresh", "test_sandbox_files", "test_sandbox_interrupt")


def _backends(*names: Any) -> list[Any]:
    return [CHOSEN_BACKEND] if CHOSEN else [DOCKER, *names]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "ssh: needs an SSH server")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left = {item.nodeid for item in items if not _is_kept(item)}
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left])
    items[:] = [item for item in items if item.nodeid not in left]


def _is_kept(item: pytest.Item) -> bool:
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    backends = [parameters.get(name) for name in ("sandbox", "isolated", "fortress")]
    if CHOSEN:
        return CHOSEN_BACKEND in backends
    if "http" in backends:
        return ALL_OVER_HTTP or item.path.stem in _OVER_HTTP
    return not ("command" in backends and item.name.startswith(_LONG))


def pytest_unconfigure() -> None:
    end_ssh()


def _opened(backend: str) -> Iterator[Sandbox]:
    with pytest.MonkeyPatch.context() as patch:
        if backend == "command":  # for processes that a test starts, and commands of the terminal
            patch.setenv(COMMAND_VARIABLE, shlex.join(command_for(LIMITS, 64)))
        if backend == "kubernetes":
            patch.setenv(IMAGE_VARIABLE, build_image())
        with opened(backend) as sandbox:
            yield sandbox


@pytest.fixture(scope="session", params=_backends(COMMAND, "bubblewrap", "unsafe_local", "http"))
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    yield from _opened(request.param)


@pytest.fixture
def python(sandbox: Sandbox) -> Iterator[SyncInterpreter]:
    with sandbox.interpreter_sync() as interpreter:
        yield interpreter


@pytest.fixture(scope="session", params=_backends("bubblewrap", "http"))
def isolated(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    yield from _opened(request.param)
