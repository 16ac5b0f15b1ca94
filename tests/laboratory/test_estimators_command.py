"""`python -m benchmarks.laboratory estimators` from its command line, with a scripted policy."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.laboratory.__main__ import main
from tests.laboratory.scripted_policy import scripted_ground

FORM = ["estimators", "--groups", "2", "--tasks", "2"]


def test_tables_and_json(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    scripted_ground(monkeypatch)
    file = tmp_path / "new" / "estimators.json"
    methods = ["grpo", "fork=random:attribution=fork,branch_alpha=0.9"]
    assert main([*FORM, "--algorithms", *methods, "--set", "num_generations=8", "--output", str(file)]) == 0
    printed = capsys.readouterr().out
    assert "VARIANCE" in printed
    assert "WORTHLESS PUSH" in printed
    data = json.loads(file.read_text())
    assert data["study"]["methods"]["fork"] == {"algorithm": "random", "attribution": "fork", "branch_alpha": 0.9}
    assert data["methods"]["grpo"]["cost_per_group"]["trajectories"] == 8


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--algorithms", "grppo"], "did you mean 'grpo'"),
        (["--algorithms", "a=arpo:attribution=frok"], "did you mean 'fork'"),
        (["--set", "knobs.slipp=0.1"], "did you mean 'slip'"),
        (["--level", "tiny"], "level must be one of 'short'"),
        (["--algorithms", "grpo", "grpo"], "given twice: grpo"),
    ],
)
def test_bad_input_is_named(capsys: Any, words: list[str], error: str) -> None:
    assert main([*FORM, *words]) == 1
    assert error in capsys.readouterr().err
