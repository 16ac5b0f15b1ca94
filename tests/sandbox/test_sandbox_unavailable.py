"""What one is told when there is no Docker; no engine is needed."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from docker.errors import DockerException

from sandbox import Sandbox, SandboxUnavailable, backends, check_docker, docker_check
from sandbox.bubblewrap import why_no_bubblewrap


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty PATH, and a DOCKER_HOST where nothing listens."""
    path = tmp_path / "bin"
    path.mkdir()
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    why_no_bubblewrap.cache_clear()
    yield path
    why_no_bubblewrap.cache_clear()


def install(path: Path, name: str) -> None:
    (path / name).write_text("#!/bin/sh\nexit 1\n")
    (path / name).chmod(0o755)


def test_missing(tools: Path) -> None:
    diagnosis = check_docker()
    assert (diagnosis.state, diagnosis.cure) == ("missing", "sudo apt-get install docker.io")


@pytest.mark.parametrize("name", ["docker", "dockerd"])
def test_installed_but_not_running(tools: Path, name: str) -> None:
    install(tools, name)
    diagnosis = check_docker()
    assert diagnosis.state == "not_running"
    assert "systemctl start docker" in diagnosis.cure


def test_a_socket_where_nobody_answers_is_not_running(tools: Path, tmp_path: Path) -> None:
    install(tools, "docker")
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(tmp_path / "docker.sock"))
        assert check_docker().state == "not_running"


def test_not_permitted(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(timeout: float) -> object:
        raise DockerException(("Connection aborted.", PermissionError(13, "Permission denied")))

    install(tools, "docker")
    monkeypatch.setattr(docker_check, "connect", refuse)
    diagnosis = check_docker()
    assert diagnosis.state == "not_permitted"
    assert "usermod -aG docker" in diagnosis.cure


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become a user without permission")
def test_not_permitted_by_a_real_socket(tools: Path, tmp_path: Path) -> None:
    install(tools, "docker")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "docker.sock"))
        os.chmod(tmp_path / "docker.sock", 0o600)
        listener.listen()
        child = os.fork()
        if child == 0:
            for directory in tmp_path.parents:
                if directory.stat().st_uid == 0 and len(directory.parts) > 2:
                    directory.chmod(0o755)
            tmp_path.chmod(0o755)
            os.setresuid(65534, 65534, 65534)
            os._exit(0 if check_docker().state == "not_permitted" else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_an_engine_elsewhere_that_does_not_answer_is_named(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        host = f"tcp://127.0.0.1:{unused.getsockname()[1]}"
        monkeypatch.setenv("DOCKER_HOST", host)
        diagnosis = check_docker()
    assert diagnosis.state == "not_running"
    assert host in diagnosis.detail


def test_an_engine_that_answers_is_ok(tools: Path, tmp_path: Path) -> None:
    body = b'{"Version": "99.1", "ApiVersion": "1.41", "MinAPIVersion": "1.12"}'
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
    answer += b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "docker.sock"))
    listener.listen()

    def serve() -> None:
        for _ in range(2):
            with listener.accept()[0] as connection:
                connection.recv(65536)
                connection.sendall(answer)

    threading.Thread(target=serve, daemon=True).start()
    diagnosis = check_docker()
    listener.close()
    assert str(diagnosis) == "Docker answers (engine 99.1)"


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
