"""One open sandbox per backend for the whole run; a backend that this machine lacks is skipped with its reason.

All tests run through one backend: ARPO_SANDBOX, or Docker. What is the same code behind every stream is tested through
the others only with ARPO_TEST_BACKENDS=all (`make test-backends`). With ARPO_TEST_COMMAND=docker, ssh, bubblewrap
or kubernetes only the backend "command" is tested, with that command, and all of it (scripts/test_commands.sh).
"""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attacks import OF_THE_ISOLATION
from commands_under_test import CHOSEN, command_for, end_ssh
from sandbox_under_test import ALL_BACKENDS, FULL_BACKEND, LIMITS, opened

from sandbox import Sandbox, SyncInterpreter
from sandbox.backends.processes import COMMAND_VARIABLE

DOCKER = pytest.param("docker", marks=pytest.mark.docker)
COMMAND = pytest.param("command", marks=pytest.mark.docker)
_FIXTURES = ("sandbox", "isolated", "fortress", "backend", "data_sandbox")  # whose parameter is a backend

# files of the interpreter in the server and of the pool in the client, which know nothing of the backend between them
_SAME_CODE = (
    "test_sandbox_fork_property",
    "test_sandbox_honest",
    "test_sandbox_hostile_property",
    "test_sandbox_initial_files",
    "test_sandbox_interrupt",
    "test_sandbox_own_death",
    "test_sandbox_pictures",
    "test_sandbox_pool",
    "test_sandbox_strict_forks",
)
_SAME_CODE_TOO = ("test_a_tree_of_depth_ten", "test_the_client_keeps_no_descriptors", "test_many_sessions")
_IN_EACH = ("test_an_open_figure_is_a_picture",)  # matplotlib, from the packages that a backend mounts

# what of the backend "http", which has a client of its own, is tested each time
_OVER_HTTP = (
    "test_sandbox_session",
    "test_sandbox_fresh",
    "test_sandbox_files",
    "test_sandbox_initial_files",
    "test_sandbox_interrupt",
)


def _backends(*names: Any) -> list[Any]:
    return ["command"] if CHOSEN else [DOCKER, *names]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "ssh: needs an SSH server")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    ours = [item for item in items if item.path.is_relative_to(Path(__file__).parent)]  # pytest hands over all
    left = {item.nodeid for item in ours if not _is_kept(item)}
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left])
    items[:] = [item for item in items if item.nodeid not in left]


def _is_kept(item: pytest.Item) -> bool:
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    backends = {parameters.get(fixture) for fixture in _FIXTURES} - {None}
    if CHOSEN:
        return "command" in backends
    if ALL_BACKENDS or not backends or FULL_BACKEND in backends:
        return True
    if "http" in backends:
        return item.path.stem in _OVER_HTTP
    attack = parameters.get("attack")
    if attack is not None:
        return attack.kind in OF_THE_ISOLATION
    return item.name.startswith(_IN_EACH) or not (item.path.stem in _SAME_CODE or item.name.startswith(_SAME_CODE_TOO))


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
