"""`arpo play`: an episode by hand and by a model, and Ctrl-C in the middle of one."""

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from arpo_trainer.cli.arpo_command import main


def containers_of(pid: int) -> list[str]:
    """Containers that a process has opened."""
    import docker

    client = docker.from_env()
    try:
        label = {"label": f"arpo.sandbox.client={pid}"}
        return [c.id for c in client.containers.list(all=True, filters=label, ignore_removed=True)]
    finally:
        client.close()


def test_ctrl_c_leaves_no_container_behind(isolation: str) -> None:
    if not isolation.startswith("docker"):
        pytest.skip(f"the sandbox here is {isolation}, not Docker")
    command = [sys.executable, "-m", "arpo_trainer.cli", "play", "arpo/Arithmetic-v0", "--env-set", "level=1"]
    player = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert player.stdin
    assert player.stdout
    player.stdin.write("<think>c</think><python>6 * 7</python>\n")
    player.stdin.flush()
    while player.stdout.readline() != "</result>\n":
        pass
    assert len(containers_of(player.pid)) == 1
    player.send_signal(signal.SIGINT)
    _, errors = player.communicate(timeout=30)
    assert player.returncode == 130
    assert "interrupted" in errors
    assert "Traceback" not in errors
    for _ in range(50):
        if not containers_of(player.pid):
            break
        time.sleep(0.1)
    assert containers_of(player.pid) == []


def test_an_episode_by_a_model(tiny_policy: Path, isolation: str, capsys: Any) -> None:
    assert main(["play", "arpo/Arithmetic-v0", "--model", str(tiny_policy), "--env-set", "level=3"]) == 0
    assert "the answer is" in capsys.readouterr().out
