"""`python -m benchmarks.laboratory compare` from its command line, with runs that are made up in place of training."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.laboratory import compare_command as lab_compare
from benchmarks.laboratory.__main__ import main
from tests.laboratory import synthetic_runs

FORM = ["compare", "--output"]


@pytest.fixture(autouse=True)
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.laboratory.comparison_files._drawn", lambda *_: [])  # has tests of its own
    monkeypatch.setattr(lab_compare, "training_functions", lambda: (synthetic_runs.made_up_run, lambda spec: None))


def test_a_quick_comparison_prints_tables_and_goes_on(tmp_path: Path, capsys: Any) -> None:
    folder = str(tmp_path / "quick")
    assert main([*FORM, folder, "--quick", "--seeds", "1", "--algorithms", "grpo"]) == 0
    assert main([*FORM, folder, "--seeds", "1", "--algorithms", "low=arpo:branch_alpha=0.6"]) == 0
    assert "AGAINST GRPO" in capsys.readouterr().out
    data = json.loads((tmp_path / "quick" / "comparison.json").read_text())
    assert [one["settings"] for one in data["plan"]["algorithms"]] == [{}, {"branch_alpha": 0.6}]
    assert data["missing"] == 0
    assert main([*FORM, folder, "--draw", "--budget", "trajectories=400"]) == 0
    assert "short (400)" in capsys.readouterr().out
    before = (tmp_path / "quick" / "comparison.json").read_bytes()
    assert main([*FORM, folder, "--draw", "--budget", "trajectories=5"]) == 1
    assert "budget trajectories=5 is less than" in capsys.readouterr().err
    assert (tmp_path / "quick" / "comparison.json").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--envs", "short", "--seeds", "1"], "a new comparison needs --algorithms"),
        (["--draw", "--seeds", "3"], "--draw trains nothing: leave out --seeds"),
        (["--draw"], "no comparison in"),
        (["--quick", "--baseline", "arrpo"], "did you mean 'arpo'"),
    ],
)
def test_bad_input_is_named_and_nothing_is_written(tmp_path: Path, capsys: Any, words: list[str], error: str) -> None:
    assert main([*FORM, str(tmp_path / "new"), *words]) == 1
    assert error in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
