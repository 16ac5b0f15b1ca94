"""The `arpo serve` command: what it refuses, and that it serves until Ctrl-C."""

import importlib.util
import re
import signal
import subprocess
import sys
import urllib.request

import pytest

from arpo_trainer.cli.arpo_command import main

ENV = "arpo/Arithmetic-v0"
pytestmark = pytest.mark.skipif(importlib.util.find_spec("mcp_types") is None, reason="needs mcp 2")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([ENV, "--http", "--host", "0.0.0.0"], "ARPO_SERVE_TOKEN"),
        ([ENV, "--http", "--token", "two words"], "visible ASCII"),
        ([ENV, "--http", "--host", "203.0.113.1", "--token", "t"], "cannot listen on 203.0.113.1"),
        ([ENV, "--port", "9000"], "add --http"),
        ([ENV, "--env-set", "reward=reference"], "reward='paper'"),
    ],
)
def test_what_cannot_work_is_refused_with_the_cure(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ARPO_SERVE_TOKEN", raising=False)
    assert main(["serve", "mcp", *words]) == 1
    assert said in capsys.readouterr().err


def test_it_serves_until_it_is_interrupted() -> None:
    command = [sys.executable, "-m", "arpo_trainer.cli", "serve", "mcp", ENV, "--http", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        line = server.stderr.readline()
        found = re.search(r"http://127\.0\.0\.1:[0-9]+", line)
        assert found, line
        with urllib.request.urlopen(f"{found[0]}/health", timeout=30) as answer:
            assert answer.status == 200
        server.send_signal(signal.SIGINT)
        assert server.wait(30) == 0
