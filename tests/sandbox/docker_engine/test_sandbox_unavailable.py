"""What one is told when there is no Docker; no engine is needed."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from docker.errors import DockerException

from sandbox import Sandbox, SandboxUnavailable, check_docker
from sandbox import docker_engine as docker_check
from sandbox.backends import registry as backends
from sandbox.backends.processes import why_no_bubblewrap


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty PATH, and a DOCKER_HOST where nothing listens."""
    path = tmp_path / "bin"
    path.mkdir()
    monkeypatch.setattr(docker_check, "_DAEMON_PLACES", ())
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    why_no_bubblewrap.cache_clear()
    yield path
    why_no_bubblewrap.cache_clear()


def install(path: Path, name: str) -> None:
    (path / name).write_text("#!/bin/sh\nexit 1\n")
    (path / name).chmod(0o755)


@pytest.mark.parametrize(
    ("installed", "state", "cure"),
    [
        ("", "missing", "sudo apt-get install docker.io"),
        ("dockerd", "not_running", "systemctl start docker"),
    ],
)
def test_what_is_installed_says_what_to_do(tools: Path, installed: str, state: str, cure: str) -> None:
    if installed:
        install(tools, installed)
    diagnosis = check_docker()
    assert diagnosis.state == state
    assert cure in diagnosis.cure
    assert cure in str(diagnosis)


def test_not_permitted(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(host: str | None, timeout: float) -> object:
        raise DockerException(("Connection aborted.", PermissionError(13, "Permission denied")))

    install(tools, "docker")
    monkeypatch.setattr(docker_check, "connect", refuse)
    diagnosis = check_docker()
    assert diagnosis.state == "not_permitted"
    assert "usermod -aG docker" in diagnosis.cure


def test_an_engine_elsewhere_that_does_not_answer_is_named(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        host = f"tcp://127.0.0.1:{unused.getsockname()[1]}"
        monkeypatch.setenv("DOCKER_HOST", host)
        diagnosis = check_docker()
    assert diagnosis.state == "not_running"
    assert host in diagnosis.detail


def test_auto_names_every_fault_with_its_cure_and_never_takes_unsafe_local(tools: Path) -> None:
    with pytest.raises(SandboxUnavailable) as caught:
        Sandbox.open_sync("auto")
    message = str(caught.value)
    assert "apt-get install docker.io" in message
    assert "apt-get install bubblewrap" in message


def test_auto_takes_bubblewrap_when_docker_does_not_answer(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "why_no_bubblewrap", lambda: "")
    assert backends.choose("auto") == "bubblewrap"
    with pytest.raises(SandboxUnavailable, match=r"docker\.io"):
        backends.choose("docker")


def test_a_bubblewrap_that_does_not_work_is_found_out(tools: Path) -> None:
    install(tools, "bwrap")
    assert "does not work here" in why_no_bubblewrap()
