"""One open sandbox per backend for the whole run; a backend that this machine lacks is skipped with its reason.

With ARPO_TEST_COMMAND=docker, ssh or bubblewrap only the backend "command" is tested, with that command, and all of it
(scripts/test_commands.sh); without it, the few tests that take long are left out for that backend.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from commands_under_test import VARIABLE, command_for, end_ssh
from sandbox_under_test import LIMITS, opened

from sandbox import Sandbox, SyncInterpreter
from sandbox.backends.command import COMMAND_VARIABLE

DOCKER = pytest.param("docker", marks=pytest.mark.docker)
COMMAND = pytest.param("command", marks=pytest.mark.docker)
CHOSEN = os.environ.get(VARIABLE, "")
# what they test is the same code behind every stream
_LONG = (
    "test_a_tree_of_depth_ten",
    "test_the_client_keeps_no_descriptors",
    "test_a_thousand_sessions",
    "test_a_fork_behaves_as",
    "test_large_files",
    "test_every_slot_comes_back",
)


def _backends(*names: Any) -> list[Any]:
    return ["command"] if CHOSEN else [DOCKER, *names]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "ssh: needs an SSH server")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    def is_kept(item: pytest.Item) -> bool:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        command = "command" in [parameters.get(name) for name in ("sandbox", "isolated", "fortress")]
        return command if CHOSEN else not (command and item.name.startswith(_LONG))

    kept = [item for item in items if is_kept(item)]
    config.hook.pytest_deselected(items=[item for item in items if not is_kept(item)])
    items[:] = kept


def pytest_unconfigure() -> None:
    end_ssh()


def _opened(backend: str) -> Iterator[Sandbox]:
    with pytest.MonkeyPatch.context() as patch:
        if backend == "command":  # for processes that a test starts, and commands of the terminal
            patch.setenv(COMMAND_VARIABLE, shlex.join(command_for(LIMITS, 64)))
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
