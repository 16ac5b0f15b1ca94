"""Servers behind commands: what each container must have, what a failing command says, and how its words are quoted."""

import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from commands_under_test import command_for
from hypothesis import given
from hypothesis import strategies as st
from sandbox_under_test import LIMITS, open_or_skip, wait_for

from sandbox import Sandbox, SandboxError
from sandbox.backends.processes import COMMAND_VARIABLE, with_server
from sandbox.images.build import build_image
from sandbox.server.wire import PING

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
DOCKER = "docker run -i --rm --cap-drop ALL --security-opt no-new-privileges"
BREAKS = "printf '\\nsandbox server ready\\n'; sleep 0.1; echo the line broke >&2; exit 255"


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=1, max_size=4))
def test_the_words_of_the_server_arrive_as_they_are(server: list[str]) -> None:
    """Behind a shell, too, whether the words stand alone or within another word."""
    assert with_server(["docker", "run"], server) == ["docker", "run", *server]
    assert with_server(["env", "{server}", "end"], server) == ["env", *server, "end"]
    assert shlex.split(" ".join(with_server(["ssh", "box"], server)[2:])) == server
    assert shlex.split(with_server(["sh", "-c", "exec {server}"], server)[2]) == ["exec", *server]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("no-such-program", "no-such-program does not start"),
        ("false", "has not started the server: its process ended with code 1"),
        ("sh -c 'echo wrong door; echo no such host >&2; exit 255'", "it wrote 'wrong door'.*code 255: no such host"),
        ("bash -c 'sleep 987.5; true'", "has not answered within 0.5 s"),
        ("sh -c 'sleep 987.5 & exit'", "has not answered within 0.5 s"),
        (["sh", "-c", BREAKS], "code 255: the line broke"),  # it has not read what it was sent
        ("./start.sh", "code 3: at home"),  # in the directory of this program
        (None, COMMAND_VARIABLE),
    ],
)
def test_a_command_that_starts_no_server_says_why(
    command: Any, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "start.sh").write_text("#!/bin/sh\necho at home >&2; exit 3\n")
    (tmp_path / "start.sh").chmod(0o700)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(COMMAND_VARIABLE, raising=False)
    with pytest.raises(SandboxError, match=words):
        Sandbox.open_sync("command", command=command, start_wait=0.5)
    wait_for(lambda: subprocess.run(["pgrep", "-fx", "sleep 987.5"], stdout=subprocess.DEVNULL).returncode == 1)


@pytest.mark.docker
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--network none --read-only", "no place to write to: /slots is missing for user 0. Mount a tmpfs there"),
        ("--network none --tmpfs /slots --user 1234", "its root file system is writable"),
        ("--network none --read-only --tmpfs /slots", "sessions run as root"),
    ],
)
def test_a_container_that_isolates_too_little_is_refused(options: str, words: str) -> None:
    with pytest.raises(SandboxError, match=words):
        Sandbox.open_sync("command", command=f"{DOCKER} {options} {build_image()}")


@pytest.mark.docker
def test_what_the_command_prints_before_the_server_is_skipped() -> None:
    command = shlex.join([*command_for(LIMITS, 4), "{server}"]).replace("'{server}'", "{server}")
    noisy = ["sh", "-c", f"echo Welcome to box; sleep 0.1; exec {command}"]
    with Sandbox("command", LIMITS, sessions=4, containers=1, command=noisy) as sandbox:
        assert sandbox.isolation.startswith("command(sh)+uid")
        assert sandbox.run_sync("6 * 7").value == "42"


def memory_limit(sandbox: Sandbox) -> object:
    return sandbox._pool.containers[0].request(PING, {}).result(30)["memory_limit"]


@pytest.mark.docker
def test_the_smaller_limit_of_memory_holds() -> None:
    with open_or_skip("command", LIMITS, containers=1, sessions=4) as sandbox:
        assert "no(" not in sandbox.isolation
        assert memory_limit(sandbox) == 4 << 30
    smaller = shlex.join(command_for(LIMITS, 4)).replace("=4294967296", "=1g")
    with Sandbox.open_sync("command", LIMITS, command=smaller, sessions=4) as sandbox:
        assert memory_limit(sandbox) == 1 << 30
