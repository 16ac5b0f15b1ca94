"""Several Docker engines, by all the names that one can have; an engine that is down; tunnels."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sandbox_under_test import LIMITS, open_or_skip, wait_for
from ssh_server import ssh_server

from sandbox import Sandbox, SandboxUnavailable, check_docker, docker_engine
from sandbox.docker_engine import hosts_of
from tests.waiting import free_port

_SOCKET = "/var/run/docker.sock"


@pytest.fixture
def engine() -> str:
    """The socket of an engine on this machine, with the image there."""
    open_or_skip("docker").close_sync()
    if not os.path.exists(_SOCKET):
        pytest.skip(f"NOT TESTED: the engine has no socket {_SOCKET}")
    return _SOCKET


@pytest.mark.docker
def test_containers_are_spread_over_the_hosts(engine: str, tmp_path: Path) -> None:
    (tmp_path / "second.sock").symlink_to(engine)
    two_names = [f"unix://{engine}", f"unix://{tmp_path}/second.sock"]
    with Sandbox("docker", LIMITS, hosts=two_names, containers=4, sessions=1) as sandbox:
        pythons = [sandbox.interpreter_sync(f"x = {n}") for n in range(4)]
        places = sorted(str(container.host) for container in sandbox._pool.containers)
        assert places == sorted(two_names * 2)
        assert [python.run("x").value for python in pythons] == ["0", "1", "2", "3"]


@pytest.mark.docker
def test_a_host_that_is_down_is_left_out(engine: str, caplog: pytest.LogCaptureFixture) -> None:
    dead = f"tcp://127.0.0.1:{free_port()}"
    with Sandbox("docker", LIMITS, hosts=[dead, f"unix://{engine}"], containers=2, sessions=1) as sandbox:
        pythons = [sandbox.interpreter_sync(f"x = {n}") for n in range(2)]
        assert [python.run("x").value for python in pythons] == ["0", "1"]
    assert dead in caplog.text


@pytest.mark.docker
def test_when_all_are_down_each_is_named() -> None:
    dead = [f"tcp://127.0.0.1:{free_port()}" for _ in range(2)]
    started = time.monotonic()
    with pytest.raises(SandboxUnavailable) as caught:
        Sandbox.open_sync("docker", hosts=dead)
    assert all(host in str(caught.value) for host in dead)
    assert time.monotonic() - started < 20


def test_docker_host_may_list_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://one:2376, ssh://me@two:2222/run/docker.sock")
    assert [host.name for host in hosts_of(None)] == ["tcp://one:2376", "ssh://me@two:2222/run/docker.sock"]


@pytest.mark.parametrize("hosts", [[], [1], ["box1"], ["tcp://a:xx"], ["ssh://"], "unix:///var/run/docker.sock"])
def test_names_of_no_engine_are_refused(hosts: Any) -> None:
    with pytest.raises(ValueError, match=r"hosts=|names no Docker engine"):
        Sandbox("docker", hosts=hosts)


@pytest.fixture
def ssh_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A real sshd, for this test alone."""
    with ssh_server(tmp_path) as (port, config):
        program = tmp_path / "bin/ssh"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {config} "$@"\n')
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(program.parent), prepend=":")
        yield f"ssh://root@127.0.0.1:{port}"
        docker_engine._close_tunnels()
        docker_engine._tunnels.clear()


def tunnels(host: str) -> list[str]:
    port = host.rpartition(":")[2]
    found = subprocess.run(["pgrep", "-f", f"ssh .*-p {port} "], capture_output=True, text=True, check=False)
    return found.stdout.split()


@pytest.mark.ssh
@pytest.mark.docker
def test_an_engine_behind_ssh_and_a_tunnel_that_dies(
    engine: str, ssh_host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Sandbox("docker", LIMITS, hosts=[ssh_host], sessions=2) as sandbox:
        python = sandbox.interpreter_sync("x = 41")
        (copy,) = python.fork()
        assert copy.run("x + 1").value == "42"
        (tunnel,) = tunnels(ssh_host)
        os.kill(int(tunnel), signal.SIGKILL)
        copy.close()
        python.restart()
        assert python.run("x").value == "41"
    monkeypatch.setenv("DOCKER_HOST", ssh_host)
    assert check_docker().state == "ok"
    with Sandbox("docker", LIMITS) as sandbox:
        assert sandbox.run_sync("6 * 7").value == "42"
    assert len(tunnels(ssh_host)) == 1


def test_what_ssh_says_is_passed_on(ssh_host: str, tmp_path: Path) -> None:
    (tmp_path / "user.pub").write_text("")
    with pytest.raises(SandboxUnavailable, match="Permission denied"):
        Sandbox.open_sync("docker", hosts=[ssh_host])
    assert not tunnels(ssh_host)


@pytest.mark.ssh
@pytest.mark.docker
def test_a_client_that_is_killed_leaves_no_tunnel_and_no_container(engine: str, ssh_host: str) -> None:
    import docker

    code = "import sys, time\nfrom sandbox import Sandbox\n"
    code += "sandbox = Sandbox.open_sync('docker', hosts=[sys.argv[1]])\nprint('open', flush=True)\ntime.sleep(60)"
    client = subprocess.Popen([sys.executable, "-c", code, ssh_host], stdout=subprocess.PIPE, text=True)
    assert client.stdout is not None
    assert client.stdout.readline() == "open\n"
    assert tunnels(ssh_host)
    client.kill()
    client.wait()
    client.stdout.close()
    label = {"label": f"arpo.sandbox.client={client.pid}"}
    wait_for(lambda: not tunnels(ssh_host) and not docker.from_env().containers.list(all=True, filters=label), 15)
