"""`python -m benchmarks.laboratory policy` from its command line: where the policy is, what it is, and wrong names."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.laboratory.__main__ import main
from benchmarks.laboratory.policy_command import policy_settings
from benchmarks.laboratory.tiny_model import parameters, tiny_model

FEW = ["demonstrations=16", "batch_size=8"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ARPO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_policy_is_made_measured_and_copied(cache: Path, tmp_path: Path, capsys: Any) -> None:
    form = ["policy", "--level", "short", "--set", "choices=2", *FEW]
    assert main([*form, "--output", str(tmp_path / "copy")]) == 0
    told = capsys.readouterr()
    assert f"folder                {tmp_path / 'copy'}\n" in told.out
    assert f"parameters            {parameters(tiny_model()):,}\n" in told.out
    assert "(128 episodes of held-out tasks)" in told.out
    assert "it/s" not in told.err
    stored = policy_settings("short", {"choices": 2, "demonstrations": 16, "batch_size": 8}).folder
    assert {path.name for path in stored.iterdir()} == {path.name for path in (tmp_path / "copy").iterdir()}
    assert main([*form, "--output", str(tmp_path / "copy")]) == 1
    assert "copy' exists; name a new folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--set", "choises=3"], "did you mean 'choices'"),
        (["--set", "sise=2M"], "did you mean 'size'"),
        (["--set", "slip=2"], "slip must be a number between 0.0 and 1.0"),
        (["--level", "long"], "environment must be one of 'short', 'long-critical'"),
        (["--level", "arithmetic", "--set", "choices=3"], "a name of --set must be one of 'notes', 'model'"),
    ],
)
def test_bad_input_is_named_and_nothing_is_made(cache: Path, capsys: Any, words: list[str], error: str) -> None:
    assert main(["policy", *words]) == 1
    assert error in capsys.readouterr().err
    assert not cache.exists()
